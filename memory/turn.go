package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/past"
	"remora/memory/replicas"
	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
)

// Call is one request to be remembered.
type Call struct {
	Scope   Scope
	Request *wire.Request
	History History
	// Side is the client's own name for a side request ("compaction", "title", ...); empty for a turn.
	Side string
	// Retry: the client says that it has sent the request before.
	Retry bool
	// Resends: the client is one that always resends its history.
	Resends bool
	// Provider is where the request is to go.
	Provider string
	// MaxTokens is how many tokens of a request Provider accepts, learnt from a refusal and counted as Turn.Tokens counts; 0 if
	// unknown. Layers' blocks and the history give way to it, the current run does not.
	MaxTokens int
	// Unkept is a request without a session, or with memory off. Nothing is read or stored for it, and its view is the client's
	// items: Begin only lets layers judge the answer (see Guards).
	Unkept bool
	// Lasting: the memory of the request's body is never reused, so that data from it need not be copied.
	Lasting bool
	// Credential is the caller's, for models of layers that have none of their own. It is never stored.
	Credential Credential
}

// inSession is the call as its session sees it.
func (c *Call) inSession() session.Call {
	return session.Call{Scope: c.Scope, Request: c.Request, History: c.History, Side: c.Side, Retry: c.Retry, Resends: c.Resends, Provider: c.Provider}
}

// Status is how well memory served a turn.
type Status uint8

// Statuses of a turn, spelled in X-Memory as their String.
const (
	StatusOK Status = iota
	// StatusDegraded: the store or a layer failed; the call was forwarded anyway. Summary.Skipped names the layer.
	StatusDegraded
)

// String is the status as X-Memory spells it.
func (s Status) String() string {
	if s == StatusDegraded {
		return "degraded"
	}
	return "ok"
}

// Summary is the content of X-Memory for a turn. It is complete before the request is forwarded. Everything is counted as
// the window counts: a Chat message with calls is one for its text, if it has any, and one for each call.
type Summary struct {
	Status Status
	// Items counts the conversation of this call, with the system prompt; Sent counts the part sent upstream. Items is the sum
	// of Sent, Windowed and Orphans.
	Items, Sent int
	// Windowed and Orphans count the units that the window and the orphan repair left out.
	Windowed, Orphans int
	// Repaired counts the client's own units that upstream would have refused, and that were changed or left out. Each kind of
	// repair adds to it.
	Repaired int
	// Side: the request is about the conversation, such as one for a title: layers were not called.
	Side bool
	// Saved estimates the tokens of the conversation that were left out or shortened, as far as it was read.
	Saved int
	// Recalled is the cost of layers' blocks in the view, in tokens. Skipped names the layers that failed, each with
	// the hook, as "id:recall".
	Recalled int
	Skipped  []string
}

// count sets the counts of a view of a conversation with a number of system items.
func (s *Summary) count(system int, v *view.View) {
	n := v.Count()
	s.Sent, s.Windowed, s.Orphans = system+n.Sent, n.Windowed, n.Orphans
	s.Items = s.Sent + s.Windowed + s.Orphans
}

// Turn is one request with memory, and its answer. The exchange that owns it calls Forwarded once the request is on its
// way and Commit exactly once in any case; after that, nothing of the request is used any more. It is not safe for concurrent
// use: what runs beside the exchange is only the write of the input, which Forwarded begins.
type Turn struct {
	// View is the list of items to send upstream in place of the request's.
	View []wire.Item
	// Tools are definitions of tools to offer besides the client's own.
	Tools [][]byte
	// Previous is the previous_response_id to send, "" for the client's own.
	Previous string
	// LeavesPrevious: no previous_response_id is sent, since the view has the history of the client's.
	LeavesPrevious bool
	// Summary is complete when Begin returns.
	Summary Summary

	turnInfo
	layers *turnLayers // nil without layers; for side requests, unkept ones, and while the store is down, they only judge
	chosen *chosenView // how the view was chosen; nil if it has no hidden calls and the model is called once

	messages     view.Messages  // what View is made of
	continuation *view.Messages // what the request is made of with which the model goes on, nil before that
	repaired     int            // of Summary.Repaired, what is so in every form of the view
	noTools      bool           // the view was sent without hidden calls last

	writer turnWriter
}

// begin loads the session, merges the request into it and assembles the view. Each read of the store has its own time, of which
// layers take none.
func (t *Turn) begin(ctx context.Context) error {
	if err := t.load(ctx); err != nil {
		return err
	}
	if t.writer.entry.Forgotten() {
		t.m.missing.log(t.m, t.call.Scope)
	}
	err := assemble(ctx, t)
	if t.writer.entry.Order.Partial {
		t.Summary.Status = StatusDegraded
	}
	return err
}

