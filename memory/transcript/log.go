// Package transcript keeps what was said in a session.
//
// A transcript is a log of items, each linked to the one before it and named by a chain hash over all of its
// predecessors, as commits are in git. A request is merged into it (merge.go): most often its history ends where the
// transcript's head is, and what stands behind that is new. Input and answer of a turn are written together
// (draft.go), by the turn's Entry, which also says what its view is to be chosen from.
package transcript

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/memo"
	"remora/wire"
)

// Log keeps the transcripts of all sessions in a store. It is safe for concurrent use.
type Log struct {
	store  cache.Store
	ttl    time.Duration
	hashes *memo.Hashes
	recent recent
	// Strict reads every session before a request to it is placed, however well it is remembered: a store that is away
	// is noticed then. It is set before the log is used.
	Strict bool
}

// New makes a log over a store. ttl is how long a session is kept after its last turn; 0 is for ever.
func New(store cache.Store, ttl time.Duration) *Log {
	return &Log{store: store, ttl: ttl, hashes: memo.NewHashes(), recent: recent{seed: maphash.MakeSeed()}}
}

// state is a session as one round trip read it.
type state struct {
	version uint64
	head    head
	refs    map[string]reference // what the request's item references stand for
	reply   *place               // the place after previous_response_id, if known
	turn    []byte               // the record of the turn asked for, nil if it was never written

	amendments Amendments
	carried    []wire.Item // what upstream has not seen of the response that the request names
	told       tellings    // what layers had told the model by that response; nil if it is not known
}

// sessionName names the value of a response's group that holds its session.
const sessionName = "session"

func responseGroup(tenant, responseID string) cache.Group {
	return cache.Group{Owner: tenant, Name: "r:" + responseID}
}

// SessionOf finds the session in which a response was given, "" if it is not known.
func (log *Log) SessionOf(ctx context.Context, tenant, responseID string) (string, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: responseGroup(tenant, responseID), Names: []string{sessionName}}})
	if err != nil {
		return "", fmt.Errorf("find session of response: %w", err)
	}
	return string(results[0].Values[0]), nil
}

// maxRefs bounds how many references of one request are looked up.
const maxRefs = 1024

// load reads what a request needs to know of its session and of the turn that it is, in one round trip.
func (log *Log) load(ctx context.Context, s Scope, req *wire.Request, turnID string, b Beside) (state, error) {
	names := []string{headName, turnPrefix + turnID, amendName}
	previous := ""
	if req.Dialect == wire.Responses {
		previous = req.Text("previous_response_id")
	}
	if previous != "" {
		names = append(names, idName(replyPrefix, previous), idName(carryPrefix, previous), idName(toldPrefix, previous))
	}
	first := len(names)
	var ids []string
	for _, it := range req.Items() {
		if it.Kind == wire.Reference && len(ids) < maxRefs {
			ids = append(ids, it.ID)
			names = append(names, idName(idPrefix, it.ID))
		}
	}
	own := len(names)
	results, err := log.store.Read(ctx, besides(b, cache.Query{Group: s.Group(), Names: names}))
	if err != nil {
		return state{}, fmt.Errorf("load session: %w", err)
	}
	r := results[0]
	if b != nil {
		b.Loaded(ctx, r.Values[own:], results[1:])
	}
	st := state{version: r.Version, turn: r.Values[1]}
	if err := st.decode(r.Values[:first]); err != nil {
		return state{}, err
	}
	return st, st.decodeRefs(ids, r.Values[first:own])
}

// decode reads the values that load asks for, before those of references.
func (st *state) decode(values [][]byte) (err error) {
	if v := values[0]; v != nil {
		if st.head, err = decodeHead(v); err != nil {
			return err
		}
	}
	if v := values[2]; v != nil {
		if st.amendments, err = decodeAmendments(v); err != nil {
			return err
		}
	}
	if len(values) < 6 {
		return nil // the request names no response
	}
	if v := values[3]; v != nil {
		p, err := decodePlace(v)
		if err != nil {
			return err
		}
		st.reply = &p
	}
	if v := values[4]; v != nil {
		if st.carried, err = decodeCarried(v); err != nil {
			return err
		}
	}
	if v := values[5]; v != nil {
		st.told, err = decodeTellings(v)
	}
	return err
}

func (st *state) decodeRefs(ids []string, values [][]byte) error {
	if len(ids) > 0 {
		st.refs = make(map[string]reference, len(ids))
	}
	for i, id := range ids {
		if values[i] == nil {
			continue
		}
		ref, err := decodeReference(values[i])
		if err != nil {
			return err
		}
		st.refs[id] = ref
	}
	return nil
}

