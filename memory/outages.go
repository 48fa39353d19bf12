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
	"remora/memory/turnqueue"
)

// outages records which parts of the store failed recently, so that later calls do not each wait for a timeout. A part is a
// server of a cluster; the part "" is the whole store.
type outages struct {
	store  cache.Store
	spool  *turnqueue.Queue // of the turns that wait for the store; nil for none
	log    *slog.Logger
	now    func() time.Time
	pause  time.Duration // how long a part that failed is not called
	closed bool          // calls of sessions are refused during an outage

	life context.Context //nolint:containedctx // of the process
	work *sync.WaitGroup // of pings

	mu      sync.Mutex
	parts   map[string]*part
	unread  time.Time // until when no further session that cannot be read or written is logged
	late    time.Time // until when no further call that was not answered in time is logged
	pinging bool      // a ping that finds the parts of the store is under way
}

func newOutages(m *Memory, spool *turnqueue.Queue) *outages {
	return &outages{
		store: m.store, spool: spool, log: m.o.Log, now: m.o.Now, pause: m.o.RetryDelay,
		closed: m.o.OnStoreError == OnStoreErrorClosed, life: m.life, work: &m.work,
	}
}

type part struct {
	down time.Time // until when it is not called
	slow int       // calls in a row that it did not answer in time
	away bool      // its failure was logged, its recovery was not
}

const (
	// maxParts bounds the recorded parts: servers of a cluster come and go under new addresses.
	maxParts = 256
	// slowCalls is the number of consecutive timeouts after which the store is pinged. One slow fsync, or one large call, is no
	// reason to continue without memory.
	slowCalls = 3
	// unreadableEvery is how often sessions that cannot be read or written are logged.
	unreadableEvery = 10 * time.Second
	// lateEvery is how often calls that were not answered in time are logged.
	lateEvery = time.Minute
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

// available returns an error if the store should not be called for a group.
func (o *outages) available(g cache.Group) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.parts) == 0 {
		return nil
	}
	now := o.now()
	for _, name := range [...]string{"", o.store.Shard(g)} {
		if p := o.parts[name]; p != nil && now.Before(p.down) {
			return errLeftAlone
		}
	}
	return nil
}

// failed records a failure of the store. A fault of a session is logged; a part of the store that has failed is not called for
// a while.
func (o *outages) failed(err error) {
	if errors.Is(err, errLeftAlone) || errors.Is(err, errBusy) || errors.Is(err, context.Canceled) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	fault, parts := faultOf(err)
	for _, name := range parts {
		switch fault {
		case cache.FaultStore, cache.FaultShard:
			o.leaveAlone(name, err)
		case cache.FaultTimeout:
			o.timedOut(name, err)
		default:
			o.logSession(err)
		}
	}
}

// timedOut records a call that was not answered in time. A store that answers pings may be too slow for many calls. The caller
// holds the lock.
func (o *outages) timedOut(name string, err error) {
	if o.due(&o.late, lateEvery) {
		o.log.Warn("store did not answer in time", "error", err.Error(), "wait", "store.read_wait or store.commit_wait")
	}
	p := o.part(name)
	if p.slow++; p.slow >= slowCalls && !o.pinging {
		o.pinging = true
		o.work.Go(o.ping)
	}
}

