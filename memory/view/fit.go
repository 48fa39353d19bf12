package view

import (
	"cmp"
	"math"
	"slices"

	"remora/wire"
)

// Candidate describes one item of a view, or one block of a layer, for [Fit].
type Candidate struct {
	Cost int // in tokens; less than 0 counts as 0
	// Stays marks history that is never left out. If one entry of a Group has it, all have.
	Stays bool
	// Group ties history entries that upstream accepts only together, such as a call and its result: entries of one
	// Group other than 0 stay or go as one. [Groups] makes them.
	Group int
	// Pairs is the number of complete user-assistant pairs that begin after the entry, for [OverflowTurns].
	Pairs int
	// Score ranks groups under [OverflowPriority]: the highest are kept. A group has the highest score of its entries.
	Score float64
	// Why is set by [Fit]: ReasonNone if the candidate stays.
	Why Reason

	item *wire.Item // what Fit counts for Cost; nil if that is known
}

// Fit chooses the part of a view that fits into Budget minus Reserve, of which spent is the known cost of the system prompt. History
// that always stays is charged first, so only these can make a view larger than its budget. Then layer entries are taken in
// order, each if it fits. Then other history is taken from the newest entry to the oldest, up to the first that does not fit.
// Groups that this would split are left out as a whole; the freed tokens are not used, so that the history has no other gaps.
// Policies differ only in the history that they choose, and only if it does not fit as a whole:
//   - [OverflowFIFO] leaves out whole groups, from the oldest on, until the rest fits.
//   - [OverflowTurns] leaves out everything older than the newest Policy.Turns pairs, then what still does not fit.
//   - [OverflowPriority] takes whole groups by their score, each if it fits, and so makes gaps anywhere.
//
// Time is linear in the entries, except for sorting with OverflowPriority. count sets the Cost of history that comes from
// [Candidates], only as far as the choice needs it: what always stays beyond the budget costs 0, and without a limit nothing is
// counted. If count is nil, all costs are known.
//
// History must be valid except for calls that upstream knows from elsewhere: Fit splits no group, and ignores a missing
// partner.
//
// Fit sets Why of layers and history, and returns the cost of everything that stays, spent included. A caller that
// summarises calls Fit again when history is left out, with the maximum cost of the summary as one more layer entry.
func Fit(spent float64, layers, history []Candidate, p Policy, count func(wire.Item) int) (tokens float64) {
	f := fitter{policy: p, used: spent, count: count}
	for i := range slices.Backward(history) {
		if c := &history[i]; c.Stays {
			c.Why = ReasonNone
			f.used += f.cost(c)
		}
	}
	for i := range layers {
		layers[i].Why = f.take(&layers[i])
	}
	f.history(history)
	return f.used
}

// fitter keeps the account. Costs are added as float64: they cannot overflow.
type fitter struct {
	policy Policy
	used   float64
	count  func(wire.Item) int
}

// cost returns what a candidate costs, and counts it if that is not known. Without room it always stays, and costs nothing more.
func (f *fitter) cost(c *Candidate) float64 {
	if c.item != nil && f.count != nil {
		c.Cost = 0
		if left := f.policy.HistoryBudget(f.used); left >= 0 && !math.IsInf(left, 1) {
			c.Cost = price(*c.item, left, f.count)
		}
		c.item = nil
	}
	return float64(max(0, c.Cost))
}

// fits reports whether there is room for these tokens.
func (f *fitter) fits(tokens float64) bool { return tokens <= f.policy.HistoryBudget(f.used) }

// take charges candidates if they fit together, and otherwise returns the reason.
func (f *fitter) take(list ...*Candidate) Reason {
	sum := 0.0
	for _, c := range list {
		if f.fits(sum) { // else the rest need not be counted
			sum += f.cost(c)
		}
	}
	if !f.fits(sum) {
		return ReasonBudget
	}
	f.used += sum
	return ReasonNone
}

func (f *fitter) history(history []Candidate) {
	from := 0
	if w := f.policy.Window; w > 0 {
		from = max(0, len(history)-w)
	}
	switch f.policy.Overflow {
	case OverflowFIFO, OverflowPriority:
		f.bundles(history, from)
	case OverflowTurns:
		f.newest(history, f.turns(history, from))
	default:
		f.newest(history, from)
	}
}

// newest keeps the newest entries up to the first that does not fit, none before index from.
func (f *fitter) newest(history []Candidate, from int) {
	why := ReasonNone
	for i := len(history) - 1; i >= 0; i-- {
		if why == ReasonNone && i < from {
			why = ReasonPolicy
		}
		if history[i].Stays {
			continue
		}
		if why == ReasonNone {
			why = f.take(&history[i])
		}
		history[i].Why = why
	}
	f.whole(history)
}

// whole drops the rest of split groups, and refunds its cost.
func (f *fitter) whole(history []Candidate) {
	divided := make(map[int]bool)
	for i := range history {
		if c := &history[i]; c.Group != 0 && c.Why != ReasonNone {
			divided[c.Group] = true
		}
	}
	for i := range history {
		if c := &history[i]; divided[c.Group] && c.Why == ReasonNone {
			c.Why = ReasonGroup
			f.used -= f.cost(c)
		}
	}
}

// turns returns the first kept entry under OverflowTurns: index from if everything fits, else the first entry of the newest
// Turns pairs.
func (f *fitter) turns(history []Candidate, from int) int {
	all := 0.0
	for i := len(history) - 1; i >= from && f.fits(all); i-- {
		if !history[i].Stays {
			all += f.cost(&history[i])
		}
	}
	if f.fits(all) {
		return from
	}
	for ; from < len(history) && history[from].Pairs >= f.policy.Turns; from++ {
	}
	return from
}

// bundle is kept or dropped as a unit: a group, or an entry without one.
type bundle struct {
	first   int // index of its first entry
	entries []*Candidate
	score   float64 // the highest
}

// bundles keeps whole bundles: under OverflowPriority each that fits, the highest score first; else the newest, up to the
// first that does not fit. A bundle with an entry before index from goes.
func (f *fitter) bundles(history []Candidate, from int) {
	bundles := bundlesOf(history)
	inOrder := f.policy.Overflow != OverflowPriority
	if inOrder {
		slices.Reverse(bundles)
	} else {
		slices.SortFunc(bundles, func(a, b bundle) int {
			return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.first, b.first))
		})
	}

	full := false
	for _, b := range bundles {
		why := ReasonGroup
		if b.first >= from {
			if why = ReasonBudget; !full {
				why = f.take(b.entries...)
			}
			full = inOrder && why != ReasonNone
		}
		for _, c := range b.entries {
			c.Why = why
		}
	}
	for i := range history[:from] {
		if !history[i].Stays {
			history[i].Why = ReasonPolicy
		}
	}
}

// bundlesOf lists the bundles that could go, in the order of their first entries.
func bundlesOf(history []Candidate) (bundles []bundle) {
	at := make(map[int]int) // by group, index in bundles
	for i := range history {
		e := &history[i]
		if e.Stays {
			continue
		}
		k, ok := at[e.Group]
		if !ok || e.Group == 0 {
			k = len(bundles)
			bundles, at[e.Group] = append(bundles, bundle{first: i, score: e.Score}), k
		}
		b := &bundles[k]
		b.entries, b.score = append(b.entries, e), max(b.score, e.Score)
	}
	return bundles
}
