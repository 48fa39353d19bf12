package budget

import "slices"

// Entry is what [Fit] knows of one item of a view, or of one block of a layer.
type Entry struct {
	Cost int // in tokens; less than 0 counts as 0
	// Round marks history that is never left out: the current round, and a compaction, which stands for all before it.
	Round bool
	// Group ties history entries that upstream accepts only together, such as a call and its result: entries of one
	// Group other than 0 stay or go as one. [Groups] makes them.
	Group int
	// Pairs is how many complete user-assistant pairs begin behind the entry, for [OverflowTurns].
	Pairs int
	// Score says what [OverflowPriority] keeps first: the highest. A group has the highest score of its entries.
	Score float64
}

// Reason is why an entry is left out.
type Reason string

// The reasons for which [Fit] leaves entries out.
const (
	ReasonBudget Reason = "budget" // did not fit, or is older than history that did not
	ReasonWindow Reason = "window" // older than the newest Policy.Window entries or Policy.Turns pairs
	ReasonGroup  Reason = "group"  // would fit, but not all of its group does
)

// Kept names what is sent, as ascending indices into the lists that [Fit] got. System entries are always sent.
type Kept struct {
	Layers  []int
	History []int
	Tokens  float64 // what all of it costs, system included
}

// Left names what is not sent, in ascending order of index.
type Left struct {
	Layers []Out
	// History is also what a summary has to cover, with [OverflowSummarize].
	History []Out
}

// Out is one entry that is left out.
type Out struct {
	Index  int
	Reason Reason
}

// Fit chooses what of a view fits into Budget less Reserve (SEMANTICS 1.13). System entries and the current round stay
// in any case and are charged first, so that they alone can make a view larger than its budget. Then layer entries, in
// the order given, stay each if it fits; one that does not is skipped by itself. Then history stays from the newest
// entry to the oldest, up to the first that does not fit. Groups that this would divide go as a whole; what that frees
// is not filled again, so that history has no other gaps. No policy touches system entries or chooses other layer
// entries (case 100); these choose other history, and only of one that does not fit as a whole (case 104):
//   - [OverflowFIFO] leaves out whole groups, from the oldest on, until the rest fits (case 97).
//   - [OverflowTurns] leaves out what is older than the newest Policy.Turns pairs, then what still does not fit.
//   - [OverflowPriority] takes whole groups by their score, each if it fits, and so makes gaps anywhere.
//
// Time is linear in the entries, with OverflowPriority but for sorting them.
//
// History must be valid in itself but for what upstream knows from elsewhere: Fit divides no group, and leaves alone
// an entry whose partner it never saw.
//
// A caller that summarises calls Fit a second time when Left.History is not empty, with the most that the summary may
// cost as one more layer entry.
func Fit(system, layers, history []Entry, p Policy) (Kept, Left) {
	f := fitter{policy: p}
	for _, e := range system {
		f.charge(e)
	}
	pinned := Pinned(history)
	for i, e := range history {
		if pinned[i] {
			f.charge(e)
		}
	}
	var kept Kept
	var left Left
	for i, e := range layers {
		if f.take(e) {
			kept.Layers = append(kept.Layers, i)
		} else {
			left.Layers = append(left.Layers, Out{i, ReasonBudget})
		}
	}
	f.history(history, pinned)
	for i, reason := range f.reasons {
		if reason == "" {
			kept.History = append(kept.History, i)
		} else {
			left.History = append(left.History, Out{i, reason})
		}
	}
	kept.Tokens = f.used
	return kept, left
}

// fitter keeps the account. Costs are added as float64: they cannot overflow.
type fitter struct {
	policy  Policy
	used    float64
	reasons []Reason // why each history entry is left out, "" for those that stay
}

func (f *fitter) charge(e Entry) { f.used += cost(e) }

// fits tells that there is room for so many tokens more.
func (f *fitter) fits(tokens float64) bool { return tokens <= f.policy.HistoryBudget(f.used) }

// take charges an entry if it fits.
func (f *fitter) take(e Entry) bool {
	fits := f.fits(cost(e))
	if fits {
		f.charge(e)
	}
	return fits
}

func (f *fitter) history(history []Entry, pinned []bool) {
	f.reasons = make([]Reason, len(history))
	from := 0
	if w := f.policy.Window; w > 0 {
		from = max(0, len(history)-w)
	}
	switch f.policy.Overflow {
	case OverflowFIFO, OverflowPriority:
		f.units(history, pinned, from)
	case OverflowTurns:
		f.newest(history, pinned, f.turns(history, pinned, from))
	default:
		f.newest(history, pinned, from)
	}
}

// newest keeps the newest entries up to the first that does not fit, none before index from.
func (f *fitter) newest(history []Entry, pinned []bool, from int) {
	var why Reason
	for i, e := range slices.Backward(history) {
		if why == "" && i < from {
			why = ReasonWindow
		}
		if pinned[i] {
			continue
		}
		if why == "" && !f.take(e) {
			why = ReasonBudget
		}
		f.reasons[i] = why
	}
	f.whole(history)
}

// whole drops what is left of divided groups, and gives back what it cost.
func (f *fitter) whole(history []Entry) {
	divided := make(map[int]bool)
	for i, e := range history {
		if e.Group != 0 && f.reasons[i] != "" {
			divided[e.Group] = true
		}
	}
	for i, e := range history {
		if divided[e.Group] && f.reasons[i] == "" {
			f.reasons[i] = ReasonGroup
			f.used -= cost(e)
		}
	}
}

// Pinned tells which entries stay in any case: the round, and whatever shares a group with it.
func Pinned(history []Entry) []bool {
	groups := make(map[int]bool)
	for _, e := range history {
		if e.Round && e.Group != 0 {
			groups[e.Group] = true
		}
	}
	pinned := make([]bool, len(history))
	for i, e := range history {
		pinned[i] = e.Round || groups[e.Group]
	}
	return pinned
}

func cost(e Entry) float64 { return float64(max(0, e.Cost)) }
