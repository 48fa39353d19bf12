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
	"remora/wire"
)

// Entry is one turn on its way into the transcript: the place of its request, the input of its view, and what to write.
// It is not safe for concurrent use.
type Entry struct {
	Place // where the request stands

	// History is what the view is chosen from, View says how it was.
	History HistoryReader
	View    ViewRecord
	// Notes are what is recorded of the turn besides its items.
	Notes Notes
	// Order keeps the turn behind earlier ones of other processes.
	Order Order

	log     *Log
	stored  transcript // of its session
	id      string
	started time.Time
	want    Want
	values  [][]byte // what the session holds of want.Names

	degraded   bool   // its view was made without the store
	unanswered bool   // nothing in the session had been answered when the view was built
	gone       bool   // the session existed then, and not any more when the turn was written
	previous   string // see Previous

	unwritten unwritten
	ring      ringUpdate
	known     map[wire.Hash]linePosition // items that the turn is about to write and that the transcript has, by chain hash
	parent    uint64                     // sequence number before the first new item
	before    string                     // see turnrecord.Record.Before, as it is written
	journaled journaled
	answer    answerMarks

	own incoming // memory for in, where the request was looked at once
}

// unwritten is what of the request is still to be written.
type unwritten struct {
	parent  position // the items come after it
	fresh   int      // items[fresh:]
	summary int      // and items[:summary], the client's own summary
	line    uint64   // that they are stored on, 0 for a new one
}

// ringUpdate is how the turn changes the head's ring: items[from:] are added behind keep of its present entries.
type ringUpdate struct {
	from, keep int
	seqs       []uint64 // sequence numbers of the request's items, as far as this turn stored them
	room       [roomFor]uint64
}

// journaled is a turn's input that was written before its answer.
type journaled struct {
	names  []string // of its values; none if it was not written
	behind uint64   // the item that it was written behind
	end    position
	seqs   []uint64 // of its items
	talks  bool     // its record, which was read, says that it is the conversation's
}

// answerMarks are the hashes of the answer's items, per choice; nil until they are needed.
type answerMarks struct {
	choices    [][]mark
	choiceRoom [1][]mark
	markRoom   [2]mark
}

// of hashes the items of the answer, once: the answer of a turn does not change.
func (m *answerMarks) of(a *Answer, in *incoming) [][]mark {
	if m.choices != nil {
		return m.choices
	}
	m.choices = inRoom(m.choiceRoom[:], len(a.Reply.Choices))
	for c, items := range a.Reply.Choices {
		var room []mark
		if c == 0 {
			room = m.markRoom[:]
		}
		m.choices[c] = inRoom(room, len(items))
		for i, it := range items {
			m.choices[c][i] = in.mark(it)
		}
	}
	return m.choices
}

func (log *Log) newEntry(id string, started time.Time, c Call) *Entry {
	e := &Entry{log: log, stored: log.transcript(c.Scope), id: id, started: started}
	e.call, e.state = c, noState()
	e.Order = Order{place: &e.Place, turn: id, owner: log.Owner}
	e.History = HistoryReader{stored: e.stored, place: &e.Place, hidden: &e.Notes.hidden, adapter: adapter{place: &e.Place, started: started}}
	e.View.history = &e.History
	return e
}

// Enter reads the session of a request, in one round trip or none (see recent), and finds the request's place in it. It reads
// w in the same round trip.
func (log *Log) Enter(ctx context.Context, id string, started time.Time, c Call, w Want) (*Entry, Extra, error) {
	e := log.newEntry(id, started, c)
	e.want = w
	if e.continueRecent() {
		return e, Extra{Values: e.values}, nil
	}
	var peers peerQueries
	if log.Peers != nil {
		peers.queries, peers.found = log.Peers(c.Scope)
	}
	st, extra, err := e.stored.load(ctx, c.Request, id, w, peers)
	if err != nil {
		return nil, Extra{}, err
	}
	in := e.read(&st)
	p, err := e.find(ctx, &st, in, c.History)
	if err != nil {
		return nil, Extra{}, err
	}
	e.setPlace(st, in, p)
	e.values = extra.Values
	e.Order.look()
	e.first, e.unanswered = st.head.NextSeq == 0, !st.head.Answered
	e.findPrevious(ctx)
	return e, extra, nil
}

