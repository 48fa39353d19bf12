package view

import "remora/wire"

// Groups finds the items of a history that upstream accepts only together: a message or call with all its results, and
// reasoning with the rest of its answer. The result has one number per item, as in [Candidate].Group: 0 for a single item,
// equal numbers within a group. An item whose partner is not in the list is single; Groups does not know whether upstream has
// the partner. Resolve item_references before. Items are not changed.
func Groups(items []wire.Item) []int { return groupsOf(items).numbers() }

func groupsOf(items []wire.Item) grouping {
	g := make(grouping, len(items))
	for i := range items {
		g[i] = i
	}
	g.reasoning(items)
	g.pairs(items)
	return g
}

// grouping is a forest of items in which a tree is a group: it has the parent of each, and the root is its smallest index.
type grouping []int

func (g grouping) root(i int) int {
	for g[i] != i {
		g[i] = g[g[i]]
		i = g[i]
	}
	return i
}

func (g grouping) join(i, j int) {
	i, j = g.root(i), g.root(j)
	g[max(i, j)] = min(i, j)
}

// reasoning joins reasoning to the model's items right after it: upstream refuses either without the other, and one
// reasoning item may lead to several parallel calls.
func (g grouping) reasoning(items []wire.Item) {
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

// pairs joins calls and results.
func (g grouping) pairs(items []wire.Item) {
	if len(items) == 0 {
		return
	}
	entries := entriesOf(items)
	for i, call := range partners(items[len(items)-1].Dialect, entries) {
		if call >= 0 {
			g.join(entries[i].item, entries[call].item)
		}
	}
}

// exchanges joins a user message with the answer right after it, and the items of one answer if a dialect has several.
func (g grouping) exchanges(items []wire.Item) {
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
func (g grouping) numbers() []int {
	numbers := make([]int, len(g))
	for i := range g {
		if root := g.root(i); root != i {
			numbers[i], numbers[root] = root+1, root+1
		}
	}
	return numbers
}
