package main

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// measure is the name of a figure of a variant, with its unit.
type measure string

const (
	throughput        measure = "requests_per_s"
	saturatedCPU      measure = "saturated_cpu_s_per_1000"
	saturatedStoreCPU measure = "saturated_store_cpu_s_per_1000"
	p50               measure = "p50_ms"
	p99               measure = "p99_ms"
	requestCPU        measure = "cpu_s_per_1000"
	storeCPU          measure = "store_cpu_s_per_1000"
	firstByteP50      measure = "first_byte_p50_ms"
	firstByteP99      measure = "first_byte_p99_ms"
	chunkP50          measure = "chunk_delay_p50_ms"
	chunkP99          measure = "chunk_delay_p99_ms"
	streamCPU         measure = "stream_cpu_s_per_1000"
	streamsPerSec     measure = "burst_streams_per_s"
	burstCPU          measure = "burst_stream_cpu_s_per_1000"
	bigP50            measure = "big_p50_ms"
	bigP99            measure = "big_p99_ms"
	bigCPU            measure = "big_cpu_ms"
	bigStoreCPU       measure = "big_store_cpu_ms"
	idleMemory        measure = "idle_mb"
	peakMemory        measure = "peak_mb"
	startup           measure = "start_ms"
)

// Shape of the load.
const (
	loadConns     = 32
	loadSessions  = 8 // of each connection
	loadRate      = 1000
	streamConns   = 64
	streamSpacing = 20 * time.Millisecond
	burstConns    = 16
	burstChunks   = 100
	bigConns      = 8
	bigRate       = 100
)

// plan sets the duration of each phase.
type plan struct {
	rounds       int
	warm         time.Duration // before each phase that measures
	load         time.Duration // at full speed
	steady       time.Duration // at loadRate
	streamChunks int
	burst        time.Duration
	bigSessions  int // of each connection
	flatBlocks   int
}

func fullPlan() plan {
	return plan{
		rounds: 5, warm: 300 * time.Millisecond, load: 1500 * time.Millisecond, steady: 2500 * time.Millisecond,
		streamChunks: 50, burst: 800 * time.Millisecond, bigSessions: 8, flatBlocks: 6,
	}
}

func quickPlan() plan {
	return plan{
		rounds: 2, warm: 200 * time.Millisecond, load: 700 * time.Millisecond, steady: time.Second,
		streamChunks: 25, burst: 400 * time.Millisecond, bigSessions: 3, flatBlocks: 2,
	}
}

// trial is one variant in one round.
type trial struct {
	plan    plan
	variant variant
	in      *instance
	prefix  string // of session ids, unique to the trial
	put     func(measure, float64)
	// complain adds a problem to the report.
	complain func(format string, args ...any)

	phase     string
	cpu0, st0 time.Duration
}

// phase is one kind of load.
type phase struct {
	name string
	run  func(*trial) error
}

func phases() []phase {
	return []phase{
		{"full speed", (*trial).fullSpeed},
		{"steady", (*trial).steady},
		{"streams", (*trial).streams},
		{"burst of streams", (*trial).burst},
		{"256 KB", (*trial).big},
	}
}

// crew connects n talkers with sessions of this trial.
func (t *trial) crew(n int, said *dialogue, turns []span, sessions int) (*crew, error) {
	talkers := make([]*talker, n)
	for i := range talkers {
		talkers[i] = newTalker(said, turns, fmt.Sprintf("%s-%s-%d", t.prefix, t.phase, i), sessions)
		talkers[i].named = t.variant.named
	}
	return newCrew(t.in.addr, talkers)
}

// begin records the CPU time so far; used returns the CPU time per request of n since then, in seconds.
func (t *trial) begin() { t.cpu0, t.st0 = t.in.proc.cpu(), t.in.store.cpu() }

func (t *trial) used(n int) (proxy, store float64) {
	each := 1 / float64(max(n, 1))
	return (t.in.proc.cpu() - t.cpu0).Seconds() * each, (t.in.store.cpu() - t.st0).Seconds() * each
}

// record puts the latencies of an open loop, in milliseconds, and the processor time per 1,000 requests.
func (t *trial) record(got tally, median, high, proxyCPU, storeCPU measure) {
	proxy, store := t.used(len(got.latencies))
	t.check(got)
	ms := millis(got.latencies)
	t.put(median, quantile(ms, 0.5))
	t.put(high, quantile(ms, 0.99))
	t.put(proxyCPU, proxy*1000)
	t.put(storeCPU, store*1000)
}

func (t *trial) check(what tally) {
	if what.failed > 0 {
		t.complain("%d of %d answers were not 200", what.failed, len(what.latencies))
	}
	if what.forgotten > 0 {
		t.complain("%d of %d answers were without memory; the program printed: %s",
			what.forgotten, len(what.latencies), t.in.proc.printed())
	}
}

