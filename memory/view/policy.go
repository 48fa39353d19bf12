package view

import (
	"math"
	"slices"
	"strings"
)

// Overflow policies; see docs/semantics.md#overflow-policies. [Fit] treats the first three alike.
const (
	// OverflowTruncate leaves it out.
	OverflowTruncate = "truncate"
	// OverflowSlidingWindow keeps those of the newest Window entries that fit.
	OverflowSlidingWindow = "sliding_window"
	// OverflowSummarize asks the caller to summarise the left-out history and to show the summary.
	OverflowSummarize = "summarize"
	// OverflowFIFO leaves out the oldest exchanges: a user message with the reply to it, a call with all its results.
	OverflowFIFO = "fifo"
	// OverflowTurns keeps the newest Turns pairs of a user message and its reply, with the tool items between, and leaves
	// out what of these does not fit.
	OverflowTurns = "turns"
	// OverflowPriority keeps what scores highest: what users said, calls, answers, results; the newer the higher.
	OverflowPriority = "priority"
)

// minToolResult is the minimum length of a shortened tool result, in tokens: a mark and a little text.
const minToolResult = 32

// Policy is how a view is cut to size. Numbers are tokens unless said otherwise.
type Policy struct {
	Budget   float64 // of the whole view and its answer; +Inf for no limit
	Reserve  float64 // the part of Budget that is kept free for the answer
	Overflow string  // one of the constants above
	Window   int     // how many history entries are kept at most, whatever Overflow says; 0 is no limit
	Turns    int     // how many user-assistant pairs OverflowTurns keeps
	// MinTurns is the number of newest complete user-assistant pairs that are never left out, like the current run. They can
	// make a view larger than its budget.
	MinTurns int
	// ToolResult is how many tokens of a tool result are sent at most, 0 for all. [ShortenResults] does that before
	// [Fit] counts.
	ToolResult int
}

// DefaultMinTurns is the default of MinTurns: 3 for the policies that prune by turns, which could otherwise leave a
// question without its context, and 0 for the others.
func DefaultMinTurns(overflow string) int {
	if overflow == OverflowFIFO || overflow == OverflowTurns {
		return 3
	}
	return 0
}

// HistoryBudget returns the tokens left for history: Budget minus Reserve minus spent, the cost of the other parts. It is
// negative if those exceed the budget.
func (p Policy) HistoryBudget(spent float64) float64 { return max(0, p.Budget-p.Reserve) - spent }

// Validate returns one error per invalid value, with its key in memory.policy.
func (p Policy) Validate() []error {
	var errs problems
	errs.want(p.Budget > 0, "token_budget: want 1 token or more, or 0 for no limit, have %v", p.Budget)
	reserves := p.Reserve >= 0 && !math.IsInf(p.Reserve, 1)
	errs.want(reserves, "response_reserve: want 0 tokens or more, have %v", p.Reserve)
	errs.want(!reserves || !(p.Budget > 0) || p.Reserve < p.Budget, "response_reserve: want less than token_budget, which is %v, have %v", p.Budget, p.Reserve)
	errs.want(slices.Contains(overflows(), p.Overflow), "overflow: want %s, have %q", oneOf(overflows()), p.Overflow)
	errs.want(p.Window >= 0, "window_size: want 0 (no limit) or more entries, have %d", p.Window)
	errs.want(p.Turns >= 0, "window_turns: want 1 or more pairs, have %d", p.Turns)
	errs.want(p.Turns != 0 || p.Overflow != OverflowTurns, "window_turns: want 1 or more pairs with overflow %q, have 0", OverflowTurns)
	errs.want(p.MinTurns >= 0, "min_history_turns: want 0 or more pairs, have %d", p.MinTurns)
	errs.want(p.ToolResult == 0 || p.ToolResult >= minToolResult, "tool_result_max_tokens: want 0 (no limit) or at least %d tokens, have %d", minToolResult, p.ToolResult)
	return errs
}

func overflows() []string {
	return []string{OverflowTruncate, OverflowSlidingWindow, OverflowSummarize, OverflowFIFO, OverflowTurns, OverflowPriority}
}

// oneOf lists values as a sentence does.
func oneOf(values []string) string {
	last := len(values) - 1
	return `"` + strings.Join(values[:last], `", "`) + `" or "` + values[last] + `"`
}
