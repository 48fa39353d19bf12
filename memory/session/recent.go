package session

import (
	"slices"

	"remora/cache"
	"remora/memory/lru"
)

// recent caches this process's last write of some sessions, so that a client's next turn needs no read: most clients resend
// their history, and most load balancers send a session to the same replica. A wrong guess is harmless. A request that
// continues the cached session with only user messages and results belongs there, unless another turn of the session runs
// concurrently or broke off elsewhere; its view is made of its own items in any case, and its commit, which expects the cached
// version, meets a conflict and reads. Sessions with hidden items, or with layers' states that may change after the answer, are
// always read.
type recent struct {
	sessions lru.Cache[cache.Group, written]
}

// written is a session as a commit left it. The head is never changed: a commit makes its own.
type written struct {
	version uint64
	head    *head
	names   []string // of the values that a Want named
	values  [][]byte // nil where one is not stored
}

const (
	// maxRecent is the number of sessions: some 5 MB in all, when full of long ones.
	maxRecent = 4096
	// maxRecentCalls is the maximum number of open calls of a cached session.
	maxRecentCalls = 32
	// maxRecentValues is the maximum size of a cached session's wanted values, in bytes.
	maxRecentValues = 2048
)

// find returns the session as this process wrote it last, with the named values.
func (r *recent) find(g cache.Group, names []string) (st state, values [][]byte, ok bool) {
	w, ok := r.sessions.Find(g)
	if !ok || !slices.Equal(w.names, names) {
		return state{}, nil, false
	}
	return state{version: w.version, head: w.head}, w.values, true
}

func (r *recent) put(g cache.Group, w written) {
	size := 0
	for _, v := range w.values {
		size += len(v)
	}
	if len(w.head.Open) > maxRecentCalls || size > maxRecentValues || len(w.values) != len(w.names) {
		r.drop(g)
		return
	}
	r.sessions.Put(g, w, maxRecent)
}

func (r *recent) drop(g cache.Group) { r.sessions.Drop(g) }
