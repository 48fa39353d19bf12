package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

// Entry is one turn on its way into the transcript: the place of its request, the input of its view, and what to write.
// It is not safe for concurrent use.
type Entry struct {
	log      *Log
	id       string
	started  time.Time
	call     Call
	want     Want
	values   [][]byte // what the session holds of want.Names
	degraded bool     // its view was made without the store

	late   bool // it waited in the spool: the head may have moved on since
	loaded bool // state was read from the store
	opened bool // the session did not exist when the view was built
	early  bool // nothing in the session had been answered then
	gone   bool // it existed then, and not any more when the turn was written

	partial   bool     // the view lacks turns that may have ended before this one began
	lapsed    []uint64 // processes that have ended: see Lapsed
	abandoned bool
	seen      []string // turns that the head named when the view was made
	waits     bool     // see Wait
	goesAhead bool     // see GoAhead
	ready     []Ready  // see Follow

	state  state
	in     *incoming
	plan   plan
	place  plan                // where the request stands, however much of it is written
	stored *storedLine         // what Conversation has read
	mended map[*byte]wire.Hash // content of items that are sent otherwise than they are stored, by where their bytes are
	view   turnrecord.View
	atHead bool // the new items go behind the present head
	// in.items[from:] are added to the ring by this turn, behind ringKept of its present entries.
	from, ringKept int
	seqs           []uint64 // sequence numbers of in.items, as far as this turn stored them
	known          map[wire.Hash]place

	parent    uint64 // sequence number before the first new item
	journaled journaled
	answered  [][]mark // of the answer's items, per choice; nil until they are needed

	hidden       []hiddenItem
	amended      Amendments // what of the session's amendments is this turn's, as far as it is written
	amendWritten bool
	blocks       []view.Block
	layers       []turnrecord.LayerNote
	carry        []wire.Item
	last         string   // see EndsAs
	previous     string   // see Previous
	own          incoming // what in is, where the request was looked at once
	seqRoom      [roomFor]uint64
	answeredRoom [1][]mark
	answerRoom   [2]mark
	runRoom      [2]turnrecord.Run
	before       string // see turnrecord.Record.Before, as it is written
	prefixReason string // see PrefixReason
	shaped       int    // of view.Repaired, what its form changed
	run          uint64 // the round that the turn belongs to, as it was found first; layers have state by it
	execution    string // the same as layers know it, once it was asked for
}

// journaled is a turn's input that was written before its answer.
type journaled struct {
	names  []string // of its values; none if it was not written
	behind uint64   // the item that it was written behind
	end    position
	seqs   []uint64 // of its items
	talks  bool     // its record, which was read, says that it is the conversation's
}

// Enter reads the session of a request, in one round trip or none (see recent), and finds the request's place in it. It reads
// w in the same round trip.
func (log *Log) Enter(ctx context.Context, id string, started time.Time, c Call, w Want) (*Entry, Extra, error) {
	e := &Entry{log: log, id: id, started: started, call: c, want: w}
	if e.goOn() {
		return e, Extra{Values: e.values}, nil
	}
	st, extra, err := log.load(ctx, c.Scope, c.Request, id, w, true)
	if err != nil {
		return nil, Extra{}, err
	}
	in := e.read(&st)
	p, err := e.find(ctx, &st, in, c.History)
	if err != nil {
		return nil, Extra{}, err
	}
	e.settle(st, in, p)
	e.values = extra.Values
	e.see()
	e.opened, e.early = st.head.NextSeq == 0, !st.head.Answered
	e.findPrevious(ctx)
	return e, extra, nil
}

// read looks at the request in the entry's own memory, which holds one look at a time.
func (e *Entry) read(st *state) *incoming {
	if e.own.hashes != nil {
		e.own = incoming{}
	}
	return e.own.read(e.call.Request, st, e.log.hashes)
}

// Detached returns the entry of a call whose session cannot be read: its place is found when it is committed.
func (log *Log) Detached(id string, started time.Time, c Call) *Entry {
	e := &Entry{log: log, id: id, started: started, call: c, degraded: true, partial: true}
	e.settle(state{}, e.read(new(state)), detached(c))
	e.loaded = false
	return e
}

