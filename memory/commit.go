package memory

import (
	"context"
	"time"
)

// Forwarded tells that upstream is at work: from now on the input is made durable on its own, should the answer take
// longer than store.open_delay.
func (t *Turn) Forwarded() {
	if t.unkept {
		return
	}
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
	ctx, cancel := context.WithTimeout(t.base, t.m.o.CommitWait)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return // committed meanwhile
	}
	t.write(ctx, nil)
}

// Commit makes the turn durable, in the store or, while that is down, in the spool. It returns when the turn is
// durable, and waits for the store for at most store.commit_wait. Layers that are slow to store do so afterwards.
func (t *Turn) Commit(a Answer) {
	if t.unkept {
		return
	}
	// The deadline counts from here: the input may be under way at this moment, with an earlier deadline of its own.
	ctx, cancel := context.WithTimeout(t.base, t.m.o.CommitWait)
	defer cancel()
	after := t.conclude(ctx, &a)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		if t.timer.Stop() {
			t.m.work.Done()
		}
		t.timer = nil
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
// left. It gives up after settleLimit, or when this process ends.
func (t *Turn) afterOutage(after func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		st := t.layers.states
		if st != nil {
			err := t.m.spool.outlast(ctx, t.call.Scope)
			if err == nil {
				err = st.reread(ctx)
			}
			if err != nil {
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
	for {
		s.mu.Lock()
		waits, drained := s.waits(scope), s.drained
		s.mu.Unlock()
		if !waits {
			return nil
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write puts what is known of the turn into the store (true), or else into the spool. A nil answer is still to come.
func (t *Turn) write(ctx context.Context, a *Answer) bool {
	s := t.call.Scope
	err := errLeftAlone
	if !t.m.spool.holds(s) {
		err = t.m.available()
	}
	if err == nil {
		if err = t.store(ctx, a); err == nil {
			t.m.answered()
			return true
		}
		t.m.failed(err)
	}
	if err := t.m.spool.add(t, a); err != nil {
		if t.m.o.Lost != nil {
			t.m.o.Lost(1)
		}
		t.m.o.Log.Error("turn lost: neither the store nor the spool took it", "turn", t.ID, "error", err.Error())
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
	return t.entry.Commit(ctx, a)
}
