package chaos

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// page is the page with the results.
const page = "../../docs/reliability.md"

// full reports whether this is `make chaos`. Without it the same scenarios run, under less load.
func full() bool { return os.Getenv("CHAOS") == "full" }

// scale returns long in `make chaos`, else short.
func scale(short, long int) int {
	if full() {
		return long
	}
	return short
}

// row is the result of a scenario.
type row struct {
	calls, failed, turns int
	degraded             int // degraded answers
	longest              time.Duration
	unmarked             string // with a replica that was cut off: the times of views that missed turns without being degraded
	wrongs
}

func (r row) String() string {
	return fmt.Sprintf("%d calls, %d failed, %d turns, %d lost, %d doubled, %d out of order, %d views that miss a turn, %d with turns out of order, %d degraded, longest %s",
		r.calls, r.failed, r.turns, r.lost, r.doubled, r.disordered, r.missed, r.jumbled+r.repeated, r.degraded, r.longest.Round(time.Millisecond))
}

// scenarios are the rows of the page, in its order.
var scenarios = []string{
	redisWell, redisKilled, redisFrozen, redisSlow, redisUneven, redisFull, slotsMoved, replicaKilled, replicaKilledUneven,
	replicaEnded, sentinelFailover, sentinelFrozen, clusterFailover, replicaCutOff,
	upstream429, upstream500, upstreamHang, upstreamReset, boltDiskFull, spoolDiskFull, proxyKilledBolt, proxyKilledRedis,
	rollingRestart,
}

// reported holds the rows so far.
var reported = struct {
	mu   sync.Mutex
	rows map[string]row
}{rows: map[string]row{}}

func report(scenario string, r row) {
	reported.mu.Lock()
	defer reported.mu.Unlock()
	reported.rows[scenario] = r
}

