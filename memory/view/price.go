package view

import (
	"slices"

	"remora/wire"
)

// Cost returns what items cost, the newest counted first. Counting ends with the item that exceeds the limit.
func Cost(items []wire.Item, limit float64, count func(wire.Item) int) (sum int) {
	for _, it := range slices.Backward(items) {
		left := limit - float64(sum)
		if left < 0 {
			break
		}
		sum += price(it, left, count)
	}
	return sum
}

// price returns the cost of an item. Large text that cannot fit is estimated.
func price(it wire.Item, left float64, count func(wire.Item) int) int {
	const (
		large        = 1 << 20 // bytes
		bytesOfToken = 16      // at most, in text of that size; four is usual
	)
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
