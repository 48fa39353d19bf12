package session

import (
	"encoding/binary"
	"fmt"

	"remora/memory/media"
	"remora/memory/recordcodec"
	"remora/wire"
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
	as, size := *it, 64+len(it.Turn)+len(it.Made.Provider)+len(it.Made.Model)
	if it.Made.Kept {
		as.Flags |= flagKept
	}
	if len(it.Raw) > compressAbove {
		as.Flags |= flagCompressed
	} else {
		size += len(it.Raw)
	}
	c := newRecord(size)
	as.fields(&c)
	if as.Flags&flagCompressed != 0 {
		return recordcodec.Compress(c.Data, it.Raw)
	}
	return append(c.Data, it.Raw...)
}

func decodeItem(b []byte) (it storedItem, err error) {
	c := beginRecord(b)
	it.fields(&c)
	if err := endRecord(&c, "item"); err != nil {
		return storedItem{}, err
	}
	it.Made.Kept, it.Flags = it.Flags&flagKept != 0, it.Flags&^flagKept
	it.Raw = c.Data
	if it.Flags&flagCompressed != 0 {
		raw, err := recordcodec.Decompress(c.Data)
		if err != nil {
			return storedItem{}, fmt.Errorf("read item: %w: %w", ErrCorrupt, err)
		}
		it.Raw, it.Flags = raw, it.Flags&^flagCompressed
	}
	return it, nil
}

// fields visits what stands before Raw in the record.
func (it *storedItem) fields(c *recordcodec.Codec) {
	c.Uvarint((*uint64)(&it.Flags))
	dialectCode(c, &it.Dialect)
	c.Uvarint(&it.Line)
	c.Uvarint(&it.Parent)
	it.Pos.fields(c)
	c.Hash(&it.Content)
	c.Text(&it.Turn)
	c.Text(&it.Made.Provider)
	c.Text(&it.Made.Model)
}

func mediaName(digest wire.Hash) string { return mediaPrefix + string(digest[:]) }
