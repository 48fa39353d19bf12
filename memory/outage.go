package memory

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"remora/cache"
	"remora/memory/session"
)

// outages remembers which parts of the store failed a moment ago, so that later calls do not each wait for a timeout. A part is a
// server of a cluster; the part "" is the whole store.
type outages struct {
	mu     sync.Mutex
	parts  map[string]*part
	unread time.Time // until when no further session that cannot be read or written is logged
	asking bool      // a ping that finds the parts of the store is under way
}

type part struct {
	down time.Time // until when it is not called
	slow int       // calls in a row that it did not answer in time
	away bool      // its failure was logged, its recovery was not
}

const (
	// maxParts bounds the parts that are remembered: servers of a cluster come and go under new addresses.
	maxParts = 256
	// slowCalls is after how many timeouts in a row the store is pinged. One slow fsync, or one large call, is no reason to go
	// on without memory.
	slowCalls = 3
	// unreadableEvery is how often sessions that cannot be read or written are logged.
	unreadableEvery = 10 * time.Second
)

var errLeftAlone = errors.New("store failed a moment ago")

// faultOf returns the fault of an error of a turn, and the parts of the store that it concerns. An error that is not the store's
// own was found in a session's data, and concerns that session.
func faultOf(err error) (cache.Fault, []string) {
	fault, parts := cache.FaultOf(err)
	if len(parts) == 0 {
		parts = []string{""}
	}
	switch {
	case errors.Is(err, session.ErrCorrupt):
		fault = cache.FaultCorrupt
	case fault == cache.FaultNone && errors.Is(err, context.DeadlineExceeded):
		fault = cache.FaultTimeout
	}
	return fault, parts
}

// none reports whether no part of the store has failed.
func (o *outages) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.parts) == 0
}

// available reports whether the store should be tried for a session.
func (m *Memory) available(s Scope) error {
	if m.outages.none() {
		return nil
	}
	return m.availableAt(s.Group())
}

// availableAt reports whether the store should be tried for a group.
func (m *Memory) availableAt(g cache.Group) error {
	o := &m.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	now := m.o.Now()
	for _, name := range [...]string{"", m.store.Shard(g)} {
		if p := o.parts[name]; p != nil && now.Before(p.down) {
			return errLeftAlone
		}
	}
	return nil
}

// failed records a failure of the store. A fault of a session is logged; a part of the store that has failed is not called for
// a while.
func (m *Memory) failed(err error) {
	if errors.Is(err, errLeftAlone) || errors.Is(err, errBusy) || errors.Is(err, context.Canceled) {
		return
	}
	m.outages.mu.Lock()
	defer m.outages.mu.Unlock()
	fault, parts := faultOf(err)
	for _, name := range parts {
		switch fault {
		case cache.FaultStore, cache.FaultShard:
			m.leaveAlone(name, err)
		case cache.FaultTimeout:
			m.waited(name)
		default:
			m.tellSession(err)
		}
	}
}

// waited records a call that was not answered in time. The caller holds the lock.
func (m *Memory) waited(name string) {
	p := m.part(name)
	if p.slow++; p.slow >= slowCalls && !m.outages.asking {
		m.outages.asking = true
		m.work.Go(m.ask)
	}
}

// part returns the state of a part of the store. The caller holds the lock.
func (m *Memory) part(name string) *part {
	o := &m.outages
	if p := o.parts[name]; p != nil {
		return p
	}
	if o.parts == nil || len(o.parts) >= maxParts {
		o.parts = map[string]*part{}
	}
	p := new(part)
	o.parts[name] = p
	return p
}

// tellSession logs that a session exists and cannot be read or written. The caller holds the lock.
func (m *Memory) tellSession(err error) {
	now := m.o.Now()
	if now.Before(m.outages.unread) {
		return
	}
	m.outages.unread = now.Add(unreadableEvery)
	level := slog.LevelWarn
	if errors.Is(err, cache.ErrDenied) {
		level = slog.LevelError // no waiting cures it
	}
	m.o.Log.Log(m.life, level, "a session cannot be read or written; its calls go on without memory", "error", err.Error())
}

