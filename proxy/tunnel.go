package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"remora/wire"
)

// tunnel connects the client with upstream for another protocol. The handshake passes like any request; after a 101
// bytes go both ways untouched.
func (x *exchange) tunnel() error {
	id := &x.head.id
	guarded := x.s.guarded()
	wanted := id.session != "" && !id.off || guarded
	d, unclear := dialectOf(x.ctx.Request.Header.RequestURI())
	if x.s.begin != nil && wanted && (d == wire.Responses || unclear && guarded) {
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
	if err := x.read(); err != nil {
		return err
	}
	if err := x.pick(); err != nil {
		return err
	}
	x.send = x.body
	if err := x.prepare(rewrite{body: len(x.send), tunnel: true}); err != nil {
		return err
	}
	if err := x.roundTrip(); err != nil {
		return err
	}
	h := &x.ctx.Response.Header
	if h.StatusCode() != fasthttp.StatusSwitchingProtocols {
		return x.reply()
	}
	up, buffered := x.upstream.Hijack()
	if up == nil {
		return errors.New("client left during the handshake")
	}
	t := &pipe{s: x.s, up: up, buffered: buffered, client: x.ctx.Conn(), answer: h.AppendBytes(nil)}
	x.s.hijack(x.ctx, t.stop, t.run)
	return nil
}

// streamToClose writes an answer whose length is not known to a client of HTTP/1.0, which knows no chunks: the body ends
// with the connection. fasthttp would send chunks all the same, so that it is not let near the response.
func (x *exchange) streamToClose() {
	a, h, c := &x.answer, &x.ctx.Response.Header, x.ctx.Conn()
	h.SetContentLength(-1)
	h.Del(fasthttp.HeaderContentLength)
	h.Del(fasthttp.HeaderTransferEncoding)
	h.SetConnectionClose()
	a.arm()
	_, err := c.Write(h.Header())
	if err == nil {
		_, err = a.WriteTo(c)
	}
	a.settle()
	x.ctx.HijackSetNoResponse(true)
	x.ctx.Hijack(func(net.Conn) { // fasthttp closes it after this
		if err != nil {
			breakConn(c)
		}
	})
}

// flushEach has the answer to a client of HTTP/1.0 leave before the next request on its connection is handled: fasthttp
// keeps it where that request is here already, and streamToClose does not go through what it is kept in. That there is a
// deadline, the one that fasthttp would set, is how fasthttp is told.
func flushEach(ctx *fasthttp.RequestCtx, deadline time.Time) {
	if h := &ctx.Request.Header; !h.IsHTTP11() && !h.ConnectionClose() && !ctx.Hijacked() {
		_ = ctx.SetWriteDeadline(deadline)
	}
}

// breakConn ends a connection with a reset, so that the end of what was written is not taken for that of the body. Below
// TLS it is closed here, as TLS would first say that all is well.
func breakConn(c net.Conn) {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
}

// pipe is a tunnel after its handshake.
type pipe struct {
	s        *Server
	up       net.Conn
	buffered *bufio.Reader // over up: it may hold what came behind the head
	client   net.Conn
	answer   []byte
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

// move copies from one end to the other until from has no more. Then it tells to, which may still have something to
// say. r reads from.
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
			// Silent, but the other direction is not.
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
