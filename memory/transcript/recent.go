package transcript

import (
	"hash/maphash"

	"remora/memory/memo"
)

// recent remembers what this process wrote last of some sessions, so that a client's next turn needs no read: most
// clients resend what was said, and most balancers send a session to the same replica. It is a guess, and one that does
// no harm. A request that goes on from here with nothing but what users and tools say belongs here, unless another turn
// of the session runs at the same time or broke off elsewhere; its view is made of its own items all the same, and its
// commit, which expects the version that was written here, meets a conflict and reads. Sessions in which anything is
// hidden from the client, or that layers keep states of, are always read.
type recent struct {
	seed   maphash.Seed
	shards [16]memo.Map[recentKey, written]
}

type recentKey struct{ tenant, session string }

// written is a session as a commit left it. Nobody changes the head: a draft makes its own.
type written struct {
	version uint64
	head    *head
}

const (
	// maxRecent is how many sessions a half of a shard holds: some 10 MB in all, when full of long ones.
	maxRecent = 128
	// maxRecentCalls is how many open calls a session may have to be remembered.
	maxRecentCalls = 32
)

func (r *recent) shard(s Scope) *memo.Map[recentKey, written] {
	return &r.shards[maphash.String(r.seed, s.Session)%uint64(len(r.shards))]
}

func (r *recent) find(s Scope) (state, bool) {
	w, ok := r.shard(s).Find(recentKey{s.Tenant, s.Session})
	if !ok {
		return state{}, false
	}
	return state{version: w.version, head: *w.head}, true
}

func (r *recent) put(s Scope, version uint64, h *head) {
	if len(h.Open) > maxRecentCalls {
		r.drop(s)
		return
	}
	r.shard(s).Put(recentKey{s.Tenant, s.Session}, written{version, h}, maxRecent)
}

func (r *recent) drop(s Scope) { r.shard(s).Drop(recentKey{s.Tenant, s.Session}) }

// goOn finds the place of a request that goes on from the turn that this process wrote last. It gives up (false) where
// the session has to be read.
func (e *Entry) goOn() bool {
	if e.log.Strict || e.beside != nil || e.call.Side != "" || e.call.History == HistoryServer {
		return false
	}
	st, ok := e.log.recent.find(e.call.Scope)
	if !ok || st.head.Forked {
		return false
	}
	in := e.read(&st)
	p, ok := st.head.merge(in, e.call.History) // what upstream holds, and what refers to it, continues nothing that is known here
	if !ok || p.relation != relContinue || p.parent != st.head.Pos {
		return false
	}
	for i := p.fresh; i < len(in.items); i++ {
		if !landmark(in.items[i]) {
			return false // an answer that was given elsewhere
		}
	}
	e.settle(st, in, p)
	return true
}
