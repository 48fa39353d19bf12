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

// crew is clients who work together.
type crew []*client

func newCrew(n int, aborting bool, addr func() string) crew {
	var all crew
	for i := range n {
		all = append(all, newClient(addr, i, aborting))
	}
	return all
}

// closedLoop lets every client send its next request when it has the answer to the last one, and one at least.
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

// openLoop sends at a steady rate, whether or not answers keep up. It returns how many requests were never sent, since all
// clients were waiting and as many requests again for a client.
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

// deadline bounds what a client waits for.
func (c *client) deadline() {
	if c.net != nil {
		_ = c.net.SetDeadline(time.Now().Add(waitLimit)) // one that is closed fails with the next request
	}
}

// take returns and clears what the clients saw.
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

// judge fails the test for what must not have happened.
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
}

// start starts a proxy with an address for operators, everything else by its defaults but for what more says.
func start(t *testing.T, store string, more ...string) *proxy {
	t.Helper()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("what a process uses is read from /proc, which " + runtime.GOOS + " does not have")
	}
	admin := kit.FreeAddr(t)
	p := kit.StartProxy(t, t.TempDir(), fmt.Sprintf("server: {admin_listen: %q}\nlog: {level: warn}\nstore: {%s, spool: {dir: spool}}\n%s\n",
		admin, store, strings.Join(more, "\n")))
	return &proxy{Proxy: p, admin: admin}
}

// patient is the section store of a proxy that waits long for its store on a busy machine: the test measures the work
// of storing everything, not the effect of other programs on the processors.
func patient(url string) string {
	return fmt.Sprintf("url: %q, commit_wait: 1m, read_wait: 1m", url)
}

// provider makes url the upstream of everything, and has layers that write and say something of their own.
func provider(url string) string {
	return fmt.Sprintf("providers: [{name: mock, kind: compatible, base_url: %q}]\n"+
		"memory: {layers: [{kind: working_memory}, {kind: observational_memory}, {kind: history_window, max_tokens: 64000, in_flight: window}]}\n", url)
}

// addr is host:port of the proxy.
func (p *proxy) addr() string { return strings.TrimPrefix(p.URL, "http://") }

// count is a number as people read it.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
