// Package soak loads real proxies for a long time, with many streams, and on a cluster, and measures resources and lost data.
//
// Its tests are short by default. For the results in docs/load.md:
//
//	make soak       30 minutes of mixed load at half of the capacity: does memory grow?
//	make streams    2,000 open streams: what does a stream cost, and are events lost?
//	make bodies     40 conversations of 5 MB at once: how much memory and time do they take?
//	make cluster    two proxies on three masters: do sessions spread, and what does it cost?
package soak

import (
	"flag"
	"testing"
	"time"

	"remora/test/kit"
)

var soakFor = flag.Duration("soak", 4*time.Second, "how long TestSoak loads the proxy; memory is judged from a minute on")

// judgedFrom is the duration of the shortest run whose resource usage is checked: before, it is noise.
const judgedFrom = time.Minute

// TestSoak loads a proxy with a mix of everything, at half of its capacity, and checks that its resource usage does not grow.
func TestSoak(t *testing.T) {
	d := *soakFor
	redis := kit.StartRedis(t)
	// Sessions expire during the run, so that Redis does not grow either.
	p := start(t, patient(redis.URL())+", session_ttl: 5m", provider(newUpstream(t)))
	idle := p.look(t)
	t.Logf("idle:         %s", idle)
	clients := newCrew(96, true, p.addr)
	measured, took := clients.closedLoop(min(d/4, 30*time.Second))
	measured.judge(t)
	capacity := float64(measured.answered+measured.aborted) / took.Seconds()
	t.Logf("capacity:     %.0f requests/s; the load is %.0f", capacity, capacity/2)

	type outcome struct {
		tally
		unsent int
	}
	done := make(chan outcome, 1)
	go func() {
		total, unsent := clients.openLoop(d, capacity/2)
		done <- outcome{total, unsent}
	}()
	var samples []sample
	begun := time.Now()
	tick := time.NewTicker(min(10*time.Second, d/12))
	defer tick.Stop()
	var out outcome
	for running := true; running; {
		select {
		case out = <-done:
			running = false
		case <-tick.C:
			s := p.look(t)
			samples = append(samples, s)
			t.Logf("%5.0f s:      %s", time.Since(begun).Seconds(), s)
		}
	}
	elapsed := time.Since(begun)
	clients.hangUp()
	rest := p.settled(t, func(s sample) bool { return s.goroutines <= idle.goroutines+slack && s.sockets <= idle.sockets+slack })
	t.Logf("afterwards:   %s", rest)
	out.judge(t)
	t.Logf("load:         %s requests in %s, %.0f/s; %s broken off by clients, %s degraded, %d failed, %s not sent for lack of clients",
		count(out.answered+out.aborted), elapsed.Round(time.Second), float64(out.answered+out.aborted)/elapsed.Seconds(),
		count(out.aborted), count(out.degraded), len(out.failed), count(out.unsent))
	if rest.goroutines > idle.goroutines+slack || rest.sockets > idle.sockets+slack {
		t.Errorf("goroutines or connections are left: %v before, %v after", idle, rest)
	}
	judge(t, d, samples)
}

// slack allows for connections to Redis and their goroutines, whose number varies.
const slack = 24

// judge compares the last third of a run with the middle one.
func judge(t *testing.T, d time.Duration, samples []sample) {
	t.Helper()
	third := len(samples) / 3
	if third == 0 && d < judgedFrom {
		return // too few samples, on a slow machine
	}
	if third == 0 {
		t.Fatal("there are too few samples")
	}
	middle, last := samples[third:2*third], samples[2*third:]
	for _, what := range []struct {
		name string
		of   func(sample) float64
	}{
		{"resident memory in MiB", func(s sample) float64 { return s.resident }},
		{"goroutines", func(s sample) float64 { return s.goroutines }},
		{"connections", func(s sample) float64 { return float64(s.sockets) }},
	} {
		before, after := mean(middle, what.of), mean(last, what.of)
		t.Logf("%-24s middle third %.1f, last third %.1f (%+.1f %%)", what.name+":", before, after, (after/before-1)*100)
		if d >= judgedFrom && after > before*1.05 {
			t.Errorf("%s grow: from %.1f to %.1f", what.name, before, after)
		}
	}
}

func mean(samples []sample, of func(sample) float64) (sum float64) {
	for _, s := range samples {
		sum += of(s) / float64(len(samples))
	}
	return sum
}
