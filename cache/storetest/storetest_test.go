package storetest_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/inmemory"
	"remora/cache/storetest"
	"remora/test/kit"
)

// brokenEnv names the promise that the store of a child breaks. The child is the re-executed test binary.
const brokenEnv = "REMORA_STORETEST_BROKEN"

// broken is a good store whose calls are replaced.
type broken struct {
	cache.Store
	read   func(s cache.Store, ctx context.Context, queries []cache.Query) ([]cache.Result, error)
	commit func(s cache.Store, ctx context.Context, batches []cache.Batch) []cache.Outcome
	list   func(s cache.Store, ctx context.Context, owner, after string, limit int) ([]string, string, error)
	remove func(s cache.Store, ctx context.Context, g cache.Group) error
	end    func(s cache.Store) error
}

func (b *broken) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	if b.read != nil {
		return b.read(b.Store, ctx, queries)
	}
	return b.Store.Read(ctx, queries)
}

func (b *broken) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	if b.commit != nil {
		return b.commit(b.Store, ctx, batches)
	}
	return b.Store.Commit(ctx, batches)
}

func (b *broken) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if b.list != nil {
		return b.list(b.Store, ctx, owner, after, limit)
	}
	return b.Store.List(ctx, owner, after, limit)
}

func (b *broken) Delete(ctx context.Context, g cache.Group) error {
	if b.remove != nil {
		return b.remove(b.Store, ctx, g)
	}
	return b.Store.Delete(ctx, g)
}

func (b *broken) Close() error {
	if b.end != nil {
		return b.end(b.Store)
	}
	return b.Store.Close()
}

// each returns a commit that changes every batch.
func each(change func(b *cache.Batch)) func(cache.Store, context.Context, []cache.Batch) []cache.Outcome {
	return func(s cache.Store, ctx context.Context, batches []cache.Batch) []cache.Outcome {
		batches = slices.Clone(batches)
		for i := range batches {
			change(&batches[i])
		}
		return s.Commit(ctx, batches)
	}
}

// values returns a read that changes every value.
func values(change func(v []byte) []byte) func(cache.Store, context.Context, []cache.Query) ([]cache.Result, error) {
	return func(s cache.Store, ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
		results, err := s.Read(ctx, queries)
		for _, r := range results {
			for i, v := range r.Values {
				r.Values[i] = change(v)
			}
		}
		return results, err
	}
}

// aliasing returns a store that keeps the callers' slices and gives them out.
func aliasing() *broken {
	kept := make(map[string][]byte)
	return &broken{
		commit: each(func(b *cache.Batch) {
			for _, p := range b.Puts {
				kept[p.Name] = p.Data
			}
		}),
		read: func(s cache.Store, ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
			results, err := s.Read(ctx, queries)
			for i, r := range results {
				for k, name := range queries[i].Names {
					r.Values[k] = kept[name]
				}
			}
			return results, err
		},
	}
}

// forgetful acknowledges every second commit without writing it, as a store does that lets the later of two writers win.
func forgetful() *broken {
	var n atomic.Int64
	return &broken{commit: func(s cache.Store, ctx context.Context, batches []cache.Batch) []cache.Outcome {
		if n.Add(1)%2 == 0 {
			return make([]cache.Outcome, len(batches))
		}
		return s.Commit(ctx, batches)
	}}
}

// halving returns a store whose first commit is read when half of it is written.
func halving() *broken {
	var mu sync.RWMutex
	half := false
	var once sync.Once
	seen := make(chan struct{})
	return &broken{
		commit: func(s cache.Store, ctx context.Context, batches []cache.Batch) []cache.Outcome {
			if b := batches[0]; !half { // there is one writer
				b.Puts = b.Puts[:1]
				mu.Lock()
				s.Commit(ctx, []cache.Batch{b})
				half = true
				mu.Unlock()
				<-seen
			}
			return s.Commit(ctx, batches)
		},
		read: func(s cache.Store, ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
			mu.RLock()
			defer mu.RUnlock()
			if half {
				defer once.Do(func() { close(seen) })
			}
			return s.Read(ctx, queries)
		},
	}
}

