package session

import (
	"encoding/binary"
	"fmt"
	"slices"

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

// cut moves the item's large strings to pieces, which are stored separately.
func (it *storedItem) cut() []media.Piece {
	kept, pieces := media.Cut(it.Raw)
	if kept != nil {
		it.Raw, it.Flags = kept, it.Flags|flagCut
	}
	return pieces
}

func (it *storedItem) encode() []byte {
	flags := it.Flags
	if len(it.Raw) > compressAbove {
		flags |= flagCompressed
	}
	if it.Made.Kept {
		flags |= flagKept
	}
	var room [160]byte // about what most items need
	head := append(room[:0], recordVersion)
	head = append(binary.AppendUvarint(head, uint64(flags)), it.Dialect.Code())
	head = binary.AppendUvarint(binary.AppendUvarint(head, it.Line), it.Parent)
	head = appendPosition(head, it.Pos)
	head = append(head, it.Content[:]...)
	head = recordcodec.AppendString(recordcodec.AppendString(recordcodec.AppendString(head, it.Turn), it.Made.Provider), it.Made.Model)
	if flags&flagCompressed != 0 {
		return recordcodec.Compress(head, it.Raw)
	}
	return slices.Concat(head, it.Raw)
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
