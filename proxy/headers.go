package proxy

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/valyala/fasthttp"
)

// line is one header of the request as it came. It points into the request's memory.
type line struct {
	key, value []byte
	role       role
}

// head is the header section of a request, and what the proxy reads in it.
type head struct {
	lines   []line
	id      identity
	encoded []byte // Content-Encoding
	upgrade []byte // the protocol that the client wants to upgrade to; nil for none
	length  int64  // Content-Length, -1 if there is none
	chunked bool   // there is a Transfer-Encoding, and so a body, which may be empty
	paged   bool   // there is an Origin: the request comes from a web page
	asked   bool   // it has a header for which the browser of a page must have asked upstream, by a preflight
	broken  bool   // a header's name has a space in it, which is invalid (RFC 9110, 5.1)
}

// read reads the headers in the order in which they came. It uses the raw head: fasthttp's parsed one moves some headers to
// the front and rewrites cookies.
func (h *head) read(t *headerTable, r *fasthttp.RequestHeader) {
	*h = head{lines: h.lines[:0], length: -1, id: identity{keys: h.id.keys[:0]}}
	var named [16][]byte // room for the usual ones
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
				listed = append(listed, token)
			}
		case roleEncoding:
			if isPlain(h.encoded) {
				h.encoded = value
			} else if !isPlain(value) { // several lines are one list (RFC 9110, 5.3)
				h.encoded = slices.Concat(h.encoded, []byte(", "), value)
			}
		case roleUpgrade:
			h.upgrade = value
			other = other || !bytes.EqualFold(value, []byte("websocket"))
		case roleLength:
			h.length = int64(r.ContentLength())
		case roleOrigin:
			h.paged = true
		case roleTransfer:
			h.chunked = true
		case roleCredential, roleKey, roleSession, roleResource, roleExecution, roleParent, roleMemory, roleHistory, roleRetryCount:
			h.asked = true
			h.id.note(m, value)
		default:
			h.id.note(m, value)
		}
		h.lines = append(h.lines, line{key, value, m.role})
	}

	// Only a GET that asks for WebSocket alone becomes a tunnel. Some clients offer HTTP/2 without TLS with every request. A
	// server may ignore any offer (RFC 9110, 7.8), and requests inside such a tunnel would not be seen here.
	if !wantsUpgrade || !r.IsGet() || other {
		h.upgrade = nil
	}
	h.id.noteQuery(r.RequestURI())
	h.hide(listed)
}

// hide marks the headers that Connection lists as hop-by-hop. Headers that frame the message, or have a rule of their own,
// are not affected.
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

// unasked reports whether a browser sends such a request to any site, without the preflight by which upstream decides which pages may
// use it (the Fetch standard calls it simple). contentType is that of the body.
func (h *head) unasked(contentType []byte) bool {
	if !h.paged || h.asked {
		return false
	}
	essence, _, _ := bytes.Cut(contentType, []byte(";"))
	switch string(bytes.ToLower(bytes.TrimSpace(essence))) {
	case "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		return true
	}
	return false
}

// reset forgets the request and keeps the memory of lines.
func (h *head) reset() {
	clear(h.lines)
	clear(h.id.keys)
	*h = head{lines: h.lines[:0], id: identity{keys: h.id.keys[:0]}}
}

// rewrite is the difference between the client's head and the one to send.
type rewrite struct {
	body          int  // length of the body that is sent, in bytes; -1 for one in chunks
	remembered    bool // ask for an answer that is not compressed
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

	// Some servers refuse a POST without a length, so an empty body that came in chunks gets one.
	host, framed, accept := out.Host(), rw.body == 0 && !h.chunked, rw.remembered
	for i := range h.lines {
		l := &h.lines[i]
		switch l.role {
		case roleHost:
			if host != nil { // fasthttp refuses a second one
				dst = appendLine(dst, l.key, host)
				host = nil
			}
		case roleLength:
			if rw.body >= 0 {
				dst = appendLength(append(dst, l.key...), rw.body)
				framed = true
			}
		case roleTransfer:
			if rw.body < 0 && !framed {
				dst = appendLine(dst, l.key, []byte("chunked"))
				framed = true
			}
		case roleAccept:
			accept = false
			if rw.remembered {
				dst = appendLine(dst, l.key, []byte("identity"))
			} else {
				dst = appendLine(dst, l.key, l.value)
			}
		case roleProtocol:
			value := l.value
			if rw.ownCredential {
				value = withoutKeys(value)
			}
			if len(value) > 0 || len(l.value) == 0 {
				dst = appendLine(dst, l.key, value)
			}
		default:
			if rw.forwards(l) && !added(out, l.key) {
				dst = appendLine(dst, l.key, l.value)
			}
		}
	}

	if host != nil {
		dst = appendLine(dst, []byte("Host"), host)
	}
	switch {
	case framed:
	case rw.body < 0:
		dst = appendLine(dst, []byte(fasthttp.HeaderTransferEncoding), []byte("chunked"))
	default:
		dst = appendLength(append(dst, fasthttp.HeaderContentLength...), rw.body)
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

// forwards reports whether a header is sent upstream unchanged.
func (rw *rewrite) forwards(l *line) bool {
	switch l.role {
	case roleHop, roleMemory, roleHistory:
		return false
	case roleConnection, roleUpgrade:
		return rw.tunnel
	case roleEncoding:
		return !rw.decoded
	case roleCredential, roleKey, roleCookie, roleAccount:
		return !rw.ownCredential
	case roleNone:
		return !rw.ownCredential || !namesCredential(l.key)
	default:
		return true
	}
}

// added reports whether the provider sets a header of that name.
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

// ownAsked returns the headers that a web page wants to send, that the proxy reads, and that are not in listed.
func (h *head) ownAsked(t *headerTable, listed []byte) (names []string) {
	for _, l := range h.lines {
		if l.role != roleAsked {
			continue
		}
		for name := range bytes.SplitSeq(l.value, []byte(",")) {
			name = bytes.TrimSpace(name)
			switch t.lookup(name).role {
			case roleSession, roleResource, roleExecution, roleParent, roleMemory, roleHistory:
			default:
				continue
			}
			known := false
			for other := range bytes.SplitSeq(listed, []byte(",")) {
				known = known || bytes.EqualFold(bytes.TrimSpace(other), name)
			}
			if !known {
				names = append(names, string(name))
			}
		}
	}
	return names
}
