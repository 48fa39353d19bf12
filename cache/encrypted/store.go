package encrypted

import (
	"context"
	"fmt"
	"strings"

	"remora/cache"
)

// store encrypts the values of inner. It is stateless, and makes no additional round trips unless Options.AcceptPlaintext is
// set: a group from before encryption keeps its plain name, since its values cannot be renamed atomically, and each commit must
// first read which name it has.
type store struct {
	*Sealer
	inner cache.Store
}

var _ cache.Store = (*store)(nil)

// Read implements [cache.Store].
func (s *store) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	w := s.names.scratch()
	defer w.done()
	sealed := make([]cache.Query, len(queries), 2*len(queries))
	for i, q := range queries {
		w.enter(q.Group)
		sealed[i] = cache.Query{
			Group: w.stored(q.Group),
			Names: w.valueNames(q.Names),
		}
	}
	if s.accept {
		sealed = append(sealed, queries...)
	}
	all, err := s.inner.Read(ctx, sealed)
	if err != nil {
		return nil, err
	}
	out := all[:len(queries):len(queries)]
	for i, q := range queries {
		if s.accept && isPlainGroup(all, i) {
			out[i] = all[len(queries)+i]
		}
		if err := s.openAll(w, q, out[i].Values); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isPlainGroup reports whether the i-th group is stored under its plain name. all is a read of all groups under their
// sealed names, followed by the same groups under their plain ones.
func isPlainGroup(all []cache.Result, i int) bool {
	return all[i].Version == 0 && all[len(all)/2+i].Version != 0
}

func (s *store) openAll(w *scratch, q cache.Query, values [][]byte) error {
	w.locate(q.Group)
	for j, v := range values {
		if v == nil {
			continue
		}
		plain, err := s.open(v, w.placeOf(q.Names[j]))
		if err != nil {
			return fmt.Errorf("read groups: %w", err)
		}
		values[j] = plain
	}
	return nil
}

// Commit implements [cache.Store].
func (s *store) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	plain, err := s.plainGroups(ctx, batches)
	if err != nil {
		return cache.AllFailed(len(batches), err)
	}
	w := s.names.scratch()
	defer w.done()
	sealed := make([]cache.Batch, len(batches))
	arena := make([]byte, 0, sealedBytes(batches))
	for i, b := range batches {
		w.enter(b.Group)
		sealed[i] = b
		if arena, sealed[i].Puts, err = s.sealPuts(w, arena, b.Puts); err != nil {
			return cache.AllFailed(len(batches), err)
		}
		if plain == nil || !plain[i] {
			w.hideNames(&sealed[i])
		}
	}
	return s.inner.Commit(ctx, sealed)
}

// plainGroups reports which batches are for groups with plain names; nil means none.
func (s *store) plainGroups(ctx context.Context, batches []cache.Batch) ([]bool, error) {
	if !s.accept {
		return nil, nil
	}
	w := s.names.scratch()
	defer w.done()
	queries := make([]cache.Query, 2*len(batches))
	for i, b := range batches {
		w.enter(b.Group)
		queries[i].Group = w.stored(b.Group)
		queries[len(batches)+i].Group = b.Group
	}
	all, err := s.inner.Read(ctx, queries)
	if err != nil {
		return nil, err
	}
	plain := make([]bool, len(batches))
	for i := range plain {
		plain[i] = isPlainGroup(all, i)
	}
	return plain, nil
}

// sealedBytes returns an upper bound of the size of the batches' sealed values.
func sealedBytes(batches []cache.Batch) int {
	n := 0
	for _, b := range batches {
		for _, p := range b.Puts {
			n += len(p.Data) + maxOverhead
		}
	}
	return n
}

// sealPuts seals the values into arena, bound to their plain names.
func (s *store) sealPuts(w *scratch, arena []byte, puts []cache.Put) ([]byte, []cache.Put, error) {
	out := make([]cache.Put, len(puts))
	for i, p := range puts {
		from := len(arena)
		var err error
		if arena, err = s.ring.seal(arena, p.Data, w.placeOf(p.Name)); err != nil {
			return arena, nil, err
		}
		out[i] = cache.Put{Name: p.Name, Data: arena[from:len(arena):len(arena)], Lasting: true}
	}
	return arena, out, nil
}

// The pages that List returns where plaintext is accepted: first the encrypted names, then the plain ones. A cursor of the store
// is behind one of these.
const (
	pagesHidden = "h"
	pagesPlain  = "p"
)

// List implements [cache.Store]. It leaves out names that were not encrypted with this key, unless plaintext is accepted.
func (s *store) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if cursor, ok := strings.CutPrefix(after, pagesPlain); s.accept && ok {
		names, next, err := s.inner.List(ctx, owner, cursor, limit)
		if next != "" {
			next = pagesPlain + next
		}
		return names, next, err
	}
	w := s.names.scratch()
	defer w.done()
	stored, next, err := s.inner.List(ctx, w.ownerName(owner), strings.TrimPrefix(after, pagesHidden), limit)
	if err != nil {
		return nil, "", err
	}
	names := stored[:0]
	for _, n := range stored {
		if name, ok := w.readGroupName(owner, n); ok {
			names = append(names, name)
		}
	}
	switch {
	case next != "":
		next = pagesHidden + next
	case s.accept:
		next = pagesPlain
	}
	return names, next, nil
}

// Delete implements [cache.Store].
func (s *store) Delete(ctx context.Context, g cache.Group) error {
	w := s.names.scratch()
	defer w.done()
	w.enter(g)
	if err := s.inner.Delete(ctx, w.stored(g)); err != nil || !s.accept {
		return err
	}
	return s.inner.Delete(ctx, g)
}

// Ping implements [cache.Store].
func (s *store) Ping(ctx context.Context) error { return s.inner.Ping(ctx) }

// Shard implements [cache.Store]. It may be wrong for a group that is still stored under its plain name.
func (s *store) Shard(g cache.Group) string {
	w := s.names.scratch()
	defer w.done()
	w.enter(g)
	return s.inner.Shard(w.stored(g))
}

// Close implements [cache.Store].
func (s *store) Close() error { return s.inner.Close() }
