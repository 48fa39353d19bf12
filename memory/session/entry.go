package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// Entry is one turn that is not in the transcript yet: the place of its request, the input of its view, and the values to
// write. It is not safe for concurrent use.
type Entry struct {
	Place // where the request stands

	// History is the input of the view, View describes the choice.
	History HistoryReader
	View    ViewRecord
	// Notes are the data of the turn's record besides its items.
	Notes Notes
	// Order keeps the turn behind earlier ones of other processes.
	Order Order

	log     *Log
	id      string
	started time.Time
	want    Want
	values  [][]byte // the session's values of want.Names

	unanswered bool   // nothing in the session had been answered when the view was built
	gone       bool   // the session existed then, but not when the turn was written
	resent     bool   // see findResent
	moved      bool   // the request's place is not where its journaled input stands, which is deleted
	previous   string // see Previous

	unwritten   unwritten
	ring        ringUpdate
	known       map[wire.Hash]linePosition // items to write that the transcript already has, by chain hash
	parent      uint64                     // sequence number before the first new item
	emptyBefore string                     // turnrecord.Record.Before
	journaled   *journaled                 // nil for none
	answer      answerMarks
}

// unwritten is the part of the request that is not written yet.
type unwritten struct {
	parent  position // the items come after it
	fresh   int      // items[fresh:]
	summary int      // and items[:summary], the client's own summary
	line    uint64   // their line, 0 for a new one
}

// ringUpdate is a change of the head's ring: items[from:] are added after keep of its present entries.
type ringUpdate struct {
	from, keep int
	seqs       []uint64 // sequence numbers of the request's items that this turn stored
}

// answerMarks are the hashes of the answer's items, per choice; nil until they are needed.
type answerMarks [][]mark

// of hashes the items of the answer once: a turn's answer does not change.
func (m *answerMarks) of(a *Answer, in *incoming) [][]mark {
	if *m != nil {
		return *m
	}
	*m = make(answerMarks, len(a.Reply.Choices))
	for c, items := range a.Reply.Choices {
		(*m)[c] = make([]mark, len(items))
		for i, it := range items {
			(*m)[c][i] = in.mark(it)
		}
	}
	return *m
}

func (log *Log) newEntry(id string, started time.Time, c Call) *Entry {
	e := &Entry{log: log, id: id, started: started}
	e.call, e.state = c, noState()
	e.Order = Order{place: &e.Place, turn: id, owner: log.Owner}
	e.History = HistoryReader{stored: log.transcript(c.Scope), place: &e.Place, hidden: &e.Notes.hidden, adapter: adapter{place: &e.Place, started: started}}
	e.View.history = &e.History
	return e
}

// Enter reads the session of a request and the values of w, in one round trip or none (see recent), and finds the request's
// place.
func (log *Log) Enter(ctx context.Context, id string, started time.Time, c Call, w Want) (*Entry, Extra, error) {
	e := log.newEntry(id, started, c)
	e.want = w
	e.want.First = nil
	if e.continueRecent() {
		return e, Extra{Values: e.values}, nil
	}
	st, extra, err := e.History.stored.load(ctx, c.Request, id, w)
	if err != nil {
		return nil, Extra{}, err
	}
	in := newIncoming(&e.call, &st, e.log.hashes)
	p, err := e.placement(&st, in, c.History).find(ctx)
	if err != nil {
		return nil, Extra{}, err
	}
	e.setPlace(st, in, p)
	e.values = extra.Values
	e.Order.look()
	e.first, e.unanswered = st.head.isEmpty(), !st.head.Answered
	e.findPrevious(ctx)
	return e, extra, nil
}

// Detached returns the entry of a call whose session cannot be read: its place is found when it is committed.
func (log *Log) Detached(id string, started time.Time, c Call) *Entry {
	e := log.newEntry(id, started, c)
	e.Order.Partial = true
	p := plan{match: match{relation: relRoot}, standing: InConversation}
	if c.Side != "" {
		p.standing = Side
	}
	st := noState()
	e.setPlace(st, newIncoming(&e.call, &st, e.log.hashes), p)
	e.loaded = false
	return e
}

// Resumed returns the entry of a call that could not be committed at its time, with its saved view and notes, nil for none. It
// fails if the notes are unreadable.
func (log *Log) Resumed(id string, started time.Time, c Call, v turnrecord.View, n *SavedNotes) (*Entry, error) {
	e := log.newEntry(id, started, c)
	e.Order.Resumed, e.View.view = true, v
	return e, e.Notes.restore(n, c.Request.Dialect)
}

// continueRecent finds the place of a request that continues the turn that this process wrote last. It returns false if the
// session must be read.
func (e *Entry) continueRecent() bool {
	if e.log.Strict || !e.want.known() || e.call.Side != "" || e.call.History == HistoryServer {
		return false
	}
	st, values, ok := e.log.recent.find(e.History.stored.group, e.want.Names)
	if !ok || st.head.Forked {
		return false
	}
	in := newIncoming(&e.call, &st, e.log.hashes)
	p := e.placement(&st, in, e.call.History).onHead()
	if p.rule == "" {
		return false
	}
	e.setPlace(st, in, p)
	e.values = values
	return true
}

