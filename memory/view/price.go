package view

import (
	"math"
	"slices"

	"remora/wire"
)

// unfit is the cost of an entry that was not counted, since nothing is left for it.
const unfit = math.MaxInt32

// Price sets the costs of a history's entries for [Fit]. spent is the known cost of the rest of the view. Only as much is
// counted as can change what Fit chooses: with a policy that keeps the newest, the part that fits and one more item.
// Entries that always stay are counted first, and those beyond the budget cost nothing. Without a limit, nothing is counted.
func Price(entries []Candidate, items []wire.Item, p Policy, spent float64, count func(wire.Item) int) {
	if math.IsInf(p.HistoryBudget(0), 1) {
		return
	}
	for i, it := range slices.Backward(items) {
		if entries[i].Stays {
			entries[i].Cost = price(it, p.HistoryBudget(spent), 0, count)
			spent += cost(entries[i])
		}
	}
	for i, it := range slices.Backward(items) {
		if !entries[i].Stays {
			entries[i].Cost = price(it, p.HistoryBudget(spent), unfit, count)
			if p.Overflow != OverflowPriority { // else what does not fit keeps nothing older out
				spent += cost(entries[i])
			}
		}
	}
}

// price returns the cost of an item, or over if less than nothing is left. Large text that cannot fit is estimated.
func price(it wire.Item, left float64, over int, count func(wire.Item) int) int {
	const (
		large        = 1 << 20 // bytes
		bytesOfToken = 16      // at most, in text of that size; four is usual
	)
	if left < 0 {
		return over
	}
	if len(it.Raw) > large {
		if n := len(it.Text()) / bytesOfToken; float64(n) > left {
			return n
		}
	}
	return count(it)
}

// prices caches the costs of items, each counted at most once.
type prices struct {
	r       *Request
	counted []int64 // by item; -1 for those that were not counted
}

// of returns what an item costs.
func (p *prices) of(item int) int64 {
	if p.counted == nil {
		p.counted = slices.Repeat([]int64{-1}, len(p.r.Resolved))
	}
	if p.counted[item] < 0 {
		p.counted[item] = int64(max(0, p.r.Tokens(p.r.Resolved[item])))
	}
	return p.counted[item]
}

// compactions returns what the compactions before an item cost, which no window leaves out.
func (p *prices) compactions(before int) (sum int64) {
	for i, it := range p.r.Resolved[:before] {
		if it.Kind == wire.Compaction {
			sum += p.of(i)
		}
	}
	return sum
}

// within reports whether the items from the first one on cost at most limit. It counts as few items as needed, the newest
// first. An upper bound is at least the item's bytes, so bounds are computed only if the bytes fit: computing one reads the
// whole item.
func (p *prices) within(first int, limit int64) bool {
	items := p.r.Resolved[first:]
	var counted, bytes int64
	for i := range items {
		bytes += int64(len(items[i].Raw))
	}

	left := len(items) // those before are not counted
	for ; left > 0 && counted+bytes > limit; left-- {
		bytes -= int64(len(items[left-1].Raw))
		if counted += p.of(first + left - 1); counted > limit {
			return false
		}
	}

	atMost := make([]int64, left)
	most := counted
	for i, it := range items[:left] {
		atMost[i] = int64(p.r.AtMost(it))
		most += atMost[i]
	}
	for ; left > 0 && most > limit; left-- {
		cost := p.of(first + left - 1)
		if counted += cost; counted > limit {
			return false
		}
		most += cost - atMost[left-1]
	}
	return most <= limit
}
