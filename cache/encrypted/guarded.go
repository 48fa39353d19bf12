package encrypted

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"remora/cache"
)

// ErrMismatch is wrapped by the errors for a store that was written with other keys than those configured. Retrying does not
// help, and nothing may be written until the configuration is corrected.
var ErrMismatch = errors.New("the configuration does not fit the store")

// The kinds of mismatch. Each wraps [ErrMismatch].
var (
	ErrOtherNamesKey = mismatch(path + ".names_key: is not the one that this store was written with")
	ErrNoKeys        = mismatch(path + ": this store was written with encryption; configure its keys")
)

// mismatch is an [ErrMismatch] with its own text.
type mismatch string

func (m mismatch) Error() string { return string(m) }

// Unwrap returns ErrMismatch.
func (mismatch) Unwrap() error { return ErrMismatch }

func otherKey(id string) error {
	return mismatch(fmt.Sprintf("%s.keys: the secret of %q is not the one that this store was written with: configure that "+
		"again, or give the new secret another id, and put it first", path, id))
}

// Guarded is a store whose keys are checked before it is used, and again every 10 seconds: it may be emptied, and begun again by a process
// with other keys.
type Guarded struct {
	cache.Store
	// OnMismatch, if not nil, is called once with an error that wraps ErrMismatch: other callers cannot distinguish a mismatch
	// from an outage. It must be set before the store is used.
	OnMismatch func(error)
	// OnBegin, if not nil, is called if the store had no record of its keys. again: this process has found one there before. It must be set
	// before the store is used.
	OnBegin func(again bool)

	sealer *Sealer
	next   atomic.Int64 // when the keys are checked again, in Unix nanoseconds; 0 before the first success
	warned atomic.Bool
}

// checkEvery is how often the keys are checked.
const checkEvery = 10 * time.Second

// Check compares the keys with those that the store was written with. Its error wraps [ErrMismatch] if they differ. For 10 seconds after a
// success it takes no round trip.
func (g *Guarded) Check(ctx context.Context) error {
	now := time.Now().UnixNano() //nolint:forbidigo // a late check does no harm
	due := g.next.Load()
	again := due != 0
	if again && (now < due || !g.next.CompareAndSwap(due, now+int64(checkEvery))) {
		return nil
	}
	begins, err := g.sealer.check(ctx, g.Store)
	switch {
	case err == nil:
		g.next.Store(now + int64(checkEvery))
		if begins && g.OnBegin != nil {
			g.OnBegin(again)
		}
	case errors.Is(err, ErrMismatch):
		g.next.Store(0)
		if g.OnMismatch != nil && g.warned.CompareAndSwap(false, true) {
			g.OnMismatch(err)
		}
	default:
		g.next.Store(due) // the next call checks
	}
	return unusable(err)
}

// unusable makes the error of a check a FaultStore: until a check succeeds, no shard may be used.
func unusable(err error) error {
	switch fault, _ := cache.FaultOf(err); {
	case err == nil, fault == cache.FaultStore, fault == cache.FaultTimeout:
		return err
	}
	return &cache.Error{Fault: cache.FaultStore, Err: err}
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
		return cache.AllFailed(len(batches), err)
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

// Ping implements [cache.Store]. It returns the error of a failed check.
func (g *Guarded) Ping(ctx context.Context) error {
	if err := g.Check(ctx); err != nil {
		return err
	}
	return g.Store.Ping(ctx)
}
