package session

import (
	"encoding/hex"
	"slices"

	"remora/memory/recordcodec"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

// ViewRecord records how a turn's view was chosen, the form in which it was sent, and its cost.
type ViewRecord struct {
	history      *HistoryReader
	view         turnrecord.View
	prefixReason string
	reformed     int              // of view.Repaired, what the form changed
	asCame       *turnrecord.View // what SentAsCame recorded, nil where the view was sent
}

// PrefixReason records why the view begins a new prefix version, "" if it does not. Call it before Chosen.
func (r *ViewRecord) PrefixReason(reason string) { r.prefixReason = reason }

// Chosen records how the view was chosen from the conversation, and the token limit of its results, 0 for none.
func (r *ViewRecord) Chosen(c *Conversation, v *view.View, toolResult int) {
	r.reformed, r.asCame = 0, nil
	r.view = r.chosen(c, v)
	r.view.ToolResult, r.view.PrefixReason = toolResult, r.prefixReason
}

func (r *ViewRecord) chosen(c *Conversation, v *view.View) turnrecord.View {
	in := r.history.place.in
	n := v.Count()
	chosen := turnrecord.View{
		Conversation: len(c.Items), Sent: len(v.Items), From: v.From, Windowed: n.Windowed, Orphans: n.Orphans, Repaired: v.Repaired,
		LeftOut: v.LeftOut(), Stored: c.Stored, Continues: c.Continues, Carried: c.Carried,
	}
	if v.Pinned >= 0 {
		pinned := v.Pinned
		chosen.Pinned = &pinned
	}
	chosen.Items = r.itemSpans(c, v)
	switch {
	case c.hasSystemPrompt && c.systemPrompt == in.systemPrompt && in.hasSystemPrompt:
		chosen.SystemPrompt = in.systemPromptHex
	case c.hasSystemPrompt:
		chosen.SystemPrompt = hexText(c.systemPrompt[:])
	}
	return chosen
}

// SentAs records the shape in which the view is sent, and how many of the client's items that changes. Call it after Chosen. It
// replaces an earlier record.
func (r *ViewRecord) SentAs(s view.Shape, repaired int) {
	r.asCame = nil
	r.view.Messages, r.view.Portable, r.view.Own, r.view.NoCalls, r.view.NoMedia = "", s.Portable, s.Own, s.NoCalls, s.NoMedia
	r.view.Mended = s.Mend.Names()
	if s.Form != view.AsIs {
		r.view.Messages = s.Form.String()
	}
	r.view.Repaired += repaired - r.reformed
	r.reformed = repaired
}

// SentAsCame records that the request is sent as it came, until Chosen or SentAs is called.
func (r *ViewRecord) SentAsCame() {
	in := r.history.place.in
	c := Conversation{
		System: in.system, Items: in.items, Hidden: make([]bool, len(in.items)), Continues: in.stateful,
		systemPrompt: in.systemPrompt, hasSystemPrompt: in.hasSystemPrompt,
	}
	whole := view.Whole(c.System, c.Items)
	asCame := r.chosen(&c, &whole)
	r.asCame = &asCame
}

// shapeOf returns the shape that SentAs recorded.
func shapeOf(v *turnrecord.View) (s view.Shape, err error) {
	s = view.Shape{Portable: v.Portable, Own: v.Own, NoCalls: v.NoCalls, NoMedia: v.NoMedia}
	if v.Messages != "" {
		if s.Form, err = view.ParseForm(v.Messages); err != nil {
			return s, err
		}
	}
	s.Mend, err = view.ParseMend(v.Mended)
	return s, err
}

// Cost records what the view cost. Call it after Chosen.
func (r *ViewRecord) Cost(t turnrecord.Tokens) { r.view.Tokens = &t }

// Save returns the present record. An entry can be resumed with it.
func (r *ViewRecord) Save() turnrecord.View {
	if r.asCame != nil {
		return *r.asCame
	}
	return r.view
}

// itemSpans returns references to the items of a view. Consecutive items of the line are one span with an end and a number, so
// that the record of a long view is short.
func (r *ViewRecord) itemSpans(c *Conversation, v *view.View) []turnrecord.Span {
	w := spanWriter{history: r.history, c: c, kept: v.Kept, on: newSettledLine(r.history, c)}
	for at := range w.kept {
		w.take(at)
	}
	w.end(len(w.kept))
	return w.spans
}

// minSpan is the minimum length of a span by its end: fewer items are shorter as content hashes.
const minSpan = 4

// spanWriter makes spans of the items of a view.
type spanWriter struct {
	history *HistoryReader
	c       *Conversation
	kept    []int // which items of the conversation the view has
	on      settledLine
	spans   []turnrecord.Span

	from  int        // of the view: the first item of the current span
	items int        // of the span that are on the chain
	last  int        // place on the line of the last of them
	off   []offChain // those of the span that are not
}

// offChain is an item of a span that is not on the chain.
type offChain struct {
	before  int // how many items of the span that are on the chain stand before it
	content wire.Hash
}

// offChainItem is such an item in turnrecord.Span.Off, the last one first.
type offChainItem struct {
	gap     uint64  // how many items on the chain stand between it and the one before in the list, or the end of the span
	content [4]byte // the first bytes of its content hash
}

func (it *offChainItem) fields(c *recordcodec.Codec) {
	c.Uvarint(&it.gap)
	c.Fixed(it.content[:])
}

func (w *spanWriter) take(at int) {
	i := w.kept[at]
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
	case w.items > 0 && (place >= 0 || w.c.Hidden[i]):
		w.off = append(w.off, offChain{w.items, w.content(i)})
	default:
		w.end(at)
		w.literal(at)
	}
}

