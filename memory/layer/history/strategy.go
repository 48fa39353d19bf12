package history

import (
	"context"
	"math"
	"slices"

	"remora/memory/budget"
	"remora/memory/layer"
	"remora/wire"
)

// sequenceTokens is what a list of messages costs beside them (SEMANTICS 3: "used starts at 3").
const sequenceTokens = 3

// contextBudget is what fits into a model's context, in tokens (case 107).
type contextBudget struct {
	window   int // what the model can read and write
	output   int // of that, what is kept for the answer
	overhead int // what is sent beside the history
}

// available is what history may cost.
func (b contextBudget) available() int { return max(0, b.window-b.output-b.overhead) }

// exceeds tells that more does not fit beside what is used.
func (b contextBudget) exceeds(used, more int) bool { return used+more > b.available() }

// remaining is what is still free.
func (b contextBudget) remaining(used int) int { return max(0, b.available()-used) }

// utilization is the part of the window that is spoken for, at most 1.
func (b contextBudget) utilization(used int) float64 {
	if b.window <= 0 {
		return 0
	}
	return min(1, float64(b.overhead+b.output+used)/float64(b.window))
}

// policy is the strategy as memory/budget knows it. Both kinds of sliding windows choose alike.
func policy(strategy string, b contextBudget) budget.Policy {
	p := budget.Policy{Budget: float64(b.available()), Overflow: budget.OverflowTruncate}
	if strategy == PriorityBased {
		p.Overflow = budget.OverflowPriority
	}
	return p
}

// ProjectHistory sends what the strategy chooses, all of it where that fits (cases 108 to 111).
func (l *Layer) ProjectHistory(_ context.Context, t *layer.Turn, _ layer.State, history []wire.Item) ([]wire.Item, error) {
	b := contextBudget{l.o.ContextWindowTokens, l.o.MaxOutputTokens, t.Overhead}
	p := policy(l.o.Strategy, b)
	entries := budget.Entries(history, p)
	price(entries, history, b, p, t.CountItem)
	kept, left := budget.Fit([]budget.Entry{{Cost: sequenceTokens}}, nil, entries, p)
	used := int(min(kept.Tokens, maxTokens))
	t.Note("strategy", l.o.Strategy)
	t.Note("utilization", math.Round(1000*b.utilization(used))/1000)
	t.Note("remaining", b.remaining(used))
	t.Note("left_out", len(left.History))
	if len(left.History) == 0 {
		return history, nil
	}
	chosen := make([]wire.Item, 0, len(kept.History))
	for _, i := range kept.History {
		chosen = append(chosen, history[i])
	}
	return chosen, nil
}

// unfit is the cost of an item that was not counted, since it cannot fit whatever it costs exactly.
const unfit = math.MaxInt32

// price fills in what the items cost. Where that cannot change what is chosen, nothing is counted.
func price(entries []budget.Entry, history []wire.Item, b contextBudget, p budget.Policy, count func(wire.Item) int) {
	stays := make(map[int]bool) // groups that the round is part of
	for _, e := range entries {
		if e.Round && e.Group != 0 {
			stays[e.Group] = true
		}
	}
	used := sequenceTokens
	for i, it := range slices.Backward(history) {
		e := &entries[i]
		switch {
		case p.NewestFirst() && b.exceeds(used, 0) && !e.Round && !stays[e.Group], huge(it, b):
			e.Cost = unfit
		default:
			e.Cost = max(0, count(it))
			used = min(used+e.Cost, maxTokens)
		}
	}
}

// huge tells that a text is too long to fit, without counting it.
func huge(it wire.Item, b contextBudget) bool {
	const (
		large        = 1 << 20 // bytes
		bytesOfToken = 16      // at most, in text of that size; four is usual
	)
	return len(it.Raw) > large && b.exceeds(0, len(it.Text())/bytesOfToken)
}
