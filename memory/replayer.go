package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"remora/cache"
	"remora/memory/replicas"
	"remora/memory/session"
	"remora/memory/turnqueue"
)

// replayer writes spooled turns into the store, those of a session in order. Its methods are not safe for concurrent use.
type replayer struct {
	m     *Memory
	queue *turnqueue.Queue
	seen  *spooledSeen

	slowed map[cache.Group]bool // sessions that had others go first since the store does not take their records
	tries  map[string]int       // how often the store has refused a record for its session's keys
	// In this drain: the turns whose records came up, and the records that were moved behind all others.
	met       map[string]bool
	movedBack map[string]bool
}

const (
	// spoolTries is the number of attempts for a session under whose key another program has stored something: it may be put back.
	spoolTries = 3
	// spoolRest is how long a turn that began without the store waits in the spool for announcements of earlier turns by other
	// processes.
	spoolRest = 2 * replicas.Beat
	// spoolMiBWait is the time that a replay may take per MiB of the record, on top of ten times Options.CommitWait.
	spoolMiBWait = time.Second
)

// replayWait returns how long the store may take for a record of so many bytes.
func (m *Memory) replayWait(size int) time.Duration {
	return 10*m.o.CommitWait + spoolMiBWait*time.Duration(size)/(1<<20)
}

var (
	errFresh   = errors.New("other processes have to say first what they hold")
	errFollows = errors.New("an earlier turn of the session has to be written first")
)

func newReplayer(m *Memory, queue *turnqueue.Queue, seen *spooledSeen) *replayer {
	return &replayer{
		m: m, queue: queue, seen: seen, slowed: make(map[cache.Group]bool), tries: make(map[string]int), met: make(map[string]bool), movedBack: make(map[string]bool),
	}
}

// begin begins a drain of the spool.
func (r *replayer) begin() {
	clear(r.met)
	clear(r.movedBack)
}

// replayedTurn is a turn from the spool.
type replayedTurn struct {
	rec    *spooled
	at     turnqueue.Record
	data   []byte
	turn   *turnWriter
	answer *Answer

	deleted bool // its session was deleted after it began
	late    bool // the store did not take it in time
	err     error
}