// detached is the plan of a call of which nothing is known but what it says itself.
func detached(c Call) plan {
	if c.Side != "" {
		return plan{relation: relRoot, standing: Side}
	}
	return plan{relation: relRoot, standing: InConversation}
}

// Resumed is the entry of a call that could not be committed at its time, with what was kept of its view and of its notes,
// nil for none. It fails where the notes can't be read.
func (log *Log) Resumed(id string, started time.Time, c Call, v turnrecord.View, n *Notes) (*Entry, error) {
	e := &Entry{log: log, id: id, started: started, call: c, view: v, degraded: true, late: true}
	return e, e.resumeNotes(n)
}

// find is where a request stands in the transcript, in a mode that may be another than the call's (see Mode).
func (e *Entry) find(ctx context.Context, st *state, in *incoming, mode History) (plan, error) {
	p, err := e.log.place(ctx, e.call.Scope, st, in, &e.call, mode)
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

// Input returns the request's items that are new to the transcript.
func (e *Entry) Input() []wire.Item { return e.in.items[e.plan.fresh:] }

// Carry keeps what upstream has not seen of the response that the client knows by its id, since it was made of several:
// a request that goes on from that id is given these items first. More than 1024 are not kept.
func (e *Entry) Carry(items []wire.Item) {
	if len(items) <= maxAmendItems {
		e.carry = items
	}
}

// EndsAs says by which id upstream keeps the end of an answer that was made of several: the client has the id of another.
func (e *Entry) EndsAs(id string) { e.last = id }

// Previous returns the previous_response_id that the request has to be sent with, "" for the client's own. An answer
// of another session is known by its id alone; for one of its own, the request is given what upstream has not seen.
func (e *Entry) Previous() string { return e.previous }

// findPrevious looks for the response before the request where it is none of the session's own. Nothing is lost where the
// store does not tell: the request names what the client has named.
func (e *Entry) findPrevious(ctx context.Context) {
	previous := e.call.Request.Previous()
	if previous == "" || e.state.reply != nil {
		return
	}
	if r, err := e.log.Response(ctx, e.call.Scope.Tenant, previous); err == nil {
		e.previous = r.Last
	}
}

// Visible returns the number of items in the request, without the leading system and developer items.
func (e *Entry) Visible() int { return len(e.in.items) }

// Standing returns how the request relates to the conversation of its session.
func (e *Entry) Standing() Standing { return e.plan.standing }

// ReplacesHead reports whether the turn makes another line the conversation.
func (e *Entry) ReplacesHead() bool {
	h := &e.state.head
	return e.place.standing == InConversation && h.Line != 0 && e.place.line != h.Line
}

// Trimmed reports whether the client has left out the beginning of a history that the transcript has.
func (e *Entry) Trimmed() bool { return !e.place.before && e.place.offset > 0 }

// Beyond reports whether users or models may have said something in the session that is not on the request's line: the
// client has cut its history, or begun it anew. Side requests do not count.
func (e *Entry) Beyond() bool {
	h, p := &e.state.head, &e.place
	if e.Trimmed() || h.Line != p.line && h.Line != 0 {
		return true
	}
	lines := uint64(1)
	for i := range h.Tails {
		t := &h.Tails[i]
		switch {
		case t.Line == h.Line:
		case !t.Side:
			return true
		case !slices.ContainsFunc(h.Tails[:i], func(o tail) bool { return o.Line == t.Line }):
			lines++
		}
	}
	return h.Lines > lines
}

// Placed returns the Standing to resume the entry with, or Undecided if its place was not found in the transcript.
func (e *Entry) Placed() Standing {
	if !e.loaded {
		return e.call.Standing
	}
	return e.plan.standing
}

// First reports whether the session did not exist when it was read.
func (e *Entry) First() bool { return e.opened }

// Forgotten reports whether the session does not exist although the request shows that it had a past: it holds an answer
// of a model, or goes on from one.
func (e *Entry) Forgotten() bool {
	if !e.opened || e.state.version != 0 || e.call.Side != "" {
		return false
	}
	return e.in.modelled(len(e.in.items)) || e.call.Request.Previous() != ""
}

// Gone reports whether the session existed when the turn began, and no longer when it was written.
func (e *Entry) Gone() bool { return e.gone }

// Lead names the leading system and developer items with the instructions; empty for none.
func (e *Entry) Lead() string {
	return e.in.leadText
}

// LastTurn returns the id of the turn that moved the session's head last, empty if none is known.
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

// Mode is the history mode that finds the entry's place again, so that its view stays true. A request that brought its
// history keeps its place in it, and one that did not goes behind all later turns.
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

// SpoolMode is Mode for a record that waits on disk. A turn that began when nothing was answered in its session is placed
// anew: others that began earlier, in other processes, may be written before it.
func (e *Entry) SpoolMode() History {
	if e.loaded && !e.place.before && e.behindOthers() {
		return e.call.History
	}
	return e.Mode()
}

// Commit writes the turn, and with its answer p, against the version that was read. When another turn was faster, or the
// session was never read, it reads the session, and returns a *Reread: Commit is called again then. A nil answer is still
// to come: Commit is called once more with it.
func (e *Entry) Commit(ctx context.Context, a *Answer, p Puts) (Done, error) {
	if !e.loaded {
		return e.reload(ctx, a)
	}
	if err := e.lookAround(ctx, a); err != nil {
		return Done{}, err
	}
	release, err := e.log.room(ctx, e.call.Request)
	if err != nil {
		return Done{}, err
	}
	defer release()
	if a != nil && e.waitsForEarlier() {
		return Done{}, ErrEarlierOpen
	}

	d := e.draft(a)
	own, others := d.write(ctx, p)
	d.release()
	switch {
	case own.Err == nil:
		e.written(d, own.Version, p)
		return Done{own.Version, others}, nil
	case errors.Is(own.Err, cache.ErrConflict):
		e.log.recent.drop(e.call.Scope)
		return e.reload(ctx, a)
	default:
		e.log.recent.drop(e.call.Scope)
		return Done{}, own.Err
	}
}

// Renew lets the session live for as long again from now on, while the answer of a turn is still to come.
func (e *Entry) Renew(ctx context.Context) error {
	if !e.loaded || e.state.version == 0 {
		return nil
	}
	group := e.call.Scope.Group()
	out := e.log.store.Commit(ctx, []cache.Batch{{Group: group, Expect: e.state.version, TTL: e.log.ttl}})[0]
	if out.Err == nil {
		e.state.version = out.Version
		return nil
	}
	if !errors.Is(out.Err, cache.ErrConflict) {
		return fmt.Errorf("renew session: %w", out.Err)
	}
	// Another turn was written meanwhile. Its version is not this turn's: the commit has to find that out. A session that
	// is gone stays so.
	now, err := e.log.store.Read(ctx, []cache.Query{{Group: group}})
	if err != nil || now[0].Version == 0 {
		return err
	}
	out = e.log.store.Commit(ctx, []cache.Batch{{Group: group, Expect: now[0].Version, TTL: e.log.ttl}})[0]
	if out.Err != nil && !errors.Is(out.Err, cache.ErrConflict) {
		return fmt.Errorf("renew session: %w", out.Err)
	}
	return nil
}

// lookAround reads what a turn needs to know that does not simply go behind the head.
func (e *Entry) lookAround(ctx context.Context, a *Answer) error {
	again := a != nil && (!e.atHead || e.state.head.Forked) || e.in.answers() && e.state.head.waits(e.plan.parent, e.in.marks[e.plan.fresh:])
	if again && e.plan.parent.Seq != 0 && e.known == nil {
		// Items that do not go to the end of a line may be stored already: a turn is retried whose answer was stored
		// although the client did not see its end; or results come again that upstream still has.
		if err := e.lookupKnown(ctx, a); err != nil {
			return err
		}
	}
	if !e.atHead && e.ringKept == 0 && e.plan.fresh > 0 {
		return e.findSeqs(ctx)
	}
	return nil
}

// reload reads the transcript again, finds the turn's place in it as it now is, and returns a *Reread. It returns no error
// where the turn is there already: an earlier attempt was written although its reply got lost.
func (e *Entry) reload(ctx context.Context, a *Answer) (Done, error) {
	st, extra, err := e.log.load(ctx, e.call.Scope, e.call.Request, e.id, e.want, false)
	if err != nil {
		return Done{}, err
	}
	if st.turn != nil && (a == nil || !isOpen(st.turn)) {
		return Done{}, nil
	}
	e.gone = e.gone || e.loaded && e.state.version != 0 && st.version == 0
	if st.turn != nil {
		if err := e.takeInput(ctx, st.turn); err != nil {
			return Done{}, err
		}
	}
	in := newIncoming(e.call.Request, &st, e.log.hashes)
	p, err := e.again(ctx, &st, in)
	if err != nil {
		return Done{}, err
	}
	if !e.loaded {
		e.early = !st.head.Answered
	}
	e.settle(st, in, p)
	e.values = extra.Values
	if st.turn != nil {
		e.takeHidden(st.turn)
	}
	if err := e.keepInput(ctx); err != nil {
		return Done{}, err
	}
	if err := e.lookupKnown(ctx, a); err != nil {
		return Done{}, err
	}
	return Done{}, &Reread{extra}
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

// takeInput restores the written input from the turn's open record: another process may have written it, or an attempt
// whose reply was lost.
func (e *Entry) takeInput(ctx context.Context, record []byte) error {
	var r turnrecord.Record
	if len(e.journaled.names) > 0 {
		return nil
	}
	if err := json.Unmarshal(record, &r); err != nil {
		return fmt.Errorf("turn %s: %w", e.id, ErrCorrupt)
	}
	if !r.Open || len(r.Input) == 0 {
		return nil
	}
	seqs := append(slices.Clone(r.Input), r.Hidden...)
	if !slices.Contains(seqs, r.Tip) {
		return nil // it ends with what was there before
	}
	first, last := slices.Min(seqs), slices.Max(seqs)
	if last-first >= maxBatchItems {
		return nil
	}
	items, err := e.log.items(ctx, e.call.Scope, first, last)
	if err != nil {
		return err
	}

	j := journaled{behind: r.Parent, seqs: r.Input, talks: !r.Alone && r.Side == ""}
	for _, seq := range seqs {
		at := items[seq-first]
		if at == nil {
			return nil // it was taken back
		}
		j.names = append(j.names, itemName(seq))
		if at.Flags&flagOffChain == 0 {
			j.names = append(j.names, chainName(at.Pos.Chain))
			if it, err := wire.ParseItem(at.Dialect, at.Raw); err == nil && landmark(it) {
				j.names = append(j.names, textName(at.Content))
			}
		}
		if seq == r.Tip {
			j.end = at.Pos
		}
	}
	e.journaled = j
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

// valuesAfter are the wanted values as they are once p is written.
func (e *Entry) valuesAfter(p Puts) []namedValue {
	if len(e.values) != len(e.want.Names) {
		return nil // they were never read
	}
	values := make([]namedValue, len(e.want.Names))
	for i, name := range e.want.Names {
		values[i] = namedValue{name, e.values[i]}
		for _, v := range p.Values {
			if v.Name == name {
				values[i].data = v.Data
			}
		}
	}
	return values
}

// written takes over what a commit has changed, for the commit that follows it.
func (e *Entry) written(d *draft, version uint64, p Puts) {
	if d.head.LastEmpty == e.id && e.state.head.LastEmpty != e.id {
		e.before = e.state.head.LastEmpty
	}
	e.state.version, e.state.head = version, *d.head
	e.known, e.journaled = nil, journaled{}
	e.noted(d)
	if len(d.stored) > 0 {
		e.journaled = journaled{names: d.stored, behind: e.plan.parent.Seq, end: d.input, seqs: d.added}
	}
	e.plan.parent, e.plan.fresh, e.plan.summary, e.plan.line = d.input, len(e.in.items), 0, d.line
	if !d.open && e.want.known() && len(e.state.amendments) == 0 {
		e.log.recent.put(e.call.Scope, version, d.head, e.valuesAfter(p))
	} else {
		e.log.recent.drop(e.call.Scope)
	}
}
