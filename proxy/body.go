package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/valyala/fasthttp"

	"remora/proxy/limit"
	"remora/proxy/listener"
	"remora/wire"
)

const (
	// perRead is the number of bytes of a body that a client has to send within each read_timeout.
	perRead = 64 << 10
	// maxPooled is the largest body buffer that is kept for another request.
	maxPooled = 1 << 20
	// smallRest is how many unread bytes of a body fasthttp drains after an answer, so that the connection can be used again.
	smallRest = 64 << 10
)

// body is the body of a request.
type body struct {
	bytes   []byte  // as it came
	plain   []byte  // decoded; the same as bytes unless it has a Content-Encoding
	pooled  *[]byte // buffer after bytes, nil once it was given back
	arrived bool    // all of it was read, or no more will come
	ticket  limit.Ticket
}

// read reads the whole body, once. The buffer grows with the bytes that arrive, not with Content-Length, which anyone can
// claim.
func (b *body) read(s *Server, ctx *fasthttp.RequestCtx, length int64) error {
	limit := int(s.o.MaxBody)
	if length > int64(limit) {
		return errBodyTooLarge(s.o.MaxBody)
	}
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return nil
	}

	b.pooled, _ = s.bodies.Get().(*[]byte)
	buf := (*b.pooled)[:0]
	defer func() { b.bytes, *b.pooled = buf, buf }()
	if n := int(length); n > cap(buf) {
		buf = slices.Grow(buf, min(n, perRead))
	}

	held := 0
	for granted := 0; ; {
		if len(buf) == cap(buf) {
			buf = grow(buf, int(length))
		}
		if n := cap(buf) - held; n > 0 {
			if err := b.ticket.Hold(int64(n)); err != nil {
				return err
			}
			held = cap(buf)
		}

		n, err := stream.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return errBodyTooLarge(s.o.MaxBody)
		case errors.Is(err, io.EOF):
			if err := cutShort(ctx.Conn(), len(buf), length); err != nil {
				return b.broken(s, ctx, err)
			}
			b.arrived = true
			return nil
		case err != nil:
			return b.broken(s, ctx, err)
		case len(buf)-granted >= perRead:
			granted = len(buf)
			_ = ctx.Conn().SetReadDeadline(s.now().Add(s.o.ReadTimeout))
		}
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

// cutShort returns why the connection ended before the body did, n bytes of which have come, nil if it did not. fasthttp returns
// io.EOF for both, in chunked bodies too. A partial body must not look complete to upstream: half of a JSONL file is a valid
// shorter file.
func cutShort(c net.Conn, n int, length int64) error {
	if int64(n) < length {
		return io.ErrUnexpectedEOF
	}
	return listener.ReadError(c)
}

// broken returns the error for a body that ends early or is malformed. The connection can't be used after it.
func (b *body) broken(s *Server, ctx *fasthttp.RequestCtx, err error) error {
	b.arrived = true // no more of it is to be expected
	ctx.SetConnectionClose()
	var timeout net.Error // fasthttp's error does not always wrap it
	if errors.As(listener.ReadError(ctx.Conn()), &timeout) && timeout.Timeout() {
		message := fmt.Sprintf("request body is too slow: %d KiB of it may take %s (server.read_timeout)", perRead>>10, s.o.ReadTimeout)
		return &Error{Status: fasthttp.StatusRequestTimeout, Code: codeSlowRequest, Message: message, Err: err}
	}
	return errBrokenBody(err)
}

// lasting reports whether the body's memory is never reused: it is too large for the pool, or was made by decoding.
func (b *body) lasting() bool { return cap(*b.pooled) > maxPooled || !wire.SameBytes(b.plain, b.bytes) }

// release returns the buffer to the pool. Items point into it, so the turn must have been committed before.
func (b *body) release(s *Server) {
	if b.pooled == nil {
		return
	}
	if cap(*b.pooled) <= maxPooled {
		s.bodies.Put(b.pooled)
	}
	b.ticket.Free()
	b.pooled, b.bytes, b.plain = nil, nil, nil
}

// unread reports whether a request is answered while much of its body may still come.
func (b *body) unread(ctx *fasthttp.RequestCtx, length int64) bool {
	if b.arrived || ctx.RequestBodyStream() == nil {
		return false
	}
	return length < 0 || length > smallRest
}
