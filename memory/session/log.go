// Package session stores the transcripts of sessions.
//
// A transcript is a log of items. Each item is linked to the one before it by a chain hash over all of its
// predecessors, like commits in git. The head names the end of the conversation; an edit or a regeneration becomes a
// branch, and nothing is overwritten. A record of each turn lists the items sent upstream, and why.
//
// [Log] reads and writes the transcripts of all sessions. [Log.Enter] reads a session and finds the place of a request
// in it (placement.go, merge.go): most often the request's history ends at the head, and only the items behind it are
// new. It returns an [Entry], which is one turn. [Entry.Conversation] is the history that a view is chosen from, and
// [Entry.Commit] writes input, answer and record in one batch. Turns that several processes have under way keep their
// order (pending.go). [Log.Walk], Export and Import read and write whole sessions.
//
// The package chooses no view, calls no layer and does no retries; package memory does.
package session

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/lru"
	"remora/wire"
)

// Log keeps the transcripts of all sessions in a store. It is safe for concurrent use.
type Log struct {
	store  cache.Store
	ttl    time.Duration
	hashes *hashCache
	offers offers
	recent recent
	large  chan struct{}                  // one for each large turn that is being written
	index  lru.Cache[indexKey, time.Time] // when the entries of sessions were written
	// Owner names this process among those that use the store; 0 if it is the only one. Set it before the log is used.
	Owner uint64
	// Peers, if set, returns the queries for turns open in other processes. They are read before the session: a turn
	// committed between the two reads then appears in the session, and in the other order it would be missed. found
	// takes the results and reports whether other processes may hold turns of the session.
	Peers func(s Scope) (queries []cache.Query, found func([]cache.Result) (hold bool))
	// Strict reads every session before a request to it is placed, however well it is remembered: a store that is away
	// is noticed then. It is set before the log is used.
	Strict bool
}

// New makes a log over a store. ttl is how long a session is kept after its last turn; 0 is for ever.
func New(store cache.Store, ttl time.Duration) *Log {
	return &Log{store: store, ttl: ttl, hashes: newHashCache(), offers: offers{seed: maphash.MakeSeed()}, recent: recent{seed: maphash.MakeSeed()}, large: make(chan struct{}, largeAtOnce)}
}

// Turns of large requests are written a few at a time, since writing takes as much memory again.
const (
	largeAtOnce  = 4
	largeRequest = 1 << 20 // bytes
)

// room waits until a turn may be written. What it returns has to be called when it is.
func (log *Log) room(ctx context.Context, r *wire.Request) (done func(), err error) {
	if len(r.Body) < largeRequest {
		return func() {}, nil
	}
	select {
	case log.large <- struct{}{}:
		return func() { <-log.large }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other large turns: %w", ctx.Err())
	}
}

// state is a session as one round trip read it.
type state struct {
	version uint64
	head    head
	refs    map[string]reference // what the request's item references stand for
	reply   *linePosition        // the place after previous_response_id, if known
	held    bool                 // other processes may hold turns of it
	turn    []byte               // the record of the turn asked for, nil if it was never written

	amendments Amendments
	carried    []wire.Item // what upstream has not seen of the response that the request names
	shown      shownBlocks // the latest blocks as of that response; nil if unknown
}

// Names of the values of a response's group.
const (
	sessionName = "session" // the session in which it was given
	lastName    = "last"    // upstream's id of the answer that it ended with
)

// ResponseGroup returns the store's group that names the session of a response.
func ResponseGroup(tenant, responseID string) cache.Group {
	return cache.Group{Owner: tenant, Name: "r:" + responseID}
}

// Response says where an answer was given, by the id that its client has.
type Response struct {
	// Session is where it was given, "" where that is not known.
	Session string
	// Last is upstream's id of the answer that it ended with, where it was made of several; else "".
	Last string
	// Later is the id of its turn, while upstream makes it in the background; else "".
	Later string
}

// Response finds an answer by its id. It is zero for an unknown id.
func (log *Log) Response(ctx context.Context, tenant, id string) (Response, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: ResponseGroup(tenant, id), Names: []string{sessionName, lastName, lateName}}})
	if err != nil {
		return Response{}, fmt.Errorf("find response: %w", err)
	}
	v := results[0].Values
	return Response{Session: string(v[0]), Last: string(v[1]), Later: string(v[2])}, nil
}

// maxRefs bounds how many references of one request are looked up.
const maxRefs = 1024

