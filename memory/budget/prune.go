package budget

import (
	"cmp"
	"slices"
)

// turns is from which entry on history is kept under OverflowTurns: from index from where all of that fits, else from
// the first entry of the newest Turns pairs.
func (f *fitter) turns(history []Entry, pinned []bool, from int) int {
	all := 0.0
	for i, e := range history {
		if i >= from && !pinned[i] {
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

// unit is what stays or goes as one: a group, or an entry without one.
type unit struct {
	first int // index of its first entry
	cost  float64
	score float64 // the highest
}

// units keeps whole units: under OverflowPriority each that fits, the highest score first; else the newest, up to the
// first that does not fit. A unit with an entry before index from goes.
func (f *fitter) units(history []Entry, pinned []bool, from int) {
	units, of := unitsOf(history, pinned)
	order := slices.Clone(units)
	inOrder := f.policy.Overflow != OverflowPriority
	if inOrder {
		slices.Reverse(order)
	} else {
		slices.SortFunc(order, func(a, b unit) int {
			return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.first, b.first))
		})
	}
	stays := make(map[int]bool, len(units)) // by first
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
		case pinned[i] || stays[of[i]]:
		case i < from:
			f.reasons[i] = ReasonWindow
		case of[i] < from:
			f.reasons[i] = ReasonGroup
		default:
			f.reasons[i] = ReasonBudget
		}
	}
}

// unitsOf lists the units that are not pinned, in the order of their first entries, and tells for every entry that is
// not pinned where its unit begins.
func unitsOf(history []Entry, pinned []bool) (units []unit, of []int) {
	of = make([]int, len(history))
	at := make(map[int]int) // by group, index in units
	for i, e := range history {
		if pinned[i] {
			continue
		}
		k, ok := at[e.Group]
		if !ok || e.Group == 0 {
			k = len(units)
			units, at[e.Group] = append(units, unit{first: i, score: e.Score}), k
		}
		units[k].cost += cost(e)
		units[k].score = max(units[k].score, e.Score)
		of[i] = units[k].first
	}
	return units, of
}
