package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"remora/proxy/limit"
	"remora/proxy/listener"
	"remora/wire"
)

const (
	// perRead is the number of bytes of a body that a client has to send within each read_timeout, unless much of it is held.
	perRead = 64 << 10
	// maxPooled is the largest body buffer that is kept for another request. A larger body that nothing here reads is not held at all.
	maxPooled = 1 << 20
	// smallRest is how many unread bytes of a body fasthttp drains after an answer, so that the connection can be used again.
	smallRest = 64 << 10
)

// body is the body of a request.
type body struct {
	bytes   []byte  // as it came; of a streamed one its beginning
	plain   []byte  // decoded; the same as bytes unless it has a Content-Encoding
	pooled  *[]byte // buffer after bytes, nil once it was given back
	arrived bool    // all of it was read, or no more will come
	ticket  limit.Ticket

	s        *Server
	ctx      *fasthttp.RequestCtx
	stream   io.Reader   // of the client's connection; nil where there is no body
	length   int64       // Content-Length, -1 if there is none
	read     int64       // bytes that have come
	granted  int64       // of those, for which the client got its time
	streamed bool        // bytes are its beginning; the rest goes upstream as it arrives
	stopped  atomic.Bool // nothing more is to be read for upstream
	givenUp  atomic.Bool // others need its room
}

// open begins the body of a request.
func (b *body) open(s *Server, ctx *fasthttp.RequestCtx, length int64) {
	b.s, b.ctx, b.length, b.stream = s, ctx, length, ctx.RequestBodyStream()
}

// hold reads the body into memory, once. Of one with more than most bytes it reads the beginning if it may be streamed, and fails
// otherwise. The buffer grows with the bytes that arrive, not with Content-Length, which anyone can claim.
func (b *body) hold(most int, mayStream bool) error {
	if b.length > int64(most) && !mayStream {
		return errBodyTooLarge(b.s.o.MaxBody)
	}
	if b.stream == nil {
		return nil
	}

	b.pooled, _ = b.s.bodies.Get().(*[]byte)
	buf := (*b.pooled)[:0]
	defer func() { b.bytes, *b.pooled = buf, buf }()
	if n := int(b.length); n > cap(buf) {
		buf = slices.Grow(buf, min(n, perRead))
	}

	b.ticket.Await(b)
	held := 0
	for {
		if len(buf) == cap(buf) {
			buf = grow(buf, int(b.length))
		}
		if n := cap(buf) - held; n > 0 {
			if err := b.ticket.Hold(int64(n)); err != nil {
				return err
			}
			held = cap(buf)
		}

		n, err := b.next(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > most && !mayStream:
			return errBodyTooLarge(b.s.o.MaxBody)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(buf) > most:
			b.streamed = true
			return nil
		}
	}
}

// next reads what has arrived, and waits for it. It returns io.EOF where the body is complete, and an *Error where it is not and no
// more will come.
func (b *body) next(p []byte) (int, error) {
	n, err := b.stream.Read(p)
	b.read += int64(n)
	if err != nil {
		b.ticket.Complete()
	}
	switch {
	case b.givenUp.Load():
		return n, b.crowdedOut()
	case errors.Is(err, io.EOF):
		if err := b.cutShort(); err != nil {
			return n, b.broken(err)
		}
		b.arrived = true
		return n, io.EOF
	case err != nil && b.stopped.Load():
		return n, errStopped
	case err != nil:
		return n, b.broken(err)
	case b.read-b.granted >= b.step():
		b.granted = b.read
		b.ticket.Await(b)
		b.readBy(b.s.now().Add(b.s.o.ReadTimeout))
	}
	return n, nil
}

// step is how many more bytes the client has to send within read_timeout. Of a body that is held it is a share of what has come:
// a client that sends a byte now and then would keep the memory from all others.
func (b *body) step() int64 {
	if b.streamed {
		return perRead
	}
	return max(perRead, b.granted/16)
}

// readBy sets the deadline of the client, unless nothing is waited for any more.
func (b *body) readBy(deadline time.Time) {
	_ = b.ctx.Conn().SetReadDeadline(deadline)
	if b.stopped.Load() || b.givenUp.Load() {
		_ = b.ctx.Conn().SetReadDeadline(past())
	}
}

// errStopped ends the reading of a body that upstream does not want.
var errStopped = errors.New("upstream does not want the rest of the body")

const (
	// beforePiece is the room for what begins a chunk: the end of the line before it, and its length.
	beforePiece = len("\r\n") + 16 + len("\r\n")
	lastChunk   = "\r\n0\r\n\r\n"
)

