package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/test/kit"
)

// crowd is the clients of a scenario and their results.
type crowd struct {
	t   *testing.T
	now []*talker // current clients
	all []*talker // all clients so far
	// pace is the minimum time of a client for a turn.
	pace time.Duration
	// excused reports whether a failure of a call is expected. Calls to a killed process are not counted.
	excused func(c *talker, err error) bool

	replicas int

	mu  sync.Mutex
	row row
}

// newCrowd returns a crowd of n clients of all habits, each with its own session.
func newCrowd(f *fleet, n int) *crowd {
	c := &crowd{t: f.t, now: newTalkers(f.client(), n), replicas: len(f.replicas)}
	c.all = slices.Clone(c.now)
	return c
}

// newTalkers returns n clients of all habits, each with its own session.
func newTalkers(http *http.Client, n int) []*talker {
	clients := make([]*talker, n)
	for i := range clients {
		clients[i] = &talker{
			http: http, name: fmt.Sprintf("c%d", i), session: fmt.Sprintf("s%d", i), key: "key",
			onlyNew: i%3 != 0, stream: i%2 == 0,
		}
	}
	return clients
}

// talk plays turns of all clients concurrently.
func (c *crowd) talk(turns int) {
	c.t.Helper()
	var wg sync.WaitGroup
	for i := range c.now {
		wg.Go(func() { c.converse(i, turns) })
	}
	wg.Wait()
}

// converse plays turns of one client. It begins a new conversation when the old one is long, so that requests stay small.
func (c *crowd) converse(i, turns int) {
	for done := 0; done < turns; {
		if len(c.now[i].messages) >= 100 {
			c.renew(i)
		}
		next := time.NewTimer(c.pace)
		ok, err := c.call(i)
		if err != nil {
			c.t.Error(err)
			next.Stop()
			return
		}
		if ok {
			done++
		}
		if c.pace > 0 {
			<-next.C
		}
	}
}

func (c *crowd) renew(i int) {
	old := c.now[i]
	name := old.session + "+"
	next := &talker{http: old.http, name: name, session: name, key: old.key, onlyNew: old.onlyNew, stream: old.stream}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[i] = next
	c.all = append(c.all, next)
}

// call plays one turn and counts it. It returns an error only for an unexpected failure.
func (c *crowd) call(i int) (ok bool, err error) {
	client := c.now[i]
	begun := time.Now()
	err = client.turn(context.Background())
	took := time.Since(begun)
	if errors.Is(err, errKilled) {
		return false, nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.row.calls++
	c.row.longest = max(c.row.longest, took)
	switch {
	case err == nil:
		c.row.turns++
		if client.degraded() {
			c.row.degraded++
		}
		return true, nil
	case c.excused != nil && c.excused(client, err):
		return false, nil
	}
	c.row.failed++
	return false, fmt.Errorf("client %s: %w", client.name, err)
}

// killed returns the number of calls during which a replica was killed.
func (c *crowd) killed() (n int) {
	for _, client := range c.all {
		for _, e := range client.calls {
			if errors.Is(e.err, errKilled) {
				n++
			}
		}
	}
	return n
}

// unmarked describes the times of views that lacked a turn without being degraded, in seconds after a moment. Views with less
// than two seconds between them are one period.
func (c *crowd) unmarked(after time.Duration) string {
	var at []float64
	for _, client := range c.all {
		for _, e := range client.calls {
			if e.missed {
				at = append(at, (e.begun - after).Seconds())
			}
		}
	}
	if len(at) == 0 {
		return "No view missed a turn without saying so."
	}

	slices.Sort(at)
	var stretches []string
	first := at[0]
	for i, s := range at {
		if i+1 == len(at) || at[i+1]-s > 2 {
			stretches = append(stretches, fmt.Sprintf("%.1f to %.1f s", first, s))
			if i+1 < len(at) {
				first = at[i+1]
			}
		}
	}
	return "Views that missed a turn and did not say so were made " + strings.Join(stretches, " and ") + " after it was cut off."
}

// see runs every client until an answer is not degraded: then its view has all turns of its line, which finish checks. These
// calls are not counted: their number depends on the machine. Their intervals grow, since a replica with spooled turns of a session
// also spools the next ones: on a busy machine, clients without pauses would fill the spool faster than one worker drains it.
func (c *crowd) see() {
	c.t.Helper()
	var wg sync.WaitGroup
	limit, cancel := context.WithTimeout(context.Background(), kit.WaitLimit)
	defer cancel()
	for _, client := range c.now {
		wg.Go(func() {
			for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
				if err := client.turn(limit); err != nil {
					c.t.Errorf("client %s, after it was over: %v", client.name, err)
					return
				}
				if client.settled = !client.degraded(); client.settled {
					return
				}
				time.Sleep(pause)
			}
		})
	}
	wg.Wait()
}

