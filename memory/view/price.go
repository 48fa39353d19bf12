package view

import (
	"slices"

	"remora/wire"
)

// prices caches the costs of items, each counted at most once.
type prices struct {
	r       *Request
	counted []int64 // by item; -1 for those that were not counted
}

// of returns what an item costs.
func (p *prices) of(item int) int64 {
	if p.counted == nil {
		p.counted = slices.Repeat([]int64{-1}, len(p.r.Items))
	}
	if p.counted[item] < 0 {
		p.counted[item] = int64(max(0, p.r.Tokens(p.r.Items[item])))
	}
	return p.counted[item]
}

// compactions returns what the compactions before an item cost, which no window leaves out.
func (p *prices) compactions(before int) (sum int64) {
	for i, it := range p.r.Items[:before] {
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
	items := p.r.Items[first:]
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