// Detached returns the entry of a call whose session cannot be read: its place is found when it is committed.
func (log *Log) Detached(id string, started time.Time, c Call) *Entry {
	e := log.newEntry(id, started, c)
	e.degraded, e.Order.partial = true, true
	st := noState()
	e.setPlace(st, e.read(&st), detached(c))
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

// Resumed is the entry of a call that could not be committed at its time, with what was saved of its view and of its notes,
// nil for none. It fails where the notes can't be read.
func (log *Log) Resumed(id string, started time.Time, c Call, v turnrecord.View, n *SavedNotes) (*Entry, error) {
	e := log.newEntry(id, started, c)
	e.degraded, e.Order.resumed, e.View.view = true, true, v
	return e, e.Notes.restore(n, c.Request.Dialect)
}

// continueRecent finds the place of a request that goes on from the turn that this process wrote last. It gives up (false)
// where the session has to be read.
func (e *Entry) continueRecent() bool {
	if e.log.Strict || !e.want.known() || e.call.Side != "" || e.call.History == HistoryServer {
		return false
	}
	st, values, ok := e.log.recent.find(e.stored.group, e.want.Names)
	if !ok || st.head.Forked {
		return false
	}
	in := e.read(&st)
	if in.stateful {
		return false // upstream knows where it goes on
	}
	m := merger{head: st.head, in: in}
	p, ok := m.ends()
	if !ok || p.relation != relContinue || p.parent != st.head.Pos {
		return false
	}
	for i := p.fresh; i < len(in.items); i++ {
		if !landmark(in.items[i]) {
			return false // an answer that was given elsewhere
		}
	}
	if p.rule, p.standing = ruleKnown, InConversation; in.resends() {
		p.shown = resends
	}
	e.setPlace(st, in, p)
	e.values = values
	return true
}

// read looks at the request in the entry's own memory, which holds one look at a time.
func (e *Entry) read(st *state) *incoming {
	if e.own.hashes != nil {
		e.own = incoming{}
	}
	return e.own.read(e.call.Request, st, e.log.hashes)
}

// find is where a request stands in the transcript, in a mode that may be another than the call's (see Mode).
func (e *Entry) find(ctx context.Context, st *state, in *incoming, mode History) (plan, error) {
	q := newPlacement(&e.log.offers, e.stored, st, in, &e.call, mode)
	p, err := q.find(ctx)
	if err != nil || p.relation != relDelta || e.call.History != HistoryAuto || !in.answersAgain(st.head) && !e.call.Retry {
		return p, err
	}
	repeated, err := q.merge.repetition(ctx)
	if err != nil || repeated.relation == "" {
		return p, err
	}
	if !in.answers() {
		repeated.rule = ruleRetried
	}
	return repeated, nil
}

// setPlace takes over where the turn stands in the transcript.
func (e *Entry) setPlace(st state, in *incoming, p plan) {
	e.state, e.in, e.plan, e.loaded, e.History.before = st, in, p, true, nil
	e.atHead = p.parent.Seq == st.head.Pos.Seq && p.parent.Chain == st.head.Pos.Chain
	e.parent = p.parent.Seq
	e.unwritten = unwritten{parent: p.parent, fresh: p.fresh, summary: p.summary, line: p.line}
	if p.upto.Seq != 0 {
		e.unwritten.parent, e.unwritten.fresh = p.upto, len(in.items)
	}

	e.ring.seqs = inRoom(e.ring.room[:], len(in.items))
	e.ring.from, e.ring.keep = 0, 0
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

// Previous returns the previous_response_id that the request has to be sent with, "" for the client's own. An answer
// of another session is known by its id alone; for one of its own, the request is given what upstream has not seen.
func (e *Entry) Previous() string { return e.previous }

// Gone reports whether the session existed when the turn began, and no longer when it was written.
func (e *Entry) Gone() bool { return e.gone }

// Commit writes the turn, and with its answer p, against the version that was read. When another turn was faster, or the
// session was never read, it reads the session, and returns a *Reread: Commit is called again then. A nil answer is still
// to come: Commit is called once more with it.
func (e *Entry) Commit(ctx context.Context, a *Answer, p Puts) (Done, error) {
	if !e.loaded {
		return e.reload(ctx, a)
	}
	if err := e.lookUpStored(ctx, a); err != nil {
		return Done{}, err
	}
	release, err := e.log.room(ctx, e.call.Request)
	if err != nil {
		return Done{}, err
	}
	defer release()
	if a != nil && e.Order.mustWait() {
		return Done{}, ErrEarlierOpen
	}

	d := newDraft(e, a)
	own, others := d.write(ctx, p)
	d.release()
	switch {
	case own.Err == nil:
		e.written(d, own.Version, p)
		return Done{own.Version, others}, nil
	case errors.Is(own.Err, cache.ErrConflict):
		e.log.recent.drop(e.stored.group)
		return e.reload(ctx, a)
	default:
		e.log.recent.drop(e.stored.group)
		return Done{}, own.Err
	}
}

// Renew lets the session live for as long again from now on, while the answer of a turn is still to come.
func (e *Entry) Renew(ctx context.Context) error {
	if !e.loaded || e.state.version == 0 {
		return nil
	}
	out := e.log.store.Commit(ctx, []cache.Batch{{Group: e.stored.group, Expect: e.state.version, TTL: e.log.ttl}})[0]
	if out.Err == nil {
		e.state.version = out.Version
		return nil
	}
	if !errors.Is(out.Err, cache.ErrConflict) {
		return fmt.Errorf("renew session: %w", out.Err)
	}
	// Another turn was written meanwhile. Its version is not this turn's: the commit has to find that out. A session that
	// is gone stays so.
	now, err := e.log.store.Read(ctx, []cache.Query{{Group: e.stored.group}})
	if err != nil || now[0].Version == 0 {
		return err
	}
	out = e.log.store.Commit(ctx, []cache.Batch{{Group: e.stored.group, Expect: now[0].Version, TTL: e.log.ttl}})[0]
	if out.Err != nil && !errors.Is(out.Err, cache.ErrConflict) {
		return fmt.Errorf("renew session: %w", out.Err)
	}
	return nil
}

// Park stores the record of a turn that was answered and waits for an earlier one. It reports false where the turn can be
// written. Its error is a *Reread where another turn was faster: Park is called again then.
func (e *Entry) Park(ctx context.Context, a *Answer, record []byte) (parked bool, err error) {
	if !e.Order.mustWait() {
		return false, nil
	}
	h := e.state.head.clone(0)
	if !e.Order.park(h) {
		return false, ErrNoRoom
	}
	out := e.log.store.Commit(ctx, []cache.Batch{{
		Group: e.stored.group, Expect: e.state.version, TTL: e.log.ttl,
		Puts: []cache.Put{{Name: journalPrefix + e.id, Data: record}, {Name: headName, Data: h.encode()}},
	}})[0]
	e.log.recent.drop(e.stored.group)
	switch {
	case out.Err == nil:
		e.state.version, e.state.head = out.Version, h
		return true, nil
	case errors.Is(out.Err, cache.ErrConflict):
		_, err := e.reload(ctx, a)
		return err == nil, err
	default:
		return false, out.Err
	}
}

// NewItems are the request's items that are new to the conversation, whether they are written or not.
func (e *Entry) NewItems() []wire.Item {
	fresh := e.plan.fresh
	if j := &e.journaled; len(j.names) > 0 && e.plan.parent.Seq == j.end.Seq { // what it is taken to resend is its own input
		fresh = max(0, min(fresh, len(e.in.items)-len(j.seqs)))
	}
	return e.in.items[fresh:]
}

// lookUpStored reads what a turn needs to know that does not simply go behind the head.
func (e *Entry) lookUpStored(ctx context.Context, a *Answer) error {
	stored := a != nil && (!e.atHead || e.state.head.Forked) || e.in.answers() && e.state.head.Tails.endsWith(e.unwritten.parent, e.in.marks[e.unwritten.fresh:])
	if stored && e.unwritten.parent.Seq != 0 && e.known == nil {
		// Items that do not go to the end of a line may be stored already: a turn is retried whose answer was stored
		// although the client did not see its end; or results come again that upstream still has.
		return e.lookupKnown(ctx, a)
	}
	return nil
}

// reload reads the transcript again, finds the turn's place in it as it now is, and returns a *Reread. It returns no error
// where the turn is there already: an earlier attempt was written although its reply got lost.
func (e *Entry) reload(ctx context.Context, a *Answer) (Done, error) {
	st, extra, err := e.stored.load(ctx, e.call.Request, e.id, e.want, peerQueries{})
	if err != nil {
		return Done{}, err
	}
	if st.turn != nil && (a == nil || !isOpen(st.turn)) {
		return Done{}, nil
	}
	e.gone = e.gone || e.loaded && e.state.version != 0 && st.version == 0
	if st.turn != nil {
		if err := e.restoreInput(ctx, st.turn); err != nil {
			return Done{}, err
		}
	}
	in := newIncoming(e.call.Request, &st, e.log.hashes)
	p, err := e.findAgain(ctx, &st, in)
	if err != nil {
		return Done{}, err
	}
	if !e.loaded {
		e.unanswered = !st.head.Answered
	}
	e.setPlace(st, in, p)
	e.values = extra.Values
	if st.turn != nil {
		e.restoreHidden(st.turn)
	}
	if err := e.keepInput(ctx); err != nil {
		return Done{}, err
	}
	if err := e.lookupKnown(ctx, a); err != nil {
		return Done{}, err
	}
	return Done{}, &Reread{extra}
}

// findAgain is the place of a request that was placed before, in the transcript as it is now. What its view was made of stays
// true, and so does how it stands to the conversation.
func (e *Entry) findAgain(ctx context.Context, st *state, in *incoming) (plan, error) {
	was := e.plan
	was.line = e.unwritten.line
	p, err := e.find(ctx, st, in, e.Mode())
	if err != nil {
		return plan{}, err
	}
	own := len(e.journaled.names) > 0 && p.parent.Seq == e.journaled.end.Seq
	if !e.loaded {
		if own && e.journaled.behind == 0 {
			p = newPlacement(&e.log.offers, e.stored, st, in, &e.call, HistoryAuto).followFirst(p) // its input was written when nothing was answered
		}
		if own && e.journaled.talks && !p.before {
			p.standing = InConversation // of several questions that nothing was answered to
		}
		if found := e.call.Standing; found != Undecided && !p.before {
			p.standing = found
		}
		return p, nil
	}
	if was.before && was.line != st.head.Line && !e.in.inRun() {
		if i := slices.IndexFunc(st.head.Tails, func(t tail) bool { return t.Line == was.line }); i >= 0 {
			t := st.head.Tails[i]
			p.parent, p.line, p.systemPrompt, p.offset = t.Pos, t.Line, t.SystemPrompt, unitsBetween(position{}, t.Pos)
		}
	}

	if (own || p.relation == relRoot) && e.unanswered && was.standing == InConversation {
		p = newPlacement(&e.log.offers, e.stored, st, in, &e.call, HistoryAuto).followFirst(p)
	}

	if !p.before {
		p.standing, p.helper = was.standing, was.helper
		if was.standing != InConversation && p.line == st.head.Line {
			p.line = was.line
		}
	}
	if p.rule = was.rule; p.before && !was.before {
		p.rule = ruleBehind
	}
	p.shown = was.shown
	return p, nil
}

// keepInput decides whether an input that is written already stays where it is.
func (e *Entry) keepInput(ctx context.Context) error {
	j := e.journaled
	if len(j.names) == 0 || !e.plan.before {
		return nil
	}
	if e.plan.parent.Seq == j.behind {
		// The head is where it was when the input was written behind it, or goes on from there with the same input.
		e.unwritten.parent, e.unwritten.fresh = j.end, len(e.in.items)
		return nil
	}
	for at, err := range e.stored.back(ctx, e.state.head.Pos.Seq) {
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

// restoreInput restores the written input from the turn's open record: another process may have written it, or an attempt
// whose reply was lost.
func (e *Entry) restoreInput(ctx context.Context, record []byte) error {
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
	items, err := e.stored.items(ctx, first, last)
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

// restoreHidden restores from the turn's open record which hidden items are in the log already, and the turn that it names as
// the one before.
func (e *Entry) restoreHidden(record []byte) {
	var r turnrecord.Record
	if json.Unmarshal(record, &r) == nil {
		e.before = r.Before
		e.Notes.hidden.restore(r.Hidden, len(e.in.items))
	}
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
	at := walk(e.unwritten.parent, e.in.marks[e.unwritten.fresh:])
	if a != nil {
		for _, marks := range e.answer.of(a, e.in) {
			walk(at, marks)
		}
	}
	places, err := e.stored.lookup(ctx, ends)
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

// written takes over what a commit has changed, for the commit that follows it.
func (e *Entry) written(d *draft, version uint64, p Puts) {
	if d.head.LastEmpty == e.id && e.state.head.LastEmpty != e.id {
		e.before = e.state.head.LastEmpty
	}
	e.state.version, e.state.head = version, d.head
	e.known, e.journaled = nil, journaled{}
	d.hidden.done()
	if d.hidden.amends {
		e.state.amendments = d.hidden.all
	}
	if len(d.stored) > 0 {
		e.journaled = journaled{names: d.stored, behind: e.unwritten.parent.Seq, end: d.input, seqs: d.added}
	}
	e.unwritten.parent, e.unwritten.fresh, e.unwritten.summary, e.unwritten.line = d.input, len(e.in.items), 0, d.line
	if !d.open && e.want.known() && len(e.state.amendments) == 0 {
		e.log.recent.put(e.stored.group, written{version, d.head, e.want.Names, e.want.after(e.values, p)})
	} else {
		e.log.recent.drop(e.stored.group)
	}
}
