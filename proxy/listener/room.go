package listener

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// Spare is for how many connections beyond its limit a Room lets a server wait for a request, to have it answered. fasthttp
// would refuse them before it reads one, with a text that no SDK understands and that over TLS never comes.
const Spare = 256

// Room counts a server's connections, and knows those for which there was none when they came. It is safe for concurrent
// use.
type Room struct {
	limit   int
	refusal []byte

	mu     sync.Mutex
	open   int
	beyond map[net.Conn]struct{}
	some   atomic.Bool // beyond holds some
}

// NewRoom makes a Room for limit connections. refusal is a whole HTTP response for those that come when the spare ones are
// taken, too; over TLS they are just closed.
func NewRoom(limit int, refusal []byte) *Room {
	return &Room{limit: limit, refusal: refusal, beyond: map[net.Conn]struct{}{}}
}

// State is for fasthttp's Server.ConnState. A connection that was hijacked is no longer counted.
func (r *Room) State(c net.Conn, s fasthttp.ConnState) {
	switch s {
	case fasthttp.StateNew:
		if r.enter(c) {
			return
		}
		if _, tls := c.(interface{ NetConn() net.Conn }); !tls {
			_, _ = c.Write(r.refusal) // the first bytes that are sent never wait
		}
		_ = c.Close()
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		r.leave(c)
	default: // a request of one that is known begins or ends
	}
}

// enter counts a connection, and tells whether it may stay for an answer.
func (r *Room) enter(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
	if r.open > r.limit {
		r.beyond[c] = struct{}{}
		r.some.Store(true)
	}
	return r.open <= r.limit+Spare
}

func (r *Room) leave(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	r.forget(c)
}

// forget needs the lock.
func (r *Room) forget(c net.Conn) {
	delete(r.beyond, c)
	r.some.Store(len(r.beyond) > 0)
}

// For tells whether there is room for a connection: there was when it came, or there is now.
func (r *Room) For(c net.Conn) bool {
	if !r.some.Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, beyond := r.beyond[c]; beyond && r.open > r.limit {
		return false
	}
	r.forget(c)
	return true
}
