package proxy

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
)

// line is one header of the request, as the client spelled it. It points into the request and is gone with it.
type line struct {
	key, value []byte
	role       role
}

// head is a request's header section with its meaning.
type head struct {
	lines   []line
	id      identity
	encoded []byte // Content-Encoding
	upgrade []byte // what the client wants to upgrade to; nil if it does not
	length  int64  // Content-Length, -1 if there is none
}

// read takes the headers in the order in which they came. It uses the raw head, since fasthttp's own view of it moves
// some headers to the front and writes cookies anew.
func (h *head) read(t *headerTable, r *fasthttp.RequestHeader) {
	h.lines, h.id, h.encoded, h.upgrade, h.length = h.lines[:0], identity{}, nil, nil, -1
	var named [16][]byte
	listed := named[:0]
	wantsUpgrade := false
	for key, value := range r.AllInOrder() {
		m := t.lookup(key)
		switch m.role {
		case roleNone:
		case roleConnection:
			for token := range bytes.SplitSeq(value, []byte(",")) {
				token = bytes.TrimSpace(token)
				wantsUpgrade = wantsUpgrade || bytes.EqualFold(token, []byte("upgrade"))
				if len(listed) < len(named) {
					listed = append(listed, token)
				}
			}
		case roleEncoding:
			h.encoded = value
		case roleUpgrade:
			h.upgrade = value
		case roleLength:
			h.length = int64(r.ContentLength())
		default:
			h.id.note(m, value)
		}
		h.lines = append(h.lines, line{key, value, m.role})
	}
	// HTTP/2 without TLS is offered by some clients with every request; ignoring it is what it allows for.
	// Nothing but a GET begins a WebSocket; an offer of anything else with a body may be ignored too (RFC 9110, 7.8).
	if !wantsUpgrade || !r.IsGet() || bytes.EqualFold(h.upgrade, []byte("h2c")) {
		h.upgrade = nil
	}
	h.id.noteQuery(r.RequestURI())
	h.hide(listed)
}

// hide marks the headers that Connection lists as concerning this connection only. What frames the message and what
// has its own rule can't be listed away.
func (h *head) hide(listed [][]byte) {
	for _, name := range listed {
		for i := range h.lines {
			l := &h.lines[i]
			switch l.role {
			case roleHost, roleLength, roleUpgrade, roleConnection:
			default:
				if len(l.key) == len(name) && bytes.EqualFold(l.key, name) {
					l.role = roleHop
				}
			}
		}
	}
}

// reset forgets the request but keeps the space.
func (h *head) reset() {
	clear(h.lines)
	*h = head{lines: h.lines[:0]}
}

// rewrite says how the forwarded head differs from the client's.
type rewrite struct {
	body          int  // length of the body that is sent
	remembered    bool // ask for an answer that can be read
	decoded       bool // the body is sent without its Content-Encoding
	tunnel        bool // keep Connection and Upgrade
	ownCredential bool // the provider has a credential of its own
}

// appendHead writes the head of the upstream request: target, Host and additions from out, which the provider has
// prepared, everything else from the client's lines, in their order and spelling.
func (h *head) appendHead(dst []byte, out *fasthttp.RequestHeader, rw rewrite) []byte {
	dst = append(dst, out.Method()...)
	dst = append(dst, ' ')
	dst = append(dst, out.RequestURI()...)
	dst = append(dst, " HTTP/1.1\r\n"...)
	rw.ownCredential = len(out.Peek(fasthttp.HeaderAuthorization)) > 0
	host, length, accept := out.Host(), rw.body > 0, rw.remembered
	for i := range h.lines {
		l := &h.lines[i]
		switch l.role {
		case roleHost:
			if host != nil { // a second one is refused by the server
				dst = appendLine(dst, l.key, host)
				host = nil
			}
		case roleLength:
			dst = appendLength(append(dst, l.key...), rw.body)
			length = false
		case roleAccept:
			accept = false
			if rw.remembered {
				dst = appendLine(dst, l.key, []byte("identity"))
			} else {
				dst = appendLine(dst, l.key, l.value)
			}
		default:
			if rw.forwards(l.role) && !added(out, l.key) {
				dst = appendLine(dst, l.key, l.value)
			}
		}
	}
	if host != nil {
		dst = appendLine(dst, []byte("Host"), host)
	}
	if length {
		dst = appendLength(append(dst, "Content-Length"...), rw.body)
	}
	if accept {
		dst = appendLine(dst, []byte(fasthttp.HeaderAcceptEncoding), []byte("identity"))
	}
	for key, value := range out.All() {
		if string(key) != fasthttp.HeaderHost {
			dst = appendLine(dst, key, value)
		}
	}
	return append(dst, '\r', '\n')
}

