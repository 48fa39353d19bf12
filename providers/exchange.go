package providers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Exchange is one request to an upstream and its answer: Client.Send, then Next until io.EOF, then Close. The zero
// value is ready; after Close it can be used again. Only Abort may be called from another goroutine.
type Exchange struct {
	// Sent, if set, is called once before the answer is waited for: when the request has been written, or while a
	// large one is being written.
	Sent func()
	// Rest, if set, is what follows the body that Send is given. It can be sent once, so it gets a new connection, which upstream
	// is not about to close.
	Rest Rest
	// Silence, if more than 0, makes Next return ErrIdle each time that nothing has come for about so long, a quarter
	// less at most.
	Silence time.Duration

	client   *Client
	link     abortable
	in       inbox
	armed    time.Time // when the deadline of the connection was last set
	quiet    time.Time // since when nothing has arrived, once Next has returned ErrIdle; else zero
	consumed int       // bytes of in that Next has returned
	keep     bool      // the connection may be used again after this answer
	received bool      // at least one byte of the answer came
	body     framing
	pieces   [2][]byte // of a request too large to be copied together
	vector   net.Buffers
}

// Rest is the rest of a request, which arrives while it is sent.
type Rest interface {
	// Next waits for the next bytes of the request, as they are to be sent, which stay valid until the following call. io.EOF
	// comes with the last of them or after them, and only if they are complete: after another error upstream gets no more.
	Next() ([]byte, error)
	// Stop ends a call of Next and all that follow, with an error. It is called while another goroutine calls Next.
	Stop()
}

// Send sends a request and reads the head of its answer. The request's head is everything up to and including the empty line,
// body everything after it; both must match, nothing is added.
//
// A pooled connection that turns out to be dead before a byte was written is replaced silently. A request that may have
// reached upstream is not repeated, unless its method is GET or HEAD and nothing at all came back. An error of Rest is returned
// as it is. After an error there is nothing to read; Close is still due.
func (c *Client) Send(x *Exchange, up Address, head, body []byte, answer *Head) error {
	x.client = c
	p, err := c.pool(up)
	if err != nil {
		return err
	}
	take := p.get
	if x.Rest != nil {
		take = noConn
	}
	for ; ; take = noConn {
		reused, err := x.acquire(p, take())
		if err != nil {
			return err
		}
		wrote, err := x.roundTrip(head, body, answer)
		if err == nil {
			x.body.begin(answer, isHead(head))
			x.keep = x.keep && x.body.kind != bodyUntilClose && !isConnect(head)
			return nil
		}
		err = x.explain(err)
		dead := reused && !x.received && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrAborted)
		x.drop()
		if !dead || wrote > 0 && !repeatable(head) {
			return err
		}
	}
}

// Abort ends the exchange at once, while it dials, sends, waits or reads. The call under way returns ErrAborted. It may be
// called from any goroutine, as long as the exchange is not reused for another request.
func (x *Exchange) Abort() { x.link.abort() }

// Next returns the bytes of the body that have arrived, waiting for the first of them. They stay valid until the
// following call of Next or Close. It returns io.EOF, with no bytes, at the proper end of the body and only there:
// a body that ends early gives ErrClosed, silence ErrTimeout. After ErrIdle, and no other error, it may be called again.
func (x *Exchange) Next() ([]byte, error) {
	need := 1
	for {
		if x.consumed > 0 {
			_, _ = x.in.br.Discard(x.consumed) // they are buffered, so it can't fail
			x.consumed = 0
		}
		if x.body.ended() {
			return nil, io.EOF
		}
		n := x.in.br.Buffered()
		if n < need {
			if err := x.await(need); errors.Is(err, io.EOF) {
				x.body.kind = bodyNone
				return nil, io.EOF
			} else if err != nil {
				return nil, err
			}
			continue
		}
		buf, _ := x.in.br.Peek(n)
		out, used, err := x.body.decode(buf)
		if err != nil {
			return nil, x.explain(err)
		}
		x.consumed = used
		if out > 0 {
			return buf[:out], nil
		}
		need = n - used + 1 // what is left is the beginning of something
	}
}

// Length is the length that upstream announced, -1 if it did not, 0 where there is no body. It stays while the body is read.
func (x *Exchange) Length() int64 { return x.body.size }

// Ready reports whether a part of the body has arrived, so that Next will most likely not wait.
func (x *Exchange) Ready() bool { return x.in.br != nil && x.in.br.Buffered() > x.consumed }

// Close returns the connection to the pool if the answer was read to its end. Otherwise it closes the connection, so that
// upstream stops.
func (x *Exchange) Close() {
	x.finish()
	x.reset()
}

// finish returns the connection to the pool or closes it.
func (x *Exchange) finish() {
	if x.link.conn == nil {
		return
	}
	if x.in.br != nil && x.consumed > 0 {
		_, _ = x.in.br.Discard(x.consumed)
	}
	if x.keep && x.body.ended() && x.in.br.Buffered() == 0 && x.link.conn.empty() {
		x.release()
	} else {
		x.drop()
	}
}

