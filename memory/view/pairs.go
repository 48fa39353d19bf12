package view

import (
	"cmp"
	"slices"

	"remora/wire"
)

// none is the partner of an entry without one. Values below it are partners of replaced results (see insteadOf).
const none = -1

// insteadOf encodes the partner of a result that a later one replaces. It is its own inverse.
func insteadOf(call int) int { return none - 1 - call }

// Order returns an order of items in which upstream accepts the results: in Chat directly after the message with their calls,
// in Responses anywhere after their call. It returns the indices of items, nil if the order is valid already, and the places in
// that list of moved results. Results of one message keep their order. Items without a partner do not move; Assemble leaves
// them out. References are resolved (see [Request]).
func Order(d wire.Dialect, items []wire.Item) (order, moved []int) {
	if inOrder(d, items) {
		return nil, nil
	}

	entries := entriesOf(d, items)
	partner := partners(d, entries)
	thought := splitThoughts(entries)
	results := make(map[int][]result) // by the item after which they belong
	first := make(map[int]int)        // by call, the item of its first result
	placed, gone := make([]bool, len(items)), make([]bool, len(items))
	for i, u := range entries {
		if u.Kind != wire.ToolResult {
			continue
		}
		call := partner[i]
		if gone[u.item] = call < 0; call == none {
			continue
		}
		if call < none {
			call = insteadOf(call) // stays before the one in its place
		}
		if _, again := first[call]; !again {
			first[call] = u.item
		}
		maker := entries[call].item
		switch {
		case adjacent(d):
			maker = entries[call].message
		case maker > u.item:
			maker = endOfCalls(entries, call)
		case first[call] < u.item && first[call] > maker:
			maker = first[call] // takes the place of the one before
		case thought[i] != none:
			maker = thought[i]
		default:
			continue // its place is right
		}
		results[maker], placed[u.item] = append(results[maker], result{first[call], u.item}), true
	}

	order = make([]int, 0, len(items))
	for i := range items {
		if !placed[i] {
			order = append(order, i)
		}
		slices.SortStableFunc(results[i], func(a, b result) int { return cmp.Compare(a.at, b.at) })
		for _, r := range results[i] {
			order = append(order, r.item)
		}
	}
	if adjacent(d) {
		order = endWithResults(items, entries, order, results, placed)
	}
	if moved = movedIn(order, placed, gone); len(moved) == 0 {
		return nil, nil
	}
	return order, moved
}

// endWithResults moves calls to the end if the history ends with their results and the order would end with an answer of the
// model, which was given before the results came. Upstream should continue from the results; some refuse a history that ends
// with an answer. All calls of one message stay together. It marks the moved messages as placed.
func endWithResults(items []wire.Item, entries []entry, order []int, results map[int][]result, placed []bool) []int {
	end := len(items)
	for end > 0 && items[end-1].Kind == wire.ToolResult {
		end--
	}
	if last := items[order[len(order)-1]]; end == len(items) || last.Kind != wire.Message || last.Role != wire.Assistant || last.HasCalls() {
		return order
	}

	late := make([]bool, len(items))
	for maker, of := range results {
		if !slices.ContainsFunc(of, func(r result) bool { return r.at >= end }) {
			continue // all of them had one: these only correct it
		}
		late[maker] = true
		for _, r := range of {
			late[r.item] = true
		}
	}
	for i := range entries {
		if e := &entries[i]; e.Kind != wire.ToolResult && late[e.message] {
			late[e.item], placed[e.item] = true, true
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case late[a] == late[b]:
			return 0
		case late[b]:
			return -1
		default:
			return 1
		}
	})
	return order
}

// splitThoughts finds results between reasoning and the item that it led to, which upstream wants together. It returns for each
// of them the item before the reasoning, and none for all other entries.
func splitThoughts(entries []entry) []int {
	after := slices.Repeat([]int{none}, len(entries))
	begins := none // the reasoning that only results have followed so far
	for i := range entries {
		switch e := &entries[i]; {
		case e.Kind == wire.Reasoning && i > 0 && entries[i-1].Kind == wire.Reasoning, e.Kind == wire.ToolResult:
		case e.Kind == wire.Reasoning:
			begins = i
		default:
			for at := i - 1; begins > 0 && e.ofModel() && entries[at].Kind == wire.ToolResult; at-- {
				after[at] = entries[begins-1].item
			}
			begins = none
		}
	}
	return after
}

