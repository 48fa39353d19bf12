package session

import (
	"encoding/binary"
	"fmt"
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
	Flags   itemFlags
	Dialect wire.Dialect
	Turn    string // id of the turn that brought it
	Made    Origin
	Raw     []byte
}

// compressAbove is the size in bytes from which an item is stored compressed.
const compressAbove = 1024

// itemFlags are the properties of a stored item.
type itemFlags uint64

const (
	flagCompressed itemFlags = 1 << iota
	flagOffChain             // not part of the chain: reasoning, references to it, a client's own summary
	flagSummary              // a client's own summary of the conversation; not in later views
	flagPartial              // the answer was cut here
	flagSide                 // of a side line
	flagHidden               // the client does not see it: views get it from the Amendments
	flagCut                  // large strings are stored separately: see package media
	flagKept                 // Origin.Kept
	flagData                 // a call that the request demanded: data for a program, if no result comes
)

func itemName(seq uint64) string {
	var b [len(itemPrefix) + 8]byte
	return string(binary.BigEndian.AppendUint64(append(b[:0], itemPrefix...), seq))
}

// cut moves the item's large strings to separate values, which it appends to puts.
func (it *storedItem) cut(puts []cache.Put) []cache.Put {
	kept, pieces := media.Cut(it.Raw)
	if kept == nil {
		return puts
	}
	it.Raw, it.Flags = kept, it.Flags|flagCut
	for _, p := range pieces {
		puts = append(puts, cache.Put{Name: mediaName(p.Digest), Data: p.Encode(), Lasting: true})
	}
	return puts
}

func (it *storedItem) encode() []byte {
	const overhead = 96 // bytes, about
	flags, size := it.Flags, len(it.Raw)
	if size > compressAbove {
		flags, size = flags|flagCompressed, s2.MaxEncodedLen(size)
	}
	if it.Made.Kept {
		flags |= flagKept
	}
	b := append(make([]byte, 0, size+overhead), recordVersion)
	b = append(binary.AppendUvarint(b, uint64(flags)), it.Dialect.Code())
	b = binary.AppendUvarint(binary.AppendUvarint(b, it.Line), it.Parent)
	b = appendPosition(b, it.Pos)
	b = append(b, it.Content[:]...)
	b = recordcodec.AppendString(recordcodec.AppendString(recordcodec.AppendString(b, it.Turn), it.Made.Provider), it.Made.Model)
	if flags&flagCompressed == 0 {
		return append(b, it.Raw...)
	}
	b = slices.Grow(b, s2.MaxEncodedLen(len(it.Raw)))
	return b[:len(b)+len(s2.Encode(b[len(b):cap(b)], it.Raw))]
}

func decodeItem(b []byte) (storedItem, error) {
	d := beginRecord(b)
	it := storedItem{Flags: itemFlags(d.Uvarint()), Dialect: dialects.ByCode(d.Byte()), Line: d.Uvarint(), Parent: d.Uvarint(), Pos: readPosition(&d), Content: d.Hash(), Turn: d.Text(), Made: Origin{Provider: d.Text(), Model: d.Text()}}
	if err := endRecord(&d, "item"); err != nil {
		return storedItem{}, err
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

func mediaName(digest wire.Hash) string { return mediaPrefix + string(digest[:]) }
