package memory

import (
	"context"
	"errors"
	"time"

	"remora/memory/session"
)

// Commit makes the turn durable, in the store or, while that is down, in the spool. It returns when the turn is
// durable, and waits for the store for at most store.commit_wait. Layers that are slow to store do so afterwards.
func (t *Turn) Commit(a Answer) {
	if t.unkept {
		return
	}
	if a.Later = t.call.Request.InBackground() && !a.Reply.Complete && a.Reply.ID != "" && a.HTTPStatus < 300; a.Later {
		a.Reply.Choices = nil // all of it comes with the end
	}
	// The deadline counts from here: the input may be under way at this moment, with an earlier deadline of its own.
	ctx, cancel := context.WithTimeout(t.base, t.m.o.CommitWait)
	defer cancel()
	after := t.conclude(ctx, &a)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.m.processes.settled(t.call.Scope.Group(), t.ID)
	t.open.Store(false)
	for _, timer := range []*time.Timer{t.opening, t.renewal} {
		if timer != nil {
			timer.Stop()
		}
	}
	if !t.write(ctx, &a) {
		if t.layers != nil && (after != nil || t.layers.states != nil && !t.layers.run.Empty()) {
			t.background(t.afterOutage(after))
		}
		return
	}
	if t.layers != nil && t.layers.states.conflicted() && !t.flush(ctx, t.layers.states) {
		after = t.flushFirst(after)
	}
	if after != nil {
		t.background(after)
	}
	t.embedSoon()
	t.m.sweepSoon(t)
}

// flushFirst tries once more to write states that others changed at the same time, without a client that waits.
func (t *Turn) flushFirst(after func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		t.flush(ctx, t.layers.states)
		if after != nil {
			after(ctx)
		}
	}
}

// afterOutage writes the states of a turn that went to the spool, once that has been replayed, and then does what else is
// left. It gives up after settleLimit, or when this process ends: then layers are told anew of what fell out of views. What
// the session itself keeps is written with the turn: see replayed.
func (t *Turn) afterOutage(after func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		st := t.layers.states
		if st != nil {
			err := t.m.spool.outlast(ctx, t.call.Scope)
			if deleted, _ := t.m.buried(ctx, t.call.Scope, t.ID); deleted && err == nil {
				return
			}
			if err == nil {
				err = st.reread(ctx)
			}
			if err != nil {
				t.m.spool.tell(t.ID, nil)
				t.m.o.Log.Error("what layers learned in a turn is lost: the store was down", "turn", t.ID, "error", err.Error())
				return
			}
			t.flush(ctx, st)
		}
		if after != nil {
			after(ctx)
		}
	}
}

// outlast waits until no turn of the session is in the spool any more, however long the store is down.
func (s *spooler) outlast(ctx context.Context, scope Scope) error {
	return s.await(ctx, scope, func() error { return nil })
}

// settle waits until no turn of the session is in the spool any more, so that a client reads its writes as soon as
// the store is back. It wakes the worker once: a record that the store does not take is not tried without a pause.
func (s *spooler) settle(ctx context.Context, scope Scope) error {
	woken := false
	return s.await(ctx, scope, func() error {
		if err := s.m.available(scope); err != nil {
			return err
		}
		if !woken {
			s.kick()
		}
		woken = true
		return nil
	})
}

// await waits until no turn of the session is in the spool any more. An error of ready, which is called before each wait,
// ends it.
func (s *spooler) await(ctx context.Context, scope Scope, ready func() error) error {
	for {
		s.mu.Lock()
		waits, drained := s.holds(scope), s.drained
		s.mu.Unlock()
		if !waits {
			return nil
		}
		if err := ready(); err != nil {
			return err
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return errLeftAlone
		}
	}
}

// write stores the turn's current state (true), or else spools it. A nil answer is still pending.
func (t *Turn) write(ctx context.Context, a *Answer) bool {
	s := t.call.Scope
	err := errLeftAlone
	if !t.m.spool.holds(s) {
		err = t.m.available(s)
	}
	if err == nil {
		if err = t.store(ctx, a); err == nil {
			t.m.answered(s)
			return !t.parked
		}
		if !errors.Is(err, session.ErrNoRoom) {
			t.m.failed(err)
		}
	}
	if err := t.m.spool.add(t, a); err != nil {
		if t.m.o.Lost != nil {
			t.m.o.Lost(1)
		}
		t.m.o.Log.Error("turn lost: neither the store nor the spool took it", "turn", t.ID, "error", err.Error())
		return false
	}
	if a != nil && !t.entry.Named() {
		// The client is about to see the end, and may send its next request to another process.
		told, cancel := context.WithTimeout(t.base, t.m.o.CommitWait) // the commit's own time is over
		defer cancel()
		t.m.processes.tell(told) //nolint:contextcheck // see told
	}
	return false
}

// store commits the turn to the transcript. The lock spares turns of this process conflicts with each other.
func (t *Turn) store(ctx context.Context, a *Answer) error {
	held, err := t.m.lock(ctx, t.call.Scope)
	if err != nil {
		return err
	}
	defer func() { <-held }()
	before := t.entry.Gone()
	if a != nil && (t.late || t.misses || t.entry.Unread()) && t.m.processes.holdEarlier(ctx, t) {
		t.entry.Wait()
	}
	err = t.commit(ctx, a)
	if errors.Is(err, session.ErrEarlierOpen) && t.m.processes.lapse(ctx, t.entry) {
		err = t.commit(ctx, a)
	}
	if errors.Is(err, session.ErrEarlierOpen) {
		err = t.park(ctx, a)
	}
	if err == nil && a != nil && t.entry.LetsGo() {
		t.m.processes.release(t.call.Scope)
	}
	if t.entry.Gone() && !before {
		t.m.forgotten.tell(t.m, t.call.Scope)
	}
	return err
}

// commit writes the turn, with the states of layers and what the session keeps for its next views, until no other turn is
// faster.
func (t *Turn) commit(ctx context.Context, a *Answer) error {
	for {
		var p session.Puts
		switch {
		case a == nil:
		case t.states != nil:
			p = t.states.puts(ctx)
		case t.kept != nil:
			p.Values = t.keptPuts()
		}
		done, err := t.entry.Commit(ctx, a, p)
		if t.reread(err) {
			continue
		}
		if err == nil && a != nil && t.states != nil && done.Version != 0 {
			t.states.wrote(ctx, done)
		}
		return err
	}
}

// reread reports whether a try failed since the session has changed, and takes over what it holds now.
func (t *Turn) reread(err error) bool {
	var changed *session.Reread
	if !errors.As(err, &changed) {
		return false
	}
	if t.states != nil {
		t.states.load(changed.Extra)
	}
	return true
}