// result is an item that answers a call, and the place of the call's first result, which a later one takes.
type result struct{ at, item int }

// movedIn finds the placed items that precede an earlier item or follow a later one. Items that Assemble leaves out do not
// count.
func movedIn(order []int, placed, gone []bool) (moved []int) {
	rest := make([]int, len(order)) // the first of the items from each place on
	first := len(order)
	for at, i := range slices.Backward(order) {
		if !gone[i] {
			first = min(first, i)
		}
		rest[at] = first
	}

	last := none // of the items so far
	for at, i := range order {
		if placed[i] && !gone[i] && (rest[at] < i || last > i) {
			moved = append(moved, at)
		}
		if !gone[i] {
			last = max(last, i)
		}
	}
	return moved
}

// maxOpen bounds the open calls that inOrder searches for each result.
const maxOpen = 32

// inOrder quickly checks that no result has to move. False means that the full check is needed.
func inOrder(d wire.Dialect, items []wire.Item) bool {
	var open []*wire.Call
	maker := none // the item that made the last of them
	for i := range items {
		for n := range items[i].Parts {
			p := &items[i].Parts[n]
			switch {
			case p.Kind == wire.ToolResult:
				if !names(d, &p.Call) {
					continue // nothing says which call it answers
				}
				if i > 0 && items[i-1].Kind == wire.Reasoning {
					return false
				}
				at := slices.IndexFunc(open, func(c *wire.Call) bool { return wire.Matches(*c, p.Call) })
				if at < 0 {
					return false
				}
				open = slices.Delete(open, at, at+1)
			case adjacent(d) && len(open) > 0 && maker != i:
				return false
			case p.Answerable():
				if len(open) == maxOpen || p.Kind == wire.ToolCall && slices.ContainsFunc(open, func(o *wire.Call) bool { return o.ID == p.Call.ID }) {
					return false
				}
				open, maker = append(open, &p.Call), i
			}
		}
	}
	return true
}

// endOfCalls returns the last item of consecutive calls from an entry on: results follow all of them.
func endOfCalls(entries []entry, at int) int {
	for at+1 < len(entries) && entries[at+1].Kind == wire.ToolCall {
		at++
	}
	return entries[at].item
}

// pairKey is shared by a call and its result.
type pairKey struct{ id, family, name string }

// names reports whether a call or a result says what it belongs to: by its id, or by its place or its function's name.
func names(d wire.Dialect, c *wire.Call) bool {
	return c.ID != "" || c.Family == wire.FamilyLegacy || adjacent(d)
}

// keyOf returns the key of a call or a result.
func keyOf(d wire.Dialect, c *wire.Call) pairKey {
	switch {
	case c.ID == "" && c.Family == wire.FamilyFunction:
		return pairKey{family: c.Family} // a result names no function: some servers give calls no id, and order tells
	case c.ID == "":
		return pairKey{family: c.Family, name: c.Name}
	case adjacent(d):
		return pairKey{id: c.ID}
	default:
		return pairKey{id: c.ID, family: c.Family}
	}
}

// localShell is the family of calls that Codex answers with a function result.
const localShell = "local_shell"

// pairing holds the state of the calls and results of one key.
type pairing struct {
	run      int     // the entry that began the present run
	open     []int   // its calls without a result, oldest first
	early    int     // the last of its results without a call
	stale    [][]int // likewise of earlier runs, those without any left out
	answered int     // the call that was answered last
}

// partners pairs calls with results: one result a call, one call a result. It gives the partner of each entry.
//
// A result answers a call before it: the oldest open one of its run, since a run may make several before it has the results,
// and otherwise that of the latest run that has one. A further result of the same run replaces the one before. A result that comes too early answers
// the next call of its run. Of several calls with one id upstream takes only one that is open: in Responses of all, in Chat of
// those of one message. The last one stays. Ids come back in later runs.
func partners(d wire.Dialect, entries []entry) []int {
	partner := slices.Repeat([]int{none}, len(entries))
	if !alongside(d, entries, partner) {
		byKey(d, entries, partner)
	}
	return partner
}

