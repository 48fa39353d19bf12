package session

import (
	"context"
	"time"

	"remora/cache"
)

// The index of sessions by resource. Each session has an entry there, a group without content that is listed under an
// owner named after the resource, so that all sessions of a resource are found without a scan of the store. An entry
// outlives its session, so that expired sessions are found too. Resources have such an index themselves.
const (
	sessionsOwner  = "\x00sessions\x00"
	resourcesOwner = "\x00resources"
	indexName      = "i"
	// afterwards is how much longer than its session an entry lives.
	afterwards = 48 * time.Hour
	// indexed is for how many sessions a process remembers that they have an entry.
	indexed = 65536
	// refreshes is how often an entry is written anew within the life of a session.
	refreshes = 4
)

type indexKey struct{ tenant, resource, session string }

func sessionEntry(tenant, resource, session string) cache.Group {
	return cache.Group{Owner: sessionsOwner + tenant + "\x00" + resource, Name: session}
}

func resourceEntry(tenant, resource string) cache.Group {
	return cache.Group{Owner: resourcesOwner, Name: tenant + "\x00" + resource}
}

// indexEntries are the batches that enter a session in the index of its resource, none where they were written lately.
func (log *Log) indexEntries(s Scope, now time.Time) []cache.Batch {
	if s.Resource == "" || s.Resource == s.Session {
		return nil // its states live and go with it
	}
	key := indexKey{s.Tenant, s.Resource, s.Session}
	if at, ok := log.index.Find(key); ok && (log.ttl == 0 || now.Sub(at) < log.ttl/refreshes) {
		return nil
	}
	return log.entriesOf(s)
}

// entriesOf are the batches that enter a session in the index of its resource.
func (log *Log) entriesOf(s Scope) []cache.Batch {
	ttl := time.Duration(0)
	if log.ttl > 0 {
		ttl = log.ttl + log.ttl/refreshes + afterwards
	}
	var batches []cache.Batch
	for _, g := range []cache.Group{sessionEntry(s.Tenant, s.Resource, s.Session), resourceEntry(s.Tenant, s.Resource)} {
		batches = append(batches, cache.Batch{
			Group: g, Expect: cache.AnyVersion, TTL: ttl, Listed: true, Puts: []cache.Put{{Name: indexName, Data: []byte{}}},
		})
	}
	return batches
}

// entered notes that a session has its entries.
func (log *Log) entered(s Scope, now time.Time) {
	log.index.Put(indexKey{s.Tenant, s.Resource, s.Session}, now, indexed)
}

// SessionsOf pages through the names of the sessions that were ever of a resource, expired ones too for a while.
func (log *Log) SessionsOf(ctx context.Context, tenant, resource, after string, limit int) (names []string, next string, err error) {
	return log.store.List(ctx, sessionsOwner+tenant+"\x00"+resource, after, limit)
}

// Resources pages through the resources of all tenants, each with its tenant before it and a NUL between them.
func (log *Log) Resources(ctx context.Context, after string, limit int) (names []string, next string, err error) {
	return log.store.List(ctx, resourcesOwner, after, limit)
}

// Alive reports for each of the sessions whether it is stored.
func (log *Log) Alive(ctx context.Context, tenant string, sessions []string) ([]bool, error) {
	versions, err := log.Versions(ctx, tenant, sessions)
	if err != nil {
		return nil, err
	}
	alive := make([]bool, len(sessions))
	for i, v := range versions {
		alive[i] = v > 0
	}
	return alive, nil
}

// Unlist takes a session out of the index of a resource, and with session empty the resource out of its own.
func (log *Log) Unlist(ctx context.Context, tenant, resource, session string) error {
	g := resourceEntry(tenant, resource)
	if session != "" {
		g = sessionEntry(tenant, resource, session)
		log.index.Drop(indexKey{tenant, resource, session})
	}
	return log.store.Delete(ctx, g)
}
