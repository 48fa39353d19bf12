package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"remora/cache"
	"remora/memory/session"
	"remora/memory/turnqueue"
)

// Spool is a durable local queue: see spool.Queue.
type Spool = turnqueue.Disk

// errBacklog says that earlier turns of the session wait in the spool of this process. The store is not to blame.
var errBacklog = fmt.Errorf("earlier turns of the session wait in the spool: %w", errLeftAlone)

// errNoSpool says that there is no spool to fall back to.
var errNoSpool = errors.New("no spool is configured")

// spooler keeps turns on local disk while the store fails, and writes them to it, in order, when it is back. A session with
// turns in the spool is not written directly until they are written.
type spooler struct {
	m     *Memory
	queue *turnqueue.Queue // nil for none
	wake  chan struct{}
	ended chan struct{}      // closed when the worker has returned
	large session.LargeTurns // that are being added

	replays *replayer
	seen    spooledSeen

	mu      sync.Mutex
	broken  string        // why the spool's directory cannot be used, "" where it can
	drained chan struct{} // closed, and made anew, after each attempt to empty the spool

	trouble string // the worker's last error of the spool itself, "" for none
}

// newSpooler returns the spooler of m, with the turns that its queue has of ended processes. begin begins its worker.
func newSpooler(m *Memory, queue *turnqueue.Queue) *spooler {
	s := &spooler{
		m: m, wake: make(chan struct{}, 1), drained: make(chan struct{}), seen: spooledSeen{byTurn: make(map[string][]byte)},
		large: session.NewLargeTurns(),
	}
	if queue == nil {
		return s
	}
	s.queue, s.replays = queue, newReplayer(m, queue, &s.seen)
	s.adopt()
	if n, _ := queue.Len(); n > 0 {
		s.wakeWorker()
	}
	return s
}

// begin begins the worker. All parts of m exist, which it calls.
func (s *spooler) begin(ctx context.Context) {
	if s.queue != nil {
		s.ended = make(chan struct{})
		go s.run(ctx)
	}
}

// empty waits until the store has taken all spooled turns. It gives up when the store is away or takes none, and when ctx ends.
func (s *spooler) empty(ctx context.Context) {
	if s.queue == nil {
		return
	}
	const attempts = 2 // the first may have begun before the store was back
	for futile := 0; futile < attempts; {
		s.mu.Lock()
		drained := s.drained
		s.mu.Unlock()
		before, _ := s.queue.Len()
		if before == 0 || s.m.peers.AreUnknown() {
			return
		}
		s.wakeWorker()
		select {
		case <-drained:
		case <-ctx.Done():
			return
		}
		if after, _ := s.queue.Len(); after >= before {
			futile++
		}
	}
}

// diskGrace is how long stop waits for the disk.
const diskGrace = 2 * time.Second

// stop waits for the worker, whose context has ended. Spooled turns stay there for the next process. A disk that hangs is left behind.
func (s *spooler) stop() {
	if s.queue == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), diskGrace)
	defer cancel()
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
	s.queue.Close(ctx, s.m.o.Lost)
}

func (s *spooler) wakeWorker() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run empties the spool whenever there is something in it and the store answers.
func (s *spooler) run(ctx context.Context) {
	defer close(s.ended)
	retry := time.NewTimer(s.m.o.RetryDelay) //nolint:forbidigo // wakes this worker; no clock is read
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-retry.C:
		}
		_ = s.queue.Settle() // its failure was logged when it began
		s.adopt()
		if n, _ := s.queue.Len(); n > 0 {
			s.drain(ctx)
		}
		retry.Reset(s.m.o.RetryDelay)
	}
}

