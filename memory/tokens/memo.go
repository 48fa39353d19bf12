package tokens

import (
	"math/bits"
	"sync/atomic"
)

// memo remembers counts by hash, in a table that is allocated once: sets of slots, each one word that holds both the
// hash and the count, so that a hit takes no lock, writes nothing and allocates nothing. Two writers in one set may
// lose an entry to each other; that costs counting it again.
type memo struct {
	slots []atomic.Uint64
	mask  uint64 // of the sets
}

const (
	memoWays  = 8  // slots of a set: one cache line
	countBits = 24 // of a slot; the rest is the upper part of the hash, and its other bits choose the set
)

// newMemo makes room for about n counts, at least one.
func newMemo(n int) memo {
	sets := uint64(1) << bits.Len(uint((n-1)/memoWays))
	return memo{slots: make([]atomic.Uint64, sets*memoWays), mask: sets - 1}
}

// set returns the slots where a hash may be.
func (m *memo) set(hash uint64) []atomic.Uint64 {
	at := hash & m.mask * memoWays
	return m.slots[at : at+memoWays]
}

// get returns what put kept for hash. Of 2^56 other hashes, eight may be taken for it.
func (m *memo) get(hash uint64) (count int, ok bool) {
	set := m.set(hash)
	for i := range set {
		e := set[i].Load()
		if e == 0 || e>>countBits != hash>>countBits {
			continue
		}
		// A hit in the older half moves to the younger half, where hits write nothing.
		if young := i - memoWays/2; young >= 0 {
			set[i].Store(set[young].Load())
			set[young].Store(e)
		}
		return int(e & (1<<countBits - 1)), true
	}
	return 0, false
}

// put remembers a count in place of the oldest of its set. Counts of 2^24 and more are not kept.
func (m *memo) put(hash uint64, count int) {
	if count < 0 || count >= 1<<countBits {
		return
	}
	set := m.set(hash)
	for i := len(set) - 1; i > 0; i-- {
		set[i].Store(set[i-1].Load())
	}
	set[0].Store(hash>>countBits<<countBits | uint64(count))
}
