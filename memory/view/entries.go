package view

import (
	"slices"
	"sort"

	"remora/wire"
)

// entry is a part of a conversation's items, with its place in the view. Passes over the list of entries mark the entries that
// they leave out with a reason: the window (view.go, window.go), the repair of pairs (pairs.go, orphans.go), and then, by
// [View.LeaveOut], the budget and the policy (fit.go) and summaries.
type entry struct {
	*wire.Part     // the item's own: a copy would be most of an entry's size
	item       int // index in the list of items
	// message is the last item of the message that the entry is sent in. That is its own item, unless wire.ConvertAll joins the items of
	// an answer of another dialect.
	message int
	role    wire.Role
	// hidden: the client does not see it. It counts as zero units, so that cuts do not move.
	hidden bool
	why    Reason
}

// Reason is why an entry, or a block of a layer, is not sent.
type Reason uint8

// Reasons, in the order of the passes.
const (
	ReasonNone    Reason = iota // it is sent
	ReasonWindow                // the history window begins after it
	ReasonOrphan                // upstream would refuse it: its partner is missing, or it led to nothing
	ReasonBudget                // it did not fit, or is older than an item that did not
	ReasonPolicy                // older than the newest Policy.Window items or Policy.Turns pairs
	ReasonGroup                 // it would fit, but not its whole group
	ReasonSummary               // a summary contains it
	ReasonTools                 // a call that the client does not see, in a request without tools, or its result
)

// String returns the reason in a word, empty for none.
func (r Reason) String() string {
	return [...]string{"", "window", "orphan", "budget", "policy", "group", "summary", "tools"}[min(r, ReasonTools)]
}

// Out is one item that is left out of a view: its index there, after the system prompt.
type Out struct {
	Index int
	Why   Reason
}

// Counts are numbers of units of a conversation. A unit is a part of an item.
type Counts struct {
	Sent     int
	Windowed int // left out by the window, by the policy, or before the view was chosen
	// Orphans were left out because their partner is missing: calls, results, and reasoning that led to such calls or to
	// nothing.
	Orphans int
}

// LeftOut is an item, or one of its calls, that was left out although the window kept it: a call without a result, a result
// without a call, or their reasoning.
type LeftOut struct {
	Item int    `json:"item"` // index in the conversation of this call, after the system prompt
	Call string `json:"call,omitempty"`
	At   int    `json:"at,omitempty"` // place in the view, from 1, of the message that remains without the call
}

// entriesOf splits items into entries, for a request in dialect d.
func entriesOf(d wire.Dialect, items []wire.Item) []entry {
	entries := make([]entry, 0, len(items)+len(items)/4)
	for i := range items {
		for n := range items[i].Parts {
			entries = append(entries, entry{Part: &items[i].Parts[n], item: i, message: i, role: items[i].Role})
		}
	}
	if !d.Rules().OneItem {
		return entries
	}
	answers := func(e *entry) bool { // with more items
		from := items[e.item].Dialect
		return from != d && !from.Rules().OneItem && e.ofModel()
	}
	for i := len(entries) - 2; i >= 0; i-- {
		if answers(&entries[i]) && answers(&entries[i+1]) {
			entries[i].message = entries[i+1].message
		}
	}
	return entries
}

// sent reports whether the view has the entry.
func (e *entry) sent() bool { return e.why == ReasonNone }

// ofModel reports whether the entry is part of what a model answers.
func (e *entry) ofModel() bool { return e.OfModel(e.role) }

// ofModel reports whether an item is.
func ofModel(it wire.Item) bool { return it.Parts[0].OfModel(it.Role) }

// Count returns the numbers of sent and left-out units of the conversation.
func (v *View) Count() Counts {
	n := Counts{Windowed: v.Outside}
	for i := range v.entries {
		switch v.entries[i].why {
		case ReasonNone:
			n.Sent++
		case ReasonOrphan:
			n.Orphans++
		default:
			n.Windowed++
		}
	}
	return n
}

// LeftOut lists the entries that the repair left out, and the calls that the window cut off the first message it kept.
func (v *View) LeftOut() (list []LeftOut) {
	for i := range v.entries {
		e := &v.entries[i]
		if e.why != ReasonOrphan && e.why != ReasonWindow || e.item < v.From {
			continue
		}
		out := LeftOut{Item: e.item}
		if e.Kind == wire.ToolCall {
			out.Call = e.Call.ID
		}
		if at, remains := slices.BinarySearch(v.Kept, e.item); remains {
			out.At = at + 1
		}
		list = append(list, out)
	}
	return list
}

// LeaveOut removes more items from the view, by their index after the system prompt, ascending. Copies of the view do not
// change.
func (v *View) LeaveOut(system int, out ...Out) {
	entries := slices.Clone(v.entries)
	items, kept := v.Items[:system:system], make([]int, 0, len(v.Kept))
	for i, it := range v.Items[system:] {
		if len(out) == 0 || out[0].Index != i {
			items, kept = append(items, it), append(kept, v.Kept[i])
			continue
		}
		item := v.Kept[i]
		for at := sort.Search(len(entries), func(n int) bool { return entries[n].item >= item }); at < len(entries) && entries[at].item == item; at++ {
			if entries[at].sent() {
				entries[at].why = out[0].Why
			}
		}
		out = out[1:]
	}
	v.Items, v.Kept, v.entries = items, kept, entries
}
