package scripted

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// End is how a request ended.
type End uint8

// Ends of a request.
const (
	// Open: the request is being answered.
	Open End = iota
	// Served: the answer was written completely, an error answer included.
	Served
	// ClientGone: the client left, or the server was closed, before the answer was complete.
	ClientGone
	// Broken: the server broke the answer off itself, as a fault asked.
	Broken
)

func (e End) String() string {
	return [...]string{"open", "served", "client gone", "broken"}[e]
}

// Recorded is one request as it arrived and what became of it.
type Recorded struct {
	// Seq counts requests from 1, in the order in which their bodies were complete.
	Seq int
	// Method and Target are the request line's, the target with its query and unparsed.
	Method, Target string
	// Host is the Host header.
	Host string
	// Header is the header as net/http gives it: canonical names, no Host.
	Header http.Header
	// RawHeader is the request head as it came, from the request line to the empty line. Nil for pipelined requests
	// and heads above 256 KiB.
	RawHeader []byte
	// Body is the body without its transfer coding; a content coding is kept.
	Body []byte
	// Status is the status answered, 0 before the response header went out.
	Status int
	// Events is the number of events written so far.
	Events int
	// End and Ended are how and when the request ended; Ended is zero while it is open.
	End   End
	Ended time.Time
}

const maxFaults = 1000

// recorder keeps recent requests within bounds and wakes those who wait for a change.
type recorder struct {
	keepRequests, keepBytes int
	now                     func() time.Time

	mu      sync.Mutex
	changed chan struct{} // closed and replaced on every change that someone may wait for
	waiters int
	seq     int
	size    int
	entries []*Recorded
	faults  []string
}

func newRecorder(keepRequests, keepBytes int, now func() time.Time) *recorder {
	return &recorder{keepRequests: keepRequests, keepBytes: keepBytes, now: now, changed: make(chan struct{})}
}

// add takes r over; only the recorder's methods may touch it afterwards.
func (c *recorder) add(r *Recorded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	r.Seq = c.seq
	c.entries = append(c.entries, r)
	c.size += sizeOf(r)
	c.shrink()
	c.notify()
}

// shrink forgets ended requests from the oldest on. Open ones stay: their number is bounded by the connections.
func (c *recorder) shrink() {
	for i := 0; i < len(c.entries) && (len(c.entries) > c.keepRequests || c.size > c.keepBytes); {
		if c.entries[i].End == Open {
			i++
			continue
		}
		c.size -= sizeOf(c.entries[i])
		c.entries = slices.Delete(c.entries, i, i+1)
	}
}

func sizeOf(r *Recorded) int { return len(r.RawHeader) + len(r.Body) + 512 }

func (c *recorder) update(r *Recorded, change func(*Recorded)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(r)
	c.notify()
}

func (c *recorder) end(r *Recorded, e End) {
	c.update(r, func(r *Recorded) {
		if r.End == Open {
			r.End, r.Ended = e, c.now()
		}
	})
}

// notify wakes waiters. Without any it costs nothing, which matters since every event comes here.
func (c *recorder) notify() {
	if c.waiters > 0 {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

func (c *recorder) await(ctx context.Context, match func(Recorded) bool) (Recorded, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiters++
	defer func() { c.waiters-- }()
	for {
		for _, r := range c.entries {
			if out := r.copy(); match(out) {
				return out, nil
			}
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			return Recorded{}, ctx.Err()
		}
	}
}

// copy shares the bytes, which are never changed, and clones the header, which a caller might change.
func (r *Recorded) copy() Recorded {
	out := *r
	out.Header = maps.Clone(r.Header)
	return out
}

func (c *recorder) list() []Recorded {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Recorded, len(c.entries))
	for i, r := range c.entries {
		out[i] = r.copy()
	}
	return out
}

func (c *recorder) fault(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, line)
	}
}

func (c *recorder) faultList() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.faults)
}

func (c *recorder) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults, c.seq, c.size = nil, 0, 0
	c.entries = slices.DeleteFunc(c.entries, func(r *Recorded) bool { return r.End != Open })
	for _, r := range c.entries {
		c.size += sizeOf(r)
	}
	c.notify()
}

// teeListener hands out connections that remember the head of each request, because net/http keeps neither the
// spelling nor the order of header fields and a test of a transparent proxy wants both.
type teeListener struct{ net.Listener }

func (l teeListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &teeConn{Conn: c}, nil
}

const maxRawHeader = 256 << 10

// teeConn records the bytes read until the end of a head, then nothing until the next request may begin.
type teeConn struct {
	net.Conn
	mu   sync.Mutex
	head []byte
	done bool // head is complete, or given up
}

func (c *teeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done || n == 0 {
		return n, err
	}
	from := max(0, len(c.head)-3)
	c.head = append(c.head, p[:n]...)
	if i := bytes.Index(c.head[from:], []byte("\r\n\r\n")); i >= 0 {
		c.head, c.done = c.head[:from+i+4], true
	} else if len(c.head) > maxRawHeader {
		c.head, c.done = nil, true
	}
	return n, err
}

// takeHead returns the head of the request that begins with method; nil if it was not seen whole, such as for a
// pipelined request whose first bytes were read together with its predecessor.
func (c *teeConn) takeHead(method string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done || !bytes.HasPrefix(c.head, []byte(method+" ")) {
		return nil
	}
	return c.head
}

// nextHead begins to collect again. It has to be called before the client can have seen the end of the answer, so
// from within the handler.
func (c *teeConn) nextHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head, c.done = nil, false
}
