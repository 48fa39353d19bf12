package tokens

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"

	"github.com/pkoukk/tiktoken-go-loader/assets"
)

// encoding names a vocabulary and the pattern that goes with it.
type encoding uint8

// Encodings whose vocabularies are built in.
const (
	o200kBase  encoding = iota // GPT-4o and all that came after it
	cl100kBase                 // GPT-4, GPT-3.5 and the embedding models
	encodings
)

// String returns the name that OpenAI gave the encoding.
func (e encoding) String() string {
	if e == cl100kBase {
		return "cl100k_base"
	}
	return "o200k_base"
}

// splitter returns the pattern of the encoding.
func (e encoding) splitter() splitter {
	if e == cl100kBase {
		return splitCl100k
	}
	return splitO200k
}

const (
	rankBits = 18  // of a slot; its other bits are a tag
	maxToken = 128 // bytes of the longest token of both vocabularies
)

// vocabulary ranks byte strings. It is never modified, and takes 4.4 MB for o200k_base, 2.2 MB for cl100k_base.
type vocabulary struct {
	split   splitter
	classes *classes
	// slots is a hash table of open addressing: rank + 1 in the lower bits, bits of the hash above; 0 is free.
	slots []uint32
	mask  uint64
	// The token of rank r is text[offsets[r]:offsets[r+1]].
	text    []byte
	offsets []uint32
}

// load reads the vocabulary of an encoding. It takes about 20 ms. An error means that the binary is damaged.
func load(e encoding, c *classes) (*vocabulary, error) {
	lines, err := assets.Assets.ReadFile(e.String() + ".tiktoken")
	if err != nil {
		return nil, fmt.Errorf("load vocabulary %s: %w", e, err)
	}
	v, err := parse(lines)
	if err != nil {
		return nil, fmt.Errorf("load vocabulary %s: %w", e, err)
	}
	v.split, v.classes = e.splitter(), c
	return v, nil
}

// parse reads a vocabulary as OpenAI publishes it: a line a token, in the order of their ranks, each its bytes in base64, a space
// and its rank.
func parse(lines []byte) (*vocabulary, error) {
	var text []byte
	offsets := []uint32{0}
	for line := range bytes.Lines(lines) {
		token, rank, ok := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(" "))
		if len(line) < 2 {
			continue
		}
		n := len(offsets) - 1
		if r, err := strconv.Atoi(string(rank)); !ok || err != nil || r != n || n+1 >= 1<<rankBits {
			return nil, fmt.Errorf("token %d: rank %q", n, rank)
		}
		before := len(text)
		var err error
		if text, err = base64.StdEncoding.AppendDecode(text, token); err != nil {
			return nil, fmt.Errorf("token %d: %w", n, err)
		}
		if size := len(text) - before; size == 0 || size > maxToken {
			return nil, fmt.Errorf("token %d has %d bytes", n, size)
		}
		offsets = append(offsets, uint32(len(text))) //nolint:gosec // at most maxToken for each of 1<<rankBits tokens
	}

	n := len(offsets) - 1
	if n == 0 {
		return nil, errors.New("it has no tokens")
	}
	size := uint64(1) << bits.Len(uint(2*n))
	v := &vocabulary{slots: make([]uint32, size), mask: size - 1, text: bytes.Clone(text), offsets: slices.Clone(offsets)}
	for rank := range n {
		h := hash(v.text[v.offsets[rank]:v.offsets[rank+1]])
		i := h & v.mask
		for v.slots[i] != 0 {
			i = (i + 1) & v.mask
		}
		v.slots[i] = tag(h) | uint32(rank+1) // less than 1<<rankBits
	}
	return v, nil
}

// rank returns the rank of the token b, noRank if b is no token.
func (v *vocabulary) rank(b []byte) uint32 {
	if len(b) > maxToken {
		return noRank
	}
	h := hash(b)
	t := tag(h)
	for i := h & v.mask; ; i = (i + 1) & v.mask {
		slot := v.slots[i]
		if slot == 0 {
			return noRank
		}
		if slot&^(1<<rankBits-1) != t {
			continue
		}
		if r := slot&(1<<rankBits-1) - 1; string(v.text[v.offsets[r]:v.offsets[r+1]]) == string(b) {
			return r
		}
	}
}

// tag returns the part of a hash that a slot keeps, at its place there.
func tag(h uint64) uint32 {
	return uint32(h>>32) &^ (1<<rankBits - 1)
}

// hash needs no key: lookups may be hostile, but the table's content is not.
func hash(b []byte) uint64 {
	const k = 0x9E3779B97F4A7C15
	h := uint64(len(b)) * k
	for len(b) > 8 {
		h = mix(h ^ binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	var last uint64
	switch n := len(b); {
	case n >= 4:
		last = uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[n-4:]))<<32
	case n > 0:
		last = uint64(b[0]) | uint64(b[n/2])<<8 | uint64(b[n-1])<<16
	}
	return mix(h ^ last)
}

// mix spreads each bit over the word: half of a 128-bit product added to the other half.
func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h, 0xD6E8FEB86659FD93)
	return hi ^ lo
}
