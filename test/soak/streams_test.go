package soak

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/test/kit"
)

var (
	streams     = flag.Int("streams", 200, "how many streams TestStreams keeps open at once")
	streamFor   = flag.Duration("stream-time", 6*time.Second, "how long each of them lasts")
	streamEvery = flag.Duration("stream-every", 500*time.Millisecond, "how often each of them gets an event")
	streamGC    = flag.String("stream-gogc", "5", "GOGC of the proxy: with a small one, what is measured is what is in use; empty for what the proxy sets itself")
	streamLimit = flag.String("stream-limit", "off", "GOMEMLIMIT of the proxy, which bounds its garbage where GOGC would not")
)

// Limits of what an open stream may add to the proxy's resident memory, in KiB.
const (
	// perStream is the documented limit, for many streams.
	perStream = 64
	// perStreamOfFew is the limit for few streams, which includes fixed costs.
	perStreamOfFew = 96
	manyStreams    = 1000
)

// TestStreams opens many streams at once, each in its own session, and checks that no event is lost.
func TestStreams(t *testing.T) {
	t.Setenv("GOGC", *streamGC)
	t.Setenv("GOMEMLIMIT", *streamLimit)
	p := start(t, patient(kit.StartRedis(t).URL()), provider(newUpstream(t)))
	warm := newCrew(8, false, p.addr)
	told, _ := warm.closedLoop(2 * time.Second)
	told.judge(t)
	warm.hangUp()
	before := p.look(t)
	t.Logf("before:     %s", before)

	most, seen := sample{}, 0
	// On a slow machine, streams may end before the first sample: try again, with longer ones.
	for try := 0; seen == 0; try++ {
		if try == 5 {
			t.Fatal("the streams were never open all at once")
		}
		if most, seen = p.stream(t, try); seen == 0 {
			*streamFor *= 2
		}
	}
	each := (most.resident - before.resident) * 1024 / float64(*streams)
	t.Logf("one stream: %.1f KiB resident, with GOGC=%s and GOMEMLIMIT=%s; %.1f MiB at most in all; %.1f CPU s",
		each, *streamGC, *streamLimit, p.memory(t, "VmHWM"), (p.look(t).cpu - before.cpu).Seconds())
	limit := float64(perStreamOfFew)
	if *streams >= manyStreams {
		limit = perStream
	}
	if each > limit {
		t.Errorf("an open stream takes %.1f KiB, want at most %.0f", each, limit)
	}
	if after := p.settled(t, func(s sample) bool { return s.streams == 0 }); after.streams != 0 {
		t.Errorf("streams are left: %v before, %v after", before, after)
	}
}

// stream opens the streams, and returns the result of watchStreams when they have ended.
func (p *proxy) stream(t *testing.T, try int) (most sample, seen int) {
	t.Helper()
	pieces := int(*streamFor / *streamEvery)
	got := make([]int, *streams)
	errs := make([]error, *streams)
	memory := make([]string, *streams)
	var wg sync.WaitGroup
	for i := range *streams {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * *streamEvery / time.Duration(*streams)) // spread the events
			got[i], memory[i], errs[i] = listen(p.addr, try*len(got)+i, pieces)
		})
	}
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	most, seen = watchStreams(t, p, ended)
	p.accountFor(t, got, memory, errs, pieces)
	return most, seen
}

// watchStreams samples the proxy until the streams have ended. It returns the sample with the most memory and the number of
// samples, of those taken while all streams were open.
func watchStreams(t *testing.T, p *proxy, ended <-chan struct{}) (most sample, seen int) {
	t.Helper()
	tick := time.NewTicker(max(*streamFor/30, 200*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return most, seen
		case <-tick.C:
			s := p.look(t)
			if int(s.streams) == *streams {
				seen++
				if s.resident > most.resident {
					most = s
				}
			}
			if seen%5 == 1 || int(s.streams) != *streams {
				t.Logf("            %s", s)
			}
		}
	}
}

// accountFor fails the test for streams that lost an event, or had no memory.
func (p *proxy) accountFor(t *testing.T, got []int, memory []string, errs []error, pieces int) {
	t.Helper()
	events, degraded, told := 0, 0, 0
	for i, n := range got {
		events += n
		if !strings.HasPrefix(memory[i], "ok") {
			degraded++
		}
		if (errs[i] != nil || n != pieces) && told < 5 {
			told++
			t.Errorf("stream %d has %d of %d events: %v", i, n, pieces, errs[i])
		}
	}
	t.Logf("events:     %s of %s came, in order", count(events), count(pieces*len(got)))
	if events != pieces*len(got) {
		t.Error("events are missing")
	}
	if degraded > 0 {
		t.Errorf("%d streams were without memory", degraded)
	}
}

// listen opens one stream and returns the number of events that arrived in order.
func listen(addr func() string, number, pieces int) (got int, memory string, err error) {
	c := &client{addr: addr}
	for range 20 { // the proxy's queue of new connections may be full for a moment
		if err = c.dial(); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return 0, "", err
	}
	defer c.hangUp()
	_ = c.net.SetDeadline(time.Now().Add(*streamFor + waitLimit))
	s := &session{name: fmt.Sprintf("stream-%d", number)}
	fresh := message{fmt.Appendf(nil, `,{"role":"user","content":"Tell me of number %d."}`, number), 1}
	if _, err := c.net.Write(c.request(s, fresh, plan{pieces: pieces, every: *streamEvery}, "")); err != nil {
		return 0, "", err
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, "", err
	}
	memory = res.Header.Get("X-Memory")
	if res.StatusCode != status200 {
		return 0, memory, fmt.Errorf("status %d", res.StatusCode)
	}
	var text []byte
	buf := make([]byte, 2<<10)
	for {
		n, err := res.Body.Read(buf)
		text = append(text, buf[:n]...)
		for {
			_, rest, found := strings.Cut(string(text), piece(got))
			if !found {
				break
			}
			text = append(text[:0], rest...)
			got++
		}
		switch {
		case errors.Is(err, io.EOF) && strings.Contains(string(text), "data: [DONE]\n\n"):
			return got, memory, nil
		case err != nil:
			return got, memory, fmt.Errorf("the stream breaks off: %w", err)
		}
	}
}
