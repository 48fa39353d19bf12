package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// Since the spool was empty: sessions whose earlier turns in other processes were waited for in vain, and how much longer turns may
	// wait in vain.
	waited   map[cache.Group]bool
	patience time.Duration
	// In this drain: the turns whose records came up, and the records that were moved after all others.
	met       map[string]bool
	movedBack map[string]bool
}

const (
	// spoolTries is the number of attempts for a session under whose key another program has stored something: it may be put back.
	spoolTries = 3
	// spoolRest is how long a turn that began without the store waits in the spool for announcements of earlier turns by other
	// processes.
	spoolRest = 2 * replicas.Beat
	// othersWait is how long a turn waits in the spool while another process has to write an earlier one first, othersPatience how long
	// turns do so in vain until the spool is empty, and othersLook how often the other is looked at.
	othersWait     = 4 * replicas.Beat // it may have noticed later that the store is back, and takes some beats to know the others
	othersPatience = 2 * othersWait
	othersLook     = 20 * time.Millisecond
	// spoolMiBWait is the time that a replay may take per MiB of the record, which is written in portions, on top of ten times
	// Options.CommitWait.
	spoolMiBWait = 2 * time.Second
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
		m: m, queue: queue, seen: seen, slowed: make(map[cache.Group]bool), tries: make(map[string]int),
		met: make(map[string]bool), movedBack: make(map[string]bool), waited: make(map[cache.Group]bool), patience: othersPatience,
	}
}

// begin begins a drain of the spool.
func (r *replayer) begin() {
	clear(r.met)
	clear(r.movedBack)
}

// renewPatience is called when the spool is empty.
func (r *replayer) renewPatience() {
	clear(r.waited)
	r.patience = othersPatience
}

// replayedTurn is a turn from the spool.
type replayedTurn struct {
	rec    *waitingTurn
	at     turnqueue.Record
	data   []byte
	writer *turnWriter
	answer *Answer

	// superseded: it is the input of a turn that waits with its answer, too, and is not written.
	superseded bool

	late bool // the store did not take it in time
	err  error
}

