package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"remora/memory/session"
)

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
	w, a, err := m.resume(rec, rec.Kept)
	if err != nil {
		return err
	}
	w.entry.Order.Ended(ended...)
	w.entry.Order.GoAhead()
	held, err := m.lock(ctx, s)
	if err != nil {
		return err
	}
	defer func() { <-held }()
	if err := w.commit(ctx, a); err != nil {
		return err
	}
	m.processes.mu.Lock()
	defer m.processes.mu.Unlock()
	delete(m.processes.ready, rec.Turn)
	return nil
}
