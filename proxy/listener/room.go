package listener

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// Spare is how many connections beyond the limit are accepted in order to answer their first request with an error. fasthttp
// itself would refuse them before it reads a request, with a text that no SDK understands and that over TLS never arrives.
const Spare = 256

// Room limits a server's connections. It counts them, and knows which came beyond the limit. It is safe for concurrent use.
type Room struct {
	limit   int
	refusal []byte

	mu     sync.Mutex
	open   int
	beyond map[net.Conn]struct{}
	some   atomic.Bool // beyond is not empty
}

// NewRoom makes a Room for limit connections. refusal is a complete HTTP response for connections beyond the spare ones; over
// TLS these are just closed.
func NewRoom(limit int, refusal []byte) *Room {
	return &Room{limit: limit, refusal: refusal, beyond: map[net.Conn]struct{}{}}
}

// State is for fasthttp's Server.ConnState. It does not hear of the end of a connection that was hijacked: call Leave then.
func (r *Room) State(c net.Conn, s fasthttp.ConnState) {
	switch s {
	case fasthttp.StateNew:
		if r.enter(c) {
			return
		}
		if _, tls := c.(interface{ NetConn() net.Conn }); !tls {
			_, _ = c.Write(r.refusal) // the first bytes on a connection never block
		}
		_ = c.Close()
	case fasthttp.StateClosed:
		r.Leave(c)
	default: // a request begins or ends
	}
}

// enter counts a connection. It reports whether its request will be answered.
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

// Leave stops counting a connection.
func (r *Room) Leave(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	r.forget(c)
}

// forget takes c off beyond. The caller holds mu.
func (r *Room) forget(c net.Conn) {
	delete(r.beyond, c)
	r.some.Store(len(r.beyond) > 0)
}

// For reports whether there is room for a connection: there was when it was accepted, or there is now.
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
