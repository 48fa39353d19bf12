package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"remora/cache"
	"remora/memory/session"
	"remora/wire"
	"remora/wire/dialects"
)

// turnWriter writes a turn into the log of its session: its input while the answer is pending, and the whole turn after the
// answer. If the store fails, the turn goes to the spool.
type turnWriter struct {
	*turnInfo

	mu    sync.Mutex // guards entry once the request is forwarded
	entry *session.Entry
	open  atomic.Bool // forwarded, and not committed yet; it becomes false under mu

	states      *states           // what is read and written with the session; nil if nothing was read
	values      map[string][]byte // session values of a turn that is resumed from its record
	backlog     bool              // its session was not read since earlier turns of it waited in the spool
	sessionLock <-chan struct{}   // nil while the session is not locked by this
	deleted     bool              // its session was deleted since it began: nothing of it is kept

	delayed    delayedPlace // guarded by the delayedWrites
	renewTimer *time.Timer  // of a session that expires, nil for none
}

// announceWaits is how long the end of an answer waits until the other processes know of its turn, as a multiple of
// store.commit_wait: if the next request reaches one of them before, its view lacks the turn and does not say so. A store that
// answers now and then only after commit_wait takes the announcement within this time.
const announceWaits = 4

// resumeTurn returns the writer of a turn, and its answer, if any, from a record. values are the session values to write with
// it.
func resumeTurn(m *Memory, rec *waitingTurn, values map[string][]byte) (*turnWriter, *Answer, error) {
	req, err := wire.Parse(dialects.ByCode(rec.Dialect), rec.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("read recorded request of turn %s: %w", rec.Turn, err)
	}
	began := cmp.Or(rec.Began, rec.Time) // an older build writes the time alone
	t := newTurnInfo(m, rec.Turn, rec.Time, began, Call{
		Scope: rec.scope(), Request: req, History: rec.History, Retry: rec.Retry, Resends: rec.Resends, Side: string(rec.Side), Provider: rec.Provider,
	})
	w := &turnWriter{values: values, turnInfo: &t}
	t.tombstones = rec.Tombstones
	t.base = context.Background()
	c := t.call.inSession()
	c.Found = session.Found{Standing: session.Standing(rec.Standing), Rule: rec.Rule}
	if w.entry, err = m.log.Resumed(w.ID, w.started, c, rec.View, rec.Notes); err != nil {
		return nil, nil, fmt.Errorf("read recorded notes of turn %s: %w", rec.Turn, err)
	}
	if rec.Partial {
		w.entry.Order.Partial = true
	}
	if rec.Answer == nil {
		if rec.Owner != m.heartbeat.Self() {
			w.entry.Order.Abandoned = true
		}
		return w, nil, nil
	}
	a, err := rec.Answer.answer(dialects.ByCode(rec.Dialect))
	return w, a, err
}

// forwarded records that the request was sent upstream. The input is written separately if the answer takes longer than
// store.open_delay.
func (w *turnWriter) forwarded() {
	w.open.Store(true)
	if w.m.peers.Any() && w.entry.Order.OpensAtOnce() {
		w.m.work.Go(w.writeInput)
	} else {
		w.m.delayed.add(w)
	}
}

// writeInput writes the input of a turn whose answer is pending.
func (w *turnWriter) writeInput() {
	w.whileOpen(func(ctx context.Context) { w.write(ctx, nil) })
}

// whileOpen calls do, with the timeout of a commit, unless the turn was committed meanwhile: a commit waits for its end.
func (w *turnWriter) whileOpen(do func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(w.base, w.m.o.CommitWait)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open.Load() {
		return
	}
	do(ctx)
	if ttl := w.m.o.SessionTTL; ttl > 0 {
		w.renewTimer = time.AfterFunc(ttl/2, func() { w.whileOpen(w.renew) }) //nolint:forbidigo // wakes; no clock is read
	}
}

// renew prevents the expiry of a session. The caller holds w.mu.
func (w *turnWriter) renew(ctx context.Context) {
	if w.m.outages.available(w.group) != nil {
		return
	}
	if err := w.lock(ctx); err != nil {
		return // another turn of the session is being written
	}
	defer w.unlock()
	if err := w.entry.Renew(ctx); err != nil {
		w.m.outages.failed(err)
	}
}

// finish writes the turn with its answer. It reports whether the store has it. The caller holds w.mu.
func (w *turnWriter) finish(ctx context.Context, a *Answer) (stored bool) {
	w.end()
	return w.write(ctx, a)
}

// end keeps what runs beside the exchange from writing the turn. The caller holds w.mu.
func (w *turnWriter) end() {
	w.open.Store(false)
	w.m.delayed.remove(w)
	if w.renewTimer != nil {
		w.renewTimer.Stop()
	}
}