// part returns the state of a part of the store. The caller holds the lock.
func (o *outages) part(name string) *part {
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

// due reports whether the time of a line's next repetition has come, and sets the one after. The caller holds the lock.
func (o *outages) due(next *time.Time, every time.Duration) bool {
	now := o.now()
	if now.Before(*next) {
		return false
	}
	*next = now.Add(every)
	return true
}

// logSession logs that a session exists and cannot be read or written. The caller holds the lock.
func (o *outages) logSession(err error) {
	if !o.due(&o.unread, unreadableEvery) {
		return
	}
	level, calls := slog.LevelWarn, "go on without memory"
	if o.closed {
		calls = "get 503 (memory.on_store_error: closed)"
	}
	if errors.Is(err, cache.ErrDenied) {
		level = slog.LevelError // no waiting cures it
	}
	o.log.Log(o.life, level, "a session cannot be read or written", "error", err.Error(), "calls", calls)
}

// ping pings a store that was slow several times, to find out which of its parts answer.
func (o *outages) ping() {
	ctx, cancel := context.WithTimeout(context.Background(), o.pause)
	defer cancel()
	err := o.store.Ping(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pinging = false
	for _, p := range o.parts {
		p.slow = 0
	}
	for _, name := range unreachable(err) {
		o.leaveAlone(name, err)
	}
}

// unreachable returns the parts of the store that did not answer a ping, which ended with err.
func unreachable(err error) []string {
	if err == nil {
		return nil
	}
	if fault, shards := cache.FaultOf(err); fault == cache.FaultShard && len(shards) > 0 {
		return shards
	}
	return []string{""}
}

// leaveAlone stops calls of a part of the store for a while. The caller holds the lock.
func (o *outages) leaveAlone(name string, err error) {
	now := o.now()
	p := o.part(name)
	if !p.away && !now.Before(p.down) {
		level, calls := slog.LevelWarn, "go on without it"
		if o.closed {
			calls = "of sessions get 503 (memory.on_store_error: closed)"
		}
		if errors.Is(err, cache.ErrDenied) {
			level = slog.LevelError // no waiting cures it
		}
		log := o.log.With("error", err.Error(), "calls", calls, "retry_in", o.pause.String())
		if name == "" {
			log.Log(o.life, level, "store failed")
		} else {
			log.Log(o.life, level, "a server of the store failed", "server", name, "sessions", "those that it holds")
		}
		p.away = true
	}
	p.down = now.Add(o.pause)
}

// check pings the store, and returns nil if a part of it answers. Only a write shows that turns are stored again: a store that is full
// answers pings.
func (o *outages) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, o.pause)
	defer cancel()
	return o.pinged(o.store.Ping(ctx))
}

// pinged records the result of a ping by the spool's worker, and returns it, nil if a part of the store answers. After a
// failure only the worker calls a part until it answers again: other calls would wait for their whole timeout.
func (o *outages) pinged(err error) error {
	fault, _ := cache.FaultOf(err)
	partly := fault == cache.FaultShard
	gone := unreachable(err)
	o.mu.Lock()
	for name := range o.parts {
		if (err == nil || partly) && !slices.Contains(gone, name) {
			o.reachable(name)
		}
	}
	news := false
	for _, name := range gone {
		if p := o.parts[name]; p != nil && !p.down.IsZero() {
			p.down = o.now().Add(2 * o.pause) // the worker pings more often
		} else {
			news = true
		}
	}
	o.mu.Unlock()
	if news {
		o.failed(err)
	}
	if partly {
		return nil
	}
	return err
}

// reachable allows calls of a part of the store again. While turns wait for it, the log says so only after the first of them is
// written (see answered). The caller holds the lock.
func (o *outages) reachable(name string) {
	p := o.parts[name]
	if o.spooled() == 0 || !p.away {
		o.recovered(name)
		return
	}
	p.down, p.slow = time.Time{}, 0
}

// spooled returns the number of turns that wait for the store.
func (o *outages) spooled() int {
	n, _ := o.spool.Len()
	return n
}

// answered records that the store has written to a group.
func (o *outages) answered(g cache.Group) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.parts) == 0 {
		return
	}
	now := o.now()
	for _, name := range [...]string{"", o.store.Shard(g)} {
		p := o.parts[name]
		if p == nil {
			continue
		}
		if p.slow = 0; now.Before(p.down) {
			continue // the call began before the failure
		}
		o.recovered(name)
	}
}

// recovered allows calls of a part of the store again, and logs it with how many turns were spooled meanwhile and are written now.
// The caller holds the lock.
func (o *outages) recovered(name string) {
	away := o.parts[name].away
	if delete(o.parts, name); !away {
		return
	}
	if name == "" {
		o.log.Info("store answers again", "spooled", o.spooled())
	} else {
		o.log.Info("sessions of a server of the store are served again", "server", name, "spooled", o.spooled())
	}
}