func (t *trial) fullSpeed() error {
	c, err := t.crew(loadConns, smallDialogue(), growing(1, smallTurns), loadSessions)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.closedLoop(t.plan.warm, 0); err != nil {
		return err
	}
	t.begin()
	got, err := c.closedLoop(t.plan.load, 0)
	if err != nil {
		return err
	}
	cpu, store := t.used(len(got.latencies))
	t.check(got)
	t.put(throughput, float64(len(got.latencies))/got.elapsed.Seconds())
	t.put(saturatedCPU, cpu*1000)
	t.put(saturatedStoreCPU, store*1000)
	return t.verify(c)
}

// verify compares the number of stored items of some played sessions: it sends one new message with the stored history, and reads
// X-Memory.
func (t *trial) verify(c *crew) error {
	if !t.variant.named {
		return nil
	}
	for i := range 4 {
		s := c.talkers[i].open[0]
		if err := t.expectItems(c, i, s.id, span{2 * s.turn, 2*s.turn + 1}, 2*s.turn); err != nil {
			return err
		}
	}
	return nil
}

// expectItems sends one new message after the stored history, and compares the number of items.
func (t *trial) expectItems(c *crew, i int, session string, message span, stored int) error {
	talk := *c.talkers[i]
	talk.header = "X-History: server\r\n"
	var r reply
	if err := c.conns[i].exchange(talk.request(nil, session, message), &r, nil); err != nil {
		return err
	}
	want := 1 + stored + 1 // the system message, the stored items, the new message
	if got := memoryItems(r.memory); got != want {
		t.complain("session %s has %d items instead of %d: X-Memory is %q", session, got, want, r.memory)
	}
	return nil
}

// memoryItems returns the number of items in X-Memory, -1 without one.
func memoryItems(header []byte) int {
	_, rest, _ := bytes.Cut(header, []byte("items="))
	end := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	n, err := strconv.Atoi(string(rest[:end]))
	if err != nil {
		return -1
	}
	return n
}

func (t *trial) steady() error {
	c, err := t.crew(loadConns, smallDialogue(), growing(1, smallTurns), loadSessions)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.openLoop(loadRate, requests(t.plan.warm, loadRate)); err != nil {
		return err
	}
	t.begin()
	got, err := c.openLoop(loadRate, requests(t.plan.steady, loadRate))
	if err != nil {
		return err
	}
	t.record(got, p50, p99, requestCPU, storeCPU)
	return nil
}

func requests(d time.Duration, rate int) int { return int(d * time.Duration(rate) / time.Second) }

func (t *trial) streams() error {
	c, err := t.crew(streamConns, streamDialogue(t.plan.streamChunks), growing(1, smallTurns), 1)
	if err != nil {
		return err
	}
	defer c.close()
	t.begin()
	got, err := c.streams(t.plan.streamChunks, streamSpacing, 0)
	if err != nil {
		return err
	}
	cpu, _ := t.used(len(got.latencies))
	t.checkStreams(got)
	first, delays := millis(got.firstByte), millis(got.delays)
	t.put(firstByteP50, quantile(first, 0.5))
	t.put(firstByteP99, quantile(first, 0.99))
	t.put(chunkP50, quantile(delays, 0.5))
	t.put(chunkP99, quantile(delays, 0.99))
	t.put(streamCPU, cpu*1000)
	return nil
}

func (t *trial) checkStreams(got streamTally) {
	t.check(got.tally)
	if got.missing != 0 {
		t.complain("%d chunks of streams did not arrive", got.missing)
	}
}

func (t *trial) burst() error {
	c, err := t.crew(burstConns, streamDialogue(burstChunks), growing(1, smallTurns), 1)
	if err != nil {
		return err
	}
	defer c.close()
	t.begin()
	got, err := c.streams(burstChunks, 0, t.plan.burst)
	if err != nil {
		return err
	}
	cpu, _ := t.used(len(got.latencies))
	t.checkStreams(got)
	t.put(streamsPerSec, float64(len(got.latencies))/got.elapsed.Seconds())
	t.put(burstCPU, cpu*1000)
	return nil
}

func (t *trial) big() error {
	c, err := t.crew(bigConns, bigDialogue(), growing(bigMessages-1, 1+bigTurns), t.plan.bigSessions)
	if err != nil {
		return err
	}
	defer c.close()
	// The first turn of each session adds 399 items; only the later turns are measured.
	if _, err := c.closedLoop(0, t.plan.bigSessions); err != nil {
		return err
	}
	t.begin()
	// One turn less than each session has, since the load is not quite even.
	got, err := c.openLoop(bigRate, bigConns*t.plan.bigSessions*(bigTurns-1))
	if err != nil {
		return err
	}
	t.record(got, bigP50, bigP99, bigCPU, bigStoreCPU)
	return nil
}
