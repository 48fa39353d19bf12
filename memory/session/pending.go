package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"remora/cache"
	"remora/memory/recordcodec"
	"remora/wire"
)

// Pending is a turn that has begun and is not in the log as a whole. The head names it, so that every process sees it.
type Pending struct {
	Turn  string // its id
	Owner uint64 // the process that serves it
	// Behind: its view has the stored history before it, or would have if there were any.
	Behind bool
	// Ready: it was answered, and waits for an earlier turn. Its record is stored with the session.
	Ready bool
}

const (
	// maxPending is how many turns the head names. Those beyond are not waited for.
	maxPending = 16
	// journalPrefix and a turn's id name the record of a turn that is ready.
	journalPrefix = "j"
	// steadyTurns is after how many turns of one process the next one is taken to come there too.
	steadyTurns = 8
)

// ErrEarlierOpen is returned by [Entry.Commit] for a turn that stands behind the stored history while another process has
// not ended an earlier turn of the session. See [Entry.Park].
var ErrEarlierOpen = errors.New("an earlier turn of the session is open in another process")

// ErrNoRoom is returned by [Entry.Park] where as many turns of the session wait as may.
var ErrNoRoom = errors.New("too many turns of the session wait for an earlier one")

func appendPending(b []byte, h *head) []byte {
	b = append(binary.BigEndian.AppendUint64(b, h.Writer), h.Streak)
	b = binary.AppendUvarint(b, uint64(len(h.Pending)))
	for _, p := range h.Pending {
		b = binary.BigEndian.AppendUint64(recordcodec.AppendString(b, p.Turn), p.Owner)
		b = append(b, recordcodec.Bit(p.Behind), recordcodec.Bit(p.Ready))
	}
	return b
}

func readPending(d *recordcodec.Reader, h *head) {
	h.Writer, h.Streak = d.Uint64(), d.Byte()
	for n := d.Count(maxPending); n > 0; n-- {
		h.Pending = append(h.Pending, Pending{Turn: d.Text(), Owner: d.Uint64(), Behind: d.Byte() == 1, Ready: d.Byte() == 1})
	}
}

// await adds a turn to the head, behind the pending ones or, with sorted, before those that began later. It returns
// false if the head has the maximum.
func (h *head) await(p Pending, sorted bool) bool {
	if i := h.pendingAt(p.Turn); i >= 0 {
		h.Pending[i] = p
		return true
	}
	if len(h.Pending) >= maxPending {
		return false
	}
	at := len(h.Pending)
	for sorted && at > 0 && h.Pending[at-1].Turn > p.Turn {
		at--
	}
	h.Pending = slices.Insert(h.Pending, at, p)
	return true
}

// pendingAt returns the index of a pending turn, or -1.
func (h *head) pendingAt(turn string) int {
	return slices.IndexFunc(h.Pending, func(p Pending) bool { return p.Turn == turn })
}

// ended removes a turn from the pending ones, and reports whether it was ready.
func (h *head) ended(turn string) (ready bool) {
	h.Pending = slices.DeleteFunc(h.Pending, func(p Pending) bool {
		ready = ready || p.Turn == turn && p.Ready
		return p.Turn == turn
	})
	return ready
}

// wrote notes which process wrote the session last, and how often in a row.
func (h *head) wrote(owner uint64) {
	if h.Writer != owner {
		h.Writer, h.Streak = owner, 0
	}
	h.Streak = min(h.Streak+1, steadyTurns)
}

// pend notes in the draft's head that the turn is open, or that it has ended.
func (d *draft) pend() {
	e, h := d.e, d.head
	h.Pending = slices.DeleteFunc(h.Pending, e.hasLapsed)
	switch {
	case !d.open:
		if h.ended(e.id) {
			d.deletes = append(slices.Clip(d.deletes), journalPrefix+e.id)
		}
		if e.log.Owner != 0 {
			h.wrote(e.log.Owner)
		}
	case e.abandoned:
		h.ended(e.id)
	case e.log.Owner != 0 && e.plan.standing == InConversation:
		h.await(Pending{Turn: e.id, Owner: e.log.Owner, Behind: e.behindOthers()}, e.late)
	}
}

// behindOthers reports whether the turn's view has the stored history before it, or would have if there were any.
func (e *Entry) behindOthers() bool {
	switch {
	case e.place.before:
		return true
	case e.call.History == HistoryClient || e.place.standing != InConversation:
		return false
	}
	// The question itself may be there, if it was written before its answer.
	return !e.state.head.Answered && !e.in.stateful && !e.in.brings(len(e.in.items))
}

// OpensAtOnce reports whether the turn should be named in the head as soon as it is sent: the client's next request may
// go to another process, and relies on the store.
func (e *Entry) OpensAtOnce() bool {
	if e.log.Owner == 0 || !e.loaded || !e.behindOthers() {
		return false
	}
	h := &e.state.head
	return h.Writer != e.log.Owner || h.Streak < steadyTurns || len(h.Pending) > 0
}

// Abandoned notes that the process has ended that served the turn: its answer will not come, and no turn waits for it.
func (e *Entry) Abandoned() { e.abandoned = true }

// Lapsed takes processes to have ended: their turns are not waited for.
func (e *Entry) Lapsed(owners ...uint64) {
	for _, o := range owners {
		if !slices.Contains(e.lapsed, o) {
			e.lapsed = append(e.lapsed, o)
		}
	}
}

// hasLapsed reports whether nothing comes of a turn that is open any more.
func (e *Entry) hasLapsed(p Pending) bool { return !p.Ready && slices.Contains(e.lapsed, p.Owner) }

