package providers

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/valyala/fasthttp"
)

// headReader reads the bytes of a head.
type headReader struct {
	*Head
	whole   bool     // lines that concern the connection stay: the answer switches protocols
	keep    bool     // the connection may be used again
	closes  bool     // it may not, whatever else Connection says
	listed  []string // what else Connection lists, in lower case
	lengths int      // lines that tell a length
}

// Read makes h the head that raw holds, up to and including the empty line. keep is true where it lets the connection be used
// again. Errors are ErrMalformed, and quote nothing.
func (h *Head) Read(raw []byte) (keep bool, err error) {
	h.Reset()
	raw = bytes.TrimLeft(raw, "\r\n") // left over from the answer before
	end := lineEnd(raw)
	if !h.readStatus(raw[:end]) || !bytes.HasSuffix(raw, []byte("\r\n\r\n")) {
		return false, fmt.Errorf("%w: the response head is not one of HTTP/1.x", ErrMalformed)
	}

	r := headReader{Head: h, whole: h.status == fasthttp.StatusSwitchingProtocols, keep: raw[len("HTTP/1.")] != '0'}
	for end < len(raw)-len("\r\n") {
		begin := end
		end += lineEnd(raw[begin:])
		line := raw[begin:end]
		if isBlank(raw[end]) {
			line, end = unfolded(raw, begin, end)
		}
		if err := r.add(line); err != nil {
			return false, err
		}
	}
	if !isText(raw) {
		return false, fmt.Errorf("%w: the response head has control characters", ErrMalformed)
	}
	if len(r.listed) > 0 {
		h.Drop(r.listed...)
	}
	return r.keep && !r.whole, nil
}

// readStatus reads the status line. An answer of HTTP/1.0 goes on as one of HTTP/1.1, which this side speaks.
func (h *Head) readStatus(line []byte) bool {
	const protocol, digits = "HTTP/1.x", len("200")
	line = bytes.TrimRight(line, "\r\n")
	if len(line) <= len(protocol) || string(line[:len("HTTP/1.")]) != "HTTP/1." || line[len(protocol)] != ' ' {
		return false
	}
	status := bytes.TrimLeft(line[len(protocol):], " ")
	if len(status) < digits || len(status) > digits && status[digits] != ' ' {
		return false
	}
	n, err := fasthttp.ParseUint(status[:digits])
	if err != nil || n < fasthttp.StatusContinue {
		return false
	}
	h.status = n
	h.lines = append(append(append(h.lines, "HTTP/1.1 "...), status...), "\r\n"...)
	h.headers = len(h.lines)
	return true
}

// add adds a header line to the head, unless it concerns the connection only.
func (r *headReader) add(line []byte) error {
	name, value := splitLine(line)
	if len(name) == 0 || len(name) == len(line) || isBlank(name[0]) {
		return fmt.Errorf("%w: the response head has a line that is no header", ErrMalformed)
	}
	switch lineKindOf(name) {
	case typeLine:
		r.mimeType = append(r.mimeType[:0], value...)
	case encodingLine:
		if len(r.encoding) > 0 {
			r.encoding = append(r.encoding, ", "...)
		}
		r.encoding = append(r.encoding, value...)
	case connectionLine:
		if r.whole {
			break
		}
		r.readConnection(value)
		return nil
	case hopLine:
		if r.whole {
			break
		}
		return nil
	case lengthLine:
		n, err := fasthttp.ParseUint(value)
		if r.lengths++; err != nil || r.lengths > 1 {
			return fmt.Errorf("%w: the response head has more than one Content-Length, or one that is no number", ErrMalformed)
		}
		if r.length != chunkedLength { // which overrules it
			r.frame(n, name, value)
		}
		return nil
	case codingLine:
		if r.length == chunkedLength || !equalFold(value, "chunked") {
			return fmt.Errorf("%w: the response head has another Transfer-Encoding than chunked", ErrMalformed)
		}
		r.frame(chunkedLength, name, value)
		return nil
	default:
	}
	r.lines = appendHeader(r.lines, name, value)
	return nil
}

// frame notes the line that frames the body.
func (r *headReader) frame(length int, name, value []byte) {
	r.length, r.framed = length, len(r.lines)
	r.framing = appendHeader(r.framing[:0], name, value)
}

// readConnection reads the value of a Connection line.
func (r *headReader) readConnection(value []byte) {
	for token := range bytes.SplitSeq(value, []byte(",")) {
		const most = 8 // lines that a head can take out
		switch token = bytes.TrimSpace(token); {
		case equalFold(token, "close"):
			r.keep, r.closes = false, true
		case equalFold(token, "keep-alive"):
			r.keep = !r.closes
		case len(token) > 0 && len(r.listed) < most:
			r.listed = append(r.listed, strings.ToLower(string(token)))
		}
	}
}

// unfolded joins the line of raw from begin to end with the lines that continue it, by a space (RFC 9112, 5.2), and returns where
// they end.
func unfolded(raw []byte, begin, end int) (line []byte, next int) {
	line = bytes.TrimRight(bytes.Clone(raw[begin:end]), "\r\n")
	for isBlank(raw[end]) {
		n := lineEnd(raw[end:])
		line = append(append(line, ' '), bytes.Trim(raw[end:end+n], " \t\r\n")...)
		end += n
	}
	return line, end
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// isText reports whether p has no control characters but tabs and those of line ends.
func isText(p []byte) bool {
	for i, c := range p {
		switch {
		case c >= ' ' && c != 0x7f, c == '\t', c == '\n', c == '\r' && i+1 < len(p) && p[i+1] == '\n':
		default:
			return false
		}
	}
	return true
}

// lineKind tells apart the header lines that are not only passed on.
type lineKind uint8

const (
	plainLine lineKind = iota
	typeLine
	encodingLine
	lengthLine
	codingLine
	connectionLine
	hopLine // about the connection, too
)

// specialBegin has the letters that the names of lines begin with that are not plain: most lines begin with another one.
var specialBegin = [256]bool{
	'c': true, 'C': true, 't': true, 'T': true, 'u': true, 'U': true, 'k': true, 'K': true, 'p': true, 'P': true,
}

func lineKindOf(name []byte) lineKind {
	var lower [len("transfer-encoding")]byte // the longest
	if !specialBegin[name[0]] || len(name) > len(lower) {
		return plainLine
	}
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		lower[i] = c
	}
	switch string(lower[:len(name)]) {
	case "content-type":
		return typeLine
	case "content-encoding":
		return encodingLine
	case "content-length":
		return lengthLine
	case "transfer-encoding":
		return codingLine
	case "connection":
		return connectionLine
	case "keep-alive", "proxy-connection", "te", "trailer", "upgrade":
		return hopLine
	}
	return plainLine
}

// splitLine returns the name and the value of a header line, without blanks around them and its end; the line and nothing for one
// without a colon.
func splitLine(line []byte) (name, value []byte) {
	i := bytes.IndexByte(line, ':') //nolint:modernize // bytes.Cut takes three times as long, for each line of each head
	if i < 0 {
		return line, nil
	}
	name, value = line[:i], line[i+1:]
	for len(name) > 0 && isBlank(name[len(name)-1]) { // as some servers write
		name = name[:len(name)-1]
	}
	for len(value) > 0 && value[0] <= ' ' {
		value = value[1:]
	}
	for len(value) > 0 && value[len(value)-1] <= ' ' {
		value = value[:len(value)-1]
	}
	return name, value
}

// equalFold compares with a lower-case ASCII name.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
