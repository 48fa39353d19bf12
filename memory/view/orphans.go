package view

import (
	"slices"

	"remora/wire"
)

// unpaired marks, in keep, the units that upstream would refuse: calls without a result, results without a call, and
// the reasoning that only led to such a call. Units that keep already excludes do not count as partners. It returns
// how many units it excluded.
//
// In Responses a pair is a matter of the set of call ids, wherever its halves stand (SEMANTICS 1.3, step 7). In Chat
// ids come back in later rounds, so there a result belongs to the latest open call of its id.
func unpaired(units []unit, dialect wire.Dialect, keep []bool) int {
	if !hasPairs(units) {
		return 0
	}
	var dropped int
	if dialect == wire.Chat {
		dropped = unpairedInOrder(units, keep)
	} else {
		dropped = unpairedInSet(units, keep)
	}
	if dropped > 0 {
		dropped += strandedReasoning(units, keep)
	}
	return dropped
}

// hasPairs tells whether there is anything that can lose its partner.
func hasPairs(units []unit) bool {
	for i := range units {
		if k := units[i].kind; k == wire.ToolCall || k == wire.ToolResult {
			return true
		}
	}
	return false
}

// pairKey is what a call and its result share. Results of kinds that upstream lets answer one another (a local shell
// call answered by a function result) share the id alone.
func pairKey(c wire.Call) string {
	if c.ID == "" {
		return c.Family + "\x00" + c.Name
	}
	return c.ID
}

// byID counts calls or results by their id, and for one id by their family with the names left out. There are as many
// families as kinds of tools that the API knows, so that a look-up does not grow with the history.
type byID map[string]families

// families are how many calls or results there are of each family. Nearly always that is one, which is kept in place.
type families struct {
	first family
	more  []family
}

type family struct {
	name string
	n    int
}

// count changes how many there are of a pair's family.
func (c byID) count(pair wire.Call, by int) {
	all, known := c[pair.ID]
	if !known {
		all.first.name = pair.Family
	}
	if all.first.name == pair.Family {
		all.first.n += by
		c[pair.ID] = all
		return
	}
	at := slices.IndexFunc(all.more, func(f family) bool { return f.name == pair.Family })
	if at < 0 {
		at, all.more = len(all.more), append(all.more, family{name: pair.Family})
		c[pair.ID] = all
	}
	all.more[at].n += by
}

// find returns a pair of that id which is not used up and matches, one of the wanted family before others.
func (c byID) find(id, wanted string, match func(wire.Call) bool) (wire.Call, bool) {
	all := c[id]
	usable := func(f family) (wire.Call, bool) {
		pair := wire.Call{ID: id, Family: f.name}
		return pair, f.n > 0 && match(pair)
	}
	at := slices.IndexFunc(all.more, func(f family) bool { return f.name == wanted })
	if at >= 0 {
		if pair, ok := usable(all.more[at]); ok {
			return pair, true
		}
	}
	if pair, ok := usable(all.first); ok {
		return pair, true
	}
	for _, f := range all.more {
		if pair, ok := usable(f); ok && f.name != wanted {
			return pair, true
		}
	}
	return wire.Call{}, false
}

// unpairedInSet keeps no more results of an id than there are calls that they can answer, since upstream takes each
// call for answered once: those behind their call, then those before it. Calls need one result of their id, however
// many they are (SEMANTICS section 5, case 22).
func unpairedInSet(units []unit, keep []bool) (dropped int) {
	n := callsIn(units, keep)
	calls, results := make(byID, n), make(byID, n)
	answers := func(i int) bool {
		answer := *units[i].pair
		call, ok := calls.find(answer.ID, answer.Family, func(c wire.Call) bool { return wire.Matches(c, answer) })
		if ok {
			calls.count(call, -1)
			results.count(answer, 1)
		}
		return ok
	}
	var early []int
	for i, u := range units {
		// A result without a call id is legal: nothing says which call it answers.
		switch {
		case !keep[i] || u.pair.ID == "":
		case u.kind == wire.ToolCall:
			calls.count(*u.pair, 1)
		case u.kind == wire.ToolResult && !answers(i):
			early = append(early, i)
		}
	}
	for _, i := range early {
		if !answers(i) {
			keep[i] = false
			dropped++
		}
	}
	for i, u := range units {
		if !keep[i] || u.kind != wire.ToolCall || u.pair.ID == "" {
			continue
		}
		if _, ok := results.find(u.pair.ID, u.pair.Family, func(r wire.Call) bool { return wire.Matches(*u.pair, r) }); !ok {
			keep[i] = false
			dropped++
		}
	}
	return dropped
}

// callsIn counts the calls that are kept.
func callsIn(units []unit, keep []bool) (n int) {
	for i, u := range units {
		if keep[i] && u.kind == wire.ToolCall {
			n++
		}
	}
	return n
}

func unpairedInOrder(units []unit, keep []bool) int {
	open := make(map[string]int)
	answered := make([]bool, len(units))
	for i, u := range units {
		switch {
		case !keep[i]:
		case u.kind == wire.ToolCall:
			open[pairKey(*u.pair)] = i
		case u.kind == wire.ToolResult:
			if call, ok := open[pairKey(*u.pair)]; ok {
				answered[call], answered[i] = true, true
				delete(open, pairKey(*u.pair))
			}
		}
	}
	var dropped int
	for i, u := range units {
		if keep[i] && !answered[i] && (u.kind == wire.ToolCall || u.kind == wire.ToolResult) {
			keep[i] = false
			dropped++
		}
	}
	return dropped
}

// strandedReasoning excludes reasoning whose answer lost every item that it led to: upstream refuses reasoning
// without what follows it. Reasoning of whose answer nothing is kept stays if nothing was dropped either.
func strandedReasoning(units []unit, keep []bool) (dropped int) {
	var followed, lost bool // what the walk has seen of the answer behind the unit
	for i, u := range slices.Backward(units) {
		switch {
		case u.kind == wire.Reasoning:
			if keep[i] && lost && !followed {
				keep[i] = false
				dropped++
			}
		case modelMade(u):
			followed, lost = followed || keep[i], lost || !keep[i]
		default:
			followed, lost = false, false
		}
	}
	return dropped
}

// aloneReasoning excludes reasoning that led to nothing before the next message of another than the model: an answer that
// ended while the model thought, for want of tokens or of a client. Upstream refuses it by its id.
func aloneReasoning(body []wire.Item, units []unit, keep []bool) (dropped int) {
	alone := false
	for i, u := range slices.Backward(units) {
		switch {
		case !keep[i]:
		case u.kind != wire.Reasoning:
			alone = u.kind == wire.Message && u.role != wire.Assistant
		case alone && body[u.item].ID != "":
			keep[i] = false
			dropped++
		}
	}
	return dropped
}
