package memory

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"remora/cache"
	"remora/memory/layer"
)

// tombstones record deletions of sessions and resources in the store, so that turns that began before are not written
// afterwards.
type tombstones struct{ store cache.Store }

const (
	tombstonePrefix = "d:" // of groups
	tombstoneName   = "at"
	tombstoneTTL    = 30 * 24 * time.Hour
)

// tombstonesOf are the groups of the tombstones of a session and of its resource. A session without one is its own.
func tombstonesOf(s Scope) (session, resource cache.Group) {
	return cache.Group{Owner: s.Tenant, Name: tombstonePrefix + "s:" + layer.Digest(s.Session)},
		cache.Group{Owner: s.Tenant, Name: tombstonePrefix + "r:" + layer.Digest(cmp.Or(s.Resource, s.Session))}
}

// write records that a session or a resource is deleted now.
func (t *tombstones) write(ctx context.Context, g cache.Group) error {
	out := t.store.Commit(ctx, []cache.Batch{{
		Group: g, Expect: cache.AnyVersion, TTL: tombstoneTTL, Puts: []cache.Put{{Name: tombstoneName, Data: []byte{}}},
	}})
	if err := out[0].Err; err != nil {
		return fmt.Errorf("note the deletion: %w", err)
	}
	return nil
}

// tombstoneQueries reads the tombstones of a session and of its resource.
func tombstoneQueries(s Scope) []cache.Query {
	session, resource := tombstonesOf(s)
	return []cache.Query{{Group: session, Names: []string{tombstoneName}}, {Group: resource, Names: []string{tombstoneName}}}
}

func versionsOf(tombstones []cache.Result) (versions []uint64) {
	for _, r := range tombstones {
		versions = append(versions, r.Version)
	}
	return versions
}

// deleted reports whether a session or its resource was deleted after a turn of it had begun: by the versions of the tombstones then, or
// where these are unknown, by the time: versions are times of the store's clock, as began is.
func (t *tombstones) deleted(ctx context.Context, s Scope, versions []uint64, began time.Time) (bool, error) {
	results, err := t.store.Read(ctx, tombstoneQueries(s))
	if err != nil {
		return false, err
	}
	for i, r := range results {
		switch {
		case r.Version == 0: // none, or it has expired
		case len(versions) == len(results):
			if r.Version != versions[i] {
				return true, nil
			}
		case uint64(began.UnixMicro()) <= r.Version:
			return true, nil
		}
	}
	return false, nil
}