// promises are stores that break a promise, by the subtest that must fail.
var promises = map[string]*broken{ //nolint:gochecknoglobals // constants
	"ReadYourWrites": {read: func(s cache.Store, ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
		results, err := s.Read(ctx, queries)
		slices.Reverse(results)
		return results, err
	}},
	"MissingIsNotEmpty":     {read: values(func(v []byte) []byte { return append([]byte{}, v...) })},
	"ResultsBelongToCaller": aliasing(),
	"DeletesBeforePuts": {commit: each(func(b *cache.Batch) {
		b.Puts = slices.DeleteFunc(slices.Clone(b.Puts), func(p cache.Put) bool { return slices.Contains(b.Deletes, p.Name) })
	})},
	"BinarySafe": {read: values(func(v []byte) []byte {
		if v == nil {
			return nil
		}
		return []byte(strings.ReplaceAll(string(v), "\x00", ""))
	})},
	"CraftedGroupsNeverMeet": {commit: each(func(b *cache.Batch) {
		b.Group.Name, _, _ = strings.Cut(b.Group.Name, "\x00")
	})},
	"BigCommit": {commit: each(func(b *cache.Batch) { b.Puts = b.Puts[:min(len(b.Puts), 1024)] })},
	"Expect":    {commit: each(func(b *cache.Batch) { b.Expect = cache.AnyVersion })},
	"Counter":   forgetful(),
	"VersionsAreTimes": {commit: func(s cache.Store, ctx context.Context, batches []cache.Batch) []cache.Outcome {
		all := s.Commit(ctx, batches)
		for i := range all {
			all[i].Version /= 1000
		}
		return all
	}},
	"BatchesAreIndependent": {commit: func(s cache.Store, ctx context.Context, batches []cache.Batch) (all []cache.Outcome) {
		for i, b := range batches {
			out := s.Commit(ctx, []cache.Batch{b})[0]
			if all = append(all, out); out.Err != nil {
				return append(all, slices.Repeat([]cache.Outcome{out}, len(batches)-i-1)...)
			}
		}
		return all
	}},
	"ConflictWritesNothing": {commit: func(s cache.Store, ctx context.Context, batches []cache.Batch) []cache.Outcome {
		for _, b := range batches {
			s.Commit(ctx, []cache.Batch{{Group: b.Group, Expect: cache.AnyVersion, Puts: b.Puts}})
		}
		return s.Commit(ctx, batches)
	}},
	"ReadsSeeWholeCommits": halving(),
	"DeleteStartsAnew": {remove: func(s cache.Store, ctx context.Context, g cache.Group) error {
		return s.Commit(ctx, []cache.Batch{{Group: g, Expect: cache.AnyVersion, Deletes: []string{"a", "b"}}})[0].Err // it stays listed
	}},
	"Expiry":         {commit: each(func(b *cache.Batch) { b.TTL = 0 })},
	"ExpiryOfListed": {commit: each(func(b *cache.Batch) { b.TTL = 0 })},
	"ExpiryLifted": {commit: each(func(b *cache.Batch) {
		if b.TTL == 0 {
			b.TTL = time.Minute
		}
	})},
	"List": {list: func(s cache.Store, ctx context.Context, owner, after string, limit int) ([]string, string, error) {
		return s.List(ctx, owner, after, limit+1)
	}},
	"ListUnderWrites": {list: func(s cache.Store, ctx context.Context, owner, after string, limit int) ([]string, string, error) {
		names, next, err := s.List(ctx, owner, after, limit)
		return append(names, "stay00000"), next, err
	}},
	"EndedContext": {remove: func(s cache.Store, ctx context.Context, g cache.Group) error {
		return s.Delete(context.WithoutCancel(ctx), g)
	}},
	"ManyCallers": {read: func(s cache.Store, ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
		return s.Read(ctx, []cache.Query{{Group: queries[0].Group, Names: []string{"0/0"}}})
	}},
	"Close": {end: func(s cache.Store) error { return errors.Join(s.Close(), errors.New("busy")) }},
}

// TestBroken runs the suite on a broken store, in a child.
func TestBroken(t *testing.T) {
	b := promises[os.Getenv(brokenEnv)]
	if b == nil {
		t.Skip("TestBrokenStoresFail runs it in a child")
	}
	var offset atomic.Int64
	now := func() time.Time { return time.UnixMilli(1e12 + offset.Load()) }
	storetest.Run(t, storetest.Env{
		Open: func(*testing.T) cache.Store {
			b.Store = inmemory.New(cache.Options{Now: now})
			return b
		},
		Advance: func(d time.Duration) { offset.Add(d.Milliseconds()) },
	})
}

// TestBrokenStoresFail: a store that breaks a promise fails in the subtest of that promise.
func TestBrokenStoresFail(t *testing.T) {
	t.Parallel()
	kit.WantFailures(t, brokenEnv, maps.Keys(promises))
}