// ask pings a store that was slow several times, to find out which of its parts answer.
func (m *Memory) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), m.o.RetryDelay)
	defer cancel()
	err := m.store.Ping(ctx)
	m.outages.mu.Lock()
	defer m.outages.mu.Unlock()
	m.outages.asking = false
	for _, p := range m.outages.parts {
		p.slow = 0
	}
	for _, name := range missing(err) {
		m.leaveAlone(name, err)
	}
}

// missing returns the parts of the store that did not answer a ping, which ended with err.
func missing(err error) []string {
	if err == nil {
		return nil
	}
	if fault, shards := cache.FaultOf(err); fault == cache.FaultShard && len(shards) > 0 {
		return shards
	}
	return []string{""}
}

// leaveAlone stops calls of a part of the store for a while. The caller holds the lock.
func (m *Memory) leaveAlone(name string, err error) {
	now := m.o.Now()
	p := m.part(name)
	if !p.away && !now.Before(p.down) {
		level, calls := slog.LevelWarn, "go on without it"
		if m.o.OnStoreError == OnStoreErrorClosed {
			calls = "of sessions get 503 (memory.on_store_error: closed)"
		}
		if errors.Is(err, cache.ErrDenied) {
			level = slog.LevelError // no waiting cures it
		}
		log := m.o.Log.With("error", err.Error(), "calls", calls, "retry_in", m.o.RetryDelay.String())
		if name == "" {
			log.Log(m.life, level, "store failed")
		} else {
			log.Log(m.life, level, "a server of the store failed", "server", name, "sessions", "those that it holds")
		}
		p.away = true
	}
	p.down = now.Add(m.o.RetryDelay)
}

// heard records the result of a ping by the spool's worker, and returns it, nil if a part of the store answers. After a failure
// only the worker tries a part until it answers again: each call that tried would wait for its whole timeout.
func (m *Memory) heard(err error) error {
	fault, _ := cache.FaultOf(err)
	partly := fault == cache.FaultShard
	gone := missing(err)
	o := &m.outages
	o.mu.Lock()
	var back []string
	for name, p := range o.parts {
		if (err == nil || partly) && !slices.Contains(gone, name) {
			delete(o.parts, name)
			if p.away {
				back = append(back, name)
			}
		}
	}
	news := false
	for _, name := range gone {
		if p := o.parts[name]; p != nil && !p.down.IsZero() {
			p.down = m.o.Now().Add(2 * m.o.RetryDelay) // the worker pings more often
		} else {
			news = true
		}
	}
	o.mu.Unlock()
	m.back(back)
	if news {
		m.failed(err)
	}
	if partly {
		return nil
	}
	return err
}

// answered records that the store has written a turn of a session.
func (m *Memory) answered(s Scope) {
	o := &m.outages
	if o.none() {
		return
	}
	shard := m.store.Shard(s.Group())
	o.mu.Lock()
	var back []string
	now := m.o.Now()
	for _, name := range [...]string{"", shard} {
		p := o.parts[name]
		if p == nil {
			continue
		}
		if p.slow = 0; now.Before(p.down) {
			continue // the call began before the failure
		}
		delete(o.parts, name)
		if p.away {
			back = append(back, name)
		}
	}
	o.mu.Unlock()
	m.back(back)
}

// back allows calls of some parts of the store again, and logs how many turns were spooled meanwhile and are written now.
func (m *Memory) back(parts []string) {
	for _, name := range parts {
		spooled := 0
		if m.spool.disk != nil {
			spooled, _ = m.spool.disk.Len()
		}
		if name == "" {
			m.o.Log.Info("store answers again", "spooled", spooled)
		} else {
			m.o.Log.Info("sessions of a server of the store are served again", "server", name, "spooled", spooled)
		}
	}
}

// isAway reports whether the server that holds a group is not to be called.
func (m *Memory) isAway(g cache.Group) bool { return m.availableAt(g) != nil }
