package layer

import (
	"crypto/sha256"

	"remora/memory/lru"
)

// Bounds of a Decoded.
const (
	maxDecoded      = 4096     // values
	maxDecodedBytes = 16 << 20 // of them all, as decodedCost has it
)

// decodedCost estimates the bytes of a decoded value.
func decodedCost(state []byte) int { return 2*len(state) + 512 }

// Decoded caches decoded states: several hooks of a turn, and the next turn of the session, get the same state. The key is a hash
// of the state's bytes. It holds the 4096 most recently used values, at most about 16 MiB.
//
// Values are shared by all callers: they must not be changed, nor may a slice in them be appended to in place. It is safe for
// concurrent use.
type Decoded[T any] struct {
	decode func(state []byte) T
	known  lru.Cache[stateHash, T]
}

type stateHash = [sha256.Size]byte

// NewDecoded caches results of decode, which must be a function of the bytes alone and not retain them.
func NewDecoded[T any](decode func(state []byte) T) *Decoded[T] { return &Decoded[T]{decode: decode} }

// Get returns the decoded state.
func (d *Decoded[T]) Get(state []byte) T {
	if len(state) == 0 {
		return d.decode(state)
	}
	key := sha256.Sum256(state)
	if known, ok := d.known.Find(key); ok {
		return known
	}
	v := d.decode(state)
	d.put(key, v, decodedCost(state))
	return v
}

// Put caches that next, which replaces was, decodes to v. v must not be changed afterwards.
func (d *Decoded[T]) Put(was, next []byte, v T) {
	d.known.Drop(sha256.Sum256(was))
	if len(next) > 0 {
		d.put(sha256.Sum256(next), v, decodedCost(next))
	}
}

func (d *Decoded[T]) put(key stateHash, v T, cost int) {
	if cost > maxDecodedBytes/16 {
		return // it would evict all others
	}
	d.known.Put(key, v, maxDecoded)
	d.known.Resize(key, cost, maxDecodedBytes)
}