// Hijack takes the connection out of the exchange, with a reader that holds what came after the head of the answer.
func (x *Exchange) Hijack() (net.Conn, *bufio.Reader) {
	if x.link.conn == nil || x.link.isAborted() {
		return nil, nil
	}
	cn, aborted := x.link.detach()
	if aborted {
		_ = cn.Close()
		x.giveBack()
		return nil, nil
	}
	br := x.in.br
	_ = cn.SetDeadline(time.Time{})
	x.in.br = nil
	return cn.Conn, br
}

// reset makes x ready for its next use. By then nothing may call Abort any more.
func (x *Exchange) reset() {
	x.link.reset()
	x.Sent, x.Rest, x.Silence, x.client = nil, nil, 0, nil
	x.renew()
}

// noConn stands for a pool without connections.
func noConn() *conn { return nil }

// acquire takes a pooled connection or makes one, and starts the timeout of the response head.
func (x *Exchange) acquire(p *pool, cn *conn) (reused bool, err error) {
	reused = cn != nil
	if cn == nil {
		if !x.link.during(func(ctx context.Context) { cn, err = p.dial(ctx) }) {
			if cn != nil {
				_ = cn.Close()
			}
			return false, ErrAborted
		}
		if err != nil {
			return false, err
		}
	}
	x.armed = x.client.o.Now()
	var deadline time.Time
	if d := x.client.o.ResponseHeaderTimeout; d > 0 {
		deadline = x.armed.Add(d)
	}
	if !x.link.attach(cn, deadline) {
		_ = cn.Close()
		return false, ErrAborted
	}
	x.in.borrow(&x.client.readers, cn.Conn)
	return reused, nil
}

// release returns the connection to its pool.
func (x *Exchange) release() {
	cn, aborted := x.link.detach()
	x.giveBack()
	if aborted {
		_ = cn.Close() // its deadline is in the past
		return
	}
	cn.pool.put(cn)
}

// drop closes the connection.
func (x *Exchange) drop() {
	if cn, _ := x.link.detach(); cn != nil {
		_ = cn.Close()
	}
	x.giveBack()
}

func (x *Exchange) giveBack() {
	x.in.giveBack()
	x.consumed = 0
}

// await waits until n bytes are buffered. io.EOF is the end of a body that lasts until the connection closes.
func (x *Exchange) await(n int) error {
	x.arm()
	err := x.in.fill(n, x.link.conn.Conn)
	switch {
	case err == nil:
		if !x.quiet.IsZero() {
			x.quiet, x.body.first = time.Time{}, true // the current deadline is that of the silence
		}
		return nil
	case errors.Is(err, io.EOF) && x.body.kind == bodyUntilClose && !x.link.isAborted():
		return io.EOF
	}
	err = x.explain(err)
	if x.Silence <= 0 || !errors.Is(err, ErrTimeout) {
		return err
	}
	if x.quiet.IsZero() {
		x.quiet = x.armed
	}
	if d := x.client.o.StreamIdleTimeout; d > 0 && x.client.o.Now().Sub(x.quiet) >= d {
		return err
	}
	return ErrIdle
}

// arm sets the deadline for the next bytes.
func (x *Exchange) arm() {
	limit, wait := x.client.o.StreamIdleTimeout, x.client.o.StreamIdleTimeout
	if x.Silence > 0 && (limit <= 0 || x.Silence < limit) {
		wait = x.Silence
	}
	if wait <= 0 {
		if x.body.first {
			x.body.first = false
			x.extend(x.armed, time.Time{})
		}
		return
	}
	now := x.client.o.Now()
	if !x.quiet.IsZero() {
		deadline := now.Add(wait)
		if end := x.quiet.Add(limit); limit > 0 && end.Before(deadline) {
			deadline = end
		}
		x.extend(now, deadline)
		return
	}
	// Setting a deadline costs more than reading a small chunk, so it is not done for every one of them. A quarter of
	// imprecision does not matter for limits on silence.
	if x.body.first || now.Sub(x.armed) > wait/4 {
		x.body.first = false
		x.extend(now, now.Add(wait))
	}
}

func (x *Exchange) extend(now, deadline time.Time) {
	if x.link.readBy(deadline) {
		x.armed = now
	}
}

// explain turns an error of a connection into one of this package.
func (x *Exchange) explain(err error) error {
	var timeout net.Error
	cut, isCut := errors.AsType[*restError](err)
	switch {
	case x.link.isAborted():
		return ErrAborted
	case isCut:
		return cut.error
	case errors.Is(err, ErrMalformed), errors.Is(err, ErrLargeHead), errors.Is(err, ErrClosed), errors.Is(err, ErrUnreachable):
		return err
	case errors.As(err, &timeout) && timeout.Timeout():
		return ErrTimeout
	case errors.Is(err, io.EOF):
		return ErrClosed // not wrapped: io.EOF is the proper end of a body
	default:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
}

func isHead(head []byte) bool { return bytes.HasPrefix(head, []byte("HEAD ")) }

// isConnect reports whether a request asks for a tunnel by CONNECT.
func isConnect(head []byte) bool {
	const method = "CONNECT "
	return len(head) > len(method) && bytes.EqualFold(head[:len(method)], []byte(method))
}

func repeatable(head []byte) bool { return isHead(head) || bytes.HasPrefix(head, []byte("GET ")) }