// Next returns the next piece of a streamed body as it goes upstream, until the following call; with the last one, or after it,
// io.EOF. A body without a length goes in chunks. Each of them ends where the next one begins, as the first one, whose length
// stands before it, is held as it came.
func (b *body) Next() ([]byte, error) {
	buf := (*b.pooled)[:cap(*b.pooled)]
	from := beforePiece
	n, err := b.next(buf[from : len(buf)-len(lastChunk)])
	to := from + n
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}

	if b.length < 0 {
		if n > 0 {
			from = beginChunk(buf[:from], n)
		}
		if err != nil {
			to += copy(buf[to:], lastChunk)
		}
	}
	return buf[from:to], err
}

// beginChunk writes what stands before a chunk of n bytes to the end of p, and returns where it begins.
func beginChunk(p []byte, n int) int {
	var line [beforePiece]byte
	begin := append(strconv.AppendInt(append(line[:0], "\r\n"...), int64(n), 16), "\r\n"...)
	return len(p) - copy(p[len(p)-len(begin):], begin)
}

// Stop ends Next, from any goroutine, and all calls after it.
func (b *body) Stop() {
	b.stopped.Store(true)
	b.readBy(past())
}

// GiveUp implements [limit.Body].
func (b *body) GiveUp() {
	b.givenUp.Store(true)
	b.readBy(past())
}

// crowdedOut returns the error for a body that was given up.
func (b *body) crowdedOut() error {
	b.ctx.SetConnectionClose()
	return &Error{
		Status: fasthttp.StatusServiceUnavailable, Code: codeCrowded,
		Message: "request body is too slow, and others need its room (limits.global.body_bytes)",
		Headers: [][2]string{{fasthttp.HeaderRetryAfter, "1"}},
	}
}

// grow makes room for more of a body of that length, -1 if it is not known. The room depends on what has arrived: a body of
// ordinary size gets all that it needs, a larger one three times the bytes that are here. Where the length is known there is
// room for one byte more, so that reading finds the end of the body. Where it is not, a large body gets a quarter more, as what
// remains free at its end stays as long as the body.
func grow(buf []byte, length int) []byte {
	room := max(len(buf), 4<<10)
	if len(buf) > maxPooled {
		room = len(buf) / 4
	}
	if rest := length - len(buf); rest > 0 {
		room = min(rest+1, max(3*len(buf), maxPooled))
	}
	grown := make([]byte, len(buf), len(buf)+room)
	copy(grown, buf)
	return grown
}

// cutShort returns why the connection ended before the body did, nil if it did not. fasthttp returns io.EOF for both, in chunked
// bodies too. A partial body must not look complete to upstream: half of a JSONL file is a valid shorter file.
func (b *body) cutShort() error {
	if b.read < b.length {
		return io.ErrUnexpectedEOF
	}
	return listener.ReadError(b.ctx.Conn())
}

// broken returns the error for a body that ends early or is malformed. The connection can't be used after it.
func (b *body) broken(err error) error {
	b.arrived = true // no more of it is to be expected
	b.ctx.SetConnectionClose()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the other is a proper end
	}
	var timeout net.Error // fasthttp's error does not always wrap it
	if errors.As(listener.ReadError(b.ctx.Conn()), &timeout) && timeout.Timeout() {
		message := fmt.Sprintf("request body is too slow: %d KiB of it may take %s (server.read_timeout)", b.step()>>10, b.s.o.ReadTimeout)
		return &Error{Status: fasthttp.StatusRequestTimeout, Code: codeSlowRequest, Message: message, Err: err}
	}
	return errBrokenBody(err)
}

// lasting reports whether the body's memory is never reused: it is too large for the pool, or was made by decoding.
func (b *body) lasting() bool { return cap(*b.pooled) > maxPooled || !wire.SameBytes(b.plain, b.bytes) }

// release returns the buffer to the pool. Items point into it, so the turn must have been committed before.
func (b *body) release() {
	if b.pooled == nil {
		return
	}
	if cap(*b.pooled) <= maxPooled {
		b.s.bodies.Put(b.pooled)
	}
	b.ticket.Free()
	b.pooled, b.bytes, b.plain = nil, nil, nil
}

// unread reports whether a request is answered while much of its body may still come.
func (b *body) unread() bool {
	if b.arrived || b.stream == nil {
		return false
	}
	return b.streamed || b.length < 0 || b.length > smallRest
}