// nameParent stores the parent that the first request of a session names, and names it in later ones, which need not.
func (t *Turn) nameParent(lt *layer.Turn) {
	named, e := t.writer.states.values.parent, t.writer.entry
	switch {
	case named == nil: // no layer returns anything
	case lt.Parent == "":
		lt.Parent = string(named.read)
		t.call.Scope.Parent = lt.Parent
		e.ChildOf(lt.Parent)
	case e.First():
		named.replace(parent(lt.Parent))
	}
}

// load reads the session with the layers' states, and begins the layers. Its error is of the store, or a *pipeline.InitError.
func (t *Turn) load(ctx context.Context) error {
	if t.shape.Layers == nil {
		_, err := t.read(ctx, session.Want{})
		return err
	}

	lt := t.layerTurn()
	st := newStates(&t.turnInfo, t.call.Scope, &lt, t.call.Scope.Parent)
	extra, err := t.read(ctx, st.want())
	if err != nil {
		return err
	}
	e := t.writer.entry
	t.writer.states = st
	st.load(extra)
	t.nameParent(&lt)

	switch e.Standing() {
	case session.Side:
		t.layers, err = t.guard(ctx, e)
		return err
	case session.Alone:
		st.forget()
	default:
	}

	lt.Execution = e.Execution()
	var before *past.Turn
	if t.shape.Layers.Recalls() {
		before = past.NewTurn(t.m.past, t.call.Scope, t.shape.Embeddings, t.call.Credential)
		lt.Past = before
	}
	run, err := t.shape.Layers.Begin(ctx, t.call.Scope.Tenant, lt, st.read, t.call.Credential)
	if err != nil {
		return err
	}
	t.layers = &turnLayers{
		layerRun: layerRun{turnInfo: &t.turnInfo, run: run, states: st},
		rounds:   rounds{run: run, input: e.Input(), visible: e.Visible()},
		past:     before,
	}
	if !run.Empty() {
		t.layers.rounds.input = t.detach(t.layers.rounds.input)
	}
	if e.First() && st.spawns {
		above := lt
		above.Thread = t.call.Scope.Parent
		run.Spawn(ctx, above, st.read)
	}
	st.begin(run)
	if t.call.MaxTokens > 0 {
		run.Limit(t.room())
	}
	return nil
}

// read reads the session and enters the turn into it, once its spooled turns are written.
func (t *Turn) read(ctx context.Context, want session.Want) (session.Extra, error) {
	read := withTimeout(ctx, t.m.o.ReadWait)
	defer read.end()
	if err := t.m.spool.awaitReplay(read, t.group); err != nil { //nolint:contextcheck // read is made of ctx
		t.writer.backlog = errors.Is(err, errBacklog)
		return session.Extra{}, err
	}
	if err := t.m.outages.available(t.group); err != nil {
		return session.Extra{}, err
	}
	return t.find(read, want) //nolint:contextcheck // likewise
}

// Pauses between reads of a session with a running turn in another process.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 50 * time.Millisecond
)

// find enters the turn into its session. If its view relies on stored history, it waits for earlier open turns of other
// processes until ctx ends, and then marks the view as partial.
func (t *Turn) find(ctx context.Context, want session.Want) (extra session.Extra, err error) {
	w := &t.writer
	extra, held, err := t.enter(ctx, want)
	if err != nil || !w.entry.Order.UsesHistory() {
		return extra, err
	}

	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		open := t.m.peers.MayHaveMore(ctx, w.entry)
		if !open && !held {
			whole, err := t.m.parked.show(ctx, t.call.Scope, w.entry)
			if whole || err != nil {
				return extra, err
			}
		}
		if !open && held && t.m.peers.AreCutOff() || !sleep(ctx, pause) {
			break
		}
		more, hold, err := t.enter(ctx, want)
		if err != nil {
			break
		}
		extra, held = more, hold
	}

	w.entry.Order.Partial = true
	late, cancel := context.WithTimeout(t.base, t.m.o.ReadWait) // the request's own time has gone into waiting
	defer cancel()
	_, err = t.m.parked.show(late, t.call.Scope, w.entry) //nolint:contextcheck // see late
	return extra, err
}

// enter reads the session and finds the turn's place in it. held reports whether other processes may have turns of the session
// that are not stored, or were not when it was read.
func (t *Turn) enter(ctx context.Context, want session.Want) (extra session.Extra, held bool, err error) {
	peers := t.m.peers
	var inquiry replicas.Inquiry // made only if the session is read
	if t.m.o.Shared {
		want.First = func() []cache.Query {
			inquiry = peers.Inquire()
			return t.withTombstones(inquiry.Queries)
		}
	}
	entry, extra, err := t.m.log.Enter(ctx, t.ID, t.started, t.call.inSession(), want)
	if err != nil {
		var ok bool
		if inquiry, ok = peers.Instead(inquiry, err); ok {
			want.First = func() []cache.Query { return t.withTombstones(inquiry.Queries) }
			entry, extra, err = t.m.log.Enter(ctx, t.ID, t.started, t.call.inSession(), want)
		}
	}
	if err != nil {
		return extra, false, err
	}
	t.writer.entry = entry
	if own := len(inquiry.Queries); len(extra.First) > own {
		if t.tombstones = nil; entry.First() {
			t.tombstones = versionsOf(extra.First[own:])
		}
		extra.First = extra.First[:own]
	}
	return extra, peers.MayHold(t.group, inquiry, extra.First), nil
}

