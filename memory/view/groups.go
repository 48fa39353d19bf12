package view

import (
	"slices"

	"remora/wire"
)

// Groups finds the items of a history that upstream accepts only together: a message or call with all its results, and
// reasoning with the rest of its answer. The result has one number per item, as in [Candidate].Group: 0 for an item
// that stands alone, equal numbers within a group. An item whose partner is not in the list stands alone; Groups does
// not know whether upstream has the partner. Resolve item_references before.
//
// Some models use the same ids again in every round. So a result belongs to the newest unanswered call before it that
// it matches; any other result belongs to its nearest match, so that a flaw in one round does not tie it to another.
// Items are not changed.
func Groups(items []wire.Item) []int {
	g := groupsOf(items)
	return g.numbers()
}

func groupsOf(items []wire.Item) grouping {
	g := grouping{parent: make([]int, len(items)), byKey: make(map[string][]*calls)}
	for i := range items {
		g.parent[i] = i
	}
	g.reasoning(items)
	g.pairs(items)
	return g
}

// grouping is a forest in which a tree is a group; the root is its smallest index.
type grouping struct {
	parent []int
	byKey  map[string][]*calls // by what a call and its result share; per key one entry for each family of tools
}

// calls are all calls with one key and family.
type calls struct {
	call    wire.Call
	open    []int // items of those without a result yet, oldest first
	first   int   // item of the oldest one
	newest  int   // item of the newest one
	results []int // items of results for any of them
}

func (g *grouping) root(i int) int {
	for g.parent[i] != i {
		g.parent[i] = g.parent[g.parent[i]]
		i = g.parent[i]
	}
	return i
}

func (g *grouping) join(i, j int) {
	i, j = g.root(i), g.root(j)
	g.parent[max(i, j)] = min(i, j)
}

// reasoning joins reasoning to the model's items right after it: upstream refuses either without the other, and one
// reasoning item may lead to several parallel calls.
func (g *grouping) reasoning(items []wire.Item) {
	led := false
	for i, it := range items {
		if led && ofModel(it) {
			g.join(i-1, i)
		}
		led = ofModel(it) && (led || it.Kind == wire.Reasoning)
	}
}

// ofModel reports whether an item is part of what a model answers.
func ofModel(it wire.Item) bool {
	switch it.Kind {
	case wire.ToolCall, wire.Reasoning:
		return true
	case wire.Other:
		return it.Answers().ID == ""
	case wire.Message:
		return it.Role == wire.Assistant
	default:
		return false
	}
}

// pairs joins calls and results. Some of what it does is for histories that are legal only in Responses, where the set
// of ids counts: a result before its call, a second result, a second call.
func (g *grouping) pairs(items []wire.Item) {
	type result struct {
		item int
		part *wire.Part
	}
	var early []result
	for i := range items {
		for n := range items[i].Parts {
			p := &items[i].Parts[n]
			if p.Answerable() {
				g.call(i, p.Call)
			} else if p.Kind == wire.ToolResult && !g.answer(i, p.Call) {
				early = append(early, result{i, p})
			}
		}
	}
	for _, r := range early {
		g.answerEarly(r.item, r.part.Call)
	}
	for _, families := range g.byKey {
		for _, c := range families {
			g.unanswered(c)
		}
	}
}

func (g *grouping) call(item int, c wire.Call) {
	key := groupKey(c)
	at := slices.IndexFunc(g.byKey[key], func(have *calls) bool { return have.call.Family == c.Family })
	if at < 0 {
		at = len(g.byKey[key])
		g.byKey[key] = append(g.byKey[key], &calls{call: c, first: item})
	}
	have := g.byKey[key][at]
	have.open, have.newest = append(have.open, item), item
}

// answer joins a result to the newest unanswered call that it matches, or to the newest one if it is a second result.
// False: there was no such call yet.
func (g *grouping) answer(item int, a wire.Call) bool {
	c := g.newestMatch(a, func(c *calls) bool { return len(c.open) > 0 })
	if c != nil {
		last := len(c.open) - 1
		g.join(item, c.open[last])
		c.open = c.open[:last]
	} else if c = g.newestMatch(a, func(*calls) bool { return true }); c != nil {
		g.join(item, c.newest)
	} else {
		return false
	}
	c.results = append(c.results, item)
	return true
}

// answerEarly joins a result that came before every call that it matches.
func (g *grouping) answerEarly(item int, a wire.Call) {
	c := g.newestMatch(a, func(*calls) bool { return true })
	if c == nil {
		return
	}
	call := c.first
	if len(c.open) > 0 {
		call, c.open = c.open[0], c.open[1:]
	}
	g.join(item, call)
	c.results = append(c.results, item)
}

// unanswered joins calls that got no result of their own to the next one for another call, or to the last.
func (g *grouping) unanswered(c *calls) {
	if len(c.results) == 0 {
		return
	}
	slices.Sort(c.results)
	for _, i := range c.open {
		next, _ := slices.BinarySearch(c.results, i)
		g.join(i, c.results[min(next, len(c.results)-1)])
	}
}

// newestMatch returns, among the calls that a result matches and that ok accepts, those with the newest call, or nil.
func (g *grouping) newestMatch(a wire.Call, ok func(*calls) bool) *calls {
	var best *calls
	for _, c := range g.byKey[groupKey(a)] { // as many as there are families: few
		if wire.Matches(c.call, a) && ok(c) && (best == nil || c.newest > best.newest) {
			best = c
		}
	}
	return best
}

// groupKey returns what a call shares with its result: the id, or the name where the dialect has no ids.
func groupKey(c wire.Call) string {
	if c.ID == "" {
		return c.Family + "\x00" + c.Name
	}
	return c.ID
}

// exchanges joins a user message with what the model says right after it, and the items of one answer where a
// dialect has several.
func (g *grouping) exchanges(items []wire.Item) {
	for i := 1; i < len(items); i++ {
		before, it := items[i-1], items[i]
		switch {
		case !ofModel(it):
		case asked(before):
			g.join(i-1, i)
		case !it.Dialect.Rules().OneItem && ofModel(before) && (before.Kind != wire.Message || it.Kind != wire.Message):
			g.join(i-1, i)
		}
	}
}

// numbers names each group by its first item, counted from 1.
func (g *grouping) numbers() []int {
	numbers := make([]int, len(g.parent))
	for i := range g.parent {
		if root := g.root(i); root != i {
			numbers[i], numbers[root] = root+1, root+1
		}
	}
	return numbers
}
