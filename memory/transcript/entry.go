package transcript

import (
	"context"
	"errors"
	"time"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// Entry is one turn on its way into the transcript: where its request stands, what its view is made of, and what is
// to be written. It is not safe for concurrent use.
type Entry struct {
	log      *Log
	id       string
	started  time.Time
	call     Call
	beside   Beside // nil for nothing
	degraded bool   // its view was made without the store

	late   bool // it waited in the spool: the head may have moved on since
	loaded bool // state was read from the store
	opened bool // the session did not exist when the view was built
	early  bool // nothing in the session had been answered then
	state  state
	in     *incoming
	plan   plan
	place  plan        // where the request stands, however much of it is written
	stored *storedLine // what Conversation has read
	view   turnrecord.View
	atHead bool // the new items go behind the present head
	// in.items[from:] is what the ring gains by this turn, behind ringKept of its present entries.
	from, ringKept int
	seqs           []uint64 // sequence numbers of in.items, as far as this turn stored them
	known          map[wire.Hash]place

	parent    uint64 // sequence number before the first new item
	journaled journaled
	answered  [][]mark // of the answer's items, per choice; nil until they are needed

	hidden       []hiddenItem
	amended      Amendments // what of the session's amendments is this turn's, as far as it is written
	amendWritten bool
	blocks       []Block
	layers       []turnrecord.LayerNote
	carry        []wire.Item
	own          incoming // what in is, where the request was looked at once
	seqRoom      [roomFor]uint64
	answeredRoom [1][]mark
	answerRoom   [2]mark
	before       string // see turnrecord.Record.Before, as it is written
	epoch        string // why the view begins otherwise than the one before
	run          uint64 // the round that the turn belongs to, as it was found first; layers have state by it
}

// journaled is a turn's input that was written before its answer.
type journaled struct {
	names  []string // of its values; none if it was not written
	behind uint64   // the item that it was written behind
	end    position
	seqs   []uint64 // of its items
}

// Enter finds the place of a request in its session, which it loads in one round trip, or in none: see recent. What
// stands beside it, nil for nothing, is read and written with it.
func (log *Log) Enter(ctx context.Context, id string, started time.Time, c Call, b Beside) (*Entry, error) {
	e := &Entry{log: log, id: id, started: started, call: c, beside: b}
	if e.goOn() {
		return e, nil
	}
	st, err := log.load(ctx, c.Scope, c.Request, id, b)
	if err != nil {
		return nil, err
	}
	in := e.read(&st)
	p, err := e.find(ctx, &st, in, c.History)
	if err != nil {
		return nil, err
	}
	p.side = p.side || c.Side != ""
	e.settle(st, in, p)
	e.opened, e.early = st.head.NextSeq == 0, !st.head.Answered
	return e, nil
}

// read looks at the request in the entry's own memory, which holds one look at a time.
func (e *Entry) read(st *state) *incoming {
	if e.own.hashes != nil {
		e.own = incoming{}
	}
	return e.own.read(e.call.Request, st, e.log.hashes)
}

// Detached is the entry of a call whose session cannot be read: its place is found when it is committed.
func (log *Log) Detached(id string, started time.Time, c Call) *Entry {
	e := &Entry{log: log, id: id, started: started, call: c, degraded: true}
	e.settle(state{}, e.read(new(state)), plan{relation: relRoot, side: c.Side != ""})
	e.loaded = false
	return e
}

// Resumed is the entry of a call that could not be committed at its time, with what was kept of its view, of its notes,
// and of what stands beside it, nil for none. It fails where the notes can't be read.
func (log *Log) Resumed(id string, started time.Time, c Call, v turnrecord.View, n *Notes, b Beside) (*Entry, error) {
	e := &Entry{log: log, id: id, started: started, call: c, beside: b, view: v, degraded: true, late: true}
	return e, e.resumeNotes(n)
}

// find is where a request stands in the transcript, in a mode that may be another than the call's (see Mode).
func (e *Entry) find(ctx context.Context, st *state, in *incoming, mode History) (plan, error) {
	p, err := e.log.place(ctx, e.call.Scope, st, in, mode)
	if err != nil || p.relation != relDelta || e.call.History != HistoryAuto || !st.head.answersAgain(in) {
		return p, err
	}
	again, err := e.log.repetition(ctx, e.call.Scope, &st.head, in)
	if err != nil || again.relation == "" {
		return p, err
	}
	return again, nil
}

// settle takes over where the turn stands in the transcript.
func (e *Entry) settle(st state, in *incoming, p plan) {
	e.state, e.in, e.plan, e.place, e.loaded, e.stored = st, in, p, p, true, nil
	e.seqs, e.parent = inRoom(e.seqRoom[:], len(in.items)), p.parent.Seq
	e.atHead = p.parent.Seq == st.head.Pos.Seq && p.parent.Chain == st.head.Pos.Chain
	e.from, e.ringKept = 0, 0
	if p.upto.Seq != 0 {
		e.plan.parent, e.plan.fresh = p.upto, len(in.items)
	}
	if e.atHead {
		e.from, e.ringKept = p.fresh, len(st.head.Ring)
		return
	}
	for i, echo := range st.head.Ring {
		if echo.Seq == p.parent.Seq && echo.Seq != 0 {
			e.from, e.ringKept = p.fresh, i+1
		}
	}
}

// Input are the request's items that are new to the transcript.
func (e *Entry) Input() []wire.Item { return e.in.items[e.plan.fresh:] }

// Carry keeps what upstream has not seen of the response that the client knows by its id, since it was made of several:
// a request that goes on from that id is given these items first. More than 1024 are not kept.
func (e *Entry) Carry(items []wire.Item) {
	if len(items) <= maxAmendItems {
		e.carry = items
	}
}

// Visible is how many items the request has, without the leading system and developer items.
func (e *Entry) Visible() int { return len(e.in.items) }

// Side tells that the request is a side line.
func (e *Entry) Side() bool { return e.plan.side }

// First tells that the session did not exist when it was read.
func (e *Entry) First() bool { return e.opened }

// Lead names the leading system and developer items with the instructions; empty for none.
func (e *Entry) Lead() string {
	return e.in.leadText
}

// LastTurn is the id of the turn that moved the session's head last, empty if none is known.
func (e *Entry) LastTurn() string { return e.state.head.LastTurn }

// View is the record of the turn's view, to resume the entry with.
func (e *Entry) View() turnrecord.View { return e.view }

// begins is where the request's items begin, if the stored history goes before them.
func (e *Entry) begins() position {
	if e.in.inRun() {
		return e.in.base
	}
	return e.place.parent
}

// Mode is how the entry's place is found again: what its view was built on stays true. A request that brought its
// history keeps its place in it, and one that did not goes behind whatever was said meanwhile.
func (e *Entry) Mode() History {
	switch {
	case !e.loaded, e.in.inRun():
		return e.call.History
	case e.plan.before || e.call.History == HistoryServer:
		return HistoryServer
	default:
		return HistoryClient
	}
}

// Commit writes the turn against the version that was read, and starts again from the transcript as it then is when
// another turn was faster. A nil answer is still to come: Commit is called once more with it.
func (e *Entry) Commit(ctx context.Context, a *Answer) error {
	if !e.loaded {
		if done, err := e.reload(ctx, a); done || err != nil {
			return err
		}
	}
	if err := e.lookAround(ctx, a); err != nil {
		return err
	}
	for {
		d := e.draft(a)
		own, others := d.write(ctx, e.beside)
		d.release()
		if own.Err == nil {
			e.written(d, own.Version)
			if e.beside != nil && a != nil {
				e.beside.Wrote(own.Version, others)
			}
			return nil
		}
		e.log.recent.drop(e.call.Scope)
		if !errors.Is(own.Err, cache.ErrConflict) {
			return own.Err
		}
		if done, err := e.reload(ctx, a); done || err != nil {
			return err
		}
	}
}

// lookAround reads what a turn needs to know that does not simply go behind the head.
func (e *Entry) lookAround(ctx context.Context, a *Answer) error {
	again := a != nil && (!e.atHead || e.state.head.Forked) || e.in.answers() && e.state.head.waits(e.plan.parent, e.in.marks[e.plan.fresh:])
	if again && e.plan.parent.Seq != 0 && e.known == nil {
		// What goes anywhere but behind the end of a line may be there already: a turn whose answer was stored,
		// although the client did not see its end, comes again; so do results that are still with upstream.
		if err := e.lookupKnown(ctx, a); err != nil {
			return err
		}
	}
	if !e.atHead && e.ringKept == 0 && e.plan.fresh > 0 {
		return e.findSeqs(ctx)
	}
	return nil
}

// reload reads the transcript again and finds the turn's place in it as it now is. done tells that the turn is
// there already: an earlier attempt was written although its reply got lost.
func (e *Entry) reload(ctx context.Context, a *Answer) (done bool, err error) {
	st, err := e.log.load(ctx, e.call.Scope, e.call.Request, e.id, e.beside)
	if err != nil {
		return false, err
	}
	if st.turn != nil && (a == nil || !isOpen(st.turn)) {
		return true, nil
	}
	in := newIncoming(e.call.Request, &st, e.log.hashes)
	p, err := e.find(ctx, &st, in, e.Mode())
	if err != nil {
		return false, err
	}
	own := p.relation == relRoot || len(e.journaled.names) > 0 && p.parent.Seq == e.journaled.end.Seq
	if own && e.early && e.call.History == HistoryAuto && st.head.onlyNew(in) {
		p = st.head.delta() // another client was answered first in a session that both began: this one follows it
	}
	p.side = p.side || e.call.Side != ""
	if e.loaded {
		p.side = p.side || e.plan.side
	}
	e.settle(st, in, p)
	if st.turn != nil {
		e.takeHidden(st.turn)
	}
	if err := e.keepInput(ctx); err != nil {
		return false, err
	}
	return false, e.lookupKnown(ctx, a)
}

// keepInput decides whether an input that is written already stays where it is.
func (e *Entry) keepInput(ctx context.Context) error {
	j := e.journaled
	if len(j.names) == 0 || !e.place.before {
		return nil
	}
	if e.place.parent.Seq == j.behind {
		// The head is where it was when the input was written behind it, or goes on from there with the same input.
		e.plan.parent, e.plan.fresh = j.end, len(e.in.items)
		return nil
	}
	for at, err := range e.log.back(ctx, e.call.Scope, e.state.head.Pos.Seq) {
		if err != nil {
			return err
		}
		if at.Pos.Seq <= j.end.Seq {
			if at.Pos.Seq == j.end.Seq { // another turn with the same input was answered behind it
				e.journaled = journaled{}
			}
			break
		}
	}
	return nil
}

// findSeqs looks up where the items of a resent history stand, for the ring of a head that moves to another branch.
func (e *Entry) findSeqs(ctx context.Context) error {
	first := max(0, e.plan.fresh-ringSize)
	places, err := e.log.lookup(ctx, e.call.Scope, e.in.ends[first:e.plan.fresh])
	if err != nil {
		return err
	}
	for i, p := range places {
		if p != nil && e.seqs[first+i] == 0 {
			e.seqs[first+i] = p.Pos.Seq
		}
	}
	return nil
}

// lookupKnown asks which of the items that the turn is about to write are in the transcript already, as they are
// after a repeated request.
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
	at := walk(e.plan.parent, e.in.marks[e.plan.fresh:])
	if a != nil {
		for _, marks := range e.answerMarks(a) {
			walk(at, marks)
		}
	}
	places, err := e.log.lookup(ctx, e.call.Scope, ends)
	if err != nil {
		return err
	}
	e.known = make(map[wire.Hash]place, len(ends))
	for i, p := range places {
		if p != nil {
			e.known[ends[i].Chain] = *p
		}
	}
	return nil
}