// withTombstones adds the queries of the session's tombstones, which other processes write. In a cluster they are on other servers than
// the session, which must not need those.
func (t *Turn) withTombstones(q []cache.Query) []cache.Query {
	if t.m.store.Shard(t.group) != "" {
		return q
	}
	return append(slices.Clip(q), tombstoneQueries(t.call.Scope)...)
}

// sleep waits for d, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d) //nolint:forbidigo // wakes; no clock is read
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// degrade serves a turn with only the client's items.
func (t *Turn) degrade(ctx context.Context) error {
	w := &t.writer
	w.entry, w.states, t.Tools = t.m.log.Detached(t.ID, t.started, t.call.inSession()), nil, nil
	var err error
	if t.layers, err = t.guard(ctx, t.writer.entry); err != nil {
		return err
	}
	t.m.heartbeat.AddTurn(t.group, t.ID, true) // Commit ends it
	if err := assemble(ctx, t); err != nil {
		panic(fmt.Sprintf("BUG: assemble without a store: %v", err))
	}
	t.Summary.Status = StatusDegraded
	return nil
}

// Steering returns which part of the answer is held back until Review, and whether it needs Review at all.
func (t *Turn) Steering() (Steering, bool) {
	l := t.layers
	if l == nil {
		return Steering{}, false
	}
	s := Steering{HoldCalls: l.run.ReviewsCalls(), HoldAll: l.run.HoldsResponse()}
	if len(t.Tools) == 0 && !s.HoldCalls && !s.HoldAll {
		return Steering{}, false
	}
	s.Hides = l.run.Owns
	return s, true
}

// Forwarded records that the request was sent upstream. The input is written separately if the answer takes longer than
// store.open_delay.
func (t *Turn) Forwarded() {
	if !t.call.Unkept {
		t.writer.forwarded()
	}
}

// Review judges a whole answer of the model, runs the layers' tools that it calls, and decides how the turn goes on.
func (t *Turn) Review(ctx context.Context, r wire.Reply) Next {
	if t.layers == nil {
		return Next{}
	}
	return t.layers.rounds.review(ctx, t, r)
}

// LastRound reports whether the next answer must be the last one: no layer offers tools for it.
func (t *Turn) LastRound() bool { return t.layers != nil && t.layers.rounds.isLast() }

// Commit makes the turn durable, in the store or, while that is down, in the spool. It returns when the turn is
// durable, and waits for layers, the store and the spool for at most store.commit_wait each, also for what a child session gives back
// to its parent. Hooks that another process's change makes run again have their own timeouts. Layers that are slow to store do so
// afterwards.
func (t *Turn) Commit(a Answer) {
	if t.call.Unkept {
		return
	}
	if a.Later = t.call.Request.InBackground() && !a.Reply.Complete && a.Reply.ID != "" && a.HTTPStatus < 300; a.Later {
		a.Reply.Choices = nil // all of it comes with the end
	}
	l, w := t.layers, &t.writer
	defer w.close() // a panic of what follows must not leave it to be written when its memory has been given to another request
	var after func(context.Context)
	awaited := false
	if l != nil {
		after, awaited = l.conclude(t.base, &a)
	}
	// The deadline counts from here: hooks take none of the store's time, and a write of the input may be running, with an
	// earlier deadline.
	ctx := withTimeout(t.base, t.m.o.CommitWait)
	defer ctx.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	defer t.m.heartbeat.EndTurn(t.group, t.ID)
	if l != nil {
		l.describe(w.entry, &a)
	}
	stored := w.finish(ctx, &a)

	switch {
	case l == nil, w.deleted:
	case stored:
		if l.states.conflicted() && !l.flush(ctx) {
			after = l.flushFirst(after)
		}
		switch {
		case awaited:
			done := make(chan struct{})
			if t.m.settling.begin(t.base, func(ctx context.Context) { defer close(done); after(ctx) }) {
				select {
				case <-done:
				case <-ctx.Done():
				}
			}
		case after != nil:
			t.m.settling.begin(t.base, after)
		}
		if !l.guard {
			t.m.past.EmbedSoon(t.shape.Embeddings, t.call.Scope, t.call.Credential, t.ID)
		}
		t.m.sweepSoon(l)
	case after != nil || len(l.run.Changes()) > 0: // layers have something to write after the outage
		if !t.m.settling.begin(t.base, l.afterOutage(after)) {
			t.m.spool.seen.put(t.ID, nil) // layers get the items again that the window has cut off
		}
	}
}
