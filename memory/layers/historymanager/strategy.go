package historymanager

import "remora/memory/view"

// contextBudget divides a model's context, in tokens.
type contextBudget struct {
	window   int // what the model can read and write
	output   int // of that, what is kept for the answer
	overhead int // what is sent beside the history
}

// available returns the tokens that are left for the history.
func (b contextBudget) available() int { return max(0, b.window-b.output-b.overhead) }

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
