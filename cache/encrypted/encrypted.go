// Package encrypted encrypts what a [cache.Store] and a spool hold, when store.encryption is configured. Values and records
// are encrypted with AES-256-GCM, names of groups and values deterministically, so that they can be looked up. Start at [New].
//
// An attacker who can read the store, a backup or the disk still sees owners (which are hashes of credentials), the number and
// size of groups and values, when they change, and the id of the key. One who can also write can delete values and put back
// an older value of the same name, but cannot change or forge a value, or move it to another name, group or owner.
package encrypted

import "remora/cache"

// Sealer encrypts stores and spools. A nil Sealer encrypts nothing. It is safe for concurrent use.
type Sealer struct {
	ring   *ring
	names  *names
	accept bool
}

// New returns nil where o configures nothing, and the problems of o as [Options.Validate] does.
func New(o Options) (*Sealer, error) {
	if !o.Enabled() {
		return nil, nil
	}
	keys, namesKey, err := o.decode()
	if err != nil {
		return nil, err
	}
	s := &Sealer{accept: o.AcceptPlaintext}
	if s.ring, err = newRing(keys); err != nil {
		return nil, err
	}
	if s.names, err = newNames(namesKey); err != nil {
		return nil, err
	}
	return s, nil
}

// Store returns a store that encrypts everything and keeps it in inner, or inner itself if s is nil. Closing it closes inner.
// Where a value can't be decrypted, Read fails with an error that wraps [ErrUnreadable].
func (s *Sealer) Store(inner cache.Store) cache.Store {
	if s == nil {
		return inner
	}
	return &store{Sealer: s, inner: inner}
}

// Queue returns a queue that encrypts every record and keeps it in inner, or nil if inner is nil. A nil Sealer encrypts none.
//
// A record that can't be decrypted is set aside by inner, for an error that wraps [ErrUnreadable]: with the right keys
// configured nothing of it is lost. So is a sealed one where there are no keys at all.
func (s *Sealer) Queue(inner Queue) Queue {
	switch {
	case inner == nil:
		return nil
	case s == nil:
		return &plainQueue{inner}
	}
	return &queue{Sealer: s, inner: inner}
}

// Guard returns store, the one below [Sealer.Store], so that no call reaches it before a Check has passed. Until then
// each call checks first, and fails with the error of the check.
func (s *Sealer) Guard(store cache.Store) *Guarded {
	return &Guarded{Store: store, sealer: s}
}

// open reads a value that was read from the store, in its bytes.
func (s *Sealer) open(b, place []byte) ([]byte, error) {
	if s.accept && !isSealed(b) {
		return b, nil
	}
	return s.ring.open(b, place)
}
