package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"remora/cmd/proxy/proxytest"
)

// patience bounds every wait for something that must happen. It is long because tests share few cores, and because
// Sentinels that stood still promote nobody for half a minute.
const patience = 4 * time.Minute

// eventually polls until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %v", patience, err)
		}
	}
}

// crowd is the clients of a scenario, and what they saw.
type crowd struct {
	t   *testing.T
	now []*talker // who talks
	all []*talker // everybody who ever did
	url func(client int) string
	// pace is how much time a client takes for a turn at least.
	pace time.Duration
	// excused says why a call that failed did not fail because of Remora: "" if there is no other reason. It is counted
	// unless the reason is the process that was killed under it.
	excused func(c *talker, err error) string

	mu       sync.Mutex
	row      row
	degraded int // answers that said so
}

const byKill = "the process was killed"

// newCrowd makes clients of every habit, each in a session of its own.
func newCrowd(t *testing.T, n int, url func(client int) string) *crowd {
	t.Helper()
	all := newTalkers(t, n)
	return &crowd{t: t, now: all, all: append([]*talker(nil), all...), url: url}
}

// to is where the clients of a single proxy talk to.
func to(p *proxytest.Proxy) func(int) string { return func(int) string { return p.URL } }

// talk lets every client have a number of turns, all clients at once.
func (c *crowd) talk(turns int) {
	c.t.Helper()
	var wg sync.WaitGroup
	for i := range c.now {
		wg.Go(func() { c.converse(i, turns) })
	}
	wg.Wait()
}

// converse has turns of one client. One whose conversation grew long goes on with a new one, so that the load stays
// one of many small requests.
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
	next := *c.now[i]
	next.session += "+"
	next.name = next.session
	next.messages, next.said, next.tries = nil, nil, 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[i] = &next
	c.all = append(c.all, &next)
}

// call has one turn and counts it. An error is one that Remora is to blame for.
func (c *crowd) call(i int) (ok bool, err error) {
	client := c.now[i]
	begun := time.Now()
	err = client.turn(context.Background(), c.url(i))
	took := time.Since(begun)
	excuse := ""
	if err != nil && c.excused != nil && !errors.Is(err, errUnseen) {
		excuse = c.excused(client, err)
	}
	if excuse == byKill {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row.calls++
	c.row.longest = max(c.row.longest, took)
	switch {
	case err == nil:
		c.row.turns++
		if client.degraded {
			c.degraded++
		}
		return true, nil
	case excuse != "":
		return false, nil
	case errors.Is(err, errUnseen):
		c.row.lost++
	default:
		c.row.failed++
	}
	return false, fmt.Errorf("client %s: %w", client.name, err)
}

// see lets every client talk until its memory is in order, and so until those that send only what is new have seen all
// of their turns in a view. These calls are not counted: how many it takes depends on the machine.
func (c *crowd) see() {
	c.t.Helper()
	var wg sync.WaitGroup
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, client := range c.now {
		wg.Go(func() {
			for {
				if err := client.turn(limit, c.url(i)); err != nil {
					c.t.Errorf("client %s, after it was over: %v", client.name, err)
					return
				}
				if !client.degraded {
					return
				}
			}
		})
	}
	wg.Wait()
}

// finish compares what is stored with what the clients saw, and reports.
func (c *crowd) finish(scenario string, a *archive) {
	c.t.Helper()
	lost, doubled := a.check(c.all)
	c.row.lost, c.row.doubled = c.row.lost+lost, c.row.doubled+doubled
	c.t.Logf("%s: %d calls, %d failed, %d turns, %d lost, %d doubled, %d degraded, longest %s", scenario, c.row.calls, c.row.failed,
		c.row.turns, c.row.lost, c.row.doubled, c.degraded, c.row.longest)
	if !c.t.Failed() {
		report(scenario, c.row)
	}
}

// trouble is something that happens to a proxy in the middle of a load, and ends again.
type trouble struct {
	scenario   string
	begin, end func()
	// replaced, if any, waits until another server has taken over from the one in trouble. That one may come back in its
	// old part for a moment, and what it takes then is gone: the proxy must have gone over by then.
	replaced func()
	// during is how many turns each client has in between.
	during int
	// spool is where the proxy's spool is, if not at its usual place.
	spool string
}

// play lets clients talk before, during and after. At the end all turns must be in the store, and seen by the clients.
func (x trouble) play(t *testing.T, p *proxytest.Proxy, store string) {
	t.Helper()
	c := newCrowd(t, 12, to(p))
	spooled := func() error { return spoolEmpty(cmp.Or(x.spool, filepath.Join(p.Dir, "spool"))) }
	c.talk(5)
	x.begin()
	c.pace = 100 * time.Millisecond
	c.talk(x.during)
	if c.degraded == 0 {
		t.Errorf("no answer says that memory was out of order: was it?")
	}
	if x.replaced != nil {
		x.replaced()
		eventually(t, spooled)
	}
	x.end()
	c.talk(5)
	eventually(t, spooled)
	c.see()
	eventually(t, spooled) // on a busy machine a turn may be late though nothing is in its way
	p.Stop()
	c.finish(x.scenario, openArchive(t, p.Dir, store))
}

// spoolEmpty is an error while turns wait in a spool.
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
