package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"remora/cache"
	"remora/memory/replicas"
	"remora/memory/session"
	"remora/wire"
	"remora/wire/dialects"
)

// parkedTurns writes turns that were answered while an earlier turn of their session was open in another process. Until that
// ends, their records wait in the session.
type parkedTurns struct {
	m    *Memory
	wake chan struct{} // a turn that others may wait for has ended

	mu       sync.Mutex
	sessions map[cache.Group]Scope // with such turns, as far as this process knows
	released map[cache.Group]Scope // of these, where one that others may wait for has ended since
	since    map[string]time.Time  // since when it knows of them, by turn
}

const (
	// maxParked is the number of turns whose waiting time is recorded.
	maxParked = 4096
	// parkedWait is how long a turn waits while no earlier one is written.
	parkedWait = time.Minute
	// parkedAtOnce is the number of sessions whose waiting turns are written at the same time. The records of a session may be large.
	parkedAtOnce = 8
)

func newParkedTurns(m *Memory) *parkedTurns {
	return &parkedTurns{
		m: m, wake: make(chan struct{}, 1), sessions: make(map[cache.Group]Scope), released: make(map[cache.Group]Scope),
		since: make(map[string]time.Time),
	}
}

// add records that turns of a session wait for earlier ones, or may go ahead now.
func (p *parkedTurns) add(s Scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[s.Group()] = s
}

// release writes the waiting turns of a session at once after an earlier one has ended.
func (p *parkedTurns) release(s Scope) {
	p.mu.Lock()
	p.released[s.Group()] = s
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run writes, each second and after a turn that others may have waited for, what waits no longer.
func (p *parkedTurns) run() {
	replicas.EachBeat(p.m.life, p.wake,
		func(ctx context.Context) { p.writeSessions(ctx, &p.released) },
		func(ctx context.Context) { p.writeSessions(ctx, &p.sessions) })
}

// writeSessions writes the waiting turns of some sessions whose earlier turns have ended, those of several sessions at the same time: one
// after the other, the last of thousands would wait for a minute.
func (p *parkedTurns) writeSessions(ctx context.Context, of *map[cache.Group]Scope) {
	p.mu.Lock()
	sessions := *of
	*of = make(map[cache.Group]Scope) // of what is parked meanwhile
	p.mu.Unlock()
	var writes errgroup.Group
	writes.SetLimit(parkedAtOnce)
	for _, s := range sessions {
		writes.Go(func() error {
			left, err := p.write(ctx, s)
			if left > 0 || err != nil {
				p.add(s)
			}
			if err != nil {
				p.m.o.Log.Debug("parked turns are not written yet", "error", err.Error())
			}
			return nil
		})
	}
	_ = writes.Wait() // each session's error is logged
}

// write writes the waiting turns of a session in order, as far as no open turn precedes them, and returns the number of those
// that still wait.
func (p *parkedTurns) write(ctx context.Context, s Scope) (left int, err error) {
	for more := true; more && err == nil; {
		left, more, err = p.writeNext(ctx, s)
	}
	return left, err
}

// writeNext writes the next waiting turn of a session, if it need not wait. It returns how many waited, and whether there may be more
// to write.
func (p *parkedTurns) writeNext(ctx context.Context, s Scope) (left int, more bool, err error) {
	own, cancel := context.WithTimeout(ctx, p.m.replayWait(0))
	defer cancel()
	// The others' announcements are read before the session: a turn that becomes parked in between is in the session.
	held, err := p.m.peers.Holding(own, s.Group())
	if err != nil {
		return 0, false, err
	}
	list, records, err := p.m.log.Pending(own, s)
	if err != nil {
		return 0, false, err
	}
	for _, t := range list {
		if t.Parked {
			left++
		}
	}
	if left == 0 {
		return 0, false, nil
	}
	next, ended, err := p.next(own, list, held)
	if err != nil || next < 0 {
		return left, false, err
	}
	if records[next] == nil {
		return left, false, nil // written meanwhile
	}
	turn, record := list[next].Turn, records[next]
	w, a, err := p.resume(record)
	if err != nil {
		p.m.o.Log.Error("a turn that waited in its session cannot be read; its record is set aside", "turn", turn, "error", err.Error())
		return left, true, p.m.log.SetAside(ctx, s, turn, record)
	}
	if err := p.writeOne(ctx, w, a, ended, len(record)); err != nil {
		return left, false, fmt.Errorf("turn %s: %w", turn, err)
	}
	return left, true, nil
}

// resume reads the record of a turn.
func (p *parkedTurns) resume(record []byte) (*turnWriter, *Answer, error) {
	rec, err := decodeWaitingTurn(record)
	if err != nil {
		return nil, nil, err
	}
	return resumeTurn(p.m, rec, rec.Values)
}

// writeFirst is write before a complete read of the session, which reports other errors.
func (p *parkedTurns) writeFirst(ctx context.Context, s Scope) {
	if _, err := p.write(ctx, s); err != nil {
		p.m.o.Log.Debug("parked turns are not written yet", "error", err.Error())
	}
}

// next returns the first parked turn that need not wait, -1 for none, and the dead processes.
func (p *parkedTurns) next(ctx context.Context, list []session.Pending, held replicas.Holding) (next int, ended []uint64, err error) {
	ended, err = p.m.peers.Ended(ctx, list)
	if err != nil {
		return -1, nil, err
	}
	next = -1
	first := true
	var open []uint64
	for i, t := range list {
		if !t.Parked {
			if !slices.Contains(ended, t.Owner) {
				open = append(open, t.Owner)
			}
			continue
		}
		waited := p.waited(t.Turn)
		if first {
			waits := held.Before(t.Turn) || slices.ContainsFunc(open, func(o uint64) bool { return o != t.Owner })
			if !waits || waited >= parkedWait {
				next = i
			}
		}
		first = false // the others wait for this one
	}
	return next, ended, nil
}

// waited returns how long this process has known that a turn is parked: after a long outage all of them began long ago.
func (p *parkedTurns) waited(turn string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.m.o.Now()
	first, known := p.since[turn]
	if !known {
		if len(p.since) >= maxParked {
			clear(p.since)
		}
		first = now
		p.since[turn] = first
	}
	return now.Sub(first)
}

// writeOne writes a turn that was resumed from a record of size bytes.
func (p *parkedTurns) writeOne(ctx context.Context, w *turnWriter, a *Answer, ended []uint64, size int) error {
	w.entry.Order.Ended(ended...)
	w.entry.Order.GoesAhead = true
	ctx, cancel := context.WithTimeout(ctx, p.m.replayWait(size)) // other turns of the session wait meanwhile
	defer cancel()
	if err := w.lock(ctx); err != nil {
		return err
	}
	defer w.unlock()
	if err := w.commit(ctx, a); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, w.ID)
	return nil
}

