package seal

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"sync/atomic"

	"remora/cache"
)

// ErrMismatch is wrapped by errors that say that a store was written with other keys than those configured: no waiting
// cures them, and nothing may be written until somebody has corrected the configuration.
var ErrMismatch = errors.New("the configuration does not fit the store")

// The ways in which it does not. Each wraps [ErrMismatch].
var (
	ErrOtherNamesKey = mismatch(path + ".names_key: is not the one that this store was written with")
	ErrNoKeys        = mismatch(path + ": this store was written with encryption; configure its keys")
)

// mismatch is an error whose text is all that there is to say.
type mismatch string

func (m mismatch) Error() string { return string(m) }

// Unwrap makes it an ErrMismatch.
func (mismatch) Unwrap() error { return ErrMismatch }

func otherKey(id string) error {
	return mismatch(fmt.Sprintf("%s.keys: the secret of %q is not the one that this store was written with: configure that "+
		"again, or give the new secret another id, and put it first", path, id))
}

// In the group checks, which is the only one that is stored as it is, stand a fingerprint of the names_key and, for each
// key that has ever been the first, nothing, sealed by it: only who has its secret can open that, and it is no better for
// guessing a secret than any other value.
const (
	checksName = "remora-seal" // its owner is "", and tenants have names
	namesValue = "names_key"
	keyValue   = "key " // and the key's id
)

// Check compares names_key and keys with those that store, which is the store below that of [Sealer.Store], was written
// with, and notes those there that are to be written with and new. It costs one round trip, or two where there is
// something to note. It returns an error that wraps [ErrMismatch], or why the store could not tell.
//
// A nil Sealer, without keys, fits all stores that were never sealed.
func (s *Sealer) Check(ctx context.Context, store cache.Store) error {
	_, err := s.check(ctx, store)
	return err
}

// check is Check, and tells whether the store is written with encryption from now on: of several replicas only to one.
func (s *Sealer) check(ctx context.Context, store cache.Store) (begins bool, err error) {
	query := cache.Query{Group: cache.Group{Name: checksName}, Names: []string{namesValue}}
	if s != nil {
		for _, k := range s.ring.keys {
			query.Names = append(query.Names, keyValue+k.id)
		}
	}
	for {
		got, err := store.Read(ctx, []cache.Query{query})
		if err != nil {
			return false, err
		}
		puts, err := s.compare(got[0].Values)
		if err != nil || len(puts) == 0 {
			return false, err
		}
		out := store.Commit(ctx, []cache.Batch{{Group: query.Group, Expect: got[0].Version, Puts: puts}})
		if err := out[0].Err; !errors.Is(err, cache.ErrConflict) { // another replica was faster: look again
			if err != nil {
				return false, fmt.Errorf("check %s: %w", path, err)
			}
			return got[0].Values[0] == nil, nil
		}
	}
}

// compare returns what is still to be noted.
func (s *Sealer) compare(stored [][]byte) (puts []cache.Put, err error) {
	if s == nil {
		if stored[0] != nil {
			return nil, ErrNoKeys
		}
		return nil, nil
	}
	w := s.names.scratch()
	defer w.done()
	switch mine := w.fingerprint(); {
	case stored[0] == nil:
		puts = append(puts, cache.Put{Name: namesValue, Data: mine})
	case !hmac.Equal(stored[0], mine):
		return nil, ErrOtherNamesKey
	}
	for i, k := range s.ring.keys {
		place := append([]byte{kindKey}, k.id...)
		switch proof := stored[1+i]; {
		case proof != nil:
			if _, err := s.ring.open(proof, place); err != nil {
				return nil, otherKey(k.id)
			}
		case i == 0:
			// Those that only read were not written with under a check, or their notes are gone: only reading can tell.
			sealed, err := s.ring.seal(nil, nil, place)
			if err != nil {
				return nil, err
			}
			puts = append(puts, cache.Put{Name: keyValue + k.id, Data: sealed})
		}
	}
	return puts, nil
}

// Guard returns store, which is the one below that of [Sealer.Store], so that no call reaches it before a Check has
// passed. Until then each call checks first, and fails as that does.
func (s *Sealer) Guard(store cache.Store) *Guarded {
	return &Guarded{Store: store, sealer: s}
}

// Guarded is a store that is checked before it is used.
type Guarded struct {
	cache.Store
	// OnMismatch is told once of an error that wraps ErrMismatch, if it is not nil: that the store answers now and still is
	// of no use looks like an outage to all others. It must be set before the store is used.
	OnMismatch func(error)
	// OnBegin is told, if it is not nil, that a check has found the store not encrypted before. It must be set as early.
	OnBegin func()

	sealer *Sealer
	passed atomic.Bool
	told   atomic.Bool
}

// Check is [Sealer.Check], once it has passed without a round trip.
func (g *Guarded) Check(ctx context.Context) error {
	if g.passed.Load() {
		return nil
	}
	begins, err := g.sealer.check(ctx, g.Store)
	switch {
	case err == nil:
		g.passed.Store(true)
		if begins && g.OnBegin != nil {
			g.OnBegin()
		}
	case g.OnMismatch != nil && errors.Is(err, ErrMismatch) && g.told.CompareAndSwap(false, true):
		g.OnMismatch(err)
	}
	return err
}

// Read implements [cache.Store].
func (g *Guarded) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	if err := g.Check(ctx); err != nil {
		return nil, err
	}
	return g.Store.Read(ctx, queries)
}

// Commit implements [cache.Store].
func (g *Guarded) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	if err := g.Check(ctx); err != nil {
		return allFailed(len(batches), err)
	}
	return g.Store.Commit(ctx, batches)
}

// List implements [cache.Store].
func (g *Guarded) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := g.Check(ctx); err != nil {
		return nil, "", err
	}
	return g.Store.List(ctx, owner, after, limit)
}

// Delete implements [cache.Store].
func (g *Guarded) Delete(ctx context.Context, group cache.Group) error {
	if err := g.Check(ctx); err != nil {
		return err
	}
	return g.Store.Delete(ctx, group)
}

// Ping implements [cache.Store]. A store that must not be used is none.
func (g *Guarded) Ping(ctx context.Context) error {
	if err := g.Check(ctx); err != nil {
		return err
	}
	return g.Store.Ping(ctx)
}
