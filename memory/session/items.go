package session

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/klauspost/compress/s2"

	"remora/cache"
	"remora/memory/media"
	"remora/memory/recordcodec"
	"remora/wire"
	"remora/wire/dialects"
)

// storedItem is one item of the transcript.
type storedItem struct {
	Parent  uint64 // sequence number of the item before it, 0 for none
	Pos     position
	Content wire.Hash
	Line    uint64 // that it was stored on: see plan.line
	Flags   byte
	Dialect wire.Dialect
	Turn    string // id of the turn that brought it
	Made    Origin
	Raw     []byte
}

// compressAbove is the size in bytes from which an item is stored compressed.
const compressAbove = 1024

// Flags of a stored item.
const (
	flagCompressed = 1 << iota
	flagOffChain   // not part of the chain: reasoning, references to it, a client's own summary
	flagSummary    // said beside the conversation (a client's own summary of it); not put back into views
	flagPartial    // the answer was cut here
	flagSide       // of a side line
	flagHidden     // the client does not see it: views get it from the Amendments
	flagCut        // large strings are kept apart: see package media
	flagKept       // Origin.Kept
)

func itemName(seq uint64) string {
	var b [len(itemPrefix) + 8]byte
	return string(appendItemName(b[:0], seq))
}

func appendItemName(b []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, itemPrefix...), seq)
}

// cut keeps the item's large strings apart, as values of their own, which it appends to puts.
func (it *storedItem) cut(puts []cache.Put) []cache.Put {
	kept, pieces := media.Cut(it.Raw)
	if kept == nil {
		return puts
	}
	it.Raw, it.Flags = kept, it.Flags|flagCut
	for _, p := range pieces {
		puts = append(puts, cache.Put{Name: mediaName(p.Digest), Data: p.Encode()})
	}
	return puts
}

func (it *storedItem) encode() []byte { return it.appendTo(make([]byte, 0, it.size())) }

// size is about how many bytes the item takes at most.
func (it *storedItem) size() int {
	if len(it.Raw) > compressAbove {
		return s2.MaxEncodedLen(len(it.Raw)) + itemBytes
	}
	return len(it.Raw) + itemBytes
}

// itemBytes is about what an item takes besides its own bytes.
const itemBytes = 96

func (it *storedItem) appendTo(b []byte) []byte {
	flags, compress := it.Flags, len(it.Raw) > compressAbove
	if compress {
		flags |= flagCompressed
	}
	if it.Made.Kept {
		flags |= flagKept
	}
	b = append(b, recordVersion, flags, it.Dialect.Code())
	b = binary.AppendUvarint(binary.AppendUvarint(b, it.Line), it.Parent)
	b = appendPosition(b, it.Pos)
	b = append(b, it.Content[:]...)
	b = recordcodec.AppendString(recordcodec.AppendString(recordcodec.AppendString(b, it.Turn), it.Made.Provider), it.Made.Model)
	if !compress {
		return append(b, it.Raw...)
	}
	b = slices.Grow(b, s2.MaxEncodedLen(len(it.Raw)))
	return b[:len(b)+len(s2.Encode(b[len(b):cap(b)], it.Raw))]
}

func decodeItem(b []byte) (storedItem, error) {
	d := recordcodec.Reader{Rest: b}
	if d.Byte() != recordVersion {
		return storedItem{}, fmt.Errorf("read item: %w", ErrCorrupt)
	}
	it := storedItem{Flags: d.Byte(), Dialect: dialects.Code(d.Byte()).Dialect(), Line: d.Uvarint(), Parent: d.Uvarint(), Pos: readPosition(&d), Content: d.Hash(), Turn: d.Text(), Made: Origin{Provider: d.Text(), Model: d.Text()}}
	if d.Bad {
		return storedItem{}, fmt.Errorf("read item: %w", ErrCorrupt)
	}
	it.Made.Kept, it.Flags = it.Flags&flagKept != 0, it.Flags&^flagKept
	it.Raw = d.Rest
	if it.Flags&flagCompressed != 0 {
		raw, err := recordcodec.Decompress(d.Rest)
		if err != nil {
			return storedItem{}, fmt.Errorf("read item: %w: %w", ErrCorrupt, err)
		}
		it.Raw, it.Flags = raw, it.Flags&^flagCompressed
	}
	return it, nil
}

// items reads the stored items from seq first to seq last; nil where an item was taken back (see draft.retract).
func (log *Log) items(ctx context.Context, s Scope, first, last uint64) ([]*storedItem, error) {
	items, err := log.withoutMedia(ctx, s, first, last)
	if err != nil {
		return nil, err
	}
	var cuts []*storedItem
	for _, it := range items {
		if it != nil && it.Flags&flagCut != 0 {
			cuts = append(cuts, it)
		}
	}
	return items, log.join(ctx, s, cuts)
}

