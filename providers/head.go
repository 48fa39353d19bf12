package providers

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"

	"github.com/valyala/fasthttp"
)

// fasthttp keeps some headers of an answer apart from the others: it writes them first or last, spells their names its own
// way, keeps the last of several and drops empty ones. Clients are to get the lines that upstream sent, so these names are
// disguised while fasthttp reads a head. It then takes them for any other header, and they go on in their place.
//
// The lines that frame the body, Content-Length and Transfer-Encoding, stay disguised. The client's connection may need
// another framing than upstream's, so fasthttp writes such a line of its own, and [PlaceFraming] puts it where the disguised
// one is.

// The first letter of a disguised name, for one in lower and one in upper case. Both may begin a name (RFC 9110, 5.6.2),
// and none that is in use begins so.
const (
	lowerDisguise = '!'
	upperDisguise = '~'
)

const (
	lengthName   = "content-length"
	transferName = "transfer-encoding"
)

// keptApart returns a name in lower case if it is one that fasthttp keeps apart, else "". The first letter may be disguised.
func keptApart(name []byte) string {
	switch len(name) {
	case len("date"):
		return spelled(name, "date", "Date")
	case len("server"):
		return spelled(name, "server", "Server")
	case len("set-cookie"):
		return spelled(name, "set-cookie", "Set-Cookie")
	case len("content-type"):
		return spelled(name, "content-type", "Content-Type")
	case len("content-encoding"):
		return spelled(name, "content-encoding", "Content-Encoding")
	default:
		return framingName(name)
	}
}

// spelled returns lower if a name is that name but for its first letter, else "". Most servers write the usual spelling.
func spelled(name []byte, lower, usual string) string {
	if string(name[1:]) != usual[1:] && !equalFold(name[1:], lower[1:]) {
		return ""
	}
	return lower
}

// beginsKeptApart has the letters that a name of keptApart may begin with, disguised or not: most names in a head begin with
// another one.
var beginsKeptApart = [256]bool{
	'd': true, 'D': true, 's': true, 'S': true, 'c': true, 'C': true, 't': true, 'T': true, lowerDisguise: true, upperDisguise: true,
}

// framingName is keptApart for the headers that frame a body.
func framingName(name []byte) string {
	switch len(name) {
	case len(lengthName):
		return spelled(name, lengthName, "Content-Length")
	case len(transferName):
		return spelled(name, transferName, "Transfer-Encoding")
	default:
		return ""
	}
}

// Lengths of a body that the head of an answer does not tell, as fasthttp spells them.
const (
	chunkedLength = -1
	noLength      = -2
)

// disguise changes the names in a head that fasthttp is about to read, and returns the length of the body. It accepts
// what fasthttp would have accepted: one length in digits, and no other transfer coding than chunks, which win over a length.
func disguise(head []byte) (length int, err error) {
	length = noLength
	lengths, codings := 0, 0
	for from, to := range headerLines(head, bytes.IndexByte(head, '\n')+1) {
		if !beginsKeptApart[head[from]] {
			continue
		}
		name, value := splitLine(head[from:to])
		special := keptApart(name)
		if special == "" || !hide(name, special) {
			continue
		}

		switch special {
		case lengthName:
			n, err := fasthttp.ParseUint(bytes.TrimSpace(value))
			if lengths++; lengths > 1 || err != nil {
				return 0, fmt.Errorf("%w: the response head has more than one Content-Length, or one that is no number", ErrMalformed)
			}
			if codings == 0 {
				length = n
			}
		case transferName:
			if codings++; codings > 1 || !equalFold(bytes.TrimSpace(value), "chunked") {
				return 0, fmt.Errorf("%w: the response head has another Transfer-Encoding than chunked", ErrMalformed)
			}
			length = chunkedLength
		}
	}
	return length, nil
}

// hide disguises a name, unless it is so already.
func hide(name []byte, special string) bool {
	switch name[0] {
	case special[0]:
		name[0] = lowerDisguise
	case special[0] - ('a' - 'A'):
		name[0] = upperDisguise
	default:
		return false
	}
	return true
}

// undisguise gives a name its first letter back.
func undisguise(name []byte, special string) {
	upper := name[0] == upperDisguise
	if name[0] = special[0]; upper {
		name[0] -= 'a' - 'A'
	}
}

func disguised(name []byte) bool {
	return len(name) > 0 && (name[0] == lowerDisguise || name[0] == upperDisguise)
}

// reveal restores the names of the headers that fasthttp has read, except those that frame the body.
func reveal(h *fasthttp.ResponseHeader) {
	for name := range h.All() {
		if !disguised(name) {
			continue
		}
		switch special := keptApart(name); special {
		case "", lengthName, transferName:
		default:
			undisguise(name, special)
		}
	}
}