// finish compares the stored turns with the clients', and reports.
func (c *crowd) finish(scenario string, a *archive) {
	c.t.Helper()
	w := a.check(c.all)
	for _, client := range c.all {
		w.views(client)
	}
	c.row.wrongs = w
	c.t.Logf("%s: %s, %d calls met a kill. %s", scenario, c.row, c.killed(), c.row.unmarked)
	w.judge(c.t, c.allowed(scenario))
	if !c.t.Failed() {
		report(scenario, c.row)
	}
}

// unordered are the scenarios in which replicas cannot always learn of each other's turns. The page has their errors, which have
// no limit.
var unordered = []string{replicaKilledUneven, replicaCutOff, sentinelFailover, sentinelFrozen, clusterFailover, rollingRestart}

// allowed returns the number of turns that may be in the wrong order, or missing in a view that is not degraded. If replicas
// share a store, one of them may be delayed on a busy machine for so long that it seems cut off.
func (c *crowd) allowed(scenario string) int {
	switch {
	case c.replicas == 1:
		return 0
	case slices.Contains(unordered, scenario):
		return math.MaxInt
	default:
		return allowedOf(c.row.turns)
	}
}

// allowedOf is how many of a number of turns may be so with several replicas.
func allowedOf(turns int) int {
	if !full() {
		return math.MaxInt // the machine is busy with all other tests
	}
	return turns / 50
}

// crowdSize returns the number of clients of most scenarios.
func crowdSize() int { return scale(12, 32) }

// trouble is a temporary failure of a fleet or its store under load.
type trouble struct {
	scenario string
	// begin and end, if set, begin and end a fault of the store, which answers must report.
	begin, end func()
	// meanwhile, if set, is called repeatedly during the failure.
	meanwhile func()
	// replaced, if set, waits until another server has replaced the failed one. The old one may return in its old role for a
	// moment, and lose what it accepts then: the proxy must use the new one before that.
	replaced func()
	// alone: only one replica fails, which the others cannot know at once.
	alone bool
	// during is the number of each client's turns during the failure.
	during int
}

// play runs clients before, during and after the failure. At the end all turns must be in the store and in the clients' views.
func (x trouble) play(f *fleet, store string) {
	t := f.t
	t.Helper()
	c := newCrowd(f, crowdSize())
	c.talk(5)

	began := time.Since(epoch)
	if x.begin != nil {
		x.begin()
		c.pace = 100 * time.Millisecond
	}
	x.talk(c)
	if x.begin != nil && c.row.degraded == 0 {
		t.Errorf("no answer was degraded: did the store fail?")
	}
	if x.replaced != nil {
		x.replaced()
		f.drained()
	}
	if x.end != nil {
		x.end()
	}
	lasted := time.Since(epoch) - began

	c.talk(5)
	f.drained()
	c.see()
	f.drained() // on a busy machine turns may be spooled without a failure
	f.stop()
	if x.alone {
		c.row.unmarked = fmt.Sprintf("The replica that was cut off stayed so for %.0f s. %s", lasted.Seconds(), c.unmarked(began))
	}
	c.finish(x.scenario, openArchive(t, f.replicas[0].Dir, store))
}

// talk runs the clients during the failure.
func (x trouble) talk(c *crowd) {
	c.t.Helper()
	if x.meanwhile == nil {
		c.talk(x.during)
		return
	}
	c.pace = 100 * time.Millisecond
	var talking sync.WaitGroup
	var over atomic.Bool
	talking.Go(func() {
		defer over.Store(true)
		c.talk(x.during)
	})
	for !over.Load() && !c.t.Failed() {
		x.meanwhile()
	}
	talking.Wait()
}

// spoolEmpty returns an error while turns wait in a spool.
func spoolEmpty(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
	if err != nil {
		return err
	}
	for _, name := range files {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			return fmt.Errorf("turns wait in %s", name)
		}
	}
	return nil
}
