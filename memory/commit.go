package memory

import (
	"context"
	"sync"
	"time"
)

// Forwarded tells that upstream is at work: from now on the input is made durable on its own, should the answer take
// longer than store.open_delay.
func (t *Turn) Forwarded() {
	if t.unkept {
		return
	}
	t.open.Store(true)
	t.m.openings.add(t)
}

// openTicks is how many ticks a turn waits for its answer before its input is written.
const openTicks = 4

// openings are turns whose answers are still to come. One timer serves all of them: most are over long before
// store.open_delay is, and a timer for each of a thousand turns a second wakes an idle process a thousand times. It
// ticks while there are any, so that a turn waits for the delay, or for up to one tick less.
type openings struct {
	tick time.Duration
	work *sync.WaitGroup // what is written

	mu    sync.Mutex
	slots [openTicks][]*Turn
	now   int // the slot that is due at the next tick
	timer *time.Timer
}

func (o *openings) add(t *Turn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := (o.now + openTicks - 1) % openTicks
	o.slots[last] = append(o.slots[last], t)
	if o.timer == nil {
		o.timer = time.AfterFunc(o.tick, o.elapsed) //nolint:forbidigo // wakes; no clock is read
	}
}

// elapsed writes the inputs that have waited for long enough.
func (o *openings) elapsed() {
	for _, t := range o.due() {
		if t.open.Load() {
			o.work.Go(t.journal)
		}
	}
}

// due takes the turns of this tick, and sets the timer for the next one if there are others.
func (o *openings) due() []*Turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	due := o.slots[o.now]
	o.slots[o.now] = nil
	o.now = (o.now + 1) % openTicks
	o.timer = nil
	for _, slot := range o.slots {
		if len(slot) > 0 {
			o.timer = time.AfterFunc(o.tick, o.elapsed) //nolint:forbidigo // wakes; no clock is read
			break
		}
	}
	return due
}

// stop is for the end of the process: no turn waits any more.
func (o *openings) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
	}
}

// journal writes the turn's input, and that its answer is open.
func (t *Turn) journal() {
	ctx := within(t.base, t.m.o.CommitWait)
	defer ctx.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open.Load() {
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
	ctx := within(t.base, t.m.o.CommitWait)
	defer ctx.end()
	after := t.conclude(ctx, &a)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open.Store(false)
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
// left. It gives up after settleLimit, or when this process ends: then layers are told anew of what fell out of views. What
// the session itself keeps is written with the turn: see replayed.
func (t *Turn) afterOutage(after func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		st := t.layers.states
		if st != nil {
			err := t.m.spool.outlast(ctx, t.call.Scope)
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
// the store is back.
func (s *spooler) settle(ctx context.Context, scope Scope) error {
	return s.await(ctx, scope, func() error {
		if err := s.m.available(); err != nil {
			return err
		}
		s.kick()
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

// heard notes, and returns, what the spool's worker got when it asked for the store. From a failure until the worker has
// seen the store again, calls leave it to the worker to ask: each that asked would wait for as long as it may.
func (m *Memory) heard(err error) error {
	if err == nil {
		m.recovered()
		return nil
	}
	m.mu.Lock()
	known := !m.down.IsZero()
	if known {
		m.down = m.o.Now().Add(2 * m.o.RetryDelay) // the worker asks more often
	}
	m.mu.Unlock()
	if !known {
		m.failed(err)
	}
	return err
}

// recovered notes that the store answers again.
func (m *Memory) recovered() {
	m.mu.Lock()
	away := m.away
	m.down, m.slow, m.away = time.Time{}, 0, false
	m.mu.Unlock()
	if away {
		m.back()
	}
}

// answered notes that the store has taken a turn.
func (m *Memory) answered() {
	m.mu.Lock()
	away := m.away && !m.o.Now().Before(m.down) // else the store was asked before it failed
	m.slow, m.away = 0, m.away && !away
	m.mu.Unlock()
	if away {
		m.back()
	}
}

// back ends what leaveAlone said, and tells how many turns were spooled meanwhile and are written now.
func (m *Memory) back() {
	spooled := 0
	if m.spool.disk != nil {
		spooled, _ = m.spool.disk.Len()
	}
	m.o.Log.Info("store answers again", "spooled", spooled)
}