func (r *replayer) decode(data []byte) (*replayedTurn, error) {
	t := &replayedTurn{data: data}
	var err error
	if t.rec, err = decodeWaitingTurn(data); err != nil {
		return t, fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	t.at = t.rec.waits()
	if t.superseded = t.rec.Answer == nil && r.queue.Has(t.at.Group, nameOfRecord(t.rec.Turn, true)); t.superseded {
		return t, nil
	}
	if t.writer, t.answer, err = resumeTurn(r.m, t.rec, r.seen.values(t.rec)); err != nil {
		return t, fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	return t, nil
}

// replay writes spooled turns of different sessions into the store, at least the first one: they are written at the same time, since
// a spool that is emptied one turn after the other takes longer than its sessions take to add new turns. It returns which ones it has
// written or moved, and the error for the next one. If a record or its session cannot be read, the error wraps cache.ErrUnreadable,
// the record is returned as the last one, and the disk quarantines it. A record for which the store is too slow moves after the
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

	turns := r.awaitOthers(ctx, r.together(first, data[1:]))
	var stores sync.WaitGroup
	for _, t := range turns {
		if t.superseded {
			continue
		}
		stores.Go(func() {
			own, cancel := context.WithTimeout(ctx, r.m.replayWait(len(t.data)))
			defer cancel()
			_, t.err = t.writer.store(own, t.answer)
			t.late = own.Err() != nil
		})
	}
	stores.Wait()
	for _, t := range turns {
		r.met[t.at.Name] = true
		err := r.stored(ctx, t)
		if err == nil || errors.Is(err, cache.ErrUnreadable) {
			written = append(written, t.at)
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
		t, err := r.decode(b)
		if err != nil || !t.superseded && (r.isFresh(t.rec) || sessions[t.at.Group] || r.queue.First(t.at.Group).Name != t.at.Name ||
			r.m.outages.available(t.at.Group) != nil) {
			break
		}
		sessions[t.at.Group] = sessions[t.at.Group] || !t.superseded
		turns = append(turns, t)
	}
	return turns
}

// awaitOthers waits while another process holds a turn that belongs before the first one, and returns the turns to write: the first
// one, and those after it up to one that has to wait itself. That one does not hold up the first, since another process may wait for
// it meanwhile. Where waiting does not help, as with a process that cannot write its turns, the first turn is stored among those that
// wait in their session (see turnWriter.park), and later turns wait there at once.
func (r *replayer) awaitOthers(ctx context.Context, turns []*replayedTurn) []*replayedTurn {
	ctx, cancel := context.WithTimeout(ctx, othersWait+r.m.replayWait(0))
	defer cancel()
	wait := min(othersWait, r.patience)
	patience, over := context.WithTimeout(ctx, wait)
	defer over()

	first := turns[0]
	for {
		err := r.m.peers.Look(ctx)
		waits := func(t *replayedTurn) bool {
			return t.answer != nil && (err != nil || r.m.peers.MayHoldEarlier(t.at.Group, t.rec.Turn))
		}
		switch {
		case !waits(first):
		case r.waited[first.at.Group]:
			first.writer.entry.Order.Waits = true
		case sleep(patience, othersLook):
			continue
		default:
			r.patience -= wait
			r.waited[first.at.Group] = true
			continue
		}
		if next := slices.IndexFunc(turns[1:], waits); next >= 0 {
			return turns[:1+next]
		}
		return turns
	}
}

// isReady reports whether a turn can be written now. If it was moved after the others, it returns neither true nor an error.
func (r *replayer) isReady(t *replayedTurn) (bool, error) {
	r.met[t.at.Name] = true
	switch {
	case t.superseded:
		return true, nil
	case r.m.outages.available(t.at.Group) != nil:
		return false, r.passOver(t, errLeftAlone)
	case r.isFresh(t.rec):
		return false, errFresh
	case !r.follows(t.at):
		return true, nil
	case r.movedBack[t.at.Name]:
		return false, errFollows // all others have had their turn
	}
	// If there is no room to move it, a turn out of order is better than a stuck spool.
	return r.moveBack(t) != nil, nil
}

// isFresh reports whether other processes may not have announced yet which turns precede this one: see spoolRest. A turn of a process
// whose clock was far ahead is not held until that time.
func (r *replayer) isFresh(rec *waitingTurn) bool {
	return rec.Unread && r.m.o.Now().Sub(rec.Time).Abs() < spoolRest && r.m.peers.Any()
}

// stored handles the result of writing a turn.
func (r *replayer) stored(ctx context.Context, t *replayedTurn) error {
	fault, _ := faultOf(t.err)
	switch {
	case t.superseded:
		return nil
	case t.err == nil:
		r.m.outages.answered(t.at.Group)
		r.wrote(t)
		return nil
	case errors.Is(t.err, session.ErrNoRoom):
		return r.passOver(t, t.err)
	case ctx.Err() != nil:
		return t.err // this process ends; the store is not to blame
	case fault == cache.FaultCorrupt: // the session's data: waiting does not help
		return r.giveUp(t)
	case cache.IsForeign(t.err):
		if r.tries[t.at.Name]++; r.tries[t.at.Name] < spoolTries {
			return r.passOver(t, t.err)
		}
		return r.giveUp(t)
	case t.late:
		return r.postpone(ctx, t)
	case fault == cache.FaultShard:
		r.m.outages.failed(t.err)
		return r.passOver(t, t.err)
	case fault == cache.FaultStore:
		r.m.outages.failed(t.err)
		return t.err
	}
	return r.postpone(ctx, t) // it is the session's own trouble
}

// giveUp quarantines a record whose session cannot be written. Such records would fill the spool, so that other sessions lose
// turns.
func (r *replayer) giveUp(t *replayedTurn) error {
	delete(r.tries, t.at.Name)
	r.seen.put(t.rec.Turn, nil)
	r.m.outages.failed(t.err)
	return fmt.Errorf("%w: %w", cache.ErrUnreadable, t.err)
}

// passOver moves a record whose session cannot be written now after the records of other sessions, once per drain. If
// no other session can be written, the drain ends with err.
func (r *replayer) passOver(t *replayedTurn, err error) error {
	others := r.queue.Any(func(g cache.Group) bool { return g != t.at.Group && r.m.outages.available(g) == nil })
	if r.movedBack[t.at.Name] || !others || r.moveBack(t) != nil {
		return err
	}
	return nil
}

// postpone passes over a record that the store did not take in time, although it answers.
func (r *replayer) postpone(ctx context.Context, t *replayedTurn) error {
	if r.m.outages.check(ctx) != nil {
		return t.err
	}
	if err := r.passOver(t, t.err); err != nil {
		return err
	}
	if r.m.outages.available(t.at.Group) == nil && !r.slowed[t.at.Group] {
		r.slowed[t.at.Group] = true
		r.m.o.Log.Warn("store does not take a spooled turn; other sessions go first", "turn", t.rec.Turn, "bytes", len(t.data))
	}
	return nil
}

// wrote forgets what is known of a record that is in the store now.
func (r *replayer) wrote(t *replayedTurn) {
	delete(r.slowed, t.at.Group)
	delete(r.tries, t.at.Name)
	if t.rec.Answer != nil {
		r.seen.put(t.rec.Turn, nil)
	}
	if t.rec.Answer != nil || !r.queue.Has(t.at.Group, nameOfRecord(t.rec.Turn, true)) {
		r.m.heartbeat.RemoveTurn(t.at.Group, t.rec.Turn)
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

// moveBack puts the record at the head of the spool after all others.
func (r *replayer) moveBack(t *replayedTurn) error {
	if err := r.queue.Move(t.at, t.data); err != nil {
		return fmt.Errorf("move spooled record %s: %w", t.at.Name, err)
	}
	r.movedBack[t.at.Name] = true
	return nil
}
