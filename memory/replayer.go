package memory

import (
	"context"
	"errors"
	"fmt"
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

// replay writes one spooled turn into the store, and returns which one it is. If the record or its session cannot be read, the
// error wraps cache.ErrUnreadable, and the disk quarantines the record. A record for which the store is too slow moves behind the
// others. Neither delays the records after it.
func (r *replayer) replay(ctx context.Context, b []byte) (turnqueue.Record, error) {
	rec, err := decodeSpooled(b)
	if err != nil {
		return turnqueue.Record{}, fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	at := rec.waits()
	return at, r.write(ctx, rec, at, b)
}

func (r *replayer) write(ctx context.Context, rec *spooled, at turnqueue.Record, b []byte) error {
	t, a, err := resumeTurn(r.m, rec, r.seen.values(rec))
	if err != nil {
		return fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	r.met[at.Name] = true
	if r.m.outages.available(at.Group) != nil {
		return r.passOver(at, b, errLeftAlone)
	}
	if rec.Unread && r.m.o.Now().Sub(rec.Time) < spoolRest && r.m.peers.Any() {
		return errFresh
	}
	if r.follows(at) {
		if r.movedBack[at.Name] {
			return errFollows // all others have had their turn
		}
		// If there is no room to move it, a turn out of order is better than a stuck spool.
		if r.moveBack(at, b) == nil {
			return nil
		}
	}

	own, cancel := context.WithTimeout(ctx, r.m.replayWait(len(b)))
	defer cancel()
	var deleted bool
	if deleted, err = r.m.tombstones.deleted(own, rec.scope(), rec.Time); deleted {
		r.wrote(rec, at)
		return nil
	}
	if err == nil {
		err = t.store(own, a)
	}

	fault, _ := faultOf(err)
	switch {
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
	case own.Err() != nil:
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
