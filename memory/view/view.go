// Package view chooses the part of a conversation that is sent upstream.
//
// [Assemble] takes a [Request], which is the conversation and a [Window], and returns a [View]: the items to send, and for
// each one that is left out the reason. It cuts the history to the window (window.go), keeps tool calls and their results
// together (pairs.go) and leaves out those without their partner (orphans.go), by passes over one list (entries.go).
//
// [Fit] then cuts the view to the budget of a [Policy] (fit.go). [Prefix] keeps the beginning of a view unchanged from turn to
// turn, for the provider's prompt cache (prefix.go): a layer's [Block] stays there until the next version of the prefix.
// [Messages] puts items and blocks into the roles and the order that a server accepts (roles.go).
//
// The package is pure: it has no I/O, clock, store or tokenizer, and does not call layers; package pipeline does. Callers pass
// in the price of an item in tokens.
package view

import (
	"slices"

	"remora/wire"
)

// View is the list of items to send, with the reasons for leaving out the others.
type View struct {
	Items  []wire.Item
	Kept   []int       // index in the conversation of each item, without the system prompt
	From   int         // index in the conversation of the first item that the window kept
	Pinned int         // index of the item pinned before that, -1 for none
	Start  WindowStart // where the window begins, to be given with the session's next request
	// Outside is how many units of the conversation were left out before the view was chosen from the others.
	Outside int
	// Repaired counts the client's own items that upstream would have refused even without a window: orphans that were left
	// out, and results that were moved. Orphans also counts stored items and those that lost their partner to the window.
	Repaired int

	entries []entry // of the conversation, with why each is not sent
}

// Request is the input of Assemble.
type Request struct {
	// System are the system and developer items at the beginning, Items the rest of the conversation, oldest first.
	System, Items []wire.Item
	// Hidden marks the Items that the client does not see; nil if it sees all of them.
	Hidden []bool
	// Offset is the number of units of the conversation before Items.
	Offset int
	// Resolved are the Items with the targets of references that are known in their places (session.Place.Resolved); nil if
	// there are none. All is chosen by these, and the Items are sent.
	Resolved []wire.Item
	// Own are the items that the client sent with this request, with the system prompt. Those of Items that are among them
	// share their bytes.
	Own []wire.Item
	// Moved are the indices of Items that the client sent in another place.
	Moved []int
	// Window chooses from Items; nil keeps all of them.
	Window *Window
	WindowInput
}

// WindowInput is used by a window that counts tokens or has an IdleReset.
type WindowInput struct {
	// Context is the model's context length in tokens, 0 where it is not known.
	Context int
	// Most is the maximum tokens of history that upstream accepts, learnt from a refusal; 0 if unknown.
	Most int
	// Tokens returns the price of an item; without it, limits by tokens have no effect. AtMost returns a cheap upper bound of it: at
	// least the item's bytes. Tokens is called only if AtMost does not decide.
	Tokens, AtMost func(wire.Item) int
	// Keys returns the keys of Items (session.HistoryReader.ItemKeys); nil if unknown. It is called at most once.
	Keys func() []wire.Hash
	// Previous is the Start of the session's latest view, zero where there is none.
	Previous WindowStart
	// Apart: the request stands beside the session's conversation, and Previous, if any, is not of its own history.
	Apart bool
	// Cold: the session was idle for longer than the window's IdleReset.
	Cold bool
}

// Assemble builds the view of a conversation: the system prompt as it is, then the window over the rest without
// what upstream would refuse. Items that nothing is taken from are the same values as in the request, so that encoding
// re-emits their bytes.
func Assemble(r Request) View {
	system, body := r.System, r.Items
	if r.Resolved == nil {
		r.Resolved = r.Items
	}
	v := View{Pinned: -1}
	if len(body) == 0 {
		v.Start, v.Items = r.Previous, append(make([]wire.Item, 0, len(system)), system...)
		return v
	}
	v.entries = entriesOf(r.dialect(), r.Resolved)
	partner := partners(r.dialect(), v.entries)
	separate(r.dialect(), v.entries, partner)
	start := v.window(&r, partner)
	if dropOrphans(r.dialect(), body, v.entries, partner) {
		v.Repaired = repaired(&r, v.entries, partner, start)
	}
	if len(system) == 0 && len(r.Own) == len(body) && !slices.ContainsFunc(v.entries, func(e entry) bool { return e.sent() }) {
		v.sendOrphans()
	}

	most := min(v.Count().Sent, len(body)) // items: each that is sent has an entry
	v.Items, v.Kept = append(make([]wire.Item, 0, len(system)+most), system...), make([]int, 0, most)
	v.project(body)
	for _, item := range r.Moved {
		if _, sent := slices.BinarySearch(v.Kept, item); sent {
			v.Repaired++
		}
	}
	return v
}

// Whole is the view of a conversation that is sent unchanged.
func Whole(system, items []wire.Item) View {
	v := View{Items: slices.Concat(system, items), Kept: make([]int, len(items)), Pinned: -1}
	for i := range v.Kept {
		v.Kept[i] = i
	}
	return v
}

// sendOrphans restores the client's orphans in a view that would be empty otherwise. Upstream refuses an empty request, too,
// and its error for this one is specific.
func (v *View) sendOrphans() {
	for i := range v.entries {
		if e := &v.entries[i]; e.why == ReasonOrphan {
			e.why = ReasonNone
		}
	}
	v.Repaired = 0
}

// window leaves out the entries before the history window. It returns the first kept entry.
func (v *View) window(r *Request, partner []int) (start int) {
	if r.Window == nil {
		return 0
	}
	c := chooser{r: r, w: r.Window, entries: v.entries, partner: partner, run: lastUser(v.entries), price: prices{r: r}}
	start, pinned, at := c.choose()
	v.Start = at
	if start < len(v.entries) {
		v.From = v.entries[start].item
	}
	if pinned >= 0 {
		v.Pinned = v.entries[pinned].item
	}
	for i := range v.entries[:start] {
		e := &v.entries[i]
		// A text is sent with the calls of its message even if the window begins between them.
		if i != pinned && !c.stays(e.item) && (e.Kind == wire.ToolCall || e.item != v.From) {
			e.why = ReasonWindow
		}
	}
	return start
}

// project appends the sent items of body to the view.
func (v *View) project(body []wire.Item) {
	for first := 0; first < len(v.entries); {
		item, end, sent := v.entries[first].item, first, 0
		for ; end < len(v.entries) && v.entries[end].item == item; end++ {
			if v.entries[end].sent() {
				sent++
			}
		}
		it, ok := body[item], sent > 0
		if ok && sent < end-first {
			it, ok = it.Keep(func(part int) bool { return v.entries[first+part].sent() })
		}
		if ok {
			v.Items, v.Kept = append(v.Items, it), append(v.Kept, item)
		}
		first = end
	}
}

// dialect returns the request's dialect: the newest item is the client's.
func (r *Request) dialect() wire.Dialect { return r.Items[len(r.Items)-1].Dialect }
