package main

import (
	"fmt"
	"math"
	"time"
)

// This file measures whether the cost of a turn grows with its transcript. Sessions with few and with many stored items get the
// same requests, in turn.

// habit is the part of its history that a client sends.
type habit struct {
	name   string
	sends  int    // messages per request
	header string // of each request
	few    int    // stored items of the short sessions at the first measurement; even
}

func habits() []habit {
	return []habit{
		{name: "client resends its last 20 items", sends: 21, few: 20},
		// Its first requests contain answers, unlike those of other such clients: it must declare its habit.
		{name: "client sends only what is new", sends: 1, few: 90, header: "X-History: server\r\n"},
	}
}

const (
	flatMany     = 10_000 // stored items of the long sessions
	flatConns    = 4
	flatTurns    = 4  // measured turns of a short session, so that it stays short
	flatSessions = 12 // short sessions of each connection in one block
	flatStep     = 200
)

// flatness is the cost of a habit with few and with many stored items.
type flatness struct {
	variant, habit string
	few, many      costs
}

// costs are the costs of a turn, by block, in ms: the CPU time of proxy and Redis together, and the median latency.
type costs struct {
	items    int
	cpu, p50 []float64
}

// worst returns the larger one of the ratios between many items and few.
func (f *flatness) worst() float64 {
	return max(median(f.many.cpu)/median(f.few.cpu), median(f.many.p50)/median(f.few.p50))
}

// flat measures one habit on one instance, alternating blocks of short and of long sessions.
func (t *trial) flat(h habit) (flatness, error) {
	perBlock := flatSessions * flatTurns // turns of one connection
	said := newDialogue(flatMany+2*(t.plan.flatBlocks+1)*perBlock+2, answerText, number)
	t.phase = "many"
	many, err := t.crew(flatConns, said, h.manyTurns(t.plan.flatBlocks*perBlock), 1)
	if err != nil {
		return flatness{}, err
	}
	defer many.close()
	many.setHeader(h.header)
	if _, err := many.closedLoop(0, len(h.prepare(flatMany))); err != nil {
		return flatness{}, fmt.Errorf("store %d items: %w", flatMany, err)
	}

	out := flatness{variant: t.variant.name, habit: h.name, few: costs{items: h.few}, many: costs{items: flatMany}}
	for block := range t.plan.flatBlocks {
		t.phase = fmt.Sprintf("few%d", block)
		few, err := t.crew(flatConns, said, h.fewTurns(), flatSessions)
		if err != nil {
			return flatness{}, err
		}
		few.setHeader(h.header)
		_, err = few.closedLoop(0, flatSessions)
		if err == nil {
			err = t.block(few, perBlock, &out.few)
		}
		few.close()
		if err == nil {
			err = t.block(many, perBlock, &out.many)
		}
		if err != nil {
			return flatness{}, err
		}
	}

	if math.IsNaN(out.worst()) {
		return out, fmt.Errorf("measure cost per turn: nothing was measured")
	}
	return out, t.wholeHistory(many, h)
}

// block measures one block of turns.
func (t *trial) block(c *crew, count int, into *costs) error {
	t.begin()
	got, err := c.closedLoop(time.Minute, count)
	if err != nil {
		return err
	}
	proxy, store := t.used(len(got.latencies))
	t.check(got)
	into.cpu = append(into.cpu, (proxy+store)*1e3)
	into.p50 = append(into.p50, quantile(millis(got.latencies), 0.5))
	return nil
}

// prepare returns the turns that bring a session to n stored items.
func (h habit) prepare(n int) []span {
	var turns []span
	for stored := 0; stored < n; {
		to := min(stored+flatStep, n) - 1 // the answer is the last item
		turns = append(turns, span{max(stored+1-h.sends, 0), to})
		stored = to + 1
	}
	return turns
}

// next returns the turn of a session with n stored items.
func (h habit) next(n int) span { return span{max(n+1-h.sends, 0), n + 1} }

func (h habit) fewTurns() []span {
	turns := h.prepare(h.few)
	for i := range flatTurns {
		turns = append(turns, h.next(h.few+2*i))
	}
	return turns
}

func (h habit) manyTurns(n int) []span {
	turns := h.prepare(flatMany)
	for i := range n {
		turns = append(turns, h.next(flatMany+2*i))
	}
	return turns
}

// wholeHistory checks that the measured turns continued the long transcript: it sends one more and compares its number of items.
func (t *trial) wholeHistory(c *crew, h habit) error {
	talk := c.talkers[0]
	s := talk.open[0]
	stored := flatMany + 2*(s.turn-len(h.prepare(flatMany)))
	return t.expectItems(c, 0, s.id, span{stored, stored + 1}, stored)
}
