// Package recordcodec encodes and decodes binary records: a Codec visits the parts of a record in their order, to write or to read them.
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

// Compress returns head, as it is, and after it a value for Decompress. The result has little room to spare, as stores may keep it.
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

// Codec writes or reads a record, front to back. Each of its methods visits one part: it appends the value to the record, or sets the
// value from it. So one function that visits all parts describes both directions. A value that is missing or invalid sets Bad, and it is
// zero like all values after it. Bytes that were read share the record's memory.
type Codec struct {
	Data    []byte // what has been written, or what is still to be read
	Reading bool
	Bad     bool // the record that is read is invalid
}

// NewWriter returns a Codec that writes a record of about size bytes.
func NewWriter(size int) Codec { return Codec{Data: make([]byte, 0, size)} }

// NewReader returns a Codec that reads a record.
func NewReader(record []byte) Codec { return Codec{Data: record, Reading: true} }

// Take reads n bytes.
func (c *Codec) Take(n uint64) []byte {
	if c.Bad || uint64(len(c.Data)) < n {
		c.Bad = true
		return nil
	}
	p := c.Data[:n]
	c.Data = c.Data[n:]
	return p
}

// Byte visits one byte.
func (c *Codec) Byte(v *byte) {
	if !c.Reading {
		c.Data = append(c.Data, *v)
		return
	}
	if *v = 0; c.Bad || len(c.Data) == 0 {
		c.Bad = true
		return
	}
	*v, c.Data = c.Data[0], c.Data[1:]
}

// Bool visits a bool, as a byte.
func (c *Codec) Bool(v *bool) {
	var b byte
	if *v && !c.Reading {
		b = 1
	}
	if c.Byte(&b); c.Reading {
		*v = b == 1
	}
}

// Fixed visits bytes of a known number.
func (c *Codec) Fixed(v []byte) {
	switch {
	case !c.Reading:
		c.Data = append(c.Data, v...)
	case copy(v, c.Take(uint64(len(v)))) < len(v):
		clear(v)
	}
}

// Hash visits a hash.
func (c *Codec) Hash(v *wire.Hash) { c.Fixed(v[:]) }

// Uint64 visits a number of 8 bytes, big endian.
func (c *Codec) Uint64(v *uint64) {
	if !c.Reading {
		c.Data = binary.BigEndian.AppendUint64(c.Data, *v)
		return
	}
	*v = 0
	if p := c.Take(8); p != nil {
		*v = binary.BigEndian.Uint64(p)
	}
}

// Uvarint visits a number as binary.AppendUvarint writes it.
func (c *Codec) Uvarint(v *uint64) {
	if !c.Reading {
		c.Data = binary.AppendUvarint(c.Data, *v)
		return
	}
	*v = 0
	if c.Bad {
		return
	}
	value, n := binary.Uvarint(c.Data)
	if n <= 0 {
		c.Bad = true
		return
	}
	*v, c.Data = value, c.Data[n:]
}

// Count visits a number that can't be more than most in a record that is read.
func (c *Codec) Count(v *uint64, most uint64) {
	if c.Uvarint(v); c.Reading && *v > most {
		*v, c.Bad = 0, true
	}
}

// Bytes visits any bytes, after their number.
func (c *Codec) Bytes(v *[]byte) {
	n := uint64(len(*v))
	if c.Uvarint(&n); c.Reading {
		*v = c.Take(n)
		return
	}
	c.Data = append(c.Data, *v...)
}

// Text visits a text of any bytes, after their number.
func (c *Codec) Text(v *string) {
	n := uint64(len(*v))
	if c.Uvarint(&n); c.Reading {
		*v = string(c.Take(n))
		return
	}
	c.Data = append(c.Data, *v...)
}

// Len visits the length of a list and returns it. A list that is read has this length afterwards; visit its elements next. There can't be
// more than most, nor more than the record has bytes: each takes at least one.
func Len[S ~[]T, T any](c *Codec, list *S, most uint64) int {
	n := uint64(len(*list))
	if c.Count(&n, most); !c.Reading {
		return len(*list)
	}
	if *list = nil; n > uint64(len(c.Data)) {
		n, c.Bad = 0, true
	}
	if n > 0 {
		*list = make(S, n)
	}
	return len(*list)
}
