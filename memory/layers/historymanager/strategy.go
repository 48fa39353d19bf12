package historymanager

import (
	"math"
	"slices"

	"remora/memory/view"
	"remora/wire"
)

// contextBudget divides a model's context, in tokens.
type contextBudget struct {
	window   int // what the model can read and write
	output   int // of that, what is kept for the answer
	overhead int // what is sent beside the history
}

// available returns the tokens that are left for the history.
func (b contextBudget) available() int { return max(0, b.window-b.output-b.overhead) }

// exceeds reports whether used and more together are over budget.
func (b contextBudget) exceeds(used, more int) bool { return used+more > b.available() }

// remaining returns the tokens that are still free.
func (b contextBudget) remaining(used int) int { return max(0, b.available()-used) }

// utilization is the part of the window that is spoken for, at most 1.
func (b contextBudget) utilization(used int) float64 {
	if b.window <= 0 {
		return 0
	}
	return min(1, float64(b.overhead+b.output+used)/float64(b.window))
}

// policy is the strategy as package view knows it. Both kinds of sliding windows choose alike.
func policy(strategy string, b contextBudget) view.Policy {
	p := view.Policy{Budget: float64(b.available()), Overflow: view.OverflowTruncate}
	if strategy == PriorityBased {
		p.Overflow = view.OverflowPriority
	}
	return p
}

// unfit is the cost of an item that is too large to fit and therefore was not counted.
const unfit = math.MaxInt32

// price fills in the cost of the items. It counts only items whose cost can change the choice.
func price(entries []view.Candidate, history []wire.Item, b contextBudget, p view.Policy, count func(wire.Item) int) {
	used := sequenceTokens
	for i, it := range slices.Backward(history) {
		e := &entries[i]
		switch {
		case p.NewestFirst() && b.exceeds(used, 0) && !e.Stays, huge(it, b):
			e.Cost = unfit
		default:
			e.Cost = max(0, count(it))
			used = min(used+e.Cost, maxTokens)
		}
	}
}

// huge reports whether a text is too long to fit, without counting it.
func huge(it wire.Item, b contextBudget) bool {
	const (
		large        = 1 << 20 // bytes
		bytesOfToken = 16      // at most, in text of that size; four is usual
	)
	return len(it.Raw) > large && b.exceeds(0, len(it.Text())/bytesOfToken)
}
