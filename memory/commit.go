package memory

import (
	"context"
	"errors"
	"time"

	"remora/cache"
	"remora/wire"
)

// Forwarded tells that upstream is at work: from now on the input is made durable on its own, should the answer take
// longer than store.open_delay.
func (t *Turn) Forwarded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.m.work.Add(1)
	t.timer = time.AfterFunc(t.m.o.OpenDelay, func() { //nolint:forbidigo // wakes; no clock is read
		defer t.m.work.Done()
		t.journal()
	})
}

// journal writes the turn's input, and that its answer is open.
func (t *Turn) journal() {
	ctx, cancel := context.WithTimeout(context.Background(), t.m.o.CommitWait)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return // committed meanwhile
	}
	t.write(ctx, nil)
}

// Commit makes the turn durable, in the store or, while that is down, in the spool. It returns when the turn is
// durable, and waits for the store for at most store.commit_wait.
func (t *Turn) Commit(a Answer) {
	// The deadline counts from here: the input may be under way at this moment, with an earlier deadline of its own.
	ctx, cancel := context.WithTimeout(context.Background(), t.m.o.CommitWait)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		if t.timer.Stop() {
			t.m.work.Done()
		}
		t.timer = nil
	}
	t.write(ctx, &a)
}

// write puts what is known of the turn into the store, or else into the spool. A nil answer is still to come.
func (t *Turn) write(ctx context.Context, a *Answer) {
	s := t.call.Scope
	err := errLeftAlone
	if !t.m.spool.holds(s) {
		err = t.m.available()
	}
	if err == nil {
		if err = t.store(ctx, a); err == nil {
			t.m.answered()
			return
		}
		t.m.failed(err)
	}
	if err := t.m.spool.add(t, a); err != nil {
		t.m.o.Log.Error("turn lost: neither the store nor the spool took it", "turn", t.ID, "error", err.Error())
	}
}

// store commits against the version that was read, and starts again from the transcript as it then is when another
// turn was faster. The lock only spares turns of this process such rounds.
func (t *Turn) store(ctx context.Context, a *Answer) error {
	unlock, err := t.m.lock(ctx, t.call.Scope)
	if err != nil {
		return err
	}
	defer unlock()
	if !t.loaded {
		if done, err := t.reload(ctx, a); done || err != nil {
			return err
		}
	}
	if err := t.lookAround(ctx, a); err != nil {
		return err
	}
	for {
		d := t.draft(a)
		out := t.m.store.Commit(ctx, d.batches())
		if out[0].Err == nil {
			t.written(d, out[0].Version)
			return nil
		}
		if !errors.Is(out[0].Err, cache.ErrConflict) {
			return out[0].Err
		}
		if done, err := t.reload(ctx, a); done || err != nil {
			return err
		}
	}
}

// lookAround reads what a turn needs to know that does not simply go behind the head.
func (t *Turn) lookAround(ctx context.Context, a *Answer) error {
	if (!t.atHead || t.state.head.Forked) && t.plan.parent.Seq != 0 && a != nil && t.known == nil {
		// What goes anywhere but behind the end of a line may be there already: a turn whose answer was stored,
		// although the client did not see its end, comes again.
		if err := t.lookupKnown(ctx, a); err != nil {
			return err
		}
	}
	if !t.atHead && t.ringKept == 0 && t.plan.fresh > 0 {
		return t.findSeqs(ctx)
	}
	return nil
}

// reload reads the transcript again and finds the turn's place in it as it now is. done tells that the turn is
// there already: an earlier attempt was written although its reply got lost.
func (t *Turn) reload(ctx context.Context, a *Answer) (done bool, err error) {
	st, err := t.m.load(ctx, t.call.Scope, t.call.Request, t.ID)
	if err != nil {
		return false, err
	}
	if st.turn != nil && (a == nil || !isOpen(st.turn)) {
		return true, nil
	}
	in, mode := newIncoming(t.call.Request, st.refs, t.m.hashes), t.call.History
	if t.loaded {
		// What the view was built on stays true: a request that brought its history keeps its place in it, and one
		// that did not goes behind whatever was said meanwhile.
		mode = t.settledMode()
	}
	p, err := t.m.place(ctx, t.call.Scope, &st, in, mode)
	if err != nil {
		return false, err
	}
	own := p.relation == relRoot || len(t.journaled.names) > 0 && p.parent.Seq == t.journaled.end.Seq
	if own && t.opened && t.call.History == HistoryAuto && st.head.onlyNew(in) {
		p = st.head.delta() // another client opened the session at the same time: this one follows it
	}
	p.side = p.side || t.call.Side != ""
	if t.loaded {
		p.side = p.side || t.plan.side
	}
	t.settle(st, in, p)
	if j := t.journaled; len(j.names) > 0 && p.relation == relDelta && p.parent.Seq == j.behind {
		// The head is where it was when the input was written behind it: that stays.
		t.plan.parent, t.plan.fresh = j.end, len(in.items)
	}
	return false, t.lookupKnown(ctx, a)
}

// settledMode is the mode in which a turn whose view was built finds its place again.
func (t *Turn) settledMode() History {
	switch {
	case t.plan.before || t.call.History == HistoryServer:
		return HistoryServer
	default:
		return HistoryClient
	}
}

// findSeqs looks up where the items of a resent history stand, for the ring of a head that moves to another branch.
func (t *Turn) findSeqs(ctx context.Context) error {
	first := max(0, t.plan.fresh-ringSize)
	places, err := t.m.lookup(ctx, t.call.Scope, t.in.ends[first:t.plan.fresh])
	if err != nil {
		return err
	}
	for i, p := range places {
		if p != nil && t.seqs[first+i] == 0 {
			t.seqs[first+i] = p.Pos.Seq
		}
	}
	return nil
}

// lookupKnown asks which of the items that the turn is about to write are in the transcript already, as they are
// after a repeated request.
func (t *Turn) lookupKnown(ctx context.Context, a *Answer) error {
	var ends []position
	walk := func(at position, marks []mark) position {
		for _, m := range marks {
			if at = at.after(m); m.onChain {
				ends = append(ends, at)
			}
		}
		return at
	}
	at := walk(t.plan.parent, t.in.marks[t.plan.fresh:])
	if a != nil {
		for _, marks := range t.answerMarks(a) {
			walk(at, marks)
		}
	}
	places, err := t.m.lookup(ctx, t.call.Scope, ends)
	if err != nil {
		return err
	}
	t.known = make(map[wire.Hash]place, len(ends))
	for i, p := range places {
		if p != nil {
			t.known[ends[i].Chain] = *p
		}
	}
	return nil
}

// answerMarks hashes the items of the answer, once: the answer of a turn does not change.
func (t *Turn) answerMarks(a *Answer) [][]mark {
	if t.answered == nil {
		t.answered = make([][]mark, len(a.Reply.Choices))
		for c, items := range a.Reply.Choices {
			t.answered[c] = make([]mark, len(items))
			for i, it := range items {
				t.answered[c][i] = t.in.mark(it)
			}
		}
	}
	return t.answered
}

// written takes over what a commit has changed, for the commit that follows it.
func (t *Turn) written(d *draft, version uint64) {
	t.state.version, t.state.head = version, d.head
	t.known, t.journaled = nil, journaled{}
	if len(d.stored) > 0 {
		t.journaled = journaled{names: d.stored, behind: t.plan.parent.Seq, end: d.input, seqs: d.added}
	}
	t.plan.parent, t.plan.fresh, t.plan.aside = d.input, len(t.in.items), 0
}
