package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"remora/proxy/limit"
)

// tunnel serves a WebSocket. The handshake passes like any request; after a 101 bytes are copied in both directions.
func (x *exchange) tunnel() error {
	r, a := &x.request, &x.attempt
	id := &r.head.id
	guarded := x.s.guarded()
	wanted := id.session != "" && !id.off || guarded
	d, unclear := dialectOf(x.ctx.Request.Header.RequestURI())
	if x.s.begin != nil && wanted && (d.Known() && routeOf(d).socket || unclear && guarded) {
		// Frames are neither remembered nor judged yet. Agents that hear so at once use HTTP for the rest of their run.
		e := &Error{
			Status: fasthttp.StatusUpgradeRequired, Code: codeUpgrade,
			Message: "WebSocket requests are not remembered: send responses by HTTP POST, or X-Memory: off",
		}
		if guarded { // with or without memory
			e.Message = "rules of this gateway cannot judge WebSocket requests: send responses by HTTP POST"
		}
		return e
	}

	if err := r.read(); err != nil {
		return err
	}
	if err := a.choose(); err != nil {
		return err
	}
	h := &x.answer.head.Head
	a.out.body = r.body.bytes
	if err := a.call(h, rewrite{body: len(a.out.body), tunnel: true}); err != nil {
		return err
	}
	if h.Status() != fasthttp.StatusSwitchingProtocols {
		return x.answer.reply()
	}

	up, buffered := a.upstream.Hijack()
	if up == nil {
		return errors.New("client left during the handshake")
	}
	x.ctx.Response.SetStatusCode(h.Status())
	t := &pipe{s: x.s, up: up, buffered: buffered, client: x.ctx.Conn(), answer: append(bytes.Clone(h.Lines()), "\r\n"...), ticket: r.body.ticket}
	r.body.ticket = limit.Ticket{} // the request goes on with the tunnel
	x.s.hijack(x.ctx, t.stop, t.run)
	return nil
}

// pipe is a tunnel after its handshake.
type pipe struct {
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
func (t *pipe) stop() {
	t.stopped.Store(true)
	_ = t.client.SetDeadline(past())
	_ = t.up.SetDeadline(past())
}

func (t *pipe) run(c net.Conn) {
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
func (t *pipe) move(to, from net.Conn, r io.Reader) {
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
func (t *pipe) extend(c net.Conn) {
	_ = c.SetDeadline(t.s.now().Add(t.s.o.IdleTimeout))
	if t.stopped.Load() {
		_ = c.SetDeadline(past())
	}
}
