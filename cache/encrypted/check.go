package encrypted

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"

	"remora/cache"
)

// The group checksName is the only one stored under its plain name. It holds a fingerprint of the names_key and, for each key
// that has ever been the first, an empty value sealed with that key. Opening it verifies the key's secret, and it does not make
// guessing the secret easier than other values.
const (
	checksName = "remora-seal" // its owner is "", which no tenant has
	namesValue = "names_key"
	keyValue   = "key " // and the key's id
)

// check compares names_key and keys with those that the store was written with, and records new ones in it before they are used
// for writing. store is the unencrypted one. It takes one round trip, or two if there is something to record. begins is true if
// the store is encrypted from now on; one of several replicas gets true. The error wraps [ErrMismatch], or is an error of the
// store.
//
// A nil Sealer, without keys, matches all stores that were never sealed.
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
		if err := out[0].Err; !errors.Is(err, cache.ErrConflict) { // another replica was faster: read again
			if err != nil {
				return false, fmt.Errorf("check %s: %w", path, err)
			}
			return got[0].Values[0] == nil, nil
		}
	}
}

// compare returns the values to record.
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
			// Other keys are only for reading. Without a record of them, only reading a value shows whether they match.
			sealed, err := s.ring.seal(nil, nil, place)
			if err != nil {
				return nil, err
			}
			puts = append(puts, cache.Put{Name: keyValue + k.id, Data: sealed})
		}
	}
	return puts, nil
}