// TestMain writes the page when the whole suite has passed in full.
func TestMain(m *testing.M) {
	// Scenarios mostly wait for servers, so run more of them at once than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	if full() {
		_ = flag.Set("test.skip", "^TestPageIsComplete$") // the page is written below
	}
	code := m.Run()
	if code == 0 && full() && flag.Lookup("test.run").Value.String() == "" {
		if err := writePage(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func writePage() error {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, scenario := range scenarios {
		r, ok := reported.rows[scenario]
		if !ok {
			return fmt.Errorf("%s is not written: the scenario %q did not run", page, scenario)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d | %s |\n",
			scenario, r.calls, r.failed, r.turns, r.lost, r.doubled, r.disordered, r.missed, roughly(r.longest))
	}
	fmt.Fprintf(&b, "\n%s\n", reported.rows[replicaCutOff].unmarked)
	b.WriteString(pageFoot)
	return os.WriteFile(page, []byte(b.String()), 0o644)
}

// roughly rounds a time, so that it is probably the same in the next run.
func roughly(d time.Duration) string {
	for _, limit := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second} {
		if d < limit {
			return fmt.Sprintf("under %d s", limit/time.Second)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second+1)
}

const pageHead = `# Reliability

How calls and memory behave when something breaks. The suite in test/chaos/ breaks parts under load and writes this page with the
results: ` + "`make chaos`" + `. A short form of it runs with all other tests.

| scenario | calls | failed because of Remora | turns acknowledged | lost | doubled | out of order | views that miss a turn, unmarked | longest call |
|---|---|---|---|---|---|---|---|---|
`

const pageFoot = `
A call failed because of Remora if upstream answered it but the client did not get the whole answer with status 200. Calls in flight
on a killed process are not counted. A turn is acknowledged when its client has seen the end of the answer. At the end, all lines of
the session's transcript are searched for each turn. It is lost if its question or its answer is missing, doubled if one of them
occurs more than once, and out of order if it precedes a turn that had ended when it began. Some clients stream. Some
resend their history; the others send only what is new and check in each answer that the model has seen all of their turns. A view
that misses a turn is marked if ` + "`X-Memory`" + ` says ` + "`degraded`" + `.

The configuration is the shipped one, with all its timeouts. In the rows down to the replica that is cut off, three replicas share
one store, and each request of a session goes to a random one; other programs keep the processor busy, except for the failovers
and the replica that is cut off. In the row of the silent upstream, the upstream timeouts are 3 seconds.

Limits:

- Redis replicates after it has answered. If a master's machine is lost, so are the commits of its last moments. A master that is
  replaced, also in a planned failover, loses the writes that it accepts until it learns of that: about a second of turns. Clients
  that resend their history restore them with their next turn. [redis.md](redis.md) has the settings that avoid it:
  ` + "`min-replicas-to-write 1`" + ` and ` + "`appendfsync always`" + `, which the suite uses.
- If a cluster loses a master without a replica, its sessions are ` + "`degraded`" + ` until it is back, those of the other masters keep their memory; see [redis.md](redis.md).
- While the store is down, turns wait in the spool of their replica, and other replicas cannot see them. If only one replica loses
  the store, it cannot announce its turns either: the others answer without them, unmarked, for as long as the line below the
  table says, and these turns are then stored after those that were answered meanwhile. Closing this gap would delay the end of
  every answer until all replicas know of it. The same happens for moments on a machine that is too busy to serve a replica. If
  this matters, send all requests of a session to one replica.
- Sessions that begin in an outage keep their turns in the order of their clients, on any replicas, once the store is back. Two
  gaps remain for clients that send only what is new, without affinity. A store that accepts reads but no writes accepts no
  announcements either: until a replica's heartbeat has been refused, within a second, it answers ` + "`ok`" + ` to a request whose session
  another replica has in its spool. And if an announcement takes longer than four times ` + "`store.commit_wait`" + `, a turn can overtake
  one that it does not know of; that one is then stored after it, and views have the two in that order.
  ` + "`TestSessionsThatBeginInAnOutage`" + ` holds both to these bounds.
- Clocks of replicas that differ, or jump, change nothing in what is stored, or in what a deletion removes: turns are ordered by Redis's
  clock, which each replica counts on while Redis is down. A replica that has started in the outage has only its own clock, and after
  a failover to a server whose clock differs, so do the times. Redis expires sessions (` + "`store.session_ttl`" + `) by its clock, bolt by
  the machine's: one that jumps ahead by more than that removes them.
- Turns that neither the store nor the spool's disk accepts within ` + "`store.commit_wait`" + ` stay in memory, up to 64 MiB. They are lost
  if the process is killed before one of the two accepts them; turns lost for lack of room are logged and counted.
- Of the room in the spool (` + "`store.spool.max_bytes`" + `), a tenant gets 95 % of what the turns of other tenants leave. In an outage, one
  tenant with many or large requests loses turns of its own, while the others still have room. ` + "`limits.tenant`" + ` bounds how fast it
  fills its share. The 64 MiB in memory have no such shares.
- When a process ends, after its last answer, layers and the store have eight seconds, and the spool's disk has two. If that hangs, its
  turns in memory are lost, which the log says with their number; what the disk has taken is there at the next start.
- A load balancer must stop sending before a replica gets SIGTERM, which closes its listener at once: a request that arrives in
  the same moment is reset. In Kubernetes the chart's ` + "`preStopSeconds`" + ` takes care of that, elsewhere ` + "`server.shutdown_delay`" + `.
`

// TestPageIsComplete: the page has all scenarios. After adding or renaming one, write it again.
func TestPageIsComplete(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, scenario := range scenarios {
		i := strings.Index(string(text[at:]), "\n| "+scenario+" | ")
		if i < 0 {
			t.Fatalf("%s has no row %q, or not in its place: run make chaos", page, scenario)
		}
		at += i + 1
	}
	if !strings.HasPrefix(string(text), pageHead) || !strings.HasSuffix(string(text), pageFoot) {
		t.Errorf("%s says other things than the suite would write: run make chaos", page)
	}
}
