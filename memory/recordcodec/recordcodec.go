// Package recordcodec encodes and decodes the parts of binary records: a Reader reads parts in the order in which they were appended.
package recordcodec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"

	"remora/wire"
)

// MaxValue is the size in bytes above which a stored value can't be right: no request may be as large.
const MaxValue = 1 << 30

// Compress returns head, as it is, and behind it a value for Decompress. The result has little room to spare, as stores may keep it.
func Compress(head, value []byte) []byte {
	b := append(make([]byte, 0, len(head)+s2.MaxEncodedLen(len(value))), head...)
	b = b[:len(b)+len(s2.Encode(b[len(b):cap(b)], value))]
	if len(b) < cap(b)/4*3 {
		return bytes.Clone(b)
	}
	return b
}

// Decompress undoes Compress, for a value of at most MaxValue bytes.
func Decompress(b []byte) ([]byte, error) {
	n, err := s2.DecodedLen(b)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if n > MaxValue {
		return nil, errTooLarge
	}
	data, err := s2.Decode(nil, b)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return data, nil
}

var errTooLarge = errors.New("decompress: the value is too large")

// AppendString appends a text of any bytes, behind its length.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Bit returns the byte that stands for a bool.
func Bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// Reader reads a record front to back; a missing or invalid value sets Bad, and reads as zero like all values after it. Results share the
// record's memory, except texts.
type Reader struct {
	Rest []byte // what is still to be read
	Bad  bool
}

// Take reads n bytes.
func (r *Reader) Take(n uint64) []byte {
	if r.Bad || uint64(len(r.Rest)) < n {
		r.Bad = true
		return nil
	}
	p := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return p
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if p := r.Take(1); p != nil {
		return p[0]
	}
	return 0
}

// Uint64 reads 8 bytes, big endian.
func (r *Reader) Uint64() uint64 {
	if p := r.Take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// Uvarint reads a number as binary.AppendUvarint writes it.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if r.Bad || n <= 0 {
		r.Bad = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Count reads how many of something follow, of which there can't be more than most.
func (r *Reader) Count(most uint64) uint64 {
	n := r.Uvarint()
	if n > most {
		r.Bad = true
		return 0
	}
	return n
}

// Text reads what AppendString wrote.
func (r *Reader) Text() string { return string(r.Take(r.Uvarint())) }

// Hash reads the bytes of a hash.
func (r *Reader) Hash() (h wire.Hash) {
	copy(h[:], r.Take(uint64(len(h))))
	return h
}