// end ends the current span before an item of the view.
func (w *spanWriter) end(at int) {
	if w.items == 0 {
		return
	}
	if w.items < minSpan {
		for i := w.from; i < at; i++ {
			w.literal(i)
		}
	} else {
		chain := w.on.chain(w.last)
		var off recordcodec.Codec
		before := w.items
		for _, o := range slices.Backward(w.off) {
			item := offChainItem{gap: uint64(max(0, before-o.before)), content: [4]byte(o.content[:4])}
			item.fields(&off)
			before = o.before
		}
		w.spans = append(w.spans, turnrecord.Span{End: hex.EncodeToString(chain[:8]), N: w.items, Off: off.Data})
	}
	w.items, w.off = 0, w.off[:0]
}

// literal names an item by its content.
func (w *spanWriter) literal(at int) {
	if n := len(w.spans); n == 0 || w.spans[n-1].N > 0 {
		w.spans = append(w.spans, turnrecord.Span{Is: make([]byte, 0, 8*min(w.items+16, len(w.kept)-at))})
	}
	r := &w.spans[len(w.spans)-1]
	content := w.content(w.kept[at])
	r.Is = append(r.Is, content[:8]...)
}

// content is the hash of an item of the conversation. Most are the request's own, which have been hashed.
func (w *spanWriter) content(i int) wire.Hash {
	in := w.history.place.in
	if i < len(in.items) && wire.SameBytes(w.c.Items[i].Raw, in.items[i].Raw) {
		return in.marks[i].Content
	}
	return w.history.meaning(w.c.Items[i]).Content
}

// settledLine is the immutable part of the line before a turn's new items, oldest first: read from the store, or sent by the
// request.
type settledLine struct {
	stored *storedLine // nil where it is what the request has
	in     *incoming
	n      int
	next   int           // the usual place of the next item
	passed int           // items that find has passed
	places map[*byte]int // by the address of an item's bytes; nil while find searches the line
}

// newSettledLine returns the line of a conversation. It is empty for a client that trims its history: without the trimmed part
// the chain hashes are unknown.
func newSettledLine(h *HistoryReader, c *Conversation) settledLine {
	in, p := h.place.in, &h.place.plan
	l := settledLine{in: in}
	if c.Stored && h.preceding != nil {
		l.stored, l.n = h.preceding, len(h.preceding.items)
		for _, r := range slices.Backward(h.parked) { // they are not in the log yet, and may get another place
			for l.n > 0 && h.preceding.as[l.n-1].Turn == r.Turn {
				l.n--
			}
		}
		return l
	}
	n := p.fresh
	if p.relation != relTrim && n > 0 && n <= len(in.ends) && in.ends[n-1].Chain == p.parent.Chain {
		l.n = n
	}
	return l
}

func (l *settledLine) item(place int) *wire.Item {
	if l.stored != nil {
		return &l.stored.items[place]
	}
	return &l.in.items[place]
}

// chain returns the chain hash up to an item.
func (l *settledLine) chain(place int) wire.Hash {
	if l.stored != nil {
		return l.stored.as[place].Pos.Chain
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
	return l.chain(place) != l.chain(place-1)
}

// follows reports whether there is no item of the chain between two places. There may be after the compaction that the stored
// line begins with: see HistoryReader.line.
func (l *settledLine) follows(last, place int) bool {
	if l.stored != nil && last == 0 && l.item(0).Kind == wire.Compaction {
		return false
	}
	for last++; last < place && !l.onChain(last); last++ {
	}
	return last == place
}

// find returns the place of an item of the conversation, -1 if it is not on the line. Most items follow the one before, so the
// line is searched from there. A line that is passed often gets an index: the time stays linear in view and line.
func (l *settledLine) find(it *wire.Item) int {
	for i := 0; i < l.n && l.places == nil; i++ {
		if at := (l.next + i) % l.n; wire.SameBytes(l.item(at).Raw, it.Raw) {
			l.next = at + 1
			return at
		}
		if l.passed++; l.passed > maxPasses*l.n {
			l.places = l.index()
		}
	}
	if at, ok := l.places[&it.Raw[0]]; ok {
		return at
	}
	return -1
}

// maxPasses is how often a line may be passed without an index: a few new items after a long line do not need one.
const maxPasses = 4

func (l *settledLine) index() map[*byte]int {
	places := make(map[*byte]int, l.n)
	for at := range l.n {
		places[&l.item(at).Raw[0]] = at
	}
	return places
}