// byKey is partners for any history.
func byKey(d wire.Dialect, entries []entry, partner []int) {
	for i := range partner {
		partner[i] = none
	}
	known := make(map[pairKey]*pairing, len(entries)/2)
	run := none
	at := func(key pairKey) *pairing {
		p := known[key]
		if p == nil {
			p = &pairing{run: run, early: none, answered: none}
			known[key] = p
		}
		p.begin(run)
		return p
	}
	for i := range entries {
		u := &entries[i]
		switch {
		case u.role == wire.User:
			run = i
		case !u.Answerable() && u.Kind != wire.ToolResult:
		case !names(d, &u.Call): // nothing says what it belongs to
		case u.Answerable():
			at(keyOf(d, &u.Call)).call(d, entries, partner, i)
		default:
			key := keyOf(d, &u.Call)
			shell := wire.Call{ID: u.Call.ID, Family: localShell}
			if known[key] == nil && wire.Matches(shell, u.Call) && known[keyOf(d, &shell)] != nil {
				key = keyOf(d, &shell)
			}
			at(key).result(partner, i)
		}
	}
}

// begin marks open calls of earlier runs as stale.
func (p *pairing) begin(run int) {
	if p.run != run {
		if len(p.open) > 0 {
			p.stale = append(p.stale, p.open)
		}
		p.run, p.open, p.early = run, nil, none
	}
}

func (p *pairing) call(d wire.Dialect, entries []entry, partner []int, call int) {
	switch last := len(p.open) - 1; {
	case p.early != none:
		p.pair(partner, call, p.early)
		p.early = none
		return
	case !adjacent(d):
		p.open, p.stale = nil, nil
	case last >= 0 && entries[p.open[last]].message == entries[call].message && entries[call].Call.ID != "":
		p.open = p.open[:last]
	default:
	}
	p.open = append(p.open, call)
}

func (p *pairing) result(partner []int, result int) {
	last := len(p.stale) - 1
	switch {
	case len(p.open) > 0:
		p.pair(partner, p.open[0], result)
		p.open = p.open[1:]
	case p.answered != none && partner[p.answered] > p.run:
		partner[partner[p.answered]] = insteadOf(p.answered)
		p.pair(partner, p.answered, result)
	case last >= 0:
		calls := p.stale[last]
		p.pair(partner, calls[0], result)
		if p.stale[last] = calls[1:]; len(calls) == 1 {
			p.stale = p.stale[:last]
		}
	default:
		p.early = result
	}
}

func (p *pairing) pair(partner []int, call, result int) {
	partner[call], partner[result], p.answered = result, call, call
}

// separate splits pairs in positions that upstream refuses: a result before its call, and in Chat one that is not directly
// after the message with its call. Order leaves such pairs only if ids are ambiguous.
func separate(d wire.Dialect, entries []entry, partner []int) {
	maker := none // the end of the message that results may answer here
	for i, u := range entries {
		if u.Kind != wire.ToolResult {
			maker = u.message
			continue
		}
		if call := partner[i]; call > i || call >= 0 && adjacent(d) && entries[call].message != maker {
			partner[call], partner[i] = none, none
		}
	}
}

// alongside is partners for a history without ambiguous ids and with few open calls at a time, the usual case. It reports
// whether the history is one.
func alongside(d wire.Dialect, entries []entry, partner []int) bool {
	var open [maxOpen]int
	n := 0
	for i := range entries {
		u := &entries[i]
		if !u.Answerable() && u.Kind != wire.ToolResult || !names(d, &u.Call) {
			continue
		}
		key := keyOf(d, &u.Call)
		at := slices.IndexFunc(open[:n], func(call int) bool { return keyOf(d, &entries[call].Call) == key })
		switch {
		case u.Answerable() && at < 0 && n < maxOpen:
			open[n] = i
			n++
		case u.Kind == wire.ToolResult && at >= 0:
			partner[open[at]], partner[i] = i, open[at]
			copy(open[at:n], open[at+1:n])
			n--
		default:
			return false
		}
	}
	return true
}

// adjacent reports whether results follow directly after the message with their calls. Ids may then be reused in later runs,
// and the id alone pairs a result.
func adjacent(d wire.Dialect) bool { return d.Rules().ResultsAdjacent }