// close ends the turn also where finish was not reached: from then on the memory of its request belongs to others.
func (w *turnWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

// write stores the turn's current state (true), or else spools it. A nil answer is still pending.
func (w *turnWriter) write(ctx context.Context, a *Answer) (stored bool) {
	err := errLeftAlone
	if !w.m.spool.queue.Holds(w.group) {
		err = w.m.outages.available(w.group)
	}
	if err == nil {
		var parked bool
		if parked, err = w.store(ctx, a); err == nil {
			w.m.outages.answered(w.group)
			return !parked
		}
		if !errors.Is(err, session.ErrNoRoom) {
			w.m.outages.failed(err)
		}
	}
	own := withTimeout(w.base, w.m.o.CommitWait) //nolint:contextcheck // the store's time is over, and the turn must reach the spool
	defer own.end()
	if refused := w.m.spool.add(own, w, a); refused != nil { //nolint:contextcheck // see own
		if a == nil {
			return false // it is lost only if its end cannot be written either, which has its input
		}
		// A store that works, and was not asked since earlier turns of the session wait: out of order is better than lost.
		waits := errors.Is(err, errLeftAlone) && w.m.outages.available(w.group) == nil
		if waits || errors.Is(err, session.ErrNoRoom) {
			w.entry.Order.GoesAhead = true
			if _, err := w.store(ctx, a); err == nil {
				return true
			}
		}
		if w.m.o.Lost != nil {
			w.m.o.Lost(1)
		}
		w.m.o.Log.Error("turn lost: neither the store nor the spool took it", "turn", w.ID, "error", refused.Error())
		if w.entry.Order.IsPending() {
			m, scope, turn := w.m, w.call.Scope, w.ID
			m.work.Go(func() { endLost(m, scope, turn) }) //nolint:contextcheck // it outlives the call
		}
		return false
	}

	if a != nil && !w.entry.Order.IsPending() {
		// The client is about to see the end, and may send its next request to another process.
		told, cancel := context.WithTimeout(w.base, announceWaits*w.m.o.CommitWait)
		defer cancel()
		w.m.heartbeat.AwaitBeat(told) //nolint:contextcheck // see told
	}
	return false
}

// endLost takes a lost turn off the list of open ones as soon as the store can be written, since other processes wait for those.
func endLost(m *Memory, s Scope, turn string) {
	for sleep(m.life, m.o.RetryDelay) {
		if m.outages.available(s.Group()) != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(m.life, m.o.CommitWait)
		err := m.log.SetAside(ctx, s, turn, nil)
		cancel()
		if err == nil || errors.Is(err, session.ErrNoSession) {
			return
		}
	}
}

// lock locks the session, which spares turns of this process conflicts with each other. Locks are shared with other sessions, so that
// no hook of a layer may run under one.
func (w *turnWriter) lock(ctx context.Context) (err error) {
	w.sessionLock, err = w.m.locks.lock(ctx, w.group)
	return err
}

// lockFor is lock for the commit of a turn. Where its answer would be lost, it waits for longer than ctx allows, and the context that is
// returned has new time for the store. Call end after using it.
func (w *turnWriter) lockFor(ctx context.Context, a *Answer) (_ context.Context, end func(), err error) {
	if err = w.lock(ctx); err == nil || a == nil || w.m.spool.queue != nil {
		return ctx, func() {}, err
	}
	long, cancel := context.WithTimeout(w.base, w.m.replayWait(0))
	defer cancel()
	err = w.lock(long)
	own := withTimeout(w.base, w.m.o.CommitWait)
	return own, own.end, err
}

// unlock unlocks the session, if this has it locked.
func (w *turnWriter) unlock() {
	if w.sessionLock != nil {
		<-w.sessionLock
	}
	w.sessionLock = nil
}

// catchUp runs the hooks of layers again whose states others have changed. Meanwhile the session is not locked. They take none of the
// store's time: the context that is returned has new time. Call end after using it.
func (w *turnWriter) catchUp(ctx context.Context, a *Answer) (_ context.Context, end func(), err error) {
	w.unlock()
	w.states.catchUpSession(ctx)
	own := withTimeout(w.base, w.m.o.CommitWait)
	locked, endLocked, err := w.lockFor(own, a)
	return locked, func() { endLocked(); own.end() }, err
}

// store commits the turn to the transcript. If it has to wait for an earlier turn of another process, it parks its record.
func (w *turnWriter) store(ctx context.Context, a *Answer) (parked bool, err error) {
	ctx, end, err := w.lockFor(ctx, a)
	defer end()
	if err != nil {
		return false, err
	}
	defer w.unlock()

	before := w.entry.Gone()
	o := &w.entry.Order
	if a != nil && !o.Resumed && (o.Partial || w.entry.Unread()) && w.m.peers.MayHoldAny(ctx, w.group) {
		o.Waits = true
	}
	err = w.commit(ctx, a)
	if errors.Is(err, session.ErrEarlierOpen) && !w.m.peers.MayHaveMore(ctx, w.entry) {
		err = w.commit(ctx, a)
	}
	if errors.Is(err, session.ErrEarlierOpen) {
		parked, err = w.park(ctx, a)
	}
	if err == nil && a != nil && w.entry.Order.OthersParked() {
		w.m.parked.release(w.call.Scope)
	}
	switch {
	case w.deleted && err == nil:
		w.unlock() // hooks of layers run
		w.m.forgetTurn(ctx, w.call.Scope)
	case w.entry.Gone() && !before && !w.deleted:
		w.m.missing.log(w.m, w.call.Scope)
	}
	return parked, err
}

// commit writes the turn, with the states of layers and the session values for next views, until no other turn is faster.
func (w *turnWriter) commit(ctx context.Context, a *Answer) error {
	var err error
	if !w.deleted && w.entry.First() && w.call.Scope.Resource != "" { // what is not stored yet is not found when its resource is forgotten
		if w.deleted, err = w.wasDeleted(ctx); err != nil {
			return err
		}
	}
	for !w.deleted {
		if a != nil && w.states != nil && w.states.sessionChanged() {
			var end func()
			ctx, end, err = w.catchUp(ctx, a)
			defer end()
			if err != nil {
				return err
			}
		}
		var p session.Puts
		switch {
		case a == nil:
		case w.states != nil:
			p = w.states.puts()
		case w.entry.Order.Resumed:
			p.Values = w.valuePuts()
		}
		done, changed, err := w.entry.Commit(ctx, a, p)
		if changed != nil {
			w.reread(changed)
			if w.deleted, err = w.wasDeleted(ctx); err != nil { // and maybe begun again
				return err
			}
			continue
		}
		if err == nil && a != nil && w.states != nil {
			w.states.wrote(done)
		}
		if len(done.Missed) > 0 {
			w.m.outages.failed(done.Err)
			w.m.work.Go(func() { w.writeMissed(done.Missed) }) //nolint:contextcheck // likewise
		}
		return err
	}
	return nil
}

// writeMissed writes batches again that a server of the store has not taken.
func (w *turnWriter) writeMissed(batches []cache.Batch) {
	if !sleep(w.m.life, w.m.o.RetryDelay) {
		return
	}
	ctx, cancel := context.WithTimeout(w.m.life, w.m.o.CommitWait)
	defer cancel()
	for _, out := range w.m.store.Commit(ctx, batches) {
		if out.Err != nil {
			w.m.o.Log.Warn("a session is not found by the id of an answer, or by its resource", "turn", w.ID, "error", out.Err.Error())
			return
		}
	}
}

// valuePuts returns the session values to write with a resumed turn, unless a later turn was written first: the values
// of the latest turn win, in any order of replay. The parent that the first turn names is one of them: that turn did not know that
// it is the first if it began without the store.
func (w *turnWriter) valuePuts() (values []cache.Put) {
	if w.entry.LastTurn() > w.ID {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(w.values)) {
		values = append(values, cache.Put{Name: name, Data: w.values[name]})
	}
	if named := w.call.Scope.Parent; named != "" && w.entry.LastTurn() == "" && w.values[parentName] == nil && w.shape.Layers.Returns() {
		values = append(values, cache.Put{Name: parentName, Data: parent(named).Encode()})
	}
	return values
}

// reread keeps what a session that has changed holds now for the states.
func (w *turnWriter) reread(now *session.Extra) {
	if w.states != nil {
		w.states.changed = now
	}
}

// park stores the record of a turn that was answered before an earlier one of another process has ended, or the
// turn if none is open any more.
func (w *turnWriter) park(ctx context.Context, a *Answer) (parked bool, err error) {
	rec, _ := newWaitingTurn(w, a)
	rec.Replaces = w.entry.Replaces()
	for _, it := range w.entry.NewItems() {
		rec.NewItems = append(rec.NewItems, it.Raw)
	}
	b, err := rec.encode()
	if err != nil {
		return false, err
	}
	// Once the record is stored: what is added before may be found empty, and forgotten. Also where there is no room for it: those
	// that wait have to be written first.
	defer w.m.parked.add(w.call.Scope)
	parked, changed, err := w.entry.Park(ctx, a, b)
	for changed != nil {
		w.reread(changed)
		parked, changed, err = w.entry.Park(ctx, a, b)
	}
	if errors.Is(err, session.ErrNoRoom) && w.m.spool.queue == nil {
		parked, err = false, nil // there is nowhere else for it to wait
		w.entry.Order.GoesAhead = true
	}
	if err == nil && !parked {
		err = w.commit(ctx, a)
	}
	return parked, err
}