// placement looks for the place of the request in a session as it was read, in a mode that may differ from the call's (see Mode).
func (e *Entry) placement(st *state, in *incoming, mode History) *placement {
	m := merger{stored: e.History.stored, head: st.head, in: in}
	return &placement{
		merge: m, st: st, head: st.head, in: in, call: &e.call, mode: mode, offers: &e.log.offers, written: e.journaled != nil,
	}
}

// setPlace sets the turn's place in the transcript.
func (e *Entry) setPlace(st state, in *incoming, p plan) {
	e.state, e.in, e.plan, e.loaded, e.History.preceding = st, in, p, true, nil
	e.atHead = p.parent.Seq == st.head.Pos.Seq && p.parent.Chain == st.head.Pos.Chain
	e.parent = p.parent.Seq
	e.unwritten = unwritten{parent: p.parent, fresh: p.fresh, summary: p.summary, line: p.line}
	if p.upto.Seq != 0 {
		e.unwritten.parent, e.unwritten.fresh = p.upto, len(in.items)
	}

	e.ring = ringUpdate{seqs: make([]uint64, len(in.items))}
	if e.atHead {
		e.ring.from, e.ring.keep = p.fresh, len(st.head.Ring)
		return
	}
	for i, echo := range st.head.Ring {
		if echo.Seq == p.parent.Seq && echo.Seq != 0 {
			e.ring.from, e.ring.keep = p.fresh, i+1
		}
	}
}

// findPrevious looks up the response before the request if it is not in this session. Without an answer of the store, the
// client's own id is sent.
func (e *Entry) findPrevious(ctx context.Context) {
	previous := e.call.Request.Previous()
	if previous == "" || e.state.reply != nil {
		return
	}
	if r, err := e.log.Response(ctx, e.call.Scope.Tenant, previous); err == nil {
		e.previous = r.Last
	}
}

// ChildOf says whose child the session is, where the request does not. The turn's record names it.
func (e *Entry) ChildOf(parent string) { e.call.Scope.Parent = parent }

// Previous returns the previous_response_id to send, "" for the client's own. An answer of another session is known only by its
// id; for one of this session, missing items are added to the request.
func (e *Entry) Previous() string { return e.previous }

// LeavesPrevious reports whether the view has the history of the response that the request names, whose id is not sent: another
// provider has it.
func (e *Entry) LeavesPrevious() bool { return e.in.elsewhere }

// Gone reports whether the session existed when the turn began, but not when it was written.
func (e *Entry) Gone() bool { return e.gone }

// Commit writes the turn, and with its answer p, against the version that was read. If another turn was faster, or the session
// was never read, it reads the session and returns its present values: call Commit again, with Puts for these. A nil answer is
// pending: call Commit again with it.
func (e *Entry) Commit(ctx context.Context, a *Answer, p Puts) (done Done, changed *Extra, err error) {
	if !e.loaded {
		changed, err = e.reload(ctx, a)
		return Done{}, changed, err
	}
	if err := e.lookUpStored(ctx, a); err != nil {
		return Done{}, nil, err
	}
	release, err := e.log.large.Enter(ctx, e.call.Request, a)
	if err != nil {
		return Done{}, nil, err
	}
	defer release()
	if a != nil && e.Order.mustWait() {
		return Done{}, nil, ErrEarlierOpen
	}

	c := newTurnCommit(e, a)
	if done, err = c.write(ctx, p); err == nil {
		e.written(&c, done.Version, p)
		return done, nil, nil
	}
	e.log.recent.drop(e.History.stored.group)
	if errors.Is(err, cache.ErrConflict) {
		changed, err = e.reload(ctx, a)
	}
	return Done{}, changed, err
}

// Renew restarts the session's time to live while the answer of a turn is pending.
func (e *Entry) Renew(ctx context.Context) error {
	if !e.loaded || e.state.version == 0 {
		return nil
	}
	out := e.log.store.Commit(ctx, []cache.Batch{{Group: e.History.stored.group, Expect: e.state.version, TTL: e.log.ttl}})[0]
	if out.Err == nil {
		e.state.version = out.Version
		return nil
	}
	if !errors.Is(out.Err, cache.ErrConflict) {
		return fmt.Errorf("renew session: %w", out.Err)
	}
	// Another turn was written meanwhile, which the commit must detect by its version. A deleted session stays deleted.
	now, err := e.log.store.Read(ctx, []cache.Query{{Group: e.History.stored.group}})
	if err != nil || now[0].Version == 0 {
		return err
	}
	out = e.log.store.Commit(ctx, []cache.Batch{{Group: e.History.stored.group, Expect: now[0].Version, TTL: e.log.ttl}})[0]
	if out.Err != nil && !errors.Is(out.Err, cache.ErrConflict) {
		return fmt.Errorf("renew session: %w", out.Err)
	}
	return nil
}

