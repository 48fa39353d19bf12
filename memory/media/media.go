// Package media keeps the large strings of items apart from them: an image, a file, the text of one that a tool has read.
// Clients say the same one again and again, and a session stores it once (DESIGN section 7).
package media

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"

	"remora/memory/pack"
	"remora/wire"
)

// Large is the size in bytes from which a string is kept apart: that of a small picture. Below it, a second value would cost
// more than it saves.
const Large = 16 << 10

// most is the size in bytes above which a stored value can't be right: no request may be as large.
const most = 1 << 30

// ErrCorrupt is returned where a value is not what was written.
var ErrCorrupt = errors.New("stored media are corrupt")

// Piece is what stands between the quotes of a large string, as it was spelled.
type Piece struct {
	Digest wire.Hash // leading bytes of the SHA-256 of Data
	Data   []byte
}

// Cut takes the large strings out of an item's JSON. kept is the rest, which tells where they stood; nil where there are
// none. Pieces share memory with raw.
func Cut(raw []byte) (kept []byte, pieces []Piece) {
	if len(raw) < Large {
		return nil, nil
	}
	var places, rest []byte
	done := 0
	for from, to := range quoted(raw) {
		if to-from < Large {
			continue
		}
		p := Piece{Data: raw[from:to]}
		sum := sha256.Sum256(p.Data)
		copy(p.Digest[:], sum[:])
		places = append(binary.AppendUvarint(places, uint64(from-done)), p.Digest[:]...) //nolint:gosec // not negative
		rest = append(rest, raw[done:from]...)
		pieces, done = append(pieces, p), to
	}
	if pieces == nil {
		return nil, nil
	}
	kept = append(binary.AppendUvarint(nil, uint64(len(pieces))), places...)
	return append(append(kept, rest...), raw[done:]...), pieces
}

// quoted iterates over the strings of valid JSON, names of members among them, as the places between their quotes.
func quoted(raw []byte) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		for i := 0; ; i++ {
			n := bytes.IndexByte(raw[i:], '"')
			if n < 0 {
				return
			}
			from := i + n + 1
			if i = end(raw, from); i < 0 || !yield(from, i) {
				return
			}
		}
	}
}

// end is where the string ends whose content begins at from, -1 where it does not: an escaped quote has an odd number of
// backslashes before it.
func end(raw []byte, from int) int {
	for i := from; ; i++ {
		n := bytes.IndexByte(raw[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		k := i
		for k > from && raw[k-1] == '\\' {
			k--
		}
		if (i-k)%2 == 0 {
			return i
		}
	}
}

// Digests are those of the pieces that what Cut has kept needs, in their order.
func Digests(kept []byte) ([]wire.Hash, error) {
	var list []wire.Hash
	if err := walk(&pack.Reader{Rest: kept}, func(_ uint64, digest wire.Hash) { list = append(list, digest) }); err != nil {
		return nil, err
	}
	return list, nil
}

// Join is the reverse of Cut: values are those of Encode, in the order of Digests.
func Join(kept []byte, values [][]byte) ([]byte, error) {
	r := pack.Reader{Rest: kept}
	var gaps []uint64
	if err := walk(&r, func(gap uint64, _ wire.Hash) { gaps = append(gaps, gap) }); err != nil {
		return nil, err
	}
	if len(gaps) != len(values) {
		return nil, fmt.Errorf("%d pieces for %d places: %w", len(values), len(gaps), ErrCorrupt)
	}
	size := len(r.Rest)
	for _, v := range values {
		n, err := s2.DecodedLen(v)
		if err != nil || n > most || size+n > most {
			return nil, fmt.Errorf("a piece of %d bytes: %w", n, ErrCorrupt)
		}
		size += n
	}
	raw := make([]byte, 0, size)
	for i, v := range values {
		raw = append(raw, r.Take(gaps[i])...)
		n, _ := s2.DecodedLen(v) // as above
		data, err := s2.Decode(raw[len(raw):len(raw)+n], v)
		if err != nil || r.Bad {
			return nil, ErrCorrupt
		}
		raw = raw[:len(raw)+len(data)]
	}
	return append(raw, r.Rest...), nil
}

// walk reads the places of the pieces and leaves the rest of the item.
func walk(r *pack.Reader, place func(gap uint64, digest wire.Hash)) error {
	for n := r.Count(most / Large); n > 0; n-- {
		if place(r.Uvarint(), r.Hash()); r.Bad {
			return ErrCorrupt
		}
	}
	if r.Bad {
		return ErrCorrupt
	}
	return nil
}

// Encode is the value that is stored of the piece.
func (p Piece) Encode() []byte { return s2.Encode(nil, p.Data) }