// Earlier returns the turns that belong before this one and are not in the log: open in other processes, or ready.
// There are none if the turn does not use the stored history. They are in the head's order, since the clocks of
// processes differ.
func (e *Entry) Earlier() (list []Pending) {
	h := &e.state.head
	if len(h.Pending) == 0 || !e.behindOthers() {
		return nil
	}
	own := h.pendingAt(e.id)
	for i, p := range h.Pending {
		before := i < own || own < 0 && (slices.Contains(e.seen, p.Turn) || (e.late || e.partial) && p.Turn < e.id)
		if before && (p.Ready || p.Owner != e.log.Owner && !slices.Contains(e.lapsed, p.Owner)) {
			list = append(list, p)
		}
	}
	return list
}

// see notes which turns the head named when the view was made.
func (e *Entry) see() {
	e.seen = nil
	for _, p := range e.state.head.Pending {
		e.seen = append(e.seen, p.Turn)
	}
}

// waitsForEarlier reports whether the turn must not be written yet.
func (e *Entry) waitsForEarlier() bool {
	return e.log.Owner != 0 && !e.goesAhead && (e.waits && e.behindOthers() || len(e.Earlier()) > 0)
}

// Wait makes the turn wait for one that the head does not name: another process has it, and could not store it yet.
func (e *Entry) Wait() { e.waits = true }

// LetsGo reports whether other turns are ready, which may have waited for this one to be written.
func (e *Entry) LetsGo() bool {
	return slices.ContainsFunc(e.state.head.Pending, func(p Pending) bool { return p.Ready && p.Turn != e.id })
}

// GoAhead lets the turn be written although an earlier one is open.
func (e *Entry) GoAhead() { e.goesAhead = true }

// Park stores the record of a turn that was answered and waits for an earlier one. It reports false where the turn can be
// written. Its error is a *Reread where another turn was faster: Park is called again then.
func (e *Entry) Park(ctx context.Context, a *Answer, record []byte) (parked bool, err error) {
	if !e.waitsForEarlier() {
		return false, nil
	}
	h := e.state.head.clone(0)
	h.Pending = slices.DeleteFunc(h.Pending, e.hasLapsed)
	if !h.await(Pending{Turn: e.id, Owner: e.log.Owner, Behind: true, Ready: true}, e.late) {
		return false, ErrNoRoom
	}
	out := e.log.store.Commit(ctx, []cache.Batch{{
		Group: e.call.Scope.Group(), Expect: e.state.version, TTL: e.log.ttl,
		Puts: []cache.Put{{Name: journalPrefix + e.id, Data: record}, {Name: headName, Data: h.encode()}},
	}})[0]
	e.log.recent.drop(e.call.Scope)
	switch {
	case out.Err == nil:
		e.state.version, e.state.head = out.Version, *h
		return true, nil
	case errors.Is(out.Err, cache.ErrConflict):
		_, err := e.reload(ctx, a)
		return err == nil, err
	default:
		return false, out.Err
	}
}

// Said are the request's items that are new to the conversation, whether they are written or not.
func (e *Entry) Said() []wire.Item {
	fresh := e.place.fresh
	if j := &e.journaled; len(j.names) > 0 && e.place.parent.Seq == j.end.Seq { // what it is taken to resend is its own input
		fresh = max(0, min(fresh, len(e.in.items)-len(j.seqs)))
	}
	return e.in.items[fresh:]
}

// RecordMode is how the place of the turn is found again when its record is written: see Mode. Where nothing was answered
// when it began, it goes behind the turn that it has waited for.
func (e *Entry) RecordMode() History {
	if e.loaded && e.behindOthers() && !e.place.before {
		return HistoryServer
	}
	return e.Mode()
}

// Named reports whether other processes see in the head that the turn is open.
func (e *Entry) Named() bool { return e.state.head.pendingAt(e.id) >= 0 }

// Relies reports whether the turn's view uses stored history, which other processes may be about to change.
func (e *Entry) Relies() bool { return e.log.Owner != 0 && e.behindOthers() }

// Unread reports whether the session could not be read when the turn began.
func (e *Entry) Unread() bool { return !e.loaded }

// Misses notes that the view was made without a turn that may have been answered before.
func (e *Entry) Misses() { e.degraded, e.partial = true, true }

// Held reports whether other processes may have held turns of the session when it was read.
func (e *Entry) Held() bool { return e.state.held }

// Ready is a turn that was answered and is not in the log yet.
type Ready struct {
	Turn  string
	Made  Origin
	Items []wire.Item // that are new in its request, and those of its answer
}

// Follow puts turns that are ready behind the stored history of the turn's view, until they are in the log. Where nothing is in
// the log yet they are all of that history.
func (e *Entry) Follow(ready []Ready) {
	if e.in.inRun() {
		return
	}
	if !e.place.before && e.behindOthers() {
		e.place.before, e.plan.before = true, true
	}
	if e.place.before {
		e.ready = ready
	}
}

// withReady returns the stored history followed by the ready turns.
func (e *Entry) withReady(l *storedLine) *storedLine {
	if len(e.ready) == 0 {
		return l
	}
	out := &storedLine{
		want: l.want, skipped: l.skipped, items: slices.Clone(l.items), chain: slices.Clone(l.chain), made: slices.Clone(l.made), turns: slices.Clone(l.turns),
	}
	at := e.begins()
	for _, r := range e.ready {
		for _, it := range r.Items {
			at = at.after(e.in.mark(it))
			out.items, out.chain = append(out.items, it), append(out.chain, at.Chain)
			out.made, out.turns = append(out.made, r.Made), append(out.turns, r.Turn)
		}
	}
	return out
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
