package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"remora/memory/session"
	"remora/wire"
)

// Pauses between looks at a session of which another process has a turn under way.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 50 * time.Millisecond
)

// find enters the turn into its session. If its view relies on stored history, it waits until earlier turns that are
// open in other processes have ended, as long as ctx allows; after that it notes that the view misses some.
func (t *Turn) find(ctx context.Context, w session.Want) (e *session.Entry, extra session.Extra, err error) {
	e, extra, err = t.m.log.Enter(ctx, t.ID, t.started, t.call, w)
	if err != nil || !e.Relies() {
		return e, extra, err
	}
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		if !t.m.processes.behind(ctx, e) {
			whole, err := t.follow(ctx, e)
			if whole || err != nil {
				return e, extra, err
			}
		}
		if !sleep(ctx, pause) {
			break
		}
		again, more, err := t.m.log.Enter(ctx, t.ID, t.started, t.call, w)
		if err != nil {
			break
		}
		e, extra = again, more
	}

	t.misses = true
	e.Misses()
	late, cancel := context.WithTimeout(t.base, t.m.o.ReadWait) // the request's own time has gone into waiting
	defer cancel()
	_, err = t.follow(late, e) //nolint:contextcheck // see late
	return e, extra, err
}

// sleep waits for d, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d) //nolint:forbidigo // wakes; no clock is read
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow shows turns that are ready in the view. It reports false where one of them is in the log meanwhile, so that the
// session has to be read again.
func (t *Turn) follow(ctx context.Context, e *session.Entry) (whole bool, err error) {
	ready := slices.DeleteFunc(e.Earlier(), func(p session.Pending) bool { return !p.Ready })
	if len(ready) == 0 {
		return true, nil
	}
	records, err := t.m.log.Records(ctx, t.call.Scope, ready)
	if err != nil {
		return false, err
	}
	list := make([]session.Ready, 0, len(records))
	for i, b := range records {
		if b == nil {
			return false, nil
		}
		said, err := saidIn(b)
		if err != nil {
			return false, fmt.Errorf("turn %s: %w", ready[i].Turn, err)
		}
		said.Turn = ready[i].Turn
		list = append(list, said)
	}
	e.Follow(list)
	t.m.processes.park(t.call.Scope)
	return true, nil
}

// saidIn are the new items of a record's request, and the first choice of its answer.
func saidIn(b []byte) (r session.Ready, err error) {
	rec, err := decodeSpooled(b)
	if err != nil {
		return r, err
	}
	for _, raw := range rec.Said {
		it, err := wire.ParseItem(rec.Dialect.Dialect(), raw)
		if err != nil {
			return r, err
		}
		r.Items = append(r.Items, it)
	}
	if rec.Answer == nil {
		return r, nil
	}
	a, err := rec.Answer.answer(rec.Dialect.Dialect())
	if err != nil || len(a.Reply.Choices) == 0 {
		return r, err
	}
	r.Made, r.Items = session.Origin{Provider: a.Provider, Model: a.Model}, append(r.Items, a.Reply.Choices[0]...)
	return r, nil
}

// park stores the record of a turn that was answered before an earlier one of another process has ended.
func (t *Turn) park(ctx context.Context, a *Answer) error {
	rec, _ := t.record(a)
	rec.History = t.entry.RecordMode()
	for _, it := range t.entry.Said() {
		rec.Said = append(rec.Said, it.Raw)
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode turn: %w", err)
	}
	t.m.processes.park(t.call.Scope) // also where there is no room: those that wait have to be written first
	parked, err := t.entry.Park(ctx, a, b)
	for t.reread(err) {
		parked, err = t.entry.Park(ctx, a, b)
	}
	if errors.Is(err, session.ErrNoRoom) && t.m.spool.disk == nil {
		parked, err = false, nil // there is nowhere else for it to wait
		t.entry.GoAhead()
	}
	if err != nil {
		return err
	}
	if !parked {
		return t.commit(ctx, a)
	}
	t.parked = true
	return nil
}

// park notes that turns of a session wait for earlier ones, or may go ahead now.
func (p *processes) park(s Scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked[s.Group()] = s
}