func (r *replayer) decode(data []byte) (*replayedTurn, error) {
	w := &replayedTurn{data: data}
	var err error
	if w.rec, err = decodeSpooled(data); err != nil {
		return w, fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	w.at = w.rec.waits()
	if w.turn, w.answer, err = resumeTurn(r.m, w.rec, r.seen.values(w.rec)); err != nil {
		return w, fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	return w, nil
}

// replay writes spooled turns of different sessions into the store, at least the first one: they are written at the same time, since
// a spool that is emptied one turn after the other takes longer than its sessions take to add new turns. It returns which ones it has
// written or moved, and the error for the next one. If a record or its session cannot be read, the error wraps cache.ErrUnreadable,
// the record is returned as the last one, and the disk quarantines it. A record for which the store is too slow moves behind the
// others. Neither delays the records after it.
func (r *replayer) replay(ctx context.Context, data [][]byte) (written []turnqueue.Record, err error) {
	first, err := r.decode(data[0])
	ready := false
	if err == nil {
		ready, err = r.isReady(first)
	}
	if !ready {
		if err != nil && !errors.Is(err, cache.ErrUnreadable) {
			return nil, err
		}
		return []turnqueue.Record{first.at}, err
	}

	turns := r.together(first, data[1:])
	var stores sync.WaitGroup
	for _, w := range turns {
		stores.Go(func() { r.store(ctx, w) })
	}
	stores.Wait()
	for _, w := range turns {
		r.met[w.at.Name] = true
		err := r.stored(ctx, w)
		if err == nil || errors.Is(err, cache.ErrUnreadable) {
			written = append(written, w.at)
		}
		if err != nil {
			return written, err // those after it, which the store may have, come again
		}
	}
	return written, nil
}

// together returns first and the turns after it that can be written at the same time. The list ends before a turn whose session is
// in it, and before one for which isReady would do more than look.
func (r *replayer) together(first *replayedTurn, data [][]byte) []*replayedTurn {
	turns := []*replayedTurn{first}
	sessions := map[cache.Group]bool{first.at.Group: true}
	for _, b := range data {
		w, err := r.decode(b)
		if err != nil || r.isFresh(w.rec) || sessions[w.at.Group] || r.queue.First(w.at.Group).Name != w.at.Name ||
			r.m.outages.available(w.at.Group) != nil {
			break
		}
		sessions[w.at.Group] = true
		turns = append(turns, w)
	}
	return turns
}

// isReady reports whether a turn can be written now. If it was moved behind the others, it returns neither true nor an error.
func (r *replayer) isReady(w *replayedTurn) (bool, error) {
	rec, at, b := w.rec, w.at, w.data
	r.met[at.Name] = true
	if r.m.outages.available(at.Group) != nil {
		return false, r.passOver(at, b, errLeftAlone)
	}
	if r.isFresh(rec) {
		return false, errFresh
	}
	if r.follows(at) {
		if r.movedBack[at.Name] {
			return false, errFollows // all others have had their turn
		}
		// If there is no room to move it, a turn out of order is better than a stuck spool.
		if r.moveBack(at, b) == nil {
			return false, nil
		}
	}
	return true, nil
}

// isFresh reports whether other processes may not have announced yet which turns precede this one: see spoolRest.
func (r *replayer) isFresh(rec *spooled) bool {
	return rec.Unread && r.m.o.Now().Sub(rec.Time) < spoolRest && r.m.peers.Any()
}

// store writes a turn into the store, unless its session was deleted. It is safe for concurrent use, for different turns.
func (r *replayer) store(ctx context.Context, w *replayedTurn) {
	own, cancel := context.WithTimeout(ctx, r.m.replayWait(len(w.data)))
	defer cancel()
	if w.deleted, w.err = r.m.tombstones.deleted(own, w.rec.scope(), w.rec.Time); w.err == nil && !w.deleted {
		w.err = w.turn.store(own, w.answer)
	}
	w.late = own.Err() != nil
}

// stored handles the result of store.
func (r *replayer) stored(ctx context.Context, w *replayedTurn) error {
	rec, at, b, err := w.rec, w.at, w.data, w.err
	fault, _ := faultOf(err)
	switch {
	case w.deleted:
		r.wrote(rec, at)
		return nil
	case err == nil:
		r.m.outages.answered(at.Group)
		r.wrote(rec, at)
		return nil
	case errors.Is(err, session.ErrNoRoom):
		return r.passOver(at, b, err)
	case ctx.Err() != nil:
		return err // this process ends; the store is not to blame
	case fault == cache.FaultCorrupt: // the session's data: waiting does not help
		return r.giveUp(rec, at, err)
	case fault == cache.FaultKey && !errors.Is(err, cache.ErrDenied) && !errors.Is(err, cache.ErrUnserved): // nor what another program has put in its place
		if r.tries[at.Name]++; r.tries[at.Name] < spoolTries {
			return r.passOver(at, b, err)
		}
		return r.giveUp(rec, at, err)
	case w.late:
		return r.postpone(ctx, rec, at, b, err)
	case fault == cache.FaultShard:
		r.m.outages.failed(err)
		return r.passOver(at, b, err)
	case fault == cache.FaultStore:
		r.m.outages.failed(err)
		return err
	}
	return r.postpone(ctx, rec, at, b, err) // it is the session's own trouble
}

// giveUp quarantines a record whose session cannot be written. Such records would fill the spool, so that other sessions lose
// turns.
func (r *replayer) giveUp(rec *spooled, at turnqueue.Record, err error) error {
	delete(r.tries, at.Name)
	r.seen.put(rec.Turn, nil)
	r.m.outages.failed(err)
	return fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
}

// passOver moves a record whose session cannot be written now behind the records of other sessions, once per drain. If
// no other session can be written, the drain ends with err.
func (r *replayer) passOver(at turnqueue.Record, b []byte, err error) error {
	others := r.queue.Any(func(g cache.Group) bool { return g != at.Group && r.m.outages.available(g) == nil })
	if r.movedBack[at.Name] || !others || r.moveBack(at, b) != nil {
		return err
	}
	return nil
}

// postpone passes over a record that the store did not take in time, for err, although it answers.
func (r *replayer) postpone(ctx context.Context, rec *spooled, at turnqueue.Record, b []byte, err error) error {
	if r.m.outages.check(ctx) != nil {
		return err
	}
	if err := r.passOver(at, b, err); err != nil {
		return err
	}
	if r.m.outages.available(at.Group) == nil && !r.slowed[at.Group] {
		r.slowed[at.Group] = true
		r.m.o.Log.Warn("store does not take a spooled turn; other sessions go first", "turn", rec.Turn, "bytes", len(b))
	}
	return nil
}

// wrote forgets what is known of a record that is in the store now.
func (r *replayer) wrote(rec *spooled, at turnqueue.Record) {
	delete(r.slowed, at.Group)
	delete(r.tries, at.Name)
	if rec.Answer != nil {
		r.seen.put(rec.Turn, nil)
	}
	if rec.Answer != nil || !r.queue.Has(at.Group, nameOfRecord(rec.Turn, true)) {
		r.m.heartbeat.RemoveTurn(at.Group, rec.Turn)
	}
}

// follows reports whether an earlier record of the same session is in the spool: they are written in order.
//
// What comes up twice in a drain has seen all others come up in between. One that did not is not there any more: it could not
// be read, and was set aside.
func (r *replayer) follows(at turnqueue.Record) bool {
	for {
		first := r.queue.First(at.Group)
		if first.Name == "" || first.Name == at.Name {
			return false
		}
		if !r.movedBack[at.Name] || r.met[first.Name] {
			return true
		}
		r.queue.Gone(first)
	}
}

// moveBack puts the record at the head of the spool behind all others.
func (r *replayer) moveBack(at turnqueue.Record, b []byte) error {
	if err := r.queue.Append(at, b); err != nil {
		return fmt.Errorf("move spooled record %s: %w", at.Name, err)
	}
	r.movedBack[at.Name] = true
	return nil
}
