package proxy

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/wire"
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
	broken  bool   // there is a name with a space in it, which is none (RFC 9110, 5.1)
}

// read takes the headers in the order in which they came. It uses the raw head, since fasthttp's own view of it moves
// some headers to the front and writes cookies anew.
func (h *head) read(t *headerTable, r *fasthttp.RequestHeader) {
	*h = head{lines: h.lines[:0], length: -1}
	var named [16][]byte
	listed := named[:0]
	wantsUpgrade, other := false, false
	for key, value := range r.AllInOrder() {
		m := t.lookup(key)
		switch m.role {
		case roleNone:
			h.broken = h.broken || bytes.IndexByte(key, ' ') >= 0
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
			other = other || !bytes.EqualFold(value, []byte("websocket"))
		case roleLength:
			h.length = int64(r.ContentLength())
		default:
			h.id.note(m, value)
		}
		h.lines = append(h.lines, line{key, value, m.role})
	}
	// HTTP/2 without TLS is offered by some clients with every request; ignoring it is what it allows for, as for every
	// other protocol (RFC 9110, 7.8), and in a list too: a tunnel of it would hold requests that nobody here sees.
	// Nothing but a GET begins a WebSocket.
	if !wantsUpgrade || !r.IsGet() || other {
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

// dialectOf finds the endpoints whose conversations are remembered and judged, by their path alone. Everything else,
// sub-paths of these included, is passed through. unclear tells of a path that one server takes for the one endpoint and
// another for the other, or that leads to one of them at a place of its own, such as /openai/v1/responses, whose answers
// may have another form.
func dialectOf(target []byte) (d wire.Dialect, unclear bool) {
	target, ok := providers.OriginForm(target)
	if !ok {
		return 0, false
	}
	path, _, _ := bytes.Cut(target, []byte("?"))
	if d = endpoint(path); d != 0 {
		return d, false
	}
	return respelled(path)
}

// endpoint knows the paths in their plain spelling.
func endpoint(path []byte) wire.Dialect {
	switch string(bytes.TrimPrefix(path, []byte("/api"))) {
	case "/v1/chat/completions":
		return wire.Chat
	case "/v1/responses":
		return wire.Responses
	}
	return 0
}

// respelled is dialectOf for every other spelling. The bytes go upstream as they came, and what serves them there, behind
// proxies of its own perhaps, may undo one spelling or the other: nobody is to get around memory and rules by choosing one
// that only upstream understands. So a path is read as the most lenient server would: escapes are decoded, those of
// escapes too; an escaped slash and a backslash separate segments; letters are the same in either case; slashes that are
// repeated or at the end, and segments "." do not count; and ".." takes away the segment before it.
//
// There the readings may part: by whether ".." is seen before or after something is decoded, whether it takes away an
// empty segment, and what is above the path that the provider puts in place of /v1. So they do at what cuts a path short
// or is cut out of it: ";" and its parameters, "?" and "#" (escaped, or out of place), blanks, controls, and what is not
// ASCII. Such a path is the endpoint whose segments it has in their order, whatever else it has: one that is none by any
// reading is so taken for it, and upstream still gets it as it came. Spellings that no RFC knows, such as %u0063, are not read.
func respelled(path []byte) (d wire.Dialect, unclear bool) {
	var room [512]byte
	plain, odd, cut := unescaped(room[:0], path)
	var saw sighting
	up, clean := false, plain[:0] // it never catches up with what is read
	_, rest, more := bytes.Cut(plain, []byte("/"))
	for more {
		var segment []byte
		segment, rest, more = bytes.Cut(rest, []byte("/"))
		saw.see(segment)
		switch string(segment) {
		case "":
			odd = true
		case ".":
		case "..":
			up = true
			clean = clean[:max(bytes.LastIndexByte(clean, '/'), 0)]
			cut = cut || len(clean) == 0 || string(clean) == "/api"
		default:
			clean = append(append(clean, '/'), segment...)
		}
	}
	if cut || up && odd {
		return saw.endpoint()
	}
	d = endpoint(clean)
	return d, d == 0 && (bytes.HasSuffix(clean, []byte("/chat/completions")) || bytes.HasSuffix(clean, []byte("/responses")))
}

// unescaped appends a path to dst as a lenient server reads it: in lower case, without escapes, and with a slash for
// all that separates. odd tells that something was undone which not every server undoes, cut that the path has something
// that some servers end it at.
func unescaped(dst, path []byte) (plain []byte, odd, cut bool) {
	for _, c := range path {
		dst = append(dst, c)
		for n := len(dst) - 3; n >= 0 && dst[n] == '%'; n = len(dst) - 3 {
			b, err := strconv.ParseUint(string(dst[n+1:]), 16, 8)
			if err != nil {
				break
			}
			dst, odd = append(dst[:n], byte(b)), true
		}
	}
	for i, c := range dst {
		switch {
		case c == '\\':
			dst[i], odd = '/', true
		case c <= ' ', c >= 0x7f, c == ';', c == '?', c == '#':
			dst[i], cut = '/', true
		case 'A' <= c && c <= 'Z':
			dst[i] |= 0x20
		}
	}
	return dst, odd, cut
}

// sighting notes which endpoints a path has the segments of, in their order.
type sighting struct {
	version, chat, completions, responses bool
	talk, elsewhere                       bool // without a version before them
}

func (s *sighting) see(segment []byte) {
	switch string(segment) {
	case "v1":
		s.version = true
	case "chat":
		s.chat, s.talk = s.chat || s.version, true
	case "completions":
		s.completions, s.elsewhere = s.completions || s.chat, s.elsewhere || s.talk
	case "responses":
		s.responses, s.elsewhere = s.responses || s.version, true
	}
}

func (s *sighting) endpoint() (d wire.Dialect, unclear bool) {
	switch {
	case s.completions && s.responses:
		return 0, true
	case s.completions:
		return wire.Chat, false
	case s.responses:
		return wire.Responses, false
	}
	return 0, s.elsewhere
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
