package layer

import (
	"bytes"
	"container/list"
	"hash/maphash"
	"slices"
	"sync"
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
// Values are shared by whoever asks: nobody may change one, nor append to a slice in it that has room left. It is safe for
// concurrent use.
type Decoded[T any] struct {
	decode func(state []byte) (T, error)
	seed   maphash.Seed

	mu    sync.Mutex
	byKey map[uint64]*list.Element
	order *list.List // of *decoded[T], the newest use first
	cost  int
}

type decoded[T any] struct {
	key   uint64
	state []byte
	value T
}

// NewDecoded remembers what decode makes of states. It must be a function of the bytes alone, and keep none of them.
func NewDecoded[T any](decode func(state []byte) (T, error)) *Decoded[T] {
	return &Decoded[T]{decode: decode, seed: maphash.MakeSeed(), byKey: make(map[uint64]*list.Element), order: list.New()}
}

// Get is what the state says. An error is that of decode, and is not remembered.
func (d *Decoded[T]) Get(state []byte) (T, error) {
	if len(state) == 0 {
		return d.decode(state)
	}
	key := maphash.Bytes(d.seed, state)
	if e := d.find(key); e != nil && bytes.Equal(e.state, state) {
		return e.value, nil
	}
	v, err := d.decode(state)
	if err == nil {
		d.add(&decoded[T]{key, slices.Clone(state), v}) // it may lie in an answer of the store's that is much larger
	}
	return v, err
}

// Put says that next, which takes the place of was, decodes to v. Neither v nor next may be changed from now on.
func (d *Decoded[T]) Put(was, next []byte, v T) {
	if e := d.find(maphash.Bytes(d.seed, was)); e != nil && bytes.Equal(e.state, was) {
		d.mu.Lock()
		if el := d.byKey[e.key]; el != nil && el.Value == any(e) {
			d.drop(el)
		}
		d.mu.Unlock()
	}
	if len(next) > 0 {
		d.add(&decoded[T]{maphash.Bytes(d.seed, next), next, v})
	}
}

// find is the value with that key, nil if there is none. It may be that of another state.
func (d *Decoded[T]) find(key uint64) *decoded[T] {
	d.mu.Lock()
	defer d.mu.Unlock()
	el := d.byKey[key]
	if el == nil {
		return nil
	}
	d.order.MoveToFront(el)
	return el.Value.(*decoded[T])
}

func (d *Decoded[T]) add(e *decoded[T]) {
	cost := decodedCost(e.state)
	if cost > maxDecodedBytes/16 {
		return // one such state must not drive out all others
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if el := d.byKey[e.key]; el != nil {
		d.drop(el)
	}
	d.byKey[e.key] = d.order.PushFront(e)
	d.cost += cost
	for d.order.Len() > maxDecoded || d.cost > maxDecodedBytes {
		d.drop(d.order.Back())
	}
}

func (d *Decoded[T]) drop(el *list.Element) {
	e := d.order.Remove(el).(*decoded[T])
	delete(d.byKey, e.key)
	d.cost -= decodedCost(e.state)
}
