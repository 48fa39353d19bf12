// Package inmemory is a store in the memory of the process, for store.url memory: and for tests. Its content is lost when the
// process ends. Start at [New].
package inmemory

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"remora/cache"
)

// Store holds everything in maps. It evicts nothing: only the TTL of the groups bounds it.
type Store struct {
	now  func() time.Time
	gate cache.Gate

	mu     sync.RWMutex
	groups map[cache.Group]*memGroup
	// listed holds the names of every owner's listed groups.
	listed map[string]map[string]struct{}
	expiry expiryHeap
	// spent is the greatest version of all removed groups. A group that is created again starts above it.
	spent uint64
}

type memGroup struct {
	version uint64
	// values are never modified in place, so that readers may copy them without the lock.
	values map[string][]byte
	// expires is zero for a group that does not expire.
	expires time.Time
	// queued: the group has an entry in the expiry heap, at expires or earlier.
	queued bool
}

var _ cache.Store = (*Store)(nil)

// New returns an empty store.
func New(o cache.Options) *Store {
	o = o.WithDefaults()
	return &Store{now: o.Now, groups: map[cache.Group]*memGroup{}, listed: map[string]map[string]struct{}{}}
}

// live returns the group, nil if it does not exist or has expired.
func (m *Store) live(g cache.Group) *memGroup {
	got := m.groups[g]
	if got == nil || !got.expires.IsZero() && !m.now().Before(got.expires) {
		return nil
	}
	return got
}

// Read implements [cache.Store].
func (m *Store) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	if err := m.gate.Begin(ctx); err != nil {
		return nil, err
	}
	defer m.gate.Leave()
	out := make([]cache.Result, len(queries))
	m.mu.RLock()
	for i, q := range queries {
		out[i].Values = make([][]byte, len(q.Names))
		g := m.live(q.Group)
		if g == nil {
			continue
		}
		out[i].Version = g.version
		for j, name := range q.Names {
			out[i].Values[j] = g.values[name]
		}
	}
	m.mu.RUnlock()
	for _, r := range out {
		for j, v := range r.Values {
			r.Values[j] = slices.Clone(v)
		}
	}
	return out, nil
}

// Commit implements [cache.Store].
func (m *Store) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	if err := m.gate.Begin(ctx); err != nil {
		return cache.AllFailed(len(batches), err)
	}
	defer m.gate.Leave()
	out := make([]cache.Outcome, len(batches))
	for i, b := range batches {
		var room [8][]byte // as many puts as most batches have
		values := room[:0]
		for _, p := range b.Puts {
			data := p.Data
			if !p.Lasting {
				data = append([]byte{}, data...)
			}
			values = append(values, data)
		}
		out[i] = m.commit(b, values)
	}
	return out
}

// commit writes a batch. values are the data of its puts, which are not modified any more.
func (m *Store) commit(b cache.Batch, values [][]byte) cache.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	g := m.live(b.Group)
	if g == nil {
		g = &memGroup{values: map[string][]byte{}}
	}
	if b.Expect != cache.AnyVersion && b.Expect != g.version {
		return cache.Outcome{Err: cache.ErrConflict}
	}
	if g.version == 0 {
		m.drop(b.Group)
		m.groups[b.Group], g.version = g, m.spent
	}
	for _, name := range b.Deletes {
		delete(g.values, name)
	}
	for i, p := range b.Puts {
		g.values[p.Name] = values[i]
	}
	g.version = max(g.version+1, uint64(m.now().UnixMicro()))
	g.expires = time.Time{}
	if b.TTL > 0 {
		m.queueExpiry(b.Group, g, m.now().Add(b.TTL))
	}
	if b.Listed {
		if m.listed[b.Group.Owner] == nil {
			m.listed[b.Group.Owner] = map[string]struct{}{}
		}
		m.listed[b.Group.Owner][b.Group.Name] = struct{}{}
	}
	return cache.Outcome{Version: g.version}
}

// queueExpiry adds g to the expiry heap. The heap has one entry per group, not per commit: if the TTL of the group was extended
// when its entry is due, the entry is put back.
func (m *Store) queueExpiry(name cache.Group, g *memGroup, at time.Time) {
	g.expires = at
	if !g.queued {
		g.queued = true
		heap.Push(&m.expiry, expiryEntry{at, name, g})
	}
}

// sweep removes a few expired groups. Every commit calls it, so that they cannot accumulate.
func (m *Store) sweep() {
	const perCommit = 4
	now := m.now()
	for range perCommit {
		if len(m.expiry) == 0 || now.Before(m.expiry[0].at) {
			return
		}
		e, _ := heap.Pop(&m.expiry).(expiryEntry)
		e.group.queued = false
		switch {
		case m.groups[e.name] != e.group, e.group.expires.IsZero():
		case now.Before(e.group.expires):
			m.queueExpiry(e.name, e.group, e.group.expires)
		default:
			m.drop(e.name)
		}
	}
}

func (m *Store) drop(g cache.Group) {
	if old := m.groups[g]; old != nil {
		m.spent = max(m.spent, old.version)
		old.values = nil // its entry in the expiry heap stays until it is due
	}
	delete(m.groups, g)
	if names := m.listed[g.Owner]; names != nil {
		delete(names, g.Name)
		if len(names) == 0 {
			delete(m.listed, g.Owner)
		}
	}
}

// List implements [cache.Store].
func (m *Store) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := m.gate.Begin(ctx); err != nil {
		return nil, "", err
	}
	defer m.gate.Leave()
	start, later, err := cache.PageStart(after)
	if err != nil {
		return nil, "", err
	}
	limit = cache.PageLimit(limit)
	m.mu.RLock()
	defer m.mu.RUnlock()

	var names []string
	for name := range m.listed[owner] {
		if (!later || name > start) && m.live(cache.Group{Owner: owner, Name: name}) != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > limit {
		return names[:limit:limit], cache.PageToken(names[limit-1]), nil
	}
	return names, "", nil
}

// Delete implements [cache.Store].
func (m *Store) Delete(ctx context.Context, g cache.Group) error {
	if err := m.gate.Begin(ctx); err != nil {
		return err
	}
	defer m.gate.Leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(g)
	return nil
}

// Ping implements [cache.Store].
func (m *Store) Ping(ctx context.Context) error {
	if err := m.gate.Begin(ctx); err != nil {
		return err
	}
	m.gate.Leave()
	return nil
}

// Close implements [cache.Store].
func (m *Store) Close() error {
	m.gate.Shut()
	return nil
}

// Shard implements [cache.Store].
func (m *Store) Shard(cache.Group) string { return "" }

type expiryEntry struct {
	at    time.Time
	name  cache.Group
	group *memGroup
}

// expiryHeap has the earliest entry first.
type expiryHeap []expiryEntry

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h expiryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push and Pop are for container/heap only.
func (h *expiryHeap) Push(x any) {
	if e, ok := x.(expiryEntry); ok {
		*h = append(*h, e)
	}
}

// Pop removes the last entry.
func (h *expiryHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
