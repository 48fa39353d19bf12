package view

import (
	"iter"
	"math"

	"remora/wire"
)

// prices are what items cost, each counted once at most.
type prices struct {
	r       *Request
	counted []int64 // by item; -1 for those that were not counted
}

func newPrices(r *Request) prices { return prices{r: r} }

// of is what an item costs.
func (p *prices) of(item int) int64 {
	if p.counted == nil {
		p.counted = make([]int64, len(p.r.Items))
		for i := range p.counted {
			p.counted[i] = -1
		}
	}
	if p.counted[item] < 0 {
		p.counted[item] = int64(max(0, p.r.Tokens(p.r.Items[item])))
	}
	return p.counted[item]
}

// compactions is what the compactions before an item cost, which no window leaves out.
func (p *prices) compactions(before int) (sum int64) {
	for i, it := range p.r.Items[:before] {
		if it.Kind == wire.Compaction {
			sum += p.of(i)
		}
	}
	return sum
}

// within tells whether the items from the first one on cost at most limit. It counts as few of them as settle that,
// the newest first.
func (p *prices) within(first int, limit int64) bool {
	items := p.r.Items[first:]
	atMost := make([]int64, len(items))
	var most, counted int64
	for i, it := range items {
		atMost[i] = int64(p.r.AtMost(it))
		most += atMost[i]
	}
	for i := len(items) - 1; i >= 0 && most > limit; i-- {
		cost := p.of(first + i)
		if counted += cost; counted > limit {
			return false
		}
		most += cost - atMost[i]
	}
	return most <= limit
}

// byTokens is where the limit by tokens has a window begin that otherwise begins at start.
func (c *chooser) byTokens(start, limit int) int {
	inside := c.w.InFlight == InFlightWindow || c.round < 0
	if !inside && c.w.MaxExpansion > 0 && limit <= math.MaxInt/c.w.MaxExpansion {
		if bound := limit * c.w.MaxExpansion; !c.fits(max(start, c.round), bound) {
			inside, limit = true, bound
		}
	}
	if !inside && start >= c.round {
		return start
	}
	target := limit - int(float64(limit)*c.w.EvictShare)
	if c.fits(start, limit) && (!c.r.Cold || c.fits(start, target)) {
		return start
	}
	last := len(c.units)
	if !inside {
		last = c.round
	}
	return c.cutTo(start, last, int64(target), int64(limit))
}

// fits tells whether a window that begins at start costs at most limit, with what is pinned before it.
func (c *chooser) fits(start, limit int) bool {
	first, free := c.units[start].item, int64(limit)
	free -= c.price.compactions(first) + c.pinned(c.pinOf(start))
	return free >= 0 && c.price.within(first, free)
}

// pinned is what a pinned unit costs, 0 for none.
func (c *chooser) pinned(pin int) int64 {
	if pin < 0 {
		return 0
	}
	return c.price.of(c.units[pin].item)
}

// cutTo is the first place between two units for a cut that leaves at most target tokens and splits no group. A group
// without which less than half of that would be left stays while it is within limit: it is as a rule a large result
// that was just asked for. Where no cut is good enough it is the last one.
func (c *chooser) cutTo(first, last int, target, limit int64) int {
	best, left := first, int64(-1) // the place found, and what a cut there leaves
	for i, cost := range c.places(first, last, limit) {
		if left >= 0 && cost > target {
			if 2*left < target && cost <= limit {
				return i
			}
			return best
		}
		best, left = i, cost
		if cost > target {
			break
		}
	}
	return best
}

// places are the units between first and last before which a cut splits no group, and what it leaves, from the last on.
// What is more than limit is not counted further.
func (c *chooser) places(first, last int, limit int64) iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		splits, pins := groupSplits(c.units, first), c.pins(first)
		sum := c.price.compactions(len(c.r.Items))
		for i := len(c.units) - 1; i >= first; i-- {
			item := c.units[i].item
			if i > first && c.units[i-1].item == item {
				continue
			}
			if sum <= limit && c.r.Items[item].Kind != wire.Compaction {
				sum += c.price.of(item)
			}
			if i > last || i < last && splits[i-first] {
				continue
			}
			if !yield(i, sum+c.pinned(pins[i-first])) {
				return
			}
		}
	}
}

// pins are pinOf for every unit from first on.
func (c *chooser) pins(first int) []int {
	pins := make([]int, len(c.units)-first)
	inside := c.w.InFlight == InFlightWindow
	opened := c.pinOf(first)
	for i := range pins {
		pins[i] = opened
		if at := first + i; isUser(c.units[at]) && (inside || at == c.round) {
			pins[i], opened = -1, at
		}
	}
	return pins
}
