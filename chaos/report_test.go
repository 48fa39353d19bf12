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

// page is where the suite writes what it found.
const page = "../docs/reliability.md"

// full tells whether this is `make chaos`. Without it the same scenarios run, with less of a load.
func full() bool { return os.Getenv("CHAOS") == "full" }

// scale is how much of something there is, in a test of every day and in `make chaos`.
func scale(short, long int) int {
	if full() {
		return long
	}
	return short
}

// row is what came out of a scenario.
type row struct {
	calls, failed, turns, lost, doubled int
	longest                             time.Duration
}

// scenarios are the rows of the page, in its order.
var scenarios = []string{
	redisKilled, redisFrozen, redisSlow, redisFull, sentinelFailover, sentinelFrozen, clusterFailover,
	upstream429, upstream500, upstreamHang, upstreamReset, boltDiskFull, spoolDiskFull, proxyKilledBolt, proxyKilledRedis,
	rollingRestart,
}

// reported are the rows so far.
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
	// Scenarios mostly wait, for servers to start and for troubles to pass: more of them at once than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	if full() {
		_ = flag.Set("test.skip", "^TestPageIsComplete$") // it is about to be written
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
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %s |\n", scenario, r.calls, r.failed, r.turns, r.lost, r.doubled, roughly(r.longest))
	}
	b.WriteString(pageFoot)
	return os.WriteFile(page, []byte(b.String()), 0o644)
}

// roughly is a time that is the same in the next run, most likely.
func roughly(d time.Duration) string {
	for _, limit := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second} {
		if d < limit {
			return fmt.Sprintf("under %d s", limit/time.Second)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second+1)
}

const pageHead = `# Reliability

What happens to calls and to memory when something breaks. The suite in chaos/ breaks it under load, and writes this page
with what it found: ` + "`make chaos`" + `. A short form of it runs with all other tests.

| scenario | calls | failed because of Remora | turns acknowledged | lost | doubled | longest call |
|---|---|---|---|---|---|---|
`

const pageFoot = `
A call failed because of Remora if upstream answered it and its client did not get that answer whole, with status 200. Calls in
flight on a process that is killed are not counted. A turn is acknowledged when its client has seen the end of the answer;
it is lost if it is not in the session's transcript after all is over, and doubled if it is there more than once. It must
also stand in its client's order. Clients are of two kinds, streaming or not: those that resend their history, and those
that send only what is new and check in each answer that the model has seen all of their turns, each once. The latter get
answers without their history while the store is away: these say ` + "`degraded`" + ` in ` + "`X-Memory`" + `.

The configuration is that of config.yaml, without layers. Where upstream falls silent, its time limits are 3 seconds; where
it fails, where the proxy is killed and in the rolling restart, ` + "`store.commit_wait`" + ` and ` + "`store.read_wait`" + ` are a minute.

Limits:

- Redis replicates after it has answered. A master that is lost with its machine takes the commits of its last moments
  along, as it would anybody's. Clients that resend their history bring them back with their next turn. So does one that stood
  still and wakes, of what it takes before it learns that it was replaced; ` + "`min-replicas-to-write 1`" + ` on the server shortens that.
- While the store is away, turns wait in the spool of the replica that had them. Others do not see them until it is back.
- Turns that neither the store nor the disk of the spool take stay in the process, up to 64 MiB. They are lost if it is
  killed before one of the two takes them; what is lost for want of room is logged and counted.
- A load balancer must stop sending before a replica gets SIGTERM, which closes its listener at once: a request that arrives
  in the same moment is reset. In Kubernetes the chart's ` + "`preStopSeconds`" + ` sees to that, elsewhere ` + "`server.shutdown_delay`" + `.
`

// TestPageIsComplete: a scenario that is new, or called otherwise, needs the page written again.
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
