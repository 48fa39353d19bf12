package soak

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/test/kit"
)

// crew is the clients of one load.
type crew []*client

func newCrew(n int, aborting bool, addr func() string) crew {
	var all crew
	for i := range n {
		all = append(all, newClient(addr, i, aborting))
	}
	return all
}

// closedLoop sends the next request of every client when it has the last answer, and at least one.
func (all crew) closedLoop(d time.Duration) (tally, time.Duration) {
	begun := time.Now()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			for {
				c.deadline()
				c.turn()
				if time.Since(begun) >= d {
					return
				}
			}
		})
	}
	wg.Wait()
	return all.take(), time.Since(begun)
}

// openLoop sends at a constant rate, independently of the answers. It returns the number of requests that were not sent,
// because all clients were busy and as many requests queued.
func (all crew) openLoop(d time.Duration, rate float64) (total tally, unsent int) {
	due := make(chan struct{}, len(all))
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			for range due {
				c.deadline()
				c.turn()
			}
		})
	}
	const step = 5 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	begun := time.Now()
	for sent := 0; ; {
		<-tick.C
		since := time.Since(begun)
		for ; float64(sent) < since.Seconds()*rate; sent++ {
			select {
			case due <- struct{}{}:
			default:
				unsent++
			}
		}
		if since >= d {
			break
		}
	}
	close(due)
	wg.Wait()
	return all.take(), unsent
}

// deadline sets the timeout of the client's next request.
func (c *client) deadline() {
	if c.net != nil {
		_ = c.net.SetDeadline(time.Now().Add(waitLimit)) // on a closed connection the next request fails
	}
}

// take returns and clears the clients' results.
func (all crew) take() (total tally) {
	for _, c := range all {
		total.add(c.n)
		c.n = tally{}
	}
	return total
}

func (all crew) hangUp() {
	for _, c := range all {
		c.hangUp()
	}
}

// judge fails the test for requests that failed, were forgotten, or were answered without memory.
func (t *tally) judge(tb testing.TB) {
	tb.Helper()
	for i, err := range t.failed {
		if i == 10 {
			tb.Errorf("and %d more", len(t.failed)-i)
			break
		}
		tb.Error(err)
	}
	if t.answered == 0 {
		tb.Error("nothing was answered")
	}
	if t.degraded > 0 {
		tb.Errorf("%d of %d answers were without memory", t.degraded, t.answered)
	}
}

// start starts a proxy with an admin address and the default configuration, plus the lines in more.
func start(t *testing.T, store string, more ...string) *proxy {
	t.Helper()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("what a process uses is read from /proc, which " + runtime.GOOS + " does not have")
	}
	admin := kit.FreeAddr(t)
	p := kit.StartProxy(t, t.TempDir(), fmt.Sprintf("server: {admin_listen: %q}\nstore: {%s, spool: {dir: spool}}\n%s\n",
		admin, store, strings.Join(more, "\n")))
	return &proxy{Proxy: p, admin: admin}
}

// patient returns the section store with long waits: the test measures the cost of storing everything, not the effect of a busy
// machine.
func patient(url string) string {
	return fmt.Sprintf("url: %q, commit_wait: 1m, read_wait: 1m", url)
}

// provider returns a configuration with url as the only upstream, and layers that store data and add blocks.
func provider(url string) string {
	return fmt.Sprintf("providers: [{name: mock, kind: compatible, base_url: %q}]\n"+
		"memory: {layers: [{kind: working_memory}, {kind: observational_memory}, {kind: history_window, max_tokens: 64000, in_flight: window}]}\n", url)
}

// addr returns host:port of the proxy.
func (p *proxy) addr() string { return strings.TrimPrefix(p.URL, "http://") }

// count formats a number.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
