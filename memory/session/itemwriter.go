package session

import (
	"math"

	"remora/cache"
	"remora/wire"
)

// itemWriter appends items of a turn to those of its session.
type itemWriter struct {
	puts  []cache.Put                // the values to write
	head  *head                      // the new head, which assigns the sequence numbers
	turn  string                     // the turn's id
	line  uint64                     // the line of the items
	side  bool                       // they are a side request's
	known map[wire.Hash]linePosition // items that the transcript already has, by chain hash
}

// knownAfter returns the position of an item behind at if the transcript already has it there.
func (w *itemWriter) knownAfter(at position, m mark) (position, bool) {
	if len(w.known) == 0 {
		return position{}, false
	}
	known, ok := w.known[at.after(m).Chain]
	return known.Pos, ok && m.onChain
}

// store writes one item behind at and returns the position behind it.
func (w *itemWriter) store(at position, it wire.Item, m mark, flags itemFlags, made Origin) position {
	if flags&flagSummary != 0 {
		m.onChain, m.units = false, 0
	}
	if !m.onChain {
		flags |= flagOffChain
	}
	if w.side {
		flags |= flagSide
	}
	next := at.after(m)
	next.Seq = w.head.NextSeq
	w.head.NextSeq++
	item := storedItem{
		Parent: at.Seq, Pos: next, Content: m.content, Line: w.line, Flags: flags, Dialect: it.Dialect, Turn: w.turn, Raw: it.Raw, Made: made,
	}
	w.puts = item.cut(w.puts)
	w.put(itemName(next.Seq), item.encode())
	if m.onChain {
		at := w.putPosition(next)
		if landmark(it) {
			w.put(textName(m.content), at)
		}
	}
	return next
}

// putPosition adds a position to the index of chains, and returns the value.
func (w *itemWriter) putPosition(at position) []byte {
	v := linePosition{Pos: at, Line: w.line, Side: w.side}.encode()
	w.put(chainName(at.Chain), v)
	return v
}

// put adds a value, which is never changed.
func (w *itemWriter) put(name string, data []byte) {
	w.puts = append(w.puts, cache.Put{Name: name, Data: data, Lasting: true})
}

// putReference indexes an item of the answer for later item_references.
func (w *itemWriter) putReference(it wire.Item) {
	if name, data, ok := referenceOf(it); ok {
		w.put(name, data)
	}
}

// referenceOf returns the reference to store for an item, if it has an id that can be referred to.
func referenceOf(it wire.Item) (name string, data []byte, ok bool) {
	if !it.Dialect.Rules().References || it.ID == "" || it.Kind == wire.Reference {
		return "", nil, false
	}
	part := it.Parts[0] // the only one, in a dialect with references
	ref := reference{Content: it.ContentHash(), Kind: part.Kind, Role: it.Role, Pair: part.Call, Size: readSize(it)}
	return idName(idPrefix, it.ID), ref.encode(), true
}

// readSize returns the size of what a model reads of an item, in bytes.
func readSize(it wire.Item) uint32 {
	size := 0
	switch {
	case it.Kind == wire.Message, it.Kind == wire.ToolResult:
		size = len(it.Text())
	case it.Kind == wire.ToolCall:
		for part, call := range it.Calls() {
			size += len(call.Name) + len(it.Input(part))
		}
	case !it.IsImage():
		size = len(it.Raw)
	}
	return uint32(min(size, math.MaxInt32))
}
