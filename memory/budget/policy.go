package budget

import (
	"fmt"
	"math"
)

// What happens to history that does not fit (D7). [Fit] chooses alike for all of them.
const (
	// OverflowTruncate leaves it out.
	OverflowTruncate = "truncate"
	// OverflowSlidingWindow keeps the newest Window entries, and leaves out what of these does not fit.
	OverflowSlidingWindow = "sliding_window"
	// OverflowSummarize asks the caller to summarise what [Left] names, once, and to show the summary.
	OverflowSummarize = "summarize"
)

// Policy is how a view is cut to size. Numbers are tokens unless said otherwise.
type Policy struct {
	Budget   float64 // of the whole view and its answer; +Inf for no limit
	Reserve  float64 // the part of Budget that is kept free for the answer
	Overflow string  // "truncate", "sliding_window" or "summarize"
	Window   int     // how many history entries are kept at most, whatever Overflow says; 0 is no limit
}

// DefaultPolicy is what applies until an operator says otherwise (SEMANTICS 1.12).
func DefaultPolicy() Policy {
	return Policy{Budget: 128000, Reserve: 4000, Overflow: OverflowSlidingWindow}
}

// Validate tells every value that cannot be used, by its key in memory.policy.
func (p Policy) Validate() []error {
	var errs []error
	if !(p.Budget > 0) {
		errs = append(errs, fmt.Errorf("token_budget: want more than 0 tokens, have %v", p.Budget))
	}
	switch {
	case !(p.Reserve >= 0) || math.IsInf(p.Reserve, 1):
		errs = append(errs, fmt.Errorf("response_reserve: want 0 tokens or more, have %v", p.Reserve))
	case p.Budget > 0 && p.Reserve >= p.Budget:
		errs = append(errs, fmt.Errorf("response_reserve: want less than token_budget, which is %v, have %v", p.Budget, p.Reserve))
	}
	switch p.Overflow {
	case OverflowTruncate, OverflowSlidingWindow, OverflowSummarize:
	default:
		errs = append(errs, fmt.Errorf("overflow: want %q, %q or %q, have %q",
			OverflowTruncate, OverflowSlidingWindow, OverflowSummarize, p.Overflow))
	}
	if p.Window < 0 {
		errs = append(errs, fmt.Errorf("window_size: want 0 (no limit) or more entries, have %d", p.Window))
	}
	return errs
}
