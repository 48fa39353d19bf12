package session

import (
	"math"
	"strings"

	"remora/cache"
	"remora/wire"
)

// itemWriter appends items of a turn to those of its session.
type itemWriter struct {
	puts  []cache.Put                // the values to write
	late  []lateValue                // of puts, those without data yet
	taken int                        // puts that were taken
	size  int                        // bytes of items, before they are encoded
	head  *head                      // the new head, which assigns the sequence numbers
	turn  string                     // the turn's id
	line  uint64                     // the line of the items
	side  bool                       // they are a side request's
	known map[wire.Hash]linePosition // items that the transcript already has, by chain hash
}

// knownAfter returns the position of an item after at if the transcript already has it there. A side request's item is one of its
// own: it is not searched, and layers have not seen it.
func (w *itemWriter) knownAfter(at position, m mark) (position, bool) {
	if len(w.known) == 0 {
		return position{}, false
	}
	known, ok := w.known[at.after(m).Chain]
	return known.Pos, ok && m.onChain && (w.side || !known.Side)
}

// store writes one item after at and returns the position after it.
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
	next := at.after(m).stored(w.head.NextSeq, it, flags)
	w.head.NextSeq++
	item := storedItem{
		Parent: at.Seq, Pos: next, Content: m.Content, Line: w.line, Flags: flags, Dialect: it.Dialect, Turn: w.turn, Raw: it.Raw, Made: made,
	}
	for _, p := range item.cut() {
		w.putLarge(mediaName(p.Digest), len(p.Data), p.Encode)
	}
	if w.size+len(item.Raw) > maxBatchBytes {
		late := item
		w.putLarge(itemName(next.Seq), len(late.Raw), late.encode)
	} else {
		w.size += len(item.Raw)
		w.put(itemName(next.Seq), item.encode())
	}
	if m.onChain {
		at := w.putPosition(next)
		if landmark(it) {
			w.put(textName(m.Content), at)
		}
	}
	return next
}

// putPosition adds a position to the index of chains, and returns the value.
func (w *itemWriter) putPosition(at position) []byte {
	v := (&linePosition{Pos: at, Line: w.line, Side: w.side}).encode()
	w.put(chainName(at.Chain), v)
	return v
}

// put adds a value, which is never changed.
func (w *itemWriter) put(name string, data []byte) {
	w.puts = append(w.puts, cache.Put{Name: name, Data: data, Lasting: true})
}

// lateValue is a value that is encoded once its batch is written. Those of a large turn, all together, would take as much memory
// as its body.
type lateValue struct {
	put    int // its number among all puts, also the taken ones
	size   int // bytes, before it is encoded
	encode func() []byte
}

// putLarge adds a value of size bytes before it is encoded.
func (w *itemWriter) putLarge(name string, size int, encode func() []byte) {
	var data []byte
	if w.size += size; w.size <= maxBatchBytes {
		data = encode()
	} else {
		w.late = append(w.late, lateValue{w.taken + len(w.puts), size, encode})
	}
	w.put(name, data)
}

// Bounds of one batch, so that a large request neither blocks the store nor takes much memory besides its body.
const (
	maxBatchItems = 4096
	maxBatchBytes = 2 << 20 // of items, before they are encoded
)

// nextBatch returns how many of the puts belong to the next batch: all, or the first items that fit.
func (w *itemWriter) nextBatch() int {
	items, size, late := 0, 0, w.late
	for i, p := range w.puts {
		n := len(p.Data)
		if len(late) > 0 && late[0].put == w.taken+i {
			n, late = late[0].size, late[1:]
		}
		size += n
		isItem := strings.HasPrefix(p.Name, itemPrefix)
		if isItem {
			items++
		}
		if i > 0 && (isItem || strings.HasPrefix(p.Name, mediaPrefix)) && (items > maxBatchItems || size > maxBatchBytes) {
			return i
		}
	}
	return len(w.puts)
}

// take removes the first n puts, and returns them with their data.
func (w *itemWriter) take(n int) []cache.Put {
	puts := w.puts[:n:n]
	for len(w.late) > 0 && w.late[0].put < w.taken+n {
		puts[w.late[0].put-w.taken].Data = w.late[0].encode()
		w.late = w.late[1:]
	}
	w.puts, w.taken = w.puts[n:], w.taken+n
	return puts
}

// referenceOf returns the reference to store for an item of an answer, for later item_references, if it has an id that can be
// referred to.
func referenceOf(it wire.Item, seq uint64, provider string) (name string, data []byte, ok bool) {
	if !it.Dialect.Rules().References || it.ID == "" || it.Kind == wire.Reference {
		return "", nil, false
	}
	part := it.Parts[0] // the only one, in a dialect with references
	ref := reference{
		Content: it.ContentHash(), Kind: part.Kind, Role: it.Role, Pair: part.Call, Size: readSize(it), Provider: provider, Seq: seq,
	}
	return idName(idPrefix, it.ID), encode(&ref), true
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
