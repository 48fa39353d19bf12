package view

import (
	"cmp"
	"slices"
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
}

// Fit chooses the part of a view that fits into Budget minus Reserve. System entries, and history
// that always stays, are charged first, so only they can make a view larger than its budget. Then layer entries are taken in
// order, each if it fits. Then other history is taken from the newest entry to the oldest, up to the first that does not fit. Groups that this would split
// are left out as a whole; the freed tokens are not used, so that the history has no other gaps. Policies differ only in the
// history that they choose, and only if it does not fit as a whole:
//   - [OverflowFIFO] leaves out whole groups, from the oldest on, until the rest fits.
//   - [OverflowTurns] leaves out everything older than the newest Policy.Turns pairs, then what still does not fit.
//   - [OverflowPriority] takes whole groups by their score, each if it fits, and so makes gaps anywhere.
//
// Time is linear in the entries, except for sorting with OverflowPriority.
//
// History must be valid except for calls that upstream knows from elsewhere: Fit splits no group, and ignores a missing
// partner.
//
// Fit sets Why of layers and history, and returns the cost of everything that stays, system included. A caller that
// summarises calls Fit again when history is left out, with the maximum cost of the summary as one more layer entry.
func Fit(system, layers, history []Candidate, p Policy) (tokens float64) {
	f := fitter{policy: p}
	for _, c := range system {
		f.charge(c)
	}
	for _, c := range history {
		if c.Stays {
			f.charge(c)
		}
	}
	for i := range layers {
		layers[i].Why = f.take(layers[i])
	}
	f.history(history)
	return f.used
}

// fitter keeps the account. Costs are added as float64: they cannot overflow.
type fitter struct {
	policy Policy
	used   float64
}

func (f *fitter) charge(c Candidate) { f.used += cost(c) }

// fits reports whether there is room for these tokens.
func (f *fitter) fits(tokens float64) bool { return tokens <= f.policy.HistoryBudget(f.used) }

// take charges a candidate if it fits, and otherwise sets the reason.
func (f *fitter) take(c Candidate) Reason {
	if !f.fits(cost(c)) {
		return ReasonBudget
	}
	f.charge(c)
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
			history[i].Why = ReasonNone
			continue
		}
		if why == ReasonNone {
			why = f.take(history[i])
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
			f.used -= cost(*c)
		}
	}
}

func cost(e Candidate) float64 { return float64(max(0, e.Cost)) }

// turns returns the first kept entry under OverflowTurns: index from if everything fits, else the first entry of the newest
// Turns pairs.
func (f *fitter) turns(history []Candidate, from int) int {
	all := 0.0
	for i, e := range history {
		if i >= from && !e.Stays {
			all += cost(e)
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
	first int // index of its first entry
	cost  float64
	score float64 // the highest
}

// bundles keeps whole bundles: under OverflowPriority each that fits, the highest score first; else the newest, up to the
// first that does not fit. A bundle with an entry before index from goes.
func (f *fitter) bundles(history []Candidate, from int) {
	bundles, of := bundlesOf(history)
	order := slices.Clone(bundles)
	inOrder := f.policy.Overflow != OverflowPriority
	if inOrder {
		slices.Reverse(order)
	} else {
		slices.SortFunc(order, func(a, b bundle) int {
			return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.first, b.first))
		})
	}
	stays := make(map[int]bool, len(bundles)) // by first
	for _, u := range order {
		if u.first < from {
			continue
		}
		if f.fits(u.cost) {
			f.used += u.cost
			stays[u.first] = true
		} else if inOrder {
			break
		}
	}
	for i := range history {
		switch {
		case history[i].Stays || stays[of[i]]:
			history[i].Why = ReasonNone
		case i < from:
			history[i].Why = ReasonPolicy
		case of[i] < from:
			history[i].Why = ReasonGroup
		default:
			history[i].Why = ReasonBudget
		}
	}
}

// bundlesOf lists the bundles that could go, in the order of their first entries, and for every such entry the beginning
// of its bundle.
func bundlesOf(history []Candidate) (bundles []bundle, of []int) {
	of = make([]int, len(history))
	at := make(map[int]int) // by group, index in bundles
	for i, e := range history {
		if e.Stays {
			continue
		}
		k, ok := at[e.Group]
		if !ok || e.Group == 0 {
			k = len(bundles)
			bundles, at[e.Group] = append(bundles, bundle{first: i, score: e.Score}), k
		}
		bundles[k].cost += cost(e)
		bundles[k].score = max(bundles[k].score, e.Score)
		of[i] = bundles[k].first
	}
	return bundles, of
}
