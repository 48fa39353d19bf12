package proxy

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"remora/providers"
	"remora/telemetry"
	"remora/wire"
	"remora/wire/mark"
)

const (
	// perRead is how much of a body buys another read_timeout. It bounds how long a slow sender may take without
	// bounding the size of what an honest one may send.
	perRead = 64 << 10
	// maxPooled is the largest body buffer that is kept for another request.
	maxPooled = 1 << 20
	// A compressed body may grow to minDecoded bytes, and beyond that to maxRatio times its size, when it is read.
	// JSON hardly ever shrinks that far; what does is made to fill memory, and is forwarded unread.
	minDecoded = 1 << 20
	maxRatio   = 100
	// maxWindow is what every zstd decoder should support (RFC 8878, 3.1.1.1.2). It is allocated because a header says so.
	maxWindow = 8 << 20
)

// read takes the whole body, once. The buffer grows with what arrives: a length that is only claimed costs nothing.
func (x *exchange) read() error {
	limit := int(x.s.o.MaxBody)
	if x.head.length > int64(limit) {
		return x.tooLarge()
	}
	stream := x.ctx.RequestBodyStream()
	if stream == nil {
		return nil
	}
	x.raw, _ = x.s.bodies.Get().(*[]byte)
	buf := (*x.raw)[:0]
	defer func() { x.body, *x.raw = buf, buf }()
	if n := int(x.head.length); n > cap(buf) {
		buf = slices.Grow(buf, min(n, perRead))
	}
	held := 0
	for granted := 0; ; {
		if len(buf) == cap(buf) {
			// What has arrived vouches for more: the rest of a body of ordinary size is made room for at once.
			rest := min(int(x.head.length)-len(buf), maxPooled)
			buf = slices.Grow(buf, max(len(buf), 4<<10, rest))
		}
		if n := cap(buf) - held; n > 0 {
			if err := x.ticket.Hold(int64(n)); err != nil {
				x.ctx.SetConnectionClose() // what the client still sends would be taken for its next request
				return err
			}
			held = cap(buf)
		}
		n, err := stream.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return x.tooLarge()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return x.brokenBody(err)
		case len(buf)-granted >= perRead:
			granted = len(buf)
			_ = x.ctx.Conn().SetReadDeadline(x.s.now().Add(x.s.o.ReadTimeout))
		}
	}
}

// brokenBody is for a client that does not send what it promised. The connection can't be used after it.
func (x *exchange) brokenBody(err error) error {
	x.ctx.SetConnectionClose()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &Error{Status: fasthttp.StatusRequestTimeout, Code: codeSlowRequest, Message: "request body took too long to arrive", Err: err}
	}
	return &Error{Status: fasthttp.StatusBadRequest, Code: codeBadRequest, Message: "request body is broken", Err: err}
}

// releaseBody gives the body's buffer back. Items point into it: a turn must have been committed before.
func (x *exchange) releaseBody() {
	if x.raw == nil {
		return
	}
	if cap(*x.raw) <= maxPooled {
		x.s.bodies.Put(x.raw)
	}
	x.ticket.Free()
	x.raw, x.body, x.plain, x.send, x.request = nil, nil, nil, nil, nil
}

// tooLarge answers 413 at once and then reads on for a while. Closing over unread bytes would reset the connection,
// and a client that is still sending would never read why.
func (x *exchange) tooLarge() error {
	x.s.stats.refused.Add(1)
	e := errBodyTooLarge(x.s.o.MaxBody)
	body := e.body()
	answer := make([]byte, 0, 512)
	answer = append(answer, "HTTP/1.1 413 Request Entity Too Large\r\nContent-Type: application/json\r\n"...)
	answer = append(answer, "Connection: close\r\nContent-Length: "...)
	answer = strconv.AppendInt(answer, int64(len(body)), 10)
	answer = append(append(answer, "\r\n\r\n"...), body...)
	conn, s, rest := x.ctx.Conn(), x.s, x.ctx.RequestBodyStream()
	s.hijack(x.ctx, func() { _ = conn.SetDeadline(past()) }, func(c net.Conn) {
		const patience = 30 * time.Second
		_ = c.SetDeadline(s.now().Add(patience))
		if s.stopping.Load() {
			_ = c.SetDeadline(past())
		}
		if _, err := c.Write(answer); err == nil && rest != nil {
			_, _ = io.CopyN(io.Discard, rest, 2*int64(s.o.MaxBody))
		}
	})
	return errAnswered
}

// errAnswered ends a request whose answer is under way already.
var errAnswered = errors.New("answered")

var errEncoding = errors.New("content encoding is not supported")

// isPlain tells that a body has no Content-Encoding to be undone.
func isPlain(encoding []byte) bool {
	encoding = bytes.TrimSpace(encoding)
	return len(encoding) == 0 || bytes.EqualFold(encoding, []byte("identity"))
}

