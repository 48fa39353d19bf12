package layer

import (
	"bytes"
	"hash/maphash"
	"slices"

	"remora/memory/lru"
)

// Bounds of what a Decoded keeps.
const (
	maxDecoded      = 4096     // values
	maxDecodedBytes = 16 << 20 // of them all, as decodedCost has it
)

// decodedCost is about how many bytes a state and what it was decoded to take: somewhat more than twice its own.
func decodedCost(state []byte) int { return 2*len(state) + 512 }

// Decoded remembers what states were decoded to, so that a state which this process read or wrote a moment ago need not
// be decoded again: several hooks of a turn are handed the same one, and so is the next turn of the session. States are
// told apart by all of their bytes. It keeps the 4096 used last, of about 16 MiB at most with what they were decoded to.
//
// Values are shared by all callers: they must not be changed, nor may a slice in them be appended to in place. It is safe for
// concurrent use.
type Decoded[T any] struct {
	decode func(state []byte) (T, error)
	seed   maphash.Seed
	known  lru.Cache[uint64, decoded[T]]
}

type decoded[T any] struct {
	state []byte
	value T
}

// NewDecoded remembers what decode makes of states. It must be a function of the bytes alone, and keep none of them.
func NewDecoded[T any](decode func(state []byte) (T, error)) *Decoded[T] {
	return &Decoded[T]{decode: decode, seed: maphash.MakeSeed()}
}

// Get returns the decoded state. Errors are those of decode and are not cached.
func (d *Decoded[T]) Get(state []byte) (T, error) {
	if len(state) == 0 {
		return d.decode(state)
	}
	key := maphash.Bytes(d.seed, state)
	if known, ok := d.known.Find(key); ok && bytes.Equal(known.state, state) {
		return known.value, nil
	}
	v, err := d.decode(state)
	if err == nil {
		d.put(key, slices.Clone(state), v) // it may lie in an answer of the store's that is much larger
	}
	return v, err
}

// Put says that next, which takes the place of was, decodes to v. Neither v nor next may be changed from now on.
func (d *Decoded[T]) Put(was, next []byte, v T) {
	key := maphash.Bytes(d.seed, was)
	if known, ok := d.known.Find(key); ok && bytes.Equal(known.state, was) {
		d.known.Drop(key)
	}
	if len(next) > 0 {
		d.put(maphash.Bytes(d.seed, next), next, v)
	}
}

func (d *Decoded[T]) put(key uint64, state []byte, v T) {
	cost := decodedCost(state)
	if cost > maxDecodedBytes/16 {
		return // one such state must not drive out all others
	}
	d.known.Put(key, decoded[T]{state, v}, maxDecoded)
	d.known.Resize(key, cost, maxDecodedBytes)
}
