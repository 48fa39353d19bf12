package memory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"remora/cache"
	"remora/memory/replicas"
	"remora/memory/session"
	"remora/memory/turnqueue"
)

// replayer writes spooled turns into the store: those of a session in order, those of different sessions at the same time, since a spool
// that is emptied one turn after the other takes longer than its sessions take to add new turns.
type replayer struct {
	m     *Memory
	queue *turnqueue.Queue
	seen  *spooledSeen
	bytes *semaphore.Weighted // of the records that are in memory

	waits  atomic.Bool // for other processes, until a session has waited in vain in this drain
	inVain int         // drains in which one did, since the spool was empty
}

const (
	// replaySessions is the number of sessions whose turns are written at the same time.
	replaySessions = 64
	// replayBytes bounds the records that are in memory at the same time. A larger one is alone there.
	replayBytes = 8 << 20
	// spoolTries is the number of attempts for a session under whose key another program has stored something: it may be put back.
	spoolTries = 3
	// spoolRest is how long a turn that began without the store waits in the spool for announcements of earlier turns by other
	// processes.
	spoolRest = 2 * replicas.Beat
	// othersWait is how long a turn waits in the spool while another process has to write an earlier one first, othersLook how often
	// the other is looked at, and othersDrains in how many drains turns do so in vain until the spool is empty.
	othersWait   = 2 * time.Second
	othersLook   = 20 * time.Millisecond
	othersDrains = 2
	// spoolMiBWait is the time that a replay may take per MiB of the record, which is written in portions, on top of ten times
	// Options.CommitWait.
	spoolMiBWait = 2 * time.Second
)

// replayWait returns how long the store may take for a record of so many bytes.
func (m *Memory) replayWait(size int) time.Duration {
	return 10*m.o.CommitWait + spoolMiBWait*time.Duration(size)/(1<<20)
}

var (
	// errSpool says that the spool itself fails, not the store.
	errSpool = errors.New("spool fails")
	errFresh = errors.New("other processes have to say first what they hold")
)

func newReplayer(m *Memory, queue *turnqueue.Queue, seen *spooledSeen) *replayer {
	return &replayer{m: m, queue: queue, seen: seen, bytes: semaphore.NewWeighted(replayBytes)}
}

// drain writes the turns of all sessions that wait. It returns why some of them still wait: errSpool, or else any reason.
func (r *replayer) drain(ctx context.Context) error {
	var sessions errgroup.Group
	sessions.SetLimit(replaySessions)
	var mu sync.Mutex
	var reason error
	r.waits.Store(r.inVain < othersDrains)
	for _, g := range r.queue.Groups() {
		sessions.Go(func() error {
			err := r.drainSession(ctx, g)
			mu.Lock()
			defer mu.Unlock()
			if reason == nil || errors.Is(err, errSpool) && !errors.Is(reason, errSpool) {
				reason = err
			}
			return nil
		})
	}
	_ = sessions.Wait() // see reason
	if !r.waits.Load() {
		r.inVain++
	}
	if n, _ := r.queue.Len(); n == 0 {
		r.inVain = 0
	}
	return reason
}

// drainSession writes the turns of a session, until one cannot be written now.
func (r *replayer) drainSession(ctx context.Context, g cache.Group) error {
	for e := r.queue.First(g); e != nil; e = r.queue.First(g) {
		if err := r.m.outages.available(g); err != nil {
			return err
		}
		size := min(int64(e.Bytes), replayBytes)
		if err := r.bytes.Acquire(ctx, size); err != nil {
			return err
		}
		err := r.replay(ctx, e)
		r.bytes.Release(size)
		if err != nil {
			return err
		}
	}
	return nil
}

// replayedTurn is a turn from the spool.
type replayedTurn struct {
	*turnqueue.Entry
	rec    *spooled
	writer *turnWriter
	answer *Answer
}