// gather writes the turns that waited for earlier ones, as far as those have ended.
func (p *processes) gather(ctx context.Context) {
	p.mu.Lock()
	parked := maps.Clone(p.parked)
	p.mu.Unlock()
	for g, s := range parked {
		left, err := p.m.gather(ctx, s)
		if err != nil {
			p.m.o.Log.Debug("turns that are ready are not written yet", "error", err.Error())
			continue
		}
		if left == 0 {
			p.mu.Lock()
			delete(p.parked, g)
			p.mu.Unlock()
		}
	}
}

// gather writes those turns of a session that were answered and waited for earlier ones, in their order, as far as nothing
// is open before them, and returns how many still wait.
func (m *Memory) gather(ctx context.Context, s Scope) (left int, err error) {
	for {
		// What the others say is read before the session: of a turn that one of them makes ready in between, the session tells.
		held, err := m.processes.holding(ctx, sessionKey(s.Group()))
		if err != nil {
			return 0, err
		}
		list, records, err := m.log.Pending(ctx, s)
		if err != nil || !slices.ContainsFunc(list, func(p session.Pending) bool { return p.Ready }) {
			return 0, err
		}
		left = 0
		for _, p := range list {
			if p.Ready {
				left++
			}
		}
		next, ended, err := m.nextReady(ctx, list, held)
		if err != nil || next < 0 {
			return left, err
		}
		if records[next] == nil {
			continue // written meanwhile
		}
		if err := m.writeReady(ctx, s, records[next], ended); err != nil {
			return left, fmt.Errorf("turn %s: %w", list[next].Turn, err)
		}
	}
}

// gatherFirst is gather before the session is read as a whole, which tells of all else that is wrong with it.
func (m *Memory) gatherFirst(ctx context.Context, s Scope) {
	if _, err := m.gather(ctx, s); err != nil {
		m.o.Log.Debug("turns that are ready are not written yet", "error", err.Error())
	}
}

// nextReady finds the first turn that is ready and waits for none, -1 for none, and returns the processes that have
// ended.
func (m *Memory) nextReady(ctx context.Context, list []session.Pending, held holding) (next int, ended []uint64, err error) {
	ended, unknown := m.processes.owners(list)
	more, err := m.processes.look(ctx, unknown, false)
	if err != nil {
		return -1, nil, err
	}
	ended = append(ended, more...)
	next = -1
	first := true
	var open []uint64
	m.processes.mu.Lock()
	defer m.processes.mu.Unlock()
	for i, p := range list {
		if !p.Ready {
			if !slices.Contains(ended, p.Owner) {
				open = append(open, p.Owner)
			}
			continue
		}
		waited := m.processes.waited(p.Turn)
		if first {
			waits := held.before(beganAt(p.Turn)) || slices.ContainsFunc(open, func(o uint64) bool { return o != p.Owner })
			if !waits || waited >= readyWait {
				next = i
			}
		}
		first = false // the others wait for this one
	}
	return next, ended, nil
}

// waited is for how long this process has known that a turn is ready: after a long outage all of them began long ago. The
// caller holds the lock.
func (p *processes) waited(turn string) time.Duration {
	now := p.m.o.Now()
	since, known := p.ready[turn]
	if !known {
		if len(p.ready) >= maxReady {
			clear(p.ready)
		}
		since = now
		p.ready[turn] = since
	}
	return now.Sub(since)
}

// writeReady writes a turn of which the record is stored.
func (m *Memory) writeReady(ctx context.Context, s Scope, b []byte, ended []uint64) error {
	rec, err := decodeSpooled(b)
	if err != nil {
		return err
	}
	t, a, err := m.resume(rec, rec.Kept)
	if err != nil {
		return err
	}
	t.entry.Lapsed(ended...)
	t.entry.GoAhead()
	held, err := m.lock(ctx, s)
	if err != nil {
		return err
	}
	defer func() { <-held }()
	if err := t.commit(ctx, a); err != nil {
		return err
	}
	m.processes.mu.Lock()
	defer m.processes.mu.Unlock()
	delete(m.processes.ready, rec.Turn)
	return nil
}