// show adds the parked turns that belong before a turn of a session to its view. It returns false if one of them is in the log by now,
// so that the session must be read again.
func (p *parkedTurns) show(ctx context.Context, s Scope, e *session.Entry) (whole bool, err error) {
	parked := slices.DeleteFunc(e.Order.Earlier(), func(t session.Pending) bool { return !t.Parked })
	if len(parked) == 0 {
		return true, nil
	}
	records, err := p.m.log.Records(ctx, s, parked)
	if err != nil {
		return false, err
	}
	list := make([]session.Parked, 0, len(records))
	for i, b := range records {
		if b == nil {
			return false, nil
		}
		said, err := itemsOf(b)
		if err != nil {
			return false, fmt.Errorf("turn %s: %w", parked[i].Turn, err)
		}
		said.Turn = parked[i].Turn
		list = append(list, said)
	}
	e.History.ShowParked(list)
	p.add(s)
	return true, nil
}

// itemsOf returns the new items of a record's request, and the first choice of its answer.
func itemsOf(b []byte) (r session.Parked, err error) {
	rec, err := decodeWaitingTurn(b)
	if err != nil {
		return r, err
	}
	for _, raw := range rec.NewItems {
		it, err := wire.ParseItem(dialects.ByCode(rec.Dialect), raw)
		if err != nil {
			return r, err
		}
		r.Items = append(r.Items, it)
	}
	r.After = rec.Replaces
	if rec.Answer == nil {
		return r, nil
	}
	a, err := rec.Answer.answer(dialects.ByCode(rec.Dialect))
	if err != nil || len(a.Reply.Choices) == 0 {
		return r, err
	}
	r.Made, r.Items = session.Origin{Provider: a.Provider, Model: a.Model}, append(r.Items, a.Reply.Choices[0]...)
	return r, nil
}
