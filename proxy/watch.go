package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"remora/memory"
	"remora/providers"
	"remora/wire"
)

// watcher notices clients that go away while their request is being served, which fasthttp does not tell. One
// goroutine looks at all connections with a request under way in turn: a goroutine for each would cost a stack per
// stream. A request is looked at from its second sweep on, so that short ones cost a list entry and nothing else.
type watcher struct {
	every   time.Duration
	shards  [8]shard
	next    atomic.Uint32 // spreads watches over shards
	started atomic.Uint64 // watches ever added

	sleeping atomic.Bool
	wake     chan struct{}
	stop     chan struct{}
	done     chan struct{}
}

// shard is a list of watches in the order in which they began. Its lock is what makes looking safe: a watch leaves
// the list before its connection goes back to the server.
type shard struct {
	mu    sync.Mutex
	list  watch // ring; list.next is the oldest
	tick  uint64
	count int
}

// watch is one request under way, embedded in what serves it.
type watch struct {
	shard      *shard
	next, prev *watch
	tick       uint64
	conn       net.Conn        // the client's; nil if there is nothing to look at
	probe      providers.Probe // attached to conn once it is looked at
	ended      func(why end)   // called at most once, with the shard locked; must not block
	over       bool
}

// end is why a request is ended from outside.
type end uint32

const (
	endNone end = iota
	endClientGone
	endShutdown
)

func newWatcher(every time.Duration) *watcher {
	w := &watcher{every: every, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	for i := range w.shards {
		l := &w.shards[i].list
		l.next, l.prev = l, l
	}
	go w.run()
	return w
}

// assign gives a watch its shard, once in its life.
func (w *watcher) assign(x *watch) { x.shard = &w.shards[w.next.Add(1)%uint32(len(w.shards))] }

// add starts watching. conn may be nil: then x is only ended by endAll.
func (w *watcher) add(x *watch, conn net.Conn) {
	s := x.shard
	s.mu.Lock()
	x.conn, x.over, x.tick = conn, false, s.tick
	last := s.list.prev
	x.prev, x.next = last, &s.list
	last.next, s.list.prev = x, x
	s.count++
	s.mu.Unlock()
	w.started.Add(1)
	if w.sleeping.Load() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// remove ends watching: when it returns, nothing touches the connection and ended is not called any more.
func (w *watcher) remove(x *watch) {
	s := x.shard
	s.mu.Lock()
	x.prev.next, x.next.prev = x.next, x.prev
	x.next, x.prev, x.conn = nil, nil, nil
	x.probe.Detach()
	s.count--
	s.mu.Unlock()
}

// len is how many requests are under way.
func (w *watcher) len() int {
	n := 0
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		n += s.count
		s.mu.Unlock()
	}
	return n
}

// endAll ends everything under way that pick accepts.
func (w *watcher) endAll(why end, pick func(*watch) bool) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for x := s.list.next; x != &s.list; x = x.next {
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

// rest sleeps while nothing is under way; false means that it is time to stop.
func (w *watcher) rest() bool {
	w.sleeping.Store(true)
	defer w.sleeping.Store(false)
	// After the flag: whoever comes now either sees it and wakes, or is counted here.
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
	for x := s.list.next; x != &s.list && x.tick+1 < s.tick; x = x.next {
		if !x.over && x.look() == providers.PeerGone {
			x.finish(endClientGone)
		}
	}
}

// look asks what the client has done. The caller holds the shard's lock.
func (x *watch) look() providers.Peer {
	if x.conn == nil {
		return providers.PeerUnknown
	}
	if !x.probe.Attached() {
		x.probe.Attach(x.conn)
	}
	return x.probe.Look()
}

// finish calls ended once. The caller holds the shard's lock.
func (x *watch) finish(why end) {
	if !x.over {
		x.over = true
		x.ended(why)
	}
}

// cut says how an answer that is not complete was cut off.
func (x *exchange) cut() memory.Cut {
	if end(x.why.Load()) == endClientGone {
		return memory.CutClient
	}
	return memory.CutUpstream
}

// parts are answers that were cut off and are being committed, which takes several times the size of each. Nobody waits for
// them, and all clients of a network may leave in one moment: large ones are committed a few at a time.
type parts struct {
	slots chan struct{}
	hurry chan struct{} // closed when the server stops
}

const (
	partsAtOnce = 4
	largePart   = 256 << 10 // bytes
)

func newParts() parts {
	return parts{slots: make(chan struct{}, partsAtOnce), hurry: make(chan struct{})}
}

// wait returns when an answer may be committed. What it returns has to be called after that.
func (p *parts) wait(r wire.Reply) (done func()) {
	size := 0
	for _, choice := range r.Choices {
		for i := range choice {
			size += len(choice[i].Raw)
		}
	}
	if size < largePart {
		return func() {}
	}
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }
	case <-p.hurry:
		return func() {}
	}
}