// adopt takes over the turns of dead processes, and counts them by session: these sessions wait until the turns are written.
func (s *spooler) adopt() {
	type turn struct {
		group cache.Group
		id    string
		owner uint64
	}
	var taken []turn
	found, err := s.queue.Adopt(func(b []byte) (turnqueue.Record, bool) {
		rec, err := decodeWaitingTurn(b)
		if err != nil {
			return turnqueue.Record{}, false
		}
		at := rec.waits()
		taken = append(taken, turn{at.Group, rec.Turn, rec.Owner})
		return at, true
	})
	for _, t := range taken { // once the queue counts them: a heartbeat forgets turns that it does not
		s.m.heartbeat.AddTurn(t.group, t.id, false)
		s.m.heartbeat.Adopt(t.owner)
	}

	log := s.m.o.Log
	if found.Records > 0 {
		log.Info("turns of a process that has ended wait in the spool", "turns", found.Records, "bytes", found.Bytes)
	}
	if found.Cut > 0 {
		log.Warn("turns whose writing to the spool was cut off are dropped; no client has seen their end", "turns", found.Cut, "bytes", found.CutBytes)
	}
	if len(found.Foreign) > 0 {
		log.Warn("the spool's directory holds files that are not the spool's, or folders without their lock file; they are left alone", "files", found.Foreign)
	}
	if found.Remade {
		log.Error("the spool's directory or a file in it was deleted while in use; it is made again, with the turns that this process still had")
	}

	trouble := ""
	if err != nil && !errors.Is(err, cache.ErrClosed) {
		trouble = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if trouble != "" && trouble != s.broken {
		log.Error("the spool's directory cannot be used; turns are kept in memory while the store is away", "error", trouble)
	}
	s.broken = trouble
}

// drain writes spooled turns into the store until it refuses one.
func (s *spooler) drain(ctx context.Context) {
	store := s.m.outages.check(ctx) // in any case: it alone calls a store that has failed
	if store == nil && s.m.peers.AreUnknown() {
		return // the others have to say first what they hold, for the order of a session's turns
	}
	s.replays.begin()
	err := store
	if err == nil {
		err = s.queue.Drain(ctx, func(data [][]byte) (written []turnqueue.Record, _ error) {
			written, store = s.replays.replay(ctx, data)
			return written, store
		})
	}
	if err == nil {
		s.replays.renewPatience()
	}
	if ctx.Err() == nil {
		s.logTrouble(err, store)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.drained)
	s.drained = make(chan struct{})
	s.m.heartbeat.BeatNow()
}

// logTrouble logs that the spool could not be emptied, once per fault of its own. store is the store's last error,
// which is logged elsewhere.
func (s *spooler) logTrouble(err, store error) {
	switch {
	case err == nil:
		s.trouble = ""
	case errors.Is(err, store): // the very same
		s.m.o.Log.Debug("spool waits for the store", "error", err.Error())
	case s.trouble != err.Error():
		s.trouble = err.Error()
		s.m.o.Log.Warn("spool cannot be emptied", "error", s.trouble)
	}
}

// outwait waits until the spool has no turn of the session, however long the store is down.
func (s *spooler) outwait(ctx context.Context, g cache.Group) error {
	return s.await(ctx, g, func() error { return nil })
}

// awaitReplay waits until the spool has no turn of the session, so that a client reads its writes as soon as the store is back.
// It wakes the worker once: a failing record is not retried without a pause.
func (s *spooler) awaitReplay(ctx context.Context, g cache.Group) error {
	woken := false
	return s.await(ctx, g, func() error {
		if err := s.m.outages.available(g); err != nil {
			return err
		}
		if s.m.peers.AreOutOfReach() {
			return errBacklog // the worker waits for them, maybe for minutes
		}
		if !woken {
			s.wakeWorker()
		}
		woken = true
		return nil
	})
}

// await waits until no turn of the session is in the spool any more. An error of ready, which is called before each wait,
// ends it.
func (s *spooler) await(ctx context.Context, g cache.Group, ready func() error) error {
	for {
		s.mu.Lock()
		waits, drained := s.queue.Holds(g), s.drained
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
			return errBacklog
		}
	}
}

// add puts a turn into the spool; it is on disk when add returns, unless ctx ends before: then the write goes on.
func (s *spooler) add(ctx context.Context, t *turnWriter, a *Answer) error {
	if s.queue == nil {
		return errNoSpool
	}
	done, err := s.large.Enter(context.WithoutCancel(ctx), t.call.Request, a) // those before it leave when their ctx ends
	if err != nil {
		return err
	}
	defer done()
	rec, seen := newWaitingTurn(t, a)
	b, err := rec.encode()
	if err != nil {
		return err
	}
	s.seen.put(t.ID, seen)
	if err := s.queue.Append(ctx, rec.waits(), b); err != nil {
		s.seen.put(t.ID, nil)
		return fmt.Errorf("spool turn: %w", err)
	}
	s.m.heartbeat.AddTurn(t.group, t.ID, false)
	return nil
}

// spooledSeen are the evictions that layers have seen, by spooled turn. They are not in the spooled records, since they are
// valid only if this process survives to write the layers' states (see turnLayers.afterOutage).
type spooledSeen struct {
	mu     sync.Mutex
	byTurn map[string][]byte
}

// put records the evictions that layers have seen with a turn, nil for none.
func (t *spooledSeen) put(turn string, seen []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seen == nil {
		delete(t.byTurn, turn)
	} else {
		t.byTurn[turn] = seen
	}
}

// values are all session values to write with a spooled turn.
func (t *spooledSeen) values(rec *waitingTurn) map[string][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.byTurn[rec.Turn]
	if seen == nil || rec.Answer == nil {
		return rec.Values
	}
	all := map[string][]byte{seenName: seen}
	maps.Copy(all, rec.Values)
	return all
}
