package view

import (
	"slices"

	"remora/wire"
)

// dropOrphans leaves out entries in the window that upstream would refuse, and reports whether there are any.
func dropOrphans(d wire.Dialect, body []wire.Item, entries []entry, partner []int) bool {
	dropped := dropUnpaired(d, entries, partner)
	if dropRepeated(d, body, entries) {
		dropped = true
		dropUnpaired(d, entries, partner)
	}
	return dropAloneReasoning(body, entries) || dropped
}

// dropRepeated leaves out repetitions of an item with the same id: upstream refuses a request with one id twice. The first one
// stays, so that the sent history does not change. Different items with one id are not repetitions: servers differ in their use
// of ids.
func dropRepeated(d wire.Dialect, body []wire.Item, entries []entry) (dropped bool) {
	if !d.Rules().References {
		return false
	}
	first := make(map[string]int) // item, by id
	for i := range entries {
		e := &entries[i]
		it := &body[e.item]
		if !e.sent() || it.ID == "" {
			continue
		}
		at, again := first[it.ID]
		switch {
		case !again:
			first[it.ID] = e.item
		case it.Kind == wire.Reference || body[at].Kind == wire.Reference || it.ContentHash() == body[at].ContentHash():
			e.why = ReasonOrphan
			dropped = true
		}
	}
	return dropped
}

// dropUnpaired leaves out calls without a result, results without a call, and the reasoning that only led to such a call. A
// partner that is not sent does not count.
func dropUnpaired(d wire.Dialect, entries []entry, partner []int) (dropped bool) {
	for i := range entries {
		switch e := &entries[i]; {
		case !e.sent() || e.Kind != wire.ToolCall && e.Kind != wire.ToolResult:
		case !names(d, &e.Call):
			// A result without a call id cannot be matched: upstream accepts it.
		case partner[i] < 0 || !entries[partner[i]].sent():
			e.why = ReasonOrphan
			dropped = true
		}
	}
	if dropped {
		dropStrandedReasoning(entries)
	}
	return dropped
}

// repaired counts the client's entries in the window that upstream would refuse even if the window kept everything.
func repaired(r *Request, entries []entry, partner []int, start int) (n int) {
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].why = ReasonNone
	}
	dropOrphans(r.dialect(), r.Items, entries, partner)

	own := wire.NewItemSet(r.Own) // an equal item may be stored
	for _, e := range entries[start:] {
		if !e.sent() && own.Has(r.Items[e.item]) {
			n++
		}
	}
	return n
}

// dropStrandedReasoning leaves out reasoning that lost the rest of its answer: upstream refuses reasoning alone. Reasoning that
// had nothing after it before stays.
func dropStrandedReasoning(entries []entry) {
	var followed, lost bool // what the walk has seen of the answer after the entry
	for i := len(entries) - 1; i >= 0; i-- {
		switch e := &entries[i]; {
		case e.Kind == wire.Reasoning:
			if e.sent() && lost && !followed {
				e.why = ReasonOrphan
			}
		case e.ofModel():
			followed, lost = followed || e.sent(), lost || !e.sent()
		default:
			followed, lost = false, false
		}
	}
}

// dropAloneReasoning leaves out reasoning with an id that led to nothing: the answer ended while the model thought, because of
// a token limit or a disconnected client. Upstream refuses it.
func dropAloneReasoning(body []wire.Item, entries []entry) (dropped bool) {
	alone := true
	for i := len(entries) - 1; i >= 0; i-- {
		switch e := &entries[i]; {
		case !e.sent():
		case e.Kind != wire.Reasoning:
			alone = e.Kind == wire.ToolResult || e.Kind == wire.Message && e.role != wire.Assistant
		case alone && body[e.item].ID != "":
			e.why = ReasonOrphan
			dropped = true
		}
	}
	return dropped
}
