package view

import "remora/wire"

// Groups finds the items of a history that upstream accepts only together: a message or call with all its results, and
// reasoning with the rest of its answer. The result has one number per item, as in [Candidate].Group: 0 for a single item,
// equal numbers within a group. An item whose partner is not in the list is single; Groups does not know whether upstream has
// the partner. Resolve item_references before. Items are not changed.
func Groups(items []wire.Item) []int {
	entries, g := groupsOf(items)
	return g.numbers(entries, len(items))
}

// groupsOf splits a history into entries and groups them.
func groupsOf(items []wire.Item) ([]entry, grouping) {
	if len(items) == 0 {
		return nil, nil
	}
	d := items[len(items)-1].Dialect
	entries := entriesOf(d, items)
	return entries, grouped(entries, partners(d, entries), 0)
}

// grouping is a forest of entries in which a tree is a group: it has the parent of each, and the root is its smallest index.
type grouping []int

// grouped groups the entries from low on, which it counts from there, and looks at no others: the parts of a message, a call
// and its results, reasoning and the rest of its answer (it may lead to several parallel calls), a program without a result
// and its run, since it may have made the calls there, and an item and the hidden items after it.
func grouped(entries []entry, partner []int, low int) grouping {
	g := make(grouping, len(entries)-low)
	var reasoned, program bool
	for n := range g {
		g[n] = n
		i := low + n
		e := &entries[i]
		reasoned, program = reasoned && e.ofModel(), program && e.role != wire.User
		if n > 0 && (reasoned || program || e.hidden || e.item == entries[i-1].item) {
			g.join(n-1, n)
		}
		if p := partner[i]; p >= low && p < i {
			g.join(p-low, n)
		}
		reasoned = reasoned || e.Kind == wire.Reasoning
		program = program || partner[i] == none && e.Call.Family == wire.FamilyProgram
	}
	return g
}

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

// exchanges joins a user message with the answer right after it, and the items of one answer if a dialect has several.
func (g grouping) exchanges(items []wire.Item, entries []entry) {
	for i := 1; i < len(entries); i++ {
		before, e := &entries[i-1], &entries[i]
		several := !items[e.item].Dialect.Rules().OneItem && before.ofModel() && (before.Kind != wire.Message || e.Kind != wire.Message)
		if e.ofModel() && (before.role == wire.User || several) {
			g.join(i-1, i)
		}
	}
}

// numbers names the group of each item by its first item, counted from 1.
func (g grouping) numbers(entries []entry, items int) []int {
	numbers := make([]int, items)
	for i := range g {
		if item, first := entries[i].item, entries[g.root(i)].item; first != item {
			numbers[item], numbers[first] = first+1, first+1
		}
	}
	return numbers
}

// splits reports for every entry whether a cut right before it would split a group.
func (g grouping) splits() []bool {
	last := make([]int, len(g)) // entry of a group, by its root
	for i := range g {
		last[g.root(i)] = i
	}
	splits := make([]bool, len(g))
	furthest := -1
	for i := range splits {
		splits[i] = furthest >= i
		furthest = max(furthest, last[i])
	}
	return splits
}
