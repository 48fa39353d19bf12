package session

import (
	"encoding/binary"
	"encoding/hex"
	"slices"

	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

// Viewed notes how the view was chosen from the conversation, nil for all of it, and to how many tokens results were
// shortened in it, 0 for not at all.
func (e *Entry) Viewed(c *Conversation, v *view.View, toolResult int) {
	e.shaped = 0
	if v == nil {
		e.view = turnrecord.View{Conversation: len(c.Items), Sent: len(c.Lead) + len(c.Items), ToolResult: toolResult, Continues: c.Continues, Carried: c.Carried}
		e.view.Items = e.runs(c, nil)
		e.view.Lead = e.in.leadText
		return
	}
	n := v.Count()
	e.view = turnrecord.View{
		Conversation: len(c.Items), Sent: len(v.Items), From: v.From, Windowed: n.Windowed, Orphans: n.Orphans, Repaired: v.Repaired,
		LeftOut: v.LeftOut(), Stored: c.Stored, ToolResult: toolResult, PrefixReason: e.prefixReason,
	}
	if v.Pinned >= 0 {
		pinned := v.Pinned
		e.view.Pinned = &pinned
	}
	e.view.Items = e.runs(c, v)
	switch {
	case c.hasLead && c.lead == e.in.lead && e.in.hasLead:
		e.view.Lead = e.in.leadText
	case c.hasLead:
		e.view.Lead = hexText(c.lead[:])
	}
}

// runs names the items of a view, nil for the whole conversation. Items in the line's order are named by their end and
// number, so that the record of a long view is as short as that of a short one.
func (e *Entry) runs(c *Conversation, v *view.View) []turnrecord.Run {
	w := runWriter{e: e, c: c, n: len(c.Items), on: e.settledLine(c), runs: e.runRoom[:0:len(e.runRoom)]}
	if v != nil {
		w.kept, w.n = v.Kept, len(v.Kept)
	}
	for at := range w.n {
		w.take(at)
	}
	w.end(w.n)
	return w.runs
}

// minRun is how many items a run has at least: fewer take less room by their content hashes.
const minRun = 4

// runWriter makes runs of the items of a view.
type runWriter struct {
	e    *Entry
	c    *Conversation
	kept []int // which items of the conversation the view has, nil for all
	n    int   // how many these are
	on   settledLine
	runs []turnrecord.Run

	from  int   // of the view: the first item of the run at hand
	items int   // of the run that are on the chain
	last  int   // place on the line of the last of them
	off   []off // those of the run that are not
}

// off is an item of a run that is not on the chain.
type off struct {
	behind  int // how many items of the run that are on the chain stand before it
	content wire.Hash
}

// item is the index in the conversation of an item of the view.
func (w *runWriter) item(at int) int {
	if w.kept == nil {
		return at
	}
	return w.kept[at]
}

func (w *runWriter) take(at int) {
	i := w.item(at)
	place := w.on.find(&w.c.Items[i])
	switch {
	case place >= 0 && w.on.onChain(place):
		if w.items > 0 && !w.on.follows(w.last, place) {
			w.end(at)
		}
		if w.items == 0 {
			w.from = at
		}
		w.items, w.last = w.items+1, place
	case w.items > 0 && (place >= 0 || w.c.Hidden != nil && w.c.Hidden[i]):
		w.off = append(w.off, off{w.items, w.e.content(w.c, i)})
	default:
		w.end(at)
		w.literal(at)
	}
}

// end ends the run at hand before an item of the view.
func (w *runWriter) end(at int) {
	if w.items == 0 {
		return
	}
	if w.items < minRun {
		for i := w.from; i < at; i++ {
			w.literal(i)
		}
	} else {
		chain := w.on.chain(w.last)
		r := turnrecord.Run{End: hex.EncodeToString(chain[:8]), N: w.items}
		behind := w.items
		for _, o := range slices.Backward(w.off) {
			r.Off = binary.AppendUvarint(r.Off, uint64(max(0, behind-o.behind)))
			r.Off = append(r.Off, o.content[:4]...)
			behind = o.behind
		}
		w.runs = append(w.runs, r)
	}
	w.items, w.off = 0, w.off[:0]
}

// literal names an item by its content.
func (w *runWriter) literal(at int) {
	if n := len(w.runs); n == 0 || w.runs[n-1].N > 0 {
		w.runs = append(w.runs, turnrecord.Run{Is: make([]byte, 0, 8*min(w.items+16, w.n-at))})
	}
	r := &w.runs[len(w.runs)-1]
	content := w.e.content(w.c, w.item(at))
	r.Is = append(r.Is, content[:8]...)
}

// content is the hash of an item of a conversation. Most are the request's own, which have been hashed.
func (e *Entry) content(c *Conversation, i int) wire.Hash {
	it := c.Items[i]
	if i < len(e.in.items) && len(it.Raw) > 0 {
		own := e.in.items[i]
		if len(it.Raw) == len(own.Raw) && &it.Raw[0] == &own.Raw[0] {
			return e.in.marks[i].content
		}
	}
	return e.contentOf(it)
}

// settledLine is the part of the line before a turn's new items that will not change, oldest first: read from the
// store, or sent by the request.
type settledLine struct {
	stored *storedLine // nil where it is what the request has
	in     *incoming
	n      int
	behind int           // how many items of the request are part of it; the others come after it
	next   int           // where the next item that is asked for stands, as a rule
	places map[*byte]int // by where an item's bytes are; made once something is not found in its order
}

// settledLine is the line of a conversation. It has nothing of a client that trims its history: what it has left out is
// not known here, and so no chain hash.
func (e *Entry) settledLine(c *Conversation) settledLine {
	l := settledLine{in: e.in}
	if c.Stored && e.stored != nil {
		l.stored, l.n = e.stored, len(e.stored.items)
		for _, r := range e.ready { // they are not in the log yet, and may come to stand elsewhere
			for l.n > 0 && e.stored.turns[l.n-1] == r.Turn {
				l.n--
			}
		}
		return l
	}
	n := e.place.fresh
	if e.place.relation != relTrim && n > 0 && n <= len(e.in.ends) && e.in.ends[n-1].Chain == e.place.parent.Chain {
		l.n, l.behind = n, n
	}
	return l
}

// item is an item of the line, or behind its end one of the request's others.
func (l *settledLine) item(place int) *wire.Item {
	if l.stored != nil && place < l.n {
		return &l.stored.items[place]
	}
	return &l.in.items[place-l.n+l.behind]
}

// chain is the chain hash behind an item.
func (l *settledLine) chain(place int) wire.Hash {
	if l.stored != nil {
		return l.stored.chain[place]
	}
	return l.in.ends[place].Chain
}

func (l *settledLine) onChain(place int) bool {
	switch {
	case l.stored == nil:
		return l.in.marks[place].onChain
	case place == 0:
		return l.item(0).Kind != wire.Reasoning && l.item(0).Kind != wire.Reference
	}
	return l.stored.chain[place] != l.stored.chain[place-1]
}

// follows reports whether nothing that is on the chain stands between two places.
func (l *settledLine) follows(last, place int) bool {
	for last++; last < place && !l.onChain(last); last++ {
	}
	return last == place
}

// find is the place of an item of the conversation, -1 where that is not on the line.
func (l *settledLine) find(it *wire.Item) int {
	if len(it.Raw) == 0 {
		return -1
	}
	raw, all := &it.Raw[0], l.n+len(l.in.items)-l.behind
	for at := l.next; at < all && l.places == nil; at++ {
		if &l.item(at).Raw[0] == raw {
			l.next = at + 1
			return l.within(at)
		}
	}
	if l.places == nil {
		l.places = make(map[*byte]int, all)
		for at := range all {
			l.places[&l.item(at).Raw[0]] = at
		}
	}
	if at, ok := l.places[raw]; ok {
		return l.within(at)
	}
	return -1
}

func (l *settledLine) within(place int) int {
	if place >= l.n {
		return -1
	}
	return place
}
