package memory_test

import (
	"context"

	"remora/cache"
)

// tapped is a store whose calls a test sees first. What a function returns as an error is the answer to the call, which the store
// does not get. A function that is nil sees nothing.
type tapped struct {
	cache.Store

	onRead   func(q []cache.Query) error
	onCommit func(ctx context.Context, b []cache.Batch) error
	onBatch  func(b cache.Batch) error // of a commit: the store gets the others
	onDelete func(g cache.Group) error
}

func (s *tapped) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if s.onRead != nil {
		if err := s.onRead(q); err != nil {
			return nil, err
		}
	}
	return s.Store.Read(ctx, q)
}

func (s *tapped) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	if s.onCommit != nil {
		if err := s.onCommit(ctx, b); err != nil {
			return cache.AllFailed(len(b), err)
		}
	}
	if s.onBatch == nil {
		return s.Store.Commit(ctx, b)
	}
	out := make([]cache.Outcome, len(b))
	for i := range b {
		if out[i].Err = s.onBatch(b[i]); out[i].Err == nil {
			out[i] = s.Store.Commit(ctx, b[i:i+1])[0]
		}
	}
	return out
}

func (s *tapped) Delete(ctx context.Context, g cache.Group) error {
	if s.onDelete != nil {
		if err := s.onDelete(g); err != nil {
			return err
		}
	}
	return s.Store.Delete(ctx, g)
}
