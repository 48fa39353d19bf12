package session

import (
	"hash/maphash"
	"slices"

	"remora/memory/lru"
)

// recent remembers what this process wrote last of some sessions, so that a client's next turn needs no read: most
// clients resend what was said, and most balancers send a session to the same replica. It is a guess, and one that does
// no harm. A request that goes on from here with nothing but what users and tools say belongs here, unless another turn
// of the session runs at the same time or broke off elsewhere; its view is made of its own items all the same, and its
// commit, which expects the version that was written here, meets a conflict and reads. Sessions in which anything is
// hidden from the client, or of which layers keep states that may change after the answer, are always read.
type recent struct {
	seed   maphash.Seed
	shards [16]lru.Cache[recentKey, written]
}

type recentKey struct{ tenant, session string }

// written is a session as a commit left it. The head is never changed: a draft makes its own.
type written struct {
	version uint64
	head    *head
	values  []namedValue
}

// namedValue is a value of a session that a Want names; nil data where it is not stored.
type namedValue struct {
	name string
	data []byte
}

const (
	// maxRecent is how many sessions a shard holds: some 5 MB in all, when full of long ones.
	maxRecent = 256
	// maxRecentCalls is how many open calls a session may have to be remembered.
	maxRecentCalls = 32
	// maxRecentValues is how many bytes of wanted values a session may have to be remembered.
	maxRecentValues = 2048
)

func (r *recent) shard(s Scope) *lru.Cache[recentKey, written] {
	return &r.shards[maphash.String(r.seed, s.Session)%uint64(len(r.shards))]
}

// find is the session as this process wrote it last, with the values of these names.
func (r *recent) find(s Scope, names []string) (st state, values [][]byte, ok bool) {
	w, ok := r.shard(s).Find(recentKey{s.Tenant, s.Session})
	if !ok {
		return state{}, nil, false
	}
	if len(names) > 0 {
		values = make([][]byte, len(names))
	}
	for i, name := range names {
		at := slices.IndexFunc(w.values, func(v namedValue) bool { return v.name == name })
		if at < 0 {
			return state{}, nil, false
		}
		values[i] = w.values[at].data
	}
	return state{version: w.version, head: w.head}, values, true
}

func (r *recent) put(s Scope, version uint64, h *head, values []namedValue) {
	size := 0
	for _, v := range values {
		size += len(v.data)
	}
	if len(h.Open) > maxRecentCalls || size > maxRecentValues {
		r.drop(s)
		return
	}
	r.shard(s).Put(recentKey{s.Tenant, s.Session}, written{version, h, values}, maxRecent)
}

func (r *recent) drop(s Scope) { r.shard(s).Drop(recentKey{s.Tenant, s.Session}) }
