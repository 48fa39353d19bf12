package providers

import (
	"bytes"
	"iter"
	"slices"

	"github.com/valyala/fasthttp"
)

// Head is the head of an answer. Its lines keep the order and the spelling that upstream chose; those that concern one
// connection only are left out. After Reset it is that of no answer.
type Head struct {
	status   int
	length   int    // of the body in bytes, or chunkedLength or noLength
	lines    []byte // the status line and the header lines, except those that frame the body
	headers  int    // where in lines the header lines begin
	framed   int    // where in lines the one stood that frames the body, -1 for none
	framing  []byte // that line
	mimeType []byte
	encoding []byte
}

// Lengths of a body that a head does not tell.
const (
	chunkedLength = -1
	noLength      = -2
)

// Status is the status code, 0 for no answer.
func (h *Head) Status() int { return h.status }

// Length returns the length of the body in bytes, -1 for a body in chunks. known is false if the head says neither.
func (h *Head) Length() (n int, known bool) { return h.length, h.length != noLength }

// ContentType is the value of the Content-Type line, of several the last.
func (h *Head) ContentType() []byte { return h.mimeType }

// ContentEncoding is the value of the Content-Encoding line. Several lines are one list (RFC 9110, 5.3).
func (h *Head) ContentEncoding() []byte { return h.encoding }

// Lines is the status line and the header lines, without the line that frames the body and the empty one.
func (h *Head) Lines() []byte { return h.lines }

// All yields the names and values of Lines.
func (h *Head) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for from, to := range h.each {
			if name, value := splitLine(h.lines[from:to]); !yield(name, value) {
				return
			}
		}
	}
}

// each yields where each header line begins and ends in lines.
func (h *Head) each(yield func(from, to int) bool) {
	for from := h.headers; from < len(h.lines); {
		to := from + lineEnd(h.lines[from:])
		if !yield(from, to) {
			return
		}
		from = to
	}
}

// lineEnd returns where the first line ends, 0 if it does not.
func lineEnd(p []byte) int { return bytes.IndexByte(p, '\n') + 1 }

// Reset makes h the head of no answer.
func (h *Head) Reset() {
	*h = Head{
		length: noLength, framed: -1,
		lines: h.lines[:0], framing: h.framing[:0], mimeType: h.mimeType[:0], encoding: h.encoding[:0],
	}
}

// Copy makes h a copy of another head.
func (h *Head) Copy(from *Head) {
	*h = Head{
		status: from.status, length: from.length, headers: from.headers, framed: from.framed,
		lines:    append(h.lines[:0], from.lines...),
		framing:  append(h.framing[:0], from.framing...),
		mimeType: append(h.mimeType[:0], from.mimeType...),
		encoding: append(h.encoding[:0], from.encoding...),
	}
}

// Add adds a header line after the others.
func (h *Head) Add(name, value string) { h.lines = appendHeader(h.lines, name, value) }

// AddBytes is Add.
func (h *Head) AddBytes(name string, value []byte) { h.lines = appendHeader(h.lines, name, value) }

func appendHeader[N, V string | []byte](dst []byte, name N, value V) []byte {
	return append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
}

// Replace gives a line that was added another value. Its name is given in lower case.
func (h *Head) Replace(name string, value []byte) {
	from, to := 0, 0
	for begin, end := range h.each {
		if nameAmong([]string{name}, h.lines[begin:end]) != "" {
			from, to = begin+len(name)+len(": "), end-len("\r\n")
		}
	}
	if to > 0 {
		h.lines = slices.Replace(h.lines, from, to, value...)
	}
}

// Drop removes the lines of some names, which are given in lower case.
func (h *Head) Drop(names ...string) {
	to, framed := h.headers, h.framed
	for begin, end := range h.each {
		line := h.lines[begin:end]
		name := nameAmong(names, line)
		if name == "" {
			to += copy(h.lines[to:], line)
			continue
		}
		switch lineKindOf(line[:len(name)]) {
		case typeLine:
			h.mimeType = h.mimeType[:0]
		case encodingLine:
			h.encoding = h.encoding[:0]
		default:
		}
		if begin < h.framed {
			framed -= end - begin
		}
	}
	h.lines, h.framed = h.lines[:to], framed
}

// nameAmong returns the one of names that a line of a Head has, "" for none.
func nameAmong(names []string, line []byte) string {
	for _, n := range names {
		if len(line) > len(n) && line[len(n)] == ':' && equalFold(line[:len(n)], n) {
			return n
		}
	}
	return ""
}

// Join appends to dst the head for a client whose server has written one of its own at the beginning of p, and returns where that
// ends in p. The server knows how the body is framed on the client's connection: its line for that goes where upstream had one,
// spelled alike if both are the same header. Its other lines come last. If upstream has sent none, the server's head is the answer's, and
// what was added comes last.
func (h *Head) Join(dst, p []byte) (head []byte, end int) {
	first := lineEnd(p)
	from, to := first, first // of the server's line that frames the body
	for end = first; ; {
		begin := end
		end += lineEnd(p[begin:])
		line := p[begin:end]
		if len(line) <= len("\r\n") {
			break
		}
		if bytes.HasPrefix(line, []byte("Content-Length:")) || bytes.HasPrefix(line, []byte("Transfer-Encoding:")) {
			from, to = begin, end
		}
	}

	if h.status == 0 {
		blank := end - len("\r\n")
		return append(append(append(dst, p[:blank]...), h.lines...), p[blank:end]...), end
	}
	place := h.framed
	if place < 0 {
		place = len(h.lines)
	}
	dst = append(dst, h.lines[:place]...)
	dst = h.appendFraming(dst, p[from:to])
	dst = append(dst, h.lines[place:]...)
	return append(append(dst, p[first:from]...), p[to:end]...), end
}

// appendFraming appends the server's line that frames the body, which may be empty, in upstream's spelling.
func (h *Head) appendFraming(dst, line []byte) []byte {
	if len(line) == 0 && h.status == fasthttp.StatusNotModified {
		return append(dst, h.framing...) // it tells the length of another answer
	}
	if n := bytes.IndexByte(line, ':'); n > 0 && len(h.framing) > n && h.framing[n] == ':' {
		return append(append(dst, h.framing[:n]...), line[n:]...)
	}
	return append(dst, line...)
}
