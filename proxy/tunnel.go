package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"remora/proxy/limit"
)

// tunnel is a WebSocket after its handshake.
type tunnel struct {
	s        *Server
	up       net.Conn
	buffered *bufio.Reader // reads up: it may hold bytes that followed the head
	client   net.Conn
	answer   []byte
	ticket   limit.Ticket  // of the request
	moved    atomic.Uint64 // pieces moved in either direction
	stopped  atomic.Bool
}

// stop ends both directions.
func (t *tunnel) stop() {
	t.stopped.Store(true)
	_ = t.client.SetDeadline(past())
	_ = t.up.SetDeadline(past())
}

func (t *tunnel) run(c net.Conn) {
	defer t.ticket.Leave()
	defer func() { _ = t.up.Close() }()
	t.extend(t.client)
	if _, err := c.Write(t.answer); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				t.s.recovered(v)
				t.stop()
			}
		}()
		t.move(t.client, t.up, t.buffered)
	})
	t.move(t.up, t.client, c) // c reads what the server had read ahead first
	back.Wait()
}

// move copies from one end to the other until from ends. Then it closes the sending direction of to, which may still send. r
// reads from.
func (t *tunnel) move(to, from net.Conn, r io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		seen := t.moved.Load()
		t.extend(from)
		n, err := r.Read(buf)
		if n > 0 {
			t.moved.Add(1)
			t.extend(to)
			if _, err := to.Write(buf[:n]); err != nil {
				t.stop()
				return
			}
		}
		var timeout net.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if half, ok := to.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
				t.stop()
			}
			return
		case errors.As(err, &timeout) && timeout.Timeout() && t.moved.Load() != seen && !t.stopped.Load():
			// This direction is silent, but not the other one.
		default:
			t.stop()
			return
		}
	}
}

// extend gives an end another idle_timeout.
func (t *tunnel) extend(c net.Conn) {
	_ = c.SetDeadline(t.s.now().Add(t.s.o.IdleTimeout))
	if t.stopped.Load() {
		_ = c.SetDeadline(past())
	}
}
