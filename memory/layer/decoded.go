package layer

import (
	"bytes"
	"hash/maphash"
	"slices"

	"remora/memory/lru"
)

// Bounds of a Decoded.
const (
	maxDecoded      = 4096     // values
	maxDecodedBytes = 16 << 20 // of them all, as decodedCost has it
)

// decodedCost estimates the bytes of a state and its decoded value: somewhat more than twice the state.
func decodedCost(state []byte) int { return 2*len(state) + 512 }

// Decoded caches decoded states: several hooks of a turn, and the next turn of the session, get the same state. The key is all
// of the state's bytes. It holds the 4096 most recently used states, at most about 16 MiB with their decoded values.
//
// Values are shared by all callers: they must not be changed, nor may a slice in them be appended to in place. It is safe for
// concurrent use.
type Decoded[T any] struct {
	decode func(state []byte) T
	seed   maphash.Seed
	known  lru.Cache[uint64, decoded[T]]
}

type decoded[T any] struct {
	state []byte
	value T
}

// NewDecoded caches results of decode, which must be a function of the bytes alone and not retain them.
func NewDecoded[T any](decode func(state []byte) T) *Decoded[T] {
	return &Decoded[T]{decode: decode, seed: maphash.MakeSeed()}
}

// Get returns the decoded state.
func (d *Decoded[T]) Get(state []byte) T {
	if len(state) == 0 {
		return d.decode(state)
	}
	key := maphash.Bytes(d.seed, state)
	if known, ok := d.known.Find(key); ok && bytes.Equal(known.state, state) {
		return known.value
	}
	v := d.decode(state)
	d.put(key, slices.Clone(state), v) // it may be a part of a much larger reply of the store
	return v
}

// Put caches that next, which replaces was, decodes to v. Neither v nor next may be changed afterwards.
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
		return // it would evict all others
	}
	d.known.Put(key, decoded[T]{state, v}, maxDecoded)
	d.known.Resize(key, cost, maxDecodedBytes)
}
