// Package view chooses which items of a conversation are sent upstream: the history window, and the repair of tool
// calls and results that lost their partner. It is pure: items in, items out, no state, no store.
package view

import "remora/wire"

// LeftOut is an item, or one call of it, that the view lacks although the window would have kept it: a call without
// a result, a result without a call, or the reasoning that belonged to one.
type LeftOut struct {
	Item int    `json:"item"` // index in the conversation of this call, after the leading system items
	Call string `json:"call,omitempty"`
	At   int    `json:"at,omitempty"` // place in the view, from 1, of the message that remains without the call
}

// View is what to send, and how it was chosen.
type View struct {
	Items    []wire.Item
	Kept     []int // index in the conversation of each item, without the leading ones
	From     int   // index in the conversation of the first item that the window kept
	Pinned   int   // index of the item pinned before that, -1 for none
	Units    int   // units of the conversation that are sent
	Windowed int   // units that the window left out
	Start    Cut   // where the window begins, to be given with the session's next request
	Orphans  int   // units left out for want of their partner: calls, results, and reasoning that led to such calls or to nothing
	// LeftOut names what the repair left out.
	LeftOut []LeftOut
}

// Request is what a view is made of.
type Request struct {
	// Lead are the leading system and developer items, Items the rest of the conversation, oldest first.
	Lead, Items []wire.Item
	// Hidden tells which of Items the client does not see; nil where it sees all of them.
	Hidden []bool
	// Offset is how many units of the conversation stand before Items without being among them.
	Offset int
	// Resolve tells what a reference stands for; nil leaves references opaque.
	Resolve func(wire.Item) (wire.Item, bool)
	// Window chooses from Items; nil keeps all of them.
	Window *Window
	Anchor
}

// Anchor is what a window needs besides the conversation if it counts tokens, or has an IdleReset.
type Anchor struct {
	// Context is the model's context length in tokens, 0 where nobody knows it.
	Context int
	// Tokens prices an item. AtMost is a number of tokens that Tokens never exceeds, found more cheaply. Without them,
	// limits by tokens do not bind. Tokens is called only where AtMost does not settle the matter.
	Tokens, AtMost func(wire.Item) int
	// Keys names Items, as transcript.Entry.Keys does; nil where their names are not known. It is called at most once.
	Keys func() []wire.Hash
	// Cut is that of the session's latest view, zero where there is none.
	Cut Cut
	// Cold tells that the session was idle for longer than the window's IdleReset.
	Cold bool
}

// Assemble builds the view of a conversation: the leading items as they are, then the window over the rest without
// what upstream would refuse. Items that nothing is taken from are the same values as in the request, so that encoding
// re-emits their bytes.
func Assemble(r Request) View {
	lead, body := r.Lead, r.Items
	v := View{Pinned: -1}
	if len(body) == 0 {
		v.Start, v.Items = r.Cut, append(make([]wire.Item, 0, len(lead)), lead...)
		return v
	}
	units := unitsOf(body, r.Resolve)
	start, pinned := 0, -1
	if r.Window != nil {
		start, pinned, v.Start = choose(&r, units)
	}
	if start < len(units) {
		v.From = units[start].item
	}
	if pinned >= 0 {
		v.Pinned = units[pinned].item
	}
	keep := make([]bool, len(units))
	for i, u := range units {
		// A compaction stands for everything that was before it: a window must not lose it. A text is sent with the
		// calls of its message wherever the window begins.
		keep[i] = i >= start || i == pinned || body[u.item].Kind == wire.Compaction || u.call < 0 && u.item == v.From
		if !keep[i] {
			v.Windowed++
		}
	}
	v.Orphans = unpaired(units, body[len(body)-1].Dialect, keep)
	v.Orphans += aloneReasoning(body, units, keep)
	v.Units = len(units) - v.Windowed - v.Orphans
	most := min(v.Units, len(body)) // items: each that is kept has a unit
	v.Items, v.Kept = append(make([]wire.Item, 0, len(lead)+most), lead...), make([]int, 0, most)
	v.project(body, units, keep)
	return v
}

// project appends to the view what keep leaves of body.
func (v *View) project(body []wire.Item, units []unit, keep []bool) {
	for first := 0; first < len(units); {
		item, end, kept := units[first].item, first, 0
		for ; end < len(units) && units[end].item == item; end++ {
			if keep[end] {
				kept++
			} else if item >= v.From {
				v.leave(units[end])
			}
		}
		if kept == end-first {
			v.Items, v.Kept = append(v.Items, body[item]), append(v.Kept, item)
		} else if kept > 0 {
			v.part(body[item], units[first:end], keep[first:end])
		}
		first = end
	}
}

// part appends a message without some of its calls.
func (v *View) part(it wire.Item, units []unit, keep []bool) {
	drop := make([]bool, len(it.Calls))
	for i, u := range units {
		if u.call >= 0 {
			drop[u.call] = !keep[i]
		}
	}
	rest, ok := it.WithoutCalls(func(call int) bool { return drop[call] })
	if !ok {
		return
	}
	v.Items, v.Kept = append(v.Items, rest), append(v.Kept, units[0].item)
	for i := range v.LeftOut {
		if v.LeftOut[i].Item == units[0].item {
			v.LeftOut[i].At = len(v.Kept)
		}
	}
}

// Cut takes more out of the view: items by their index in it behind the first lead ones, ascending. They count as
// windowed.
func (v *View) Cut(lead int, indices []int) {
	items, kept := v.Items[:lead:lead], make([]int, 0, len(v.Kept))
	moved := make([]int, len(v.Kept)+1) // by place from 1, where it is now; 0 for gone
	for i, it := range v.Items[lead:] {
		if len(indices) > 0 && indices[0] == i {
			indices = indices[1:]
			units := int(Units(it)) //nolint:gosec // as many as it has calls, and a text
			v.Windowed += units
			v.Units -= units
			continue
		}
		items, kept = append(items, it), append(kept, v.Kept[i])
		moved[i+1] = len(kept)
	}
	v.Items, v.Kept = items, kept
	for i := range v.LeftOut {
		v.LeftOut[i].At = moved[v.LeftOut[i].At]
	}
}

func (v *View) leave(u unit) {
	out := LeftOut{Item: u.item}
	if u.call >= 0 {
		out.Call = u.pair.ID
	}
	v.LeftOut = append(v.LeftOut, out)
}

// Regroup puts the results of a stored Chat history directly behind the message that made their calls, as upstream
// demands: turns of two clients on one session may have been stored interleaved.
func Regroup(items []wire.Item) []wire.Item {
	results := make(map[string][]int)
	for i, it := range items {
		if it.Kind == wire.ToolResult {
			results[pairKey(it.Answers)] = append(results[pairKey(it.Answers)], i)
		}
	}
	out := make([]wire.Item, 0, len(items))
	moved := make([]bool, len(items))
	for i, it := range items {
		if moved[i] {
			continue
		}
		out = append(out, it)
		for _, call := range it.Calls {
			queue := results[pairKey(call)]
			for len(queue) > 0 && queue[0] < i {
				queue = queue[1:]
			}
			if len(queue) > 0 {
				out, moved[queue[0]] = append(out, items[queue[0]]), true
				queue = queue[1:]
			}
			results[pairKey(call)] = queue
		}
	}
	return out
}