// load reads what a request needs to know of its session and of the turn that it is, in one round trip. One that enters the
// session also needs to know what other processes say.
func (log *Log) load(ctx context.Context, s Scope, req *wire.Request, turnID string, w Want, enters bool) (state, Extra, error) {
	names := []string{headName, turnPrefix + turnID, amendName}
	previous := req.Previous()
	if previous != "" {
		names = append(names, idName(replyPrefix, previous), idName(carryPrefix, previous), idName(shownPrefix, previous))
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
	var peers []cache.Query
	var found func([]cache.Result) bool
	if enters && log.Peers != nil {
		peers, found = log.Peers(s)
	}
	queries := append(peers, cache.Query{Group: s.Group(), Names: append(names, w.Names...)})
	results, err := log.store.Read(ctx, append(queries, w.Others...))
	if err != nil {
		return state{}, Extra{}, fmt.Errorf("load session: %w", err)
	}
	held := false
	if len(peers) > 0 {
		held = found(results[:len(peers)])
		results = results[len(peers):]
	}
	r := results[0]
	extra := Extra{Values: r.Values[own:], Others: results[1:]}
	st := state{version: r.Version, turn: r.Values[1], held: held}
	if err := st.decode(r.Values[:first]); err != nil {
		return state{}, Extra{}, err
	}
	return st, extra, st.decodeRefs(ids, r.Values[first:own])
}

// decode reads the values that load asks for, which come before those of references.
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
		p, err := decodeLinePosition(v)
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
		st.shown, err = decodeShownBlocks(v)
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

// longest is the longest of the request's histories that ends at a known place, as the item at its end and that place; nil
// for none. known[i] is the place behind item first+i, if there is one.
func (in *incoming) longest(first int, known []*linePosition) (item int, k *linePosition) {
	for i, k := range slices.Backward(known) {
		if k != nil && in.marks[first+i].onChain {
			return first + i, k
		}
	}
	return 0, nil
}

// branch returns the place of a request whose items up to i end at k.
func (in *incoming) branch(i int, k *linePosition) plan {
	p := plan{relation: relBranch, parent: k.Pos, line: k.Line, fresh: i + 1, side: k.Side}
	if p.fresh == len(in.items) {
		p.relation = relResend
	}
	return p
}

// placeInRun is mergeRun for a request that is not the latest of its run: it comes again, or another run was answered
// meanwhile. The plan is empty for any other request.
func (log *Log) placeInRun(ctx context.Context, s Scope, h *head, in *incoming) (plan, error) {
	runs := h.runs(in)
	if len(runs) == 0 {
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

// landmark reports whether an item is found again by its content alone: what a client said, not what a model did, since a
// client that trims its history begins it with something of its own.
func landmark(it wire.Item) bool {
	return it.Kind == wire.ToolResult || it.Kind == wire.Message && it.Role == wire.User
}

// maxLandmarks is how many items of a request are looked for by content.
const maxLandmarks = 8

// overlap finds the place of a request whose beginning is missing: it looks for an item of the transcript followed by
// the same item as there. The plan is empty if there is none.
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
func (log *Log) follow(ctx context.Context, s Scope, in *incoming, i int, from *linePosition) (plan, error) {
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
	p := plan{relation: relTrim, parent: k.Pos, line: k.Line, fresh: last + 1, side: k.Side}
	p.offset = unitsBetween(in.ends[last], p.parent)
	p.summary, err = log.precede(ctx, s, in, i, from.Pos.Seq)
	return p, err
}

// lookup asks the index where the chains of some positions end; nil where a chain is unknown.
func (log *Log) lookup(ctx context.Context, s Scope, ends []position) ([]*linePosition, error) {
	names := make([]string, len(ends))
	for i, p := range ends {
		names[i] = chainName(p.Chain)
	}
	return log.places(ctx, s, names)
}

// places reads values of the session's indexes.
func (log *Log) places(ctx context.Context, s Scope, names []string) ([]*linePosition, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: names}})
	if err != nil {
		return nil, fmt.Errorf("look up history: %w", err)
	}
	places := make([]*linePosition, len(names))
	for i, v := range results[0].Values {
		if v == nil {
			continue
		}
		p, err := decodeLinePosition(v)
		if err != nil {
			return nil, err
		}
		places[i] = &p
	}
	return places, nil
}

// Pending returns the turns of a session that are not in the log, in order, and the records of the ready ones, nil for
// others.
func (log *Log) Pending(ctx context.Context, s Scope) (list []Pending, records [][]byte, err error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{headName}}})
	if err != nil {
		return nil, nil, fmt.Errorf("read session: %w", err)
	}
	if results[0].Values[0] == nil {
		return nil, nil, nil
	}
	h, err := decodeHead(results[0].Values[0])
	if err != nil {
		return nil, nil, err
	}
	records, err = log.Records(ctx, s, h.Pending)
	return h.Pending, records, err
}

// Records reads the records of ready turns, nil for others and for turns that are in the log by now.
func (log *Log) Records(ctx context.Context, s Scope, list []Pending) ([][]byte, error) {
	records := make([][]byte, len(list))
	var names []string
	var at []int
	for i, p := range list {
		if p.Ready {
			names, at = append(names, journalPrefix+p.Turn), append(at, i)
		}
	}
	if len(names) == 0 {
		return records, nil
	}
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: names}})
	if err != nil {
		return nil, fmt.Errorf("read turns that are ready: %w", err)
	}
	for i, v := range results[0].Values {
		records[at[i]] = v
	}
	return records, nil
}