// readDisguised has fasthttp read a head from r. It begins at head, which r has buffered.
func readDisguised(resp *fasthttp.ResponseHeader, r *bufio.Reader, head []byte) error {
	length, err := disguise(head)
	if err != nil {
		return err
	}
	if err := resp.Read(r); err != nil || resp.ContentLength() != noLength {
		return fmt.Errorf("%w: read the response head", ErrMalformed) // fasthttp's error may quote the head
	}
	reveal(resp)
	resp.ResetConnectionClose() // which fasthttp concludes from a head without a length
	if length != noLength {
		resp.SetContentLength(length)
	}
	return nil
}

// PlaceFraming appends to dst the head at the beginning of p, which fasthttp has written from one that [Client.Send] has read,
// and returns where it ends in p: 0 where p has not all of it. The line that frames the body goes where upstream had its own,
// spelled alike if both are of one name. Any other head stays as it is.
func PlaceFraming(dst, p []byte) (head []byte, end int) {
	type framing struct{ from, name, to int } // a line of p: where it begins, and its name and itself end
	lines := make([]framing, 0, 4)
	own, place := -1, -1 // fasthttp's line in lines, and the one of upstream whose place it gets
	for from := bytes.IndexByte(p, '\n') + 1; ; from = end {
		n := bytes.IndexByte(p[from:], '\n')
		if end = from + n + 1; n < 0 {
			return dst, 0
		}
		if n <= len("\r") {
			break
		}
		name := framingKey(p[from:end])
		switch {
		case name == 0:
			continue
		case !disguised(p[from:end]):
			own = len(lines)
		case place < 0 || name == len(transferName): // which overrules a length
			place = len(lines)
		}
		lines = append(lines, framing{from, from + name, end})
	}
	if place < 0 {
		return append(dst, p[:end]...), end
	}

	done := 0 // of p
	for i, l := range lines {
		dst = append(dst, p[done:l.from]...)
		done = l.to
		if i != place {
			continue
		}
		rest := l
		switch {
		case own >= 0:
			rest = lines[own]
		case !isNotModified(p):
			continue
		}
		if name := p[l.from:l.name]; len(name) == rest.name-rest.from {
			dst = appendRevealed(dst, name, p[rest.name:rest.to])
		} else {
			dst = append(dst, p[rest.from:rest.to]...)
		}
	}
	return append(dst, p[done:end]...), end
}

// framingKey returns the length of the name in a header line if it is one that frames the body, else 0.
func framingKey(line []byte) int {
	if !beginsKeptApart[line[0]] {
		return 0
	}
	for _, n := range [...]int{len(lengthName), len(transferName)} {
		if len(line) > n && line[n] == ':' && framingName(line[:n]) != "" {
			return n
		}
	}
	return 0
}

// appendRevealed appends a disguised name as it was, and the rest of its line.
func appendRevealed(dst, name, rest []byte) []byte {
	from := len(dst)
	dst = append(dst, name...)
	undisguise(dst[from:], framingName(name))
	return append(dst, rest...)
}

// isNotModified finds status 304, whose Content-Length fasthttp leaves as upstream sent it: it belongs to another
// answer.
func isNotModified(head []byte) bool { return bytes.HasPrefix(head[len("HTTP/1."):], []byte("1 304")) }

// ContentType returns the Content-Type of an answer, whether [Client.Send] has read it or it was made here. Of several the
// last counts.
func ContentType(h *fasthttp.ResponseHeader) (value []byte) {
	for name, v := range h.All() {
		if equalFold(name, "content-type") {
			value = v
		}
	}
	return value
}

// ContentEncoding returns the Content-Encoding of such an answer. Several lines are one list (RFC 9110, 5.3).
func ContentEncoding(h *fasthttp.ResponseHeader) (value []byte) {
	lines := 0
	for name, v := range h.All() {
		if !equalFold(name, "content-encoding") {
			continue
		}
		if lines++; lines > 1 {
			v = bytes.Join([][]byte{value, v}, []byte(", "))
		}
		value = v
	}
	return value
}

// DropHeader removes all lines of a name from an answer, in any spelling. The others keep their order; how the body is
// framed has to be said anew.
func DropHeader(h *fasthttp.ResponseHeader, name string) { copyHead(h, h, name) }

// CopyHead copies the status and the header lines of one answer to another, except the framing of its body.
func CopyHead(to, from *fasthttp.ResponseHeader) { copyHead(to, from, "") }

// copyHead has fasthttp read a head anew. Its own ways to copy or delete headers change their order, or add a Date.
func copyHead(to, from *fasthttp.ResponseHeader, drop string) {
	raw := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", from.StatusCode(), from.StatusMessage())
	for name, value := range from.All() {
		framing := equalFold(name, "content-length") || equalFold(name, "transfer-encoding") || equalFold(name, "connection")
		if !framing && !strings.EqualFold(string(name), drop) {
			raw = append(append(append(append(raw, name...), ": "...), value...), "\r\n"...)
		}
	}
	raw = append(raw, "\r\n"...)

	if err := readDisguised(to, bufio.NewReaderSize(bytes.NewReader(raw), len(raw)+1), raw); err != nil {
		panic("BUG: read a head that was read before")
	}
}