// place finds where a request goes, asking the index of chains where the head alone does not tell.
func (log *Log) place(ctx context.Context, s Scope, st *state, in *incoming, mode History) (plan, error) {
	p, ok := st.head.merge(in, mode)
	if !ok || p.relation == relTrim && !p.certain {
		// What is known as a whole was not trimmed, even where it says once more what the head line ends with.
		first := max(0, p.fresh-1)
		known, err := log.lookup(ctx, s, in.ends[first:])
		if err != nil {
			return plan{}, err
		}
		if i, k := in.longest(first, known); k != nil {
			if p = in.branch(i, k); !p.side {
				p.side, err = log.demoted(ctx, s, &st.head, in, k.Pos.Seq)
			}
			return p, err
		} else if run, err := log.placeInRun(ctx, s, &st.head, in, mode); err != nil || run.before {
			return run, err
		} else if !ok {
			p = st.head.mergeUnknown(in, mode)
		}
	}
	if p.relation == relRoot && st.head.NextSeq != 0 && len(in.items) > 0 {
		if overlap, err := log.overlap(ctx, s, in); err != nil || overlap.relation != "" {
			return overlap, err
		}
	}
	if p.relation == relUpstream && st.reply != nil {
		p.parent, p.side = st.reply.Pos, st.reply.Side
	}
	return p, nil
}

// longest is the longest of the request's histories that ends at a known place, as the item at its end and that place; nil
// for none. known[i] is the place behind item first+i, if there is one.
func (in *incoming) longest(first int, known []*place) (item int, k *place) {
	for i, k := range slices.Backward(known) {
		if k != nil && in.marks[first+i].onChain {
			return first + i, k
		}
	}
	return 0, nil
}

// branch is the place of a request whose items up to i end at k.
func (in *incoming) branch(i int, k *place) plan {
	p := plan{relation: relBranch, parent: k.Pos, fresh: i + 1, side: k.Side}
	if p.fresh == len(in.items) {
		p.relation = relResend
	}
	return p
}

// placeInRun is mergeRun for a request that is not the latest of its run: it comes again, or another run was answered
// meanwhile. The plan is empty for any other request.
func (log *Log) placeInRun(ctx context.Context, s Scope, h *head, in *incoming, mode History) (plan, error) {
	runs := h.runs(in)
	if mode != HistoryAuto || len(runs) == 0 {
		return plan{}, nil
	}
	var ends []position
	for _, start := range runs {
		in.begin(start)
		ends = append(ends, in.ends...)
	}
	known, err := log.lookup(ctx, s, ends)
	for n := 0; n < len(runs) && err == nil; n++ {
		if i, k := in.longest(0, known[n*len(in.ends):][:len(in.ends)]); k != nil && in.modelled(i+1) {
			in.begin(runs[n])
			return in.branch(i, k).behind(runs[n]), nil
		}
	}
	in.begin(position{})
	return plan{}, err
}

// landmark tells whether an item is found again by its content alone: what a client said, not what a model did, since
// a client that trims its history begins it with something of its own.
func landmark(it wire.Item) bool {
	return it.Kind == wire.ToolResult || it.Kind == wire.Message && it.Role == wire.User
}

// maxLandmarks is how many items of a request are looked for by content.
const maxLandmarks = 8

// overlap finds the place of a request whose beginning is missing, by what it has in common with the transcript: an
// item that was said before, with the item that followed it then behind it. The plan is empty where there is none.
func (log *Log) overlap(ctx context.Context, s Scope, in *incoming) (plan, error) {
	var marks []int
	var names []string
	for i, it := range in.items {
		if in.marks[i].onChain && landmark(it) && len(marks) < maxLandmarks {
			marks = append(marks, i)
			names = append(names, textName(in.marks[i].content))
		}
	}
	if len(marks) == 0 {
		return plan{}, nil
	}
	found, err := log.places(ctx, s, names)
	if err != nil {
		return plan{}, err
	}
	for n, i := range marks {
		if found[n] == nil || i+1 == len(in.items) {
			continue
		}
		p, err := log.follow(ctx, s, in, i, found[n])
		if err != nil || p.relation != "" {
			return p, err
		}
	}
	return plan{}, nil
}

// follow goes along with a request from item i, which stands at a known place, as far as the transcript does.
func (log *Log) follow(ctx context.Context, s Scope, in *incoming, i int, from *place) (plan, error) {
	at, ends := from.Pos, make([]position, 0, len(in.items)-i-1)
	for j := i + 1; j < len(in.items); j++ {
		at = at.after(in.marks[j])
		ends = append(ends, at)
	}
	known, err := log.lookup(ctx, s, ends)
	if err != nil {
		return plan{}, err
	}
	last, k := in.longest(i+1, known)
	if k == nil {
		return plan{}, nil
	}
	p := plan{relation: relTrim, parent: k.Pos, fresh: last + 1, side: k.Side}
	p.offset = unitsBetween(in.ends[last], p.parent)
	p.aside, err = log.precede(ctx, s, in, i, from.Pos.Seq)
	return p, err
}

// lookup asks the index where the chains of some positions end; nil where a chain is unknown.
func (log *Log) lookup(ctx context.Context, s Scope, ends []position) ([]*place, error) {
	names := make([]string, len(ends))
	for i, p := range ends {
		names[i] = chainName(p.Chain)
	}
	return log.places(ctx, s, names)
}

// places reads values of the session's indexes.
func (log *Log) places(ctx context.Context, s Scope, names []string) ([]*place, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: names}})
	if err != nil {
		return nil, fmt.Errorf("look up history: %w", err)
	}
	places := make([]*place, len(names))
	for i, v := range results[0].Values {
		if v == nil {
			continue
		}
		p, err := decodePlace(v)
		if err != nil {
			return nil, err
		}
		places[i] = &p
	}
	return places, nil
}

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
	if !ok || p.relation != relContinue || p.parent != st.head.Pos || p.before {
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
