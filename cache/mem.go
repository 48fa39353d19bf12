package cache

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// memory keeps everything in maps. Nothing is evicted: what bounds it is the TTL of the groups.
type memory struct {
	now  func() time.Time
	gate gate

	mu     sync.RWMutex
	groups map[Group]*memGroup
	// listed holds the names of every owner's listed groups.
	listed map[string]map[string]struct{}
	expiry expiryHeap
	// spent is the greatest version of all groups that are gone: one that is made anew begins above it.
	spent uint64
}

type memGroup struct {
	version uint64
	// values are never changed in place, so that readers may copy them without the lock.
	values map[string][]byte
	// expires is zero for a group that lives for ever.
	expires time.Time
	// queued tells that the group has an entry in the expiry heap, at expires or earlier.
	queued bool
}

var _ Store = (*memory)(nil)

func newMemory(o Options) *memory {
	return &memory{now: o.Now, groups: map[Group]*memGroup{}, listed: map[string]map[string]struct{}{}}
}

// live returns the group, or nil where there is none or it has expired.
func (m *memory) live(g Group) *memGroup {
	got := m.groups[g]
	if got == nil || !got.expires.IsZero() && !m.now().Before(got.expires) {
		return nil
	}
	return got
}

// Read implements [Store].
func (m *memory) Read(ctx context.Context, queries []Query) ([]Result, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.gate.leave()
	out := make([]Result, len(queries))
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

// Commit implements [Store].
func (m *memory) Commit(ctx context.Context, batches []Batch) []Outcome {
	if err := m.begin(ctx); err != nil {
		return allFailed(len(batches), err)
	}
	defer m.gate.leave()
	out := make([]Outcome, len(batches))
	for i, b := range batches {
		values := make(map[string][]byte, len(b.Puts))
		for _, p := range b.Puts {
			values[p.Name] = append([]byte{}, p.Data...)
		}
		out[i] = m.commit(b, values)
	}
	return out
}

func (m *memory) commit(b Batch, values map[string][]byte) Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	g := m.live(b.Group)
	if g == nil {
		g = &memGroup{values: map[string][]byte{}}
	}
	if b.Expect != AnyVersion && b.Expect != g.version {
		return Outcome{Err: ErrConflict}
	}
	if g.version == 0 {
		m.drop(b.Group)
		m.groups[b.Group], g.version = g, m.spent
	}
	for _, name := range b.Deletes {
		delete(g.values, name)
	}
	maps.Copy(g.values, values)
	g.version++
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
	return Outcome{Version: g.version}
}

// queueExpiry lets g expire at the given time. A group that lives longer than its entry in the heap says is put back
// when the entry comes up, so that there is one entry a group and not one a commit.
func (m *memory) queueExpiry(name Group, g *memGroup, at time.Time) {
	g.expires = at
	if !g.queued {
		g.queued = true
		heap.Push(&m.expiry, expiryEntry{at, name, g})
	}
}

// sweep drops a few groups that have expired. Every commit does, so that they cannot pile up.
func (m *memory) sweep() {
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

func (m *memory) drop(g Group) {
	if old := m.groups[g]; old != nil {
		m.spent = max(m.spent, old.version)
	}
	delete(m.groups, g)
	if names := m.listed[g.Owner]; names != nil {
		delete(names, g.Name)
		if len(names) == 0 {
			delete(m.listed, g.Owner)
		}
	}
}

// List implements [Store].
func (m *memory) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := m.begin(ctx); err != nil {
		return nil, "", err
	}
	defer m.gate.leave()
	start, later, err := pageStart(after)
	if err != nil {
		return nil, "", err
	}
	limit = pageLimit(limit)
	m.mu.RLock()
	defer m.mu.RUnlock()
	var names []string
	for name := range m.listed[owner] {
		if (!later || name > start) && m.live(Group{owner, name}) != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > limit {
		return names[:limit:limit], pageToken(names[limit-1]), nil
	}
	return names, "", nil
}

// Delete implements [Store].
func (m *memory) Delete(ctx context.Context, g Group) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.gate.leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(g)
	return nil
}

// Ping implements [Store].
func (m *memory) Ping(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	m.gate.leave()
	return nil
}

// Close implements [Store].
func (m *memory) Close() error {
	m.gate.shut()
	return nil
}

func (m *memory) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.gate.enter()
}

// allFailed is the outcome of a Commit that wrote nothing.
func allFailed(n int, err error) []Outcome {
	out := make([]Outcome, n)
	for i := range out {
		out[i].Err = err
	}
	return out
}

type expiryEntry struct {
	at    time.Time
	name  Group
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
