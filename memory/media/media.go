// Package media stores the large strings of items (an image, a file, the text that a tool has read) as values of their own.
// Clients resend them with every request, and a session stores each one once.
package media

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"remora/memory/recordcodec"
	"remora/wire"
)

// Large is the size in bytes from which a string is stored apart: the size of a small picture. Below it, a second value
// would cost more than it saves.
const Large = 16 << 10

// ErrCorrupt is returned where a value is not what was written.
var ErrCorrupt = errors.New("stored media are corrupt")

// Piece is the raw text of a large string, without its quotes.
type Piece struct {
	Digest wire.Hash // leading bytes of the SHA-256 of Data
	Data   []byte
}

// Cut takes the large strings out of an item's JSON. kept is the rest with their places, nil if there are none. Pieces
// share memory with raw.
func Cut(raw []byte) (kept []byte, pieces []Piece) {
	if len(raw) < Large {
		return nil, nil
	}
	var list places
	var rest []byte
	done := 0
	for from, to := range wire.Strings(raw) {
		if to-from < Large {
			continue
		}
		p := Piece{Data: raw[from:to]}
		sum := sha256.Sum256(p.Data)
		copy(p.Digest[:], sum[:])
		list = append(list, place{uint64(from - done), p.Digest}) //nolint:gosec // not negative
		rest = append(rest, raw[done:from]...)
		pieces, done = append(pieces, p), to
	}
	if pieces == nil {
		return nil, nil
	}
	var c recordcodec.Codec
	list.fields(&c)
	return append(append(c.Data, rest...), raw[done:]...), pieces
}

// Digests returns the digests of the pieces that Cut took out of an item, in order.
func Digests(kept []byte) ([]wire.Hash, error) {
	list, _, err := read(kept)
	digests := make([]wire.Hash, len(list))
	for i, p := range list {
		digests[i] = p.digest
	}
	return digests, err
}

// Join is the inverse of Cut: values are encoded pieces, in the order of Digests.
func Join(kept []byte, values [][]byte) ([]byte, error) {
	list, r, err := read(kept)
	if err != nil {
		return nil, err
	}
	if len(list) != len(values) {
		return nil, fmt.Errorf("%d pieces for %d places: %w", len(values), len(list), ErrCorrupt)
	}
	var raw []byte
	for i, v := range values {
		data, err := recordcodec.Decompress(v)
		if err != nil || len(raw)+len(data) > recordcodec.MaxValue {
			return nil, fmt.Errorf("%w: piece %d", ErrCorrupt, i)
		}
		raw = append(append(raw, r.Take(list[i].gap)...), data...)
	}
	if r.Bad {
		return nil, ErrCorrupt
	}
	return append(raw, r.Data...), nil
}

// Without is Join with a text in the place of each piece, for a reader who needs none of them. The text has to be valid
// within a JSON string.
func Without(kept []byte, text string) ([]byte, error) {
	list, r, err := read(kept)
	if err != nil {
		return nil, err
	}
	var raw []byte
	for _, p := range list {
		raw = append(append(raw, r.Take(p.gap)...), text...)
	}
	if r.Bad {
		return nil, ErrCorrupt
	}
	return append(raw, r.Data...), nil
}

// place is where a piece stood: the number of bytes of the rest between it and the piece before it.
type place struct {
	gap    uint64
	digest wire.Hash
}

// places are those of all pieces of an item. The rest of the item follows them.
type places []place

func (list *places) fields(c *recordcodec.Codec) {
	for i := range recordcodec.Len(c, list, recordcodec.MaxValue/Large) {
		c.Uvarint(&(*list)[i].gap)
		c.Hash(&(*list)[i].digest)
	}
}

// read reads the places of the pieces. The rest of the item is still to be read.
func read(kept []byte) (list places, r recordcodec.Codec, err error) {
	r = recordcodec.NewReader(kept)
	if list.fields(&r); r.Bad {
		return nil, r, ErrCorrupt
	}
	return list, r, nil
}

// Encode returns the value that is stored of the piece.
func (p Piece) Encode() []byte { return recordcodec.Compress(nil, p.Data) }
