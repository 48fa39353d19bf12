package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"remora/memory"
	"remora/providers"
)

// watcher notices clients that disconnect while their request is being served, which fasthttp does not report. One goroutine
// checks all connections with a request under way in turn, since one for each would cost a stack per stream. A request is
// checked from its second sweep on, so that short ones cost only an entry of a map.
type watcher struct {
	every   time.Duration
	shards  [8]shard
	next    atomic.Uint32 // spreads watches over shards
	started atomic.Uint64 // watches ever added

	mu       sync.Mutex
	sessions map[sessionName]*watch // the latest request under way of each

	sleeping atomic.Bool
	wake     chan struct{}
	stop     chan struct{}
	done     chan struct{}
}

// shard is a part of the watches. Its lock makes it safe to check a connection: a watch leaves it before its connection goes
// back to fasthttp.
type shard struct {
	mu      sync.Mutex
	watches map[*watch]struct{}
	tick    uint64
}

// watch is one request under way. It is a part of the exchange.
type watch struct {
	shard *shard
	tick  uint64
	conn  net.Conn        // the client's; nil if it is not to be checked
	probe providers.Probe // attached to conn at the first check
	onEnd func(why end)   // called at most once, with the shard locked; must not block
	over  bool

	// Guarded by watcher.mu.
	session        sessionName   // zero before the session is known
	earlier, later *watch        // of the session's requests under way
	removed        chan struct{} // closed when the request is over, if another one waits for that
}

// sessionName names a session among those of all tenants.
type sessionName struct{ tenant, session string }

// end is why a request was ended early.
type end uint32

const (
	endNone end = iota
	endClientGone
	endShutdown
)

// ending says why an exchange was ended early, if it was. It is safe for concurrent use.
type ending struct{ why atomic.Uint32 }

func (e *ending) set(why end)     { e.why.Store(uint32(why)) }
func (e *ending) is(why end) bool { return end(e.why.Load()) == why }
func (e *ending) over() bool      { return !e.is(endNone) }

// cut says who cut an incomplete answer off.
func (e *ending) cut() memory.Aborted {
	if e.is(endClientGone) {
		return memory.AbortedByClient
	}
	return memory.AbortedByUpstream
}

func newWatcher(every time.Duration) *watcher {
	w := &watcher{
		sessions: make(map[sessionName]*watch), every: every, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	for i := range w.shards {
		w.shards[i].watches = make(map[*watch]struct{})
	}
	go w.run()
	return w
}

// assign gives a watch its shard. It is called once.
func (w *watcher) assign(x *watch) { x.shard = &w.shards[w.next.Add(1)%uint32(len(w.shards))] }

// add starts watching. With a nil conn only endAll ends x.
func (w *watcher) add(x *watch, conn net.Conn) {
	s := x.shard
	s.mu.Lock()
	x.conn, x.over, x.tick = conn, false, s.tick
	s.watches[x] = struct{}{}
	s.mu.Unlock()
	w.started.Add(1)
	if w.sleeping.Load() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// maxLooks is the number of a session's requests that enter checks, the latest: it holds the lock of all sessions.
const maxLooks = 16

// enter names the session of x. It ends earlier requests of the session whose clients have gone, and returns a channel for each
// that is closed when its turn is over: a client that breaks an answer off to say something else is faster than the next sweep.
func (w *watcher) enter(x *watch, name sessionName) (leaving []<-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	latest := w.sessions[name]
	for o, looks := latest, 0; o != nil && looks < maxLooks; o, looks = o.earlier, looks+1 {
		o.shard.mu.Lock()
		if !o.over && o.look() == providers.PeerGone {
			o.finish(endClientGone)
		}
		if o.over {
			if o.removed == nil {
				o.removed = make(chan struct{})
			}
			leaving = append(leaving, o.removed)
		}
		o.shard.mu.Unlock()
	}
	x.session, x.earlier = name, latest
	if latest != nil {
		latest.later = x
	}
	w.sessions[name] = x
	return leaving
}

// exit takes x out of its session's requests.
func (w *watcher) exit(x *watch) {
	if x.session == (sessionName{}) { // only x's own request writes it
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.earlier != nil {
		x.earlier.later = x.later
	}
	switch {
	case x.later != nil:
		x.later.earlier = x.earlier
	case x.earlier != nil:
		w.sessions[x.session] = x.earlier
	default:
		delete(w.sessions, x.session)
	}
	x.session, x.earlier, x.later = sessionName{}, nil, nil
	if x.removed != nil {
		close(x.removed)
		x.removed = nil
	}
}

// remove ends watching. After it the watcher neither touches the connection nor calls onEnd.
func (w *watcher) remove(x *watch) {
	w.exit(x)
	s := x.shard
	s.mu.Lock()
	delete(s.watches, x)
	x.conn = nil
	x.probe.Detach()
	s.mu.Unlock()
}

// len returns the number of requests under way.
func (w *watcher) len() int {
	n := 0
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		n += len(s.watches)
		s.mu.Unlock()
	}
	return n
}

// endAll ends everything under way that pick accepts.
func (w *watcher) endAll(why end, pick func(*watch) bool) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for x := range s.watches {
			if pick(x) {
				x.finish(why)
			}
		}
		s.mu.Unlock()
	}
}

// close stops the goroutine.
func (w *watcher) close() {
	close(w.stop)
	<-w.done
}

func (w *watcher) run() {
	defer close(w.done)
	timer := time.NewTimer(w.every) //nolint:forbidigo // paces a sweep, measures nothing
	defer timer.Stop()
	for seen := uint64(0); ; {
		select {
		case <-w.stop:
			return
		case <-timer.C:
		}
		for i := range w.shards {
			w.shards[i].sweep()
		}
		if started := w.started.Load(); started != seen {
			seen = started
		} else if !w.rest() {
			return
		}
		timer.Reset(w.every)
	}
}

// rest sleeps while nothing is under way. It returns false once the watcher is closed.
func (w *watcher) rest() bool {
	w.sleeping.Store(true)
	defer w.sleeping.Store(false)
	// Count after setting the flag: a request that comes now either sees the flag and wakes us, or is counted.
	if w.len() > 0 {
		return true
	}
	select {
	case <-w.stop:
		return false
	case <-w.wake:
		return true
	}
}

func (s *shard) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick++
	for x := range s.watches {
		if x.tick+1 < s.tick && !x.over && x.look() == providers.PeerGone {
			x.finish(endClientGone)
		}
	}
}

// look checks the client's connection. The caller holds the shard's lock.
func (x *watch) look() providers.Peer {
	if x.conn == nil {
		return providers.PeerUnknown
	}
	if !x.probe.Attached() {
		x.probe.Attach(x.conn)
	}
	return x.probe.Look()
}

// finish calls onEnd once. The caller holds the shard's lock.
func (x *watch) finish(why end) {
	if !x.over {
		x.over = true
		x.onEnd(why)
	}
}
