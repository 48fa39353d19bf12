package scripted

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
)

// End is how a request ended.
type End uint8

// Ends of a request.
const (
	// Open: the request is being answered.
	Open End = iota
	// Served: the answer was written completely, an error answer included.
	Served
	// ClientGone: the client disconnected, or the server was closed, before the answer was complete.
	ClientGone
	// Broken: the server ended the answer early because of a fault.
	Broken
)

func (e End) String() string {
	return [...]string{"open", "served", "client gone", "broken"}[e]
}

// Recorded is one request and the state of its answer.
type Recorded struct {
	// Seq counts requests from 1, in the order in which their bodies were complete.
	Seq int
	// Method and Target are from the request line; Target is unparsed, with its query.
	Method, Target string
	// Host is the Host header.
	Host string
	// Header is net/http's header: canonical names, no Host.
	Header http.Header
	// RawHeader is the request's head in its bytes, from the request line to the empty line. Nil for pipelined requests and heads
	// above 256 KiB.
	RawHeader []byte
	// Body is the body without transfer coding, but with its content coding.
	Body []byte
	// Events is the number of events written so far.
	Events int
	// End is how the request ended.
	End End
}

const (
	keepBytes = 64 << 20 // of all recorded requests
	maxFaults = 1000
)

// recorder stores recent requests within bounds, and wakes waiters on changes.
type recorder struct {
	keepRequests int

	mu      sync.Mutex
	changed sync.Cond // of entries
	seq     int
	size    int
	entries []*Recorded
	faults  []string
}

func newRecorder(keepRequests int) *recorder {
	c := &recorder{keepRequests: keepRequests}
	c.changed.L = &c.mu
	return c
}

// record adds r. Only the recorder's methods may access it afterwards.
func (c *recorder) record(r *Recorded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	r.Seq = c.seq
	c.entries = append(c.entries, r)
	c.size += sizeOf(r)
	c.shrink()
	c.changed.Broadcast()
}

// shrink removes the oldest ended requests. Open ones stay: their number is bounded by the connections.
func (c *recorder) shrink() {
	for i := 0; i < len(c.entries) && (len(c.entries) > c.keepRequests || c.size > keepBytes); {
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
	c.changed.Broadcast()
}

func (c *recorder) recordEnd(r *Recorded, e End) {
	c.update(r, func(r *Recorded) { r.End = e })
}

// Await waits for a recorded request that match accepts, and returns the first one. It calls match again whenever a request
// arrives, sends an event or ends. Its error is the context's.
func (c *recorder) Await(ctx context.Context, match func(Recorded) bool) (Recorded, error) {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for _, r := range c.entries {
			if out := r.copy(); match(out) {
				return out, nil
			}
		}
		if ctx.Err() != nil {
			return Recorded{}, ctx.Err()
		}
		c.changed.Wait()
	}
}

// copy shares the bytes, which are never modified, and clones the header, which a caller may modify.
func (r *Recorded) copy() Recorded {
	out := *r
	out.Header = maps.Clone(r.Header)
	return out
}

// Requests returns copies of the requests so far, oldest first, running ones included.
func (c *recorder) Requests() []Recorded {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Recorded, len(c.entries))
	for i, r := range c.entries {
		out[i] = r.copy()
	}
	return out
}

func (c *recorder) recordFault(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, line)
	}
}

// Faults returns a line for every invalid history: the endpoint and the text of the error. At most 1000 are stored.
func (c *recorder) Faults() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.faults)
}

// resetRecords removes running requests, too: a client has its answer before the handler that wrote it is recorded as ended.
func (c *recorder) resetRecords() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.faults, c.seq, c.size = nil, nil, 0, 0
	c.changed.Broadcast()
}

// teeListener returns connections that record the head of each request: net/http preserves neither the case nor the order of
// header fields, and tests of a transparent proxy need both.
type teeListener struct{ net.Listener }

func (l teeListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &teeConn{Conn: c}, nil
}

const maxRawHeader = 256 << 10

// teeConn records the bytes of a head, and then nothing until the next request may begin.
type teeConn struct {
	net.Conn
	mu   sync.Mutex
	head []byte
	done bool // head is complete, or too long
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

// takeHead returns the head of the request that begins with method. It returns nil if the head was not recorded completely,
// such as for a pipelined request whose first bytes were read with the previous one.
func (c *teeConn) takeHead(method string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done || !bytes.HasPrefix(c.head, []byte(method+" ")) {
		return nil
	}
	return c.head
}

// nextHead begins to record again. The handler must call it before the client can receive the end of the answer.
func (c *teeConn) nextHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head, c.done = nil, false
}
