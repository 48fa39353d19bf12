// Package encrypted encrypts a [cache.Store] and a spool, if store.encryption is configured. Values and records are encrypted
// with AES-256-GCM, names of groups and values deterministically, so that they can be looked up. Start at [New].
//
// An attacker who can read the store, a backup or the disk still sees owners (which are hashes of credentials), the number and
// size of groups and values, when they change, and the id of the key. One who can also write can delete values and restore an
// older value of the same name, but cannot change or forge a value, or move it to another name, group or owner.
package encrypted

import "remora/cache"

// Sealer encrypts stores and spools. A nil Sealer encrypts nothing. It is safe for concurrent use.
type Sealer struct {
	ring   *ring
	names  *names
	accept bool
}

// New returns nil if o configures nothing. Its error is that of [Options.Validate].
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

// Store returns a store that encrypts everything and writes it to inner, or inner itself if s is nil. Closing it closes inner.
// If a value cannot be decrypted, Read returns an error that wraps [ErrUnreadable].
func (s *Sealer) Store(inner cache.Store) cache.Store {
	if s == nil {
		return inner
	}
	return &store{Sealer: s, inner: inner}
}

// Queue returns a queue that encrypts every record and appends it to inner, or nil if inner is nil. A nil Sealer encrypts none.
//
// If a record cannot be decrypted, inner quarantines it, for an error that wraps [ErrUnreadable]: it can still be read with the
// right keys. A nil Sealer does so for encrypted records.
func (s *Sealer) Queue(inner Queue) Queue {
	switch {
	case inner == nil:
		return nil
	case s == nil:
		return &queue{inner, plain, plain}
	}
	return &queue{inner, s.sealRecord, s.openRecord}
}

// Guard returns a store that no call reaches before a Check has succeeded. Until then each call checks first, and returns the
// error of the check. store is the unencrypted one.
func (s *Sealer) Guard(store cache.Store) *Guarded {
	return &Guarded{Store: store, sealer: s}
}

// open decrypts a stored value in place.
func (s *Sealer) open(b, place []byte) ([]byte, error) {
	if s.accept && !isSealed(b) {
		return b, nil
	}
	return s.ring.open(b, place)
}

// sealRecord encrypts a record, which belongs to no group.
func (s *Sealer) sealRecord(rec []byte) ([]byte, error) {
	return s.ring.seal(make([]byte, 0, len(rec)+maxOverhead), rec, []byte{kindRecord})
}

func (s *Sealer) openRecord(sealed []byte) ([]byte, error) { return s.open(sealed, []byte{kindRecord}) }