// answerMarks hashes the items of the answer, once: the answer of a turn does not change.
func (e *Entry) answerMarks(a *Answer) [][]mark {
	if e.answered == nil {
		e.answered = inRoom(e.answeredRoom[:], len(a.Reply.Choices))
		for c, items := range a.Reply.Choices {
			var room []mark
			if c == 0 {
				room = e.answerRoom[:]
			}
			e.answered[c] = inRoom(room, len(items))
			for i, it := range items {
				e.answered[c][i] = e.in.mark(it)
			}
		}
	}
	return e.answered
}

// written takes over what a commit has changed, for the commit that follows it.
func (e *Entry) written(d *draft, version uint64) {
	if d.head.Bare == e.id && e.state.head.Bare != e.id {
		e.before = e.state.head.Bare
	}
	e.state.version, e.state.head = version, *d.head
	e.known, e.journaled = nil, journaled{}
	e.noted(d)
	if len(d.stored) > 0 {
		e.journaled = journaled{names: d.stored, behind: e.plan.parent.Seq, end: d.input, seqs: d.added}
	}
	e.plan.parent, e.plan.fresh, e.plan.aside = d.input, len(e.in.items), 0
	if !d.open && e.beside == nil && len(e.state.amendments) == 0 {
		e.log.recent.put(e.call.Scope, version, d.head)
	} else {
		e.log.recent.drop(e.call.Scope)
	}
}