// decode undoes a Content-Encoding for reading. The result is the input itself where there is none.
func decode(encoding, b []byte, limit int) ([]byte, error) {
	if isPlain(encoding) {
		return b, nil
	}
	r, err := decoder(encoding, bytes.NewReader(b), limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it has no error of its own
	// What was decoded before an error is returned too: a cut answer is folded as far as it came.
	plain, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(plain) > limit {
		err = errEncoding
	}
	return plain, err
}

// decodeBody undoes the Content-Encoding of the request's body.
func (x *exchange) decodeBody() ([]byte, error) {
	return decode(x.head.encoded, x.body, min(int(x.s.o.MaxBody), max(minDecoded, maxRatio*len(x.body))))
}

// coding is the Content-Encoding as decoder knows it, "" for one that it does not know.
func coding(encoding []byte) string {
	switch encoding = bytes.TrimSpace(encoding); {
	case bytes.EqualFold(encoding, []byte("gzip")), bytes.EqualFold(encoding, []byte("x-gzip")):
		return "gzip"
	case bytes.EqualFold(encoding, []byte("zstd")):
		return "zstd"
	}
	return ""
}

// decodable tells that decoder knows a Content-Encoding, or that there is none.
func decodable(encoding []byte) bool {
	return isPlain(bytes.TrimSpace(encoding)) || coding(encoding) != ""
}

// decoder undoes a Content-Encoding that is one. With limit, a frame that says that it is larger is refused.
func decoder(encoding []byte, from io.Reader, limit int) (io.ReadCloser, error) {
	switch coding(encoding) {
	case "gzip":
		return gzip.NewReader(from)
	case "zstd":
		z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(uint64(max(limit, maxWindow))), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return nil, errEncoding
}

// next is what arrives of the body.
func (a *answer) next() ([]byte, error) {
	if p := a.first; len(p) > 0 {
		a.first = nil
		return p, nil
	}
	return a.x.upstream.Next()
}

// pieces are what arrives of an answer, with its Content-Encoding undone.
type pieces struct {
	encoding []byte
	next     func() ([]byte, error)
	rest     []byte        // of a piece that arrived
	plain    io.ReadCloser // what is decoded, nil before the first piece
	buf      []byte
}

// Read is what arrives, for the decoder.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		piece, err := p.next()
		if err != nil {
			return 0, err
		}
		p.rest = piece
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Next returns the next piece, which is valid until it is called again. Its error is io.EOF at the end.
func (p *pieces) Next() ([]byte, error) {
	if isPlain(p.encoding) {
		return p.next()
	}
	if p.plain == nil {
		plain, err := decoder(p.encoding, p, foldLimit)
		if err != nil {
			return nil, brokenPiece(err)
		}
		p.plain, p.buf = plain, make([]byte, perRead)
	}
	for {
		n, err := p.plain.Read(p.buf)
		if n > 0 {
			return p.buf[:n], nil
		}
		if err != nil {
			return nil, brokenPiece(err)
		}
	}
}

// brokenPiece is the end of an answer, what befell upstream, or else what is wrong with what it sends.
func brokenPiece(err error) error {
	if errors.Is(err, io.EOF) || upstreamFault(err) || errors.Is(err, providers.ErrAborted) {
		return err
	}
	return errUnread(unknownEncoding)
}

// unknownEncoding is why an answer cannot be read.
const unknownEncoding = "its Content-Encoding cannot be undone"

// startsObject tells JSON objects, which all remembered bodies are, from forms and files.
func startsObject(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == '{'
}

// background is the member of a request of Responses that has it answered later, to whoever asks for the answer by its id.
const background = "background"

// inBackground tells that a request is to be answered in the background: nobody can judge that answer, or run tools that
// it calls.
func (x *exchange) inBackground() bool {
	if x.dialect != wire.Responses || x.request == nil {
		return false
	}
	switch string(x.request.Member(background)) {
	case "", "null", "false":
		return false
	}
	return true
}

// sameBody tells that a and b are the same memory, not merely equal.
func sameBody(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// dress adds to the body of a session's request what its provider wants for its prompt cache. It is the only thing that
// changes a body outside of its items and tools, and off by default.
func (x *exchange) dress(body []byte) []byte {
	up := x.provider.Upstream()
	if x.turn == nil || x.turn.unkept || !up.PromptCacheKey && !up.CacheControl {
		return body
	}
	if up.CacheControl && x.dialect == wire.Chat {
		if r := x.parsed(body); r != nil {
			body = mark.Cache(r)
		}
	}
	if up.PromptCacheKey {
		if r := x.parsed(body); r != nil {
			id := &x.head.id
			key := cacheKey(&x.s.o.Session, x.owner.of(&x.s.o.Session, id.credential), id.session)
			if keyed, err := r.WithMember("prompt_cache_key", wire.AppendString(nil, key)); err == nil {
				body = keyed
			}
		}
	}
	return body
}

// parsed is a body that was made of the request's, nil where it can't be read.
func (x *exchange) parsed(body []byte) *wire.Request {
	if sameBody(body, x.request.Body) {
		return x.request
	}
	r, err := wire.Parse(x.dialect, body)
	if err != nil {
		return nil
	}
	return r
}

// cacheKey names a session to a provider, in 32 characters: the same one on every replica with the same session.key, and
// nothing that the tenant or the session can be read from.
func cacheKey(o *SessionOptions, tenant, session string) string {
	mac := hmac.New(sha256.New, []byte(o.Key.Reveal()))
	for _, part := range [...]string{"prompt_cache_key", tenant, session} {
		// No credential of a caller is spelled so, and no two pairs alike.
		_, _ = fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(mac.Sum(sum[:0])[:16])
}

// messagesOf spells items as GenAI semantic conventions do. What has no text that they know is left out.
func messagesOf(items []wire.Item) []telemetry.Message {
	var out []telemetry.Message
	for _, it := range items {
		m := telemetry.Message{Role: "assistant"}
		text := telemetry.Part{Type: "text", Content: it.Text()}
		switch {
		case it.Kind == wire.ToolResult:
			m.Role, text.Type, text.ID = "tool", "tool_call_response", it.Answers.ID
		case it.Role == wire.System || it.Role == wire.Developer:
			m.Role = "system"
		case it.Role == wire.User:
			m.Role = "user"
		}
		if text.Content != "" {
			m.Parts = append(m.Parts, text)
		}
		for i, call := range it.Calls {
			m.Parts = append(m.Parts, telemetry.Part{Type: "tool_call", ID: call.ID, Name: call.Name, Content: it.Input(i)})
		}
		if len(m.Parts) > 0 {
			out = append(out, m)
		}
	}
	return out
}