// withoutMedia is items without their large strings, which are kept apart.
func (log *Log) withoutMedia(ctx context.Context, s Scope, first, last uint64) ([]*storedItem, error) {
	names := make([]string, 0, last-first+1)
	for seq := first; seq <= last; seq++ {
		names = append(names, itemName(seq))
	}
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: names}})
	if err != nil {
		return nil, fmt.Errorf("read items: %w", err)
	}
	items := make([]*storedItem, len(names))
	for i, v := range results[0].Values {
		if v == nil {
			continue
		}
		it, err := decodeItem(v)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", first+uint64(i), err)
		}
		items[i] = &it
	}
	return items, nil
}

// join puts the large strings of items back, which it reads all at once.
func (log *Log) join(ctx context.Context, s Scope, cuts []*storedItem) error {
	if len(cuts) == 0 {
		return nil
	}
	var names []string
	needs := make([]int, len(cuts))
	for i, it := range cuts {
		digests, err := media.Digests(it.Raw)
		if err != nil {
			return fmt.Errorf("item %d: %w: %w", it.Pos.Seq, ErrCorrupt, err)
		}
		for _, d := range digests {
			names = append(names, mediaName(d))
		}
		needs[i] = len(digests)
	}
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: names}})
	if err != nil {
		return fmt.Errorf("read media of items: %w", err)
	}
	values := results[0].Values
	for i, it := range cuts {
		if it.Raw, err = media.Join(it.Raw, values[:needs[i]]); err != nil {
			return fmt.Errorf("item %d: %w: %w", it.Pos.Seq, ErrCorrupt, err)
		}
		it.Flags, values = it.Flags&^flagCut, values[needs[i]:]
	}
	return nil
}

func mediaName(digest wire.Hash) string { return mediaPrefix + string(digest[:]) }

// How many items one read of a line's end fetches at first, and at most: a line that is interleaved with others takes
// more reads than one.
const (
	pageItems    = 128
	maxPageItems = 4096
)

// back goes along a line of the transcript from the item next to its beginning.
func (log *Log) back(ctx context.Context, s Scope, next uint64) iter.Seq2[*storedItem, error] {
	return log.backBy(ctx, s, next, pageItems, maxPageItems)
}

// backBy is back, with how many items it reads at first and at most at once.
func (log *Log) backBy(ctx context.Context, s Scope, next, page, most uint64) iter.Seq2[*storedItem, error] {
	return func(yield func(*storedItem, error) bool) {
		for ; next != 0; page = min(page*2, most) {
			first := next - min(next-1, page-1)
			stored, err := log.items(ctx, s, first, next)
			if err != nil {
				yield(nil, err)
				return
			}
			for next >= first {
				at := stored[next-first]
				if at == nil || at.Parent >= next {
					yield(nil, fmt.Errorf("item %d: %w", next, ErrCorrupt))
					return
				}
				if next = at.Parent; !yield(at, nil) {
					return
				}
			}
		}
	}
}

// precede goes back from item i, which stands at seq, as far as the request and the transcript agree, and returns the
// first item of the request that they agree on. What stands before it is the client's own summary.
func (log *Log) precede(ctx context.Context, s Scope, in *incoming, i int, seq uint64) (int, error) {
	at, err := log.items(ctx, s, seq, seq)
	for i > 0 && err == nil && at[0] != nil && at[0].Parent != 0 {
		if at, err = log.items(ctx, s, at[0].Parent, at[0].Parent); err != nil || at[0] == nil {
			break
		}
		if at[0].Flags&flagHidden != 0 || at[0].Flags&flagOffChain != 0 && in.marks[i-1].onChain {
			continue
		}
		if at[0].Content != in.marks[i-1].content {
			break
		}
		i--
	}
	return i, err
}

// repetition is the place of a request that is word for word what the client said last on the head line, before the
// answer that is the head: the client has not seen that, and asks again. The plan is empty for any other request.
func (log *Log) repetition(ctx context.Context, s Scope, h *head, in *incoming) (plan, error) {
	p, left := plan{relation: relResend, rule: ruleRepeated, standing: InConversation, line: h.Line, lead: h.Lead, before: true}, len(in.items)
	for at, err := range log.back(ctx, s, h.Pos.Seq) {
		switch {
		case err != nil:
			return plan{}, err
		case at.Flags&(flagSummary|flagHidden) != 0 || left > 0 && at.Flags&flagOffChain != 0:
		case left == 0:
			p.parent, p.offset = at.Pos, unitsBetween(position{}, at.Pos)
			return p, nil
		case at.Content == in.marks[left-1].content:
			if left--; p.upto.Seq == 0 {
				p.upto = at.Pos
			}
		case p.upto.Seq != 0:
			return plan{}, nil
		default:
			it, err := wire.ParseItem(at.Dialect, at.Raw)
			if err != nil || it.Kind == wire.ToolResult || it.Kind == wire.Message && it.Role != wire.Assistant {
				return plan{}, err
			}
		}
	}
	if left > 0 {
		return plan{}, nil
	}
	return p, nil
}