// forwards tells whether headers of a role are sent on as they came.
func (rw *rewrite) forwards(r role) bool {
	switch r {
	case roleHop, roleMemory, roleHistory:
		return false
	case roleConnection, roleUpgrade:
		return rw.tunnel
	case roleEncoding:
		return !rw.decoded
	case roleCredential:
		return !rw.ownCredential
	default:
		return true
	}
}

// added tells whether the provider sets a header of that name itself.
func added(out *fasthttp.RequestHeader, key []byte) bool {
	for k := range out.All() {
		if len(k) == len(key) && bytes.EqualFold(k, key) {
			return true
		}
	}
	return false
}

func appendLine(dst, key, value []byte) []byte {
	dst = append(dst, key...)
	dst = append(dst, ':', ' ')
	dst = append(dst, value...)
	return append(dst, '\r', '\n')
}

func appendLength(dst []byte, n int) []byte {
	dst = append(dst, ':', ' ')
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\r', '\n')
}

// report adds the proxy's own headers to the answer to a request that names a session, and nothing to any other.
// Server-Timing gets a line of its own, which adds to upstream's.
func (x *exchange) report(h *fasthttp.ResponseHeader) {
	id := &x.head.id
	if x.turn == nil || x.turn.unkept {
		if x.status != "" {
			h.Set("X-Session-Id", safeValue(id.session))
			h.Set("X-Memory", x.status+`;source="`+id.source+`"`)
		}
		return
	}
	h.Set("X-Session-Id", safeValue(id.session))
	h.Set("X-Turn-Id", x.turn.id)
	h.SetBytesV("X-Memory", appendSummary(make([]byte, 0, 128), &x.turn.summary, id.source))
	timing := append(make([]byte, 0, 64), "memory;dur="...)
	timing = appendMilliseconds(timing, x.spent.memory)
	timing = append(timing, ", upstream;dur="...)
	timing = appendMilliseconds(timing, x.spent.upstream)
	h.AddBytesV("Server-Timing", timing)
}

func appendMilliseconds(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, float64(d)/float64(time.Millisecond), 'f', 3, 64)
}

// appendSummary writes the summary as an item of RFC 8941 with parameters.
func appendSummary(dst []byte, s *memory.Summary, source string) []byte {
	dst = append(dst, s.Status.String()...)
	for _, p := range [...]struct {
		name  string
		value int
	}{
		{";items=", s.Items}, {";sent=", s.Sent}, {";windowed=", s.Windowed}, {";orphans=", s.Orphans}, {";recalled=", s.Recalled},
	} {
		dst = strconv.AppendInt(append(dst, p.name...), int64(p.value), 10)
	}
	if s.Side {
		dst = append(dst, ";side"...)
	}
	if len(s.Skipped) > 0 {
		dst = append(append(append(dst, `;skipped="`...), strings.Join(s.Skipped, " ")...), '"')
	}
	return append(append(append(dst, `;source="`...), source...), '"')
}

func isEventStream(contentType []byte) bool {
	const name = "text/event-stream"
	return len(contentType) >= len(name) && bytes.EqualFold(contentType[:len(name)], []byte(name))
}
