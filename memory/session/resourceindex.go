package session

import (
	"context"
	"iter"
	"time"

	"remora/cache"
	"remora/memory/lru"
)

// ResourceIndex finds the sessions of a resource without a scan of the store. Each session has an entry: a group without
// content whose owner is named after the resource. An entry outlives its session, so that expired sessions are found, too.
// Resources have such an index themselves.
type ResourceIndex struct {
	store   cache.Store
	ttl     time.Duration                  // of sessions
	entered lru.Cache[indexKey, time.Time] // when the entries of sessions were written
}

const (
	sessionsOwner  = "\x00sessions\x00"
	resourcesOwner = "\x00resources"
	indexName      = "i"
	// afterwards is how much longer than its session an entry lives.
	afterwards = 48 * time.Hour
	// maxEntered is the number of sessions of which a process remembers when it wrote their entries.
	maxEntered = 65536
	// An entry of a session in use is written anew when 1/refreshes of the session's life has passed.
	refreshes = 4
	// indexPage is how many names are listed at once.
	indexPage = 500
)

type indexKey struct{ tenant, resource, session string }

func sessionEntry(tenant, resource, session string) cache.Group {
	return cache.Group{Owner: sessionsOwner + tenant + "\x00" + resource, Name: session}
}

func resourceEntry(tenant, resource string) cache.Group {
	return cache.Group{Owner: resourcesOwner, Name: tenant + "\x00" + resource}
}

// batches returns the writes that add a session to the index of its resource; none if it was added recently. A session that
// begins is always added: an earlier one of its name may have been deleted by another process, and its entry with it.
func (x *ResourceIndex) batches(s Scope, begins bool, now time.Time) []cache.Batch {
	if s.Resource == "" {
		return nil // its states live and go with it
	}
	key := indexKey{s.Tenant, s.Resource, s.Session}
	if at, ok := x.entered.Find(key); ok && !begins && (x.ttl == 0 || now.Sub(at) < x.ttl/refreshes) {
		return nil
	}
	return x.entries(s)
}

// entries are the batches that enter a session in the index of its resource.
func (x *ResourceIndex) entries(s Scope) []cache.Batch {
	ttl := time.Duration(0)
	if x.ttl > 0 {
		ttl = x.ttl + x.ttl/refreshes + afterwards
	}
	var batches []cache.Batch
	for _, g := range []cache.Group{sessionEntry(s.Tenant, s.Resource, s.Session), resourceEntry(s.Tenant, s.Resource)} {
		batches = append(batches, cache.Batch{
			Group: g, Expect: cache.AnyVersion, TTL: ttl, Listed: true, Puts: []cache.Put{{Name: indexName, Data: []byte{}}},
		})
	}
	return batches
}

// written records that the batches of a session were written.
func (x *ResourceIndex) written(s Scope, now time.Time) {
	x.entered.Put(indexKey{s.Tenant, s.Resource, s.Session}, now, maxEntered)
}

// Sessions pages through the names of the sessions that ever belonged to a resource, expired ones
// too for a while. An error ends it.
func (x *ResourceIndex) Sessions(ctx context.Context, tenant, resource string) iter.Seq2[[]string, error] {
	return x.pages(ctx, sessionEntry(tenant, resource, "").Owner)
}

// Resources pages through the resources of all tenants, each with its tenant before it and a NUL between them. An error ends it.
func (x *ResourceIndex) Resources(ctx context.Context) iter.Seq2[[]string, error] {
	return x.pages(ctx, resourcesOwner)
}

func (x *ResourceIndex) pages(ctx context.Context, owner string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for after, more := "", true; more; more = after != "" {
			names, next, err := x.store.List(ctx, owner, after, indexPage)
			if after = next; !yield(names, err) || err != nil {
				return
			}
		}
	}
}

// Remove takes a session out of the index of a resource, and with session empty the resource out of its own.
func (x *ResourceIndex) Remove(ctx context.Context, tenant, resource, session string) error {
	g := resourceEntry(tenant, resource)
	if session != "" {
		g = sessionEntry(tenant, resource, session)
		x.entered.Drop(indexKey{tenant, resource, session})
	}
	return x.store.Delete(ctx, g)
}