// replay writes a turn into the store, and removes it from the spool. If the turn or its session cannot be read, it is quarantined.
func (r *replayer) replay(ctx context.Context, e *turnqueue.Entry) error {
	if turn, isInput := strings.CutSuffix(e.Name, inputSuffix); isInput && r.queue.Has(e.Group, turn) {
		r.queue.Remove(e) // it waits with its answer, too
		return nil
	}
	t, err := r.read(e)
	switch {
	case errors.Is(err, cache.ErrUnreadable):
		return r.quarantine(e, err)
	case err != nil:
		return fmt.Errorf("%w: %w", errSpool, err)
	case r.isFresh(t.rec):
		return errFresh
	}

	r.awaitOthers(ctx, t)
	own, cancel := context.WithTimeout(ctx, r.m.replayWait(e.Bytes))
	defer cancel()
	err = t.writer.store(own, t.answer)
	if err == nil {
		r.m.outages.answered(e.Group)
		r.wrote(t)
		return nil
	}
	return r.refused(ctx, t, err, own.Err() != nil)
}

func (r *replayer) read(e *turnqueue.Entry) (*replayedTurn, error) {
	data, err := r.queue.Read(e)
	if err != nil {
		return nil, err
	}
	t := &replayedTurn{Entry: e}
	if t.rec, err = decodeSpooled(data); err == nil {
		t.writer, t.answer, err = resumeTurn(r.m, t.rec, r.seen.values(t.rec))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	return t, nil
}

func (r *replayer) quarantine(e *turnqueue.Entry, cause error) error {
	if err := r.queue.Quarantine(e, cause); err != nil {
		return fmt.Errorf("%w: %w", errSpool, err)
	}
	return nil
}

// isFresh reports whether other processes may not have announced yet which turns precede this one: see spoolRest. A turn of a process
// whose clock was far ahead is not held until that time.
func (r *replayer) isFresh(rec *spooled) bool {
	return rec.Unread && r.m.o.Now().Sub(rec.Time).Abs() < spoolRest && r.m.peers.Any()
}

// awaitOthers waits for earlier turns of the session that other processes hold: a turn that is not the next one would be stored
// twice, first among those that wait (see turnWriter.park). Where that does not help, as with a process that cannot write its turns,
// later turns do not wait.
func (r *replayer) awaitOthers(ctx context.Context, t *replayedTurn) {
	if t.answer == nil || !r.waits.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, othersWait)
	defer cancel()
	for r.m.peers.MayHoldEarlier(ctx, t.Group, t.rec.Turn, true) {
		if !sleep(ctx, othersLook) {
			r.waits.Store(false)
			return
		}
	}
}

// refused handles the error of a turn that the store did not take, maybe since it was late.
func (r *replayer) refused(ctx context.Context, t *replayedTurn, err error, late bool) error {
	fault, _ := faultOf(err)
	switch {
	case errors.Is(err, session.ErrNoRoom), ctx.Err() != nil: // the store is not to blame
		return err
	case fault == cache.FaultCorrupt: // the session's data: waiting does not help
		return r.giveUp(t, err)
	case fault == cache.FaultKey && !errors.Is(err, cache.ErrDenied) && !errors.Is(err, cache.ErrUnserved): // nor what another program has put in its place
		if t.Tries++; t.Tries < spoolTries {
			return err
		}
		return r.giveUp(t, err)
	case !late && (fault == cache.FaultShard || fault == cache.FaultStore):
		r.m.outages.failed(err)
		return err
	}
	if r.m.outages.check(ctx) == nil && r.m.outages.available(t.Group) == nil { // it is the session's own trouble, or the turn is too large
		if t.Tries++; t.Tries == 1 {
			r.m.o.Log.Warn("store does not take a spooled turn; other sessions go first", "turn", t.rec.Turn, "bytes", t.Bytes)
		}
	}
	return err
}

// giveUp quarantines a turn whose session cannot be written. Such turns would fill the spool, so that other sessions lose turns.
func (r *replayer) giveUp(t *replayedTurn, err error) error {
	r.seen.put(t.rec.Turn, nil)
	r.m.outages.failed(err)
	return r.quarantine(t.Entry, err)
}

// wrote removes a turn that is in the store now.
func (r *replayer) wrote(t *replayedTurn) {
	r.queue.Remove(t.Entry)
	if t.answer != nil {
		r.seen.put(t.rec.Turn, nil)
	}
	if t.answer != nil || !r.queue.Has(t.Group, t.rec.Turn) {
		r.m.heartbeat.RemoveTurn(t.Group, t.rec.Turn)
	}
}