// Park stores the record of an answered turn that waits for an earlier one. It returns false if the turn can be written. If another
// turn was faster, it returns the session's present values: call Park again.
func (e *Entry) Park(ctx context.Context, a *Answer, record []byte) (parked bool, changed *Extra, err error) {
	if !e.Order.mustWait() {
		return false, nil, nil
	}
	h := e.state.head.clone(0)
	if !e.Order.park(h) {
		return false, nil, ErrNoRoom
	}
	out := e.log.store.Commit(ctx, []cache.Batch{{
		Group: e.History.stored.group, Expect: e.state.version, TTL: e.log.ttl, Listed: h.isEmpty(),
		Puts: []cache.Put{{Name: journalPrefix + e.id, Data: record}, {Name: headName, Data: h.encode()}},
	}})[0]
	e.log.recent.drop(e.History.stored.group)
	switch {
	case out.Err == nil:
		e.state.version, e.state.head = out.Version, h
		return true, nil, nil
	case errors.Is(out.Err, cache.ErrConflict):
		changed, err = e.reload(ctx, a)
		e.Order.GoesAhead = changed == nil && err == nil // the turn is stored already: Commit finds it
		return false, changed, err
	default:
		return false, nil, out.Err
	}
}

// NewItems returns the request's items that are new to the conversation, written or not.
func (e *Entry) NewItems() []wire.Item {
	if j := e.journaled; j != nil && e.plan.parent.Seq == j.end.Seq { // it seems to resend its own input
		return e.in.items[max(0, min(e.plan.fresh, len(e.in.items)-len(j.seqs))):]
	}
	return e.Input()
}

// Replaces returns the sequence number of the last item of the request if it is a repetition: its answer replaces what stands after that.
// It is 0 for other requests.
func (e *Entry) Replaces() uint64 { return e.plan.upto.Seq }

// lookUpStored reads the index for a turn that is not simply appended to the head.
func (e *Entry) lookUpStored(ctx context.Context, a *Answer) error {
	// Items that are not appended to a line may be stored already: a retry of a turn whose answer was stored although the client did
	// not see its end, a question whose answer waits to be stored, or repeated results that upstream still has. A question that
	// comes again after the stored history is another one, unless its client says that it is a retry.
	stored := a != nil && (!e.atHead || e.state.head.Forked)
	if !stored && (!e.plan.before || e.in.answers() || e.call.Retry) {
		stored = e.state.head.Tails.within(e.unwritten.parent, e.in.marks[e.unwritten.fresh:])
	}
	if stored && e.unwritten.parent.Seq != 0 && e.known == nil {
		return e.lookupKnown(ctx, a)
	}
	return nil
}

// OrdersSummary reports whether the request orders a summary of its history: agents put the summary in the place of that.
func (e *Entry) OrdersSummary() bool { return ordersSummary(e.call.Request, e.in, e.state.head) }

// lookupKnown looks up which of the items to write are already in the transcript, as after a repeated request.
func (e *Entry) lookupKnown(ctx context.Context, a *Answer) error {
	var ends []position
	walk := func(at position, marks []mark) position {
		for _, m := range marks {
			if at = at.after(m); m.onChain {
				ends = append(ends, at)
			}
		}
		return at
	}
	at := walk(e.unwritten.parent, e.in.marks[e.unwritten.fresh:])
	if a != nil {
		for _, marks := range e.answer.of(a, e.in) {
			walk(at, marks)
		}
	}
	places, err := e.History.stored.lookup(ctx, ends)
	if err != nil {
		return err
	}
	e.known = make(map[wire.Hash]linePosition, len(ends))
	for i, p := range places {
		if p != nil {
			e.known[ends[i].Chain] = *p
		}
	}
	return nil
}

// written records the changes of a commit for the next one.
func (e *Entry) written(c *turnCommit, version uint64, p Puts) {
	if c.head.LastEmpty == e.id && e.state.head.LastEmpty != e.id {
		e.emptyBefore = e.state.head.LastEmpty
	}
	e.state.version, e.state.head = version, c.head
	e.known, e.journaled, e.moved = nil, nil, false
	c.hidden.done()
	if c.hidden.amends {
		e.state.amendments = c.hidden.all
	}
	if len(c.stored) > 0 {
		e.journaled = &journaled{names: c.stored, parent: e.unwritten.parent.Seq, end: c.input, seqs: c.added}
	}
	e.unwritten.parent, e.unwritten.fresh, e.unwritten.summary, e.unwritten.line = c.input, len(e.in.items), 0, c.line
	if !c.open && e.want.known() && len(e.state.amendments) == 0 {
		e.log.recent.put(e.History.stored.group, written{version, c.head, e.want.Names, e.want.after(e.values, p)})
	} else {
		e.log.recent.drop(e.History.stored.group)
	}
}
