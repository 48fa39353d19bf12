package providers

import (
	"bytes"
	"fmt"

	"github.com/valyala/fasthttp"
)

type bodyKind uint8

const (
	bodyNone bodyKind = iota // no body, or its end has been reached
	bodySized
	bodyChunked
	bodyUntilClose
)

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd
	chunkTrailer
)

const (
	maxChunkLine = 256
	maxTrailer   = 16 << 10
)

// framing finds the end of a response body.
type framing struct {
	kind  bodyKind
	state chunkState
	first bool  // nothing of the body has been waited for yet
	size  int64 // of the body as the head says: 0 for none, -1 where that does not say
	left  int64 // of a sized body, or of the chunk under way
	extra int   // bytes of trailers so far
}

// begin takes the framing from a response head.
func (f *framing) begin(head *Head, isHead bool) {
	*f = framing{first: true}
	code, length := head.status, head.length
	switch {
	case isHead || code == fasthttp.StatusNoContent || code == fasthttp.StatusNotModified || code < fasthttp.StatusOK:
	case length == chunkedLength:
		f.kind, f.size = bodyChunked, -1
	case length > 0:
		f.kind, f.size, f.left = bodySized, int64(length), int64(length)
	case length < 0:
		f.kind, f.size = bodyUntilClose, -1
	}
}

func (f *framing) ended() bool { return f.kind == bodyNone }

// decode moves the payload in buf to its front and returns its length, and how many bytes of buf are done with. With
// out == 0 and the body not ended, more bytes are needed.
func (f *framing) decode(buf []byte) (out, used int, err error) {
	switch f.kind {
	case bodySized:
		n := int(min(f.left, int64(len(buf))))
		if f.left -= int64(n); f.left == 0 {
			f.kind = bodyNone
		}
		return n, n, nil
	case bodyChunked:
		return f.dechunk(buf)
	default:
		return len(buf), len(buf), nil
	}
}

// dechunk joins all the chunks that have arrived: an upstream that writes many small ones at once then costs the
// client one piece instead of many.
func (f *framing) dechunk(buf []byte) (out, used int, err error) {
	for used < len(buf) && f.kind == bodyChunked {
		rest := buf[used:]
		if f.state == chunkData {
			n := int(min(f.left, int64(len(rest))))
			if out != used {
				copy(buf[out:], rest[:n])
			}
			out, used = out+n, used+n
			if f.left -= int64(n); f.left == 0 {
				f.state = chunkEnd
			}
			continue
		}
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			if f.state != chunkTrailer && len(rest) > maxChunkLine || len(rest) > maxTrailer {
				return 0, 0, fmt.Errorf("%w: a chunk's line is too long", ErrMalformed)
			}
			return out, used, nil
		}
		used += i + 1
		if err := f.line(rest[:i]); err != nil {
			return 0, 0, err
		}
	}
	return out, used, nil
}

// line takes one line of chunk framing, without its \n.
func (f *framing) line(line []byte) error {
	if len(line) == 0 || line[len(line)-1] != '\r' {
		return fmt.Errorf("%w: a chunk's line does not end in CR LF", ErrMalformed)
	}
	line = line[:len(line)-1]
	switch f.state {
	case chunkSize:
		n, err := parseChunkSize(line)
		if err != nil {
			return err
		}
		f.left, f.state = n, chunkData
		if n == 0 {
			f.state = chunkTrailer
		}
	case chunkEnd:
		if len(line) != 0 {
			return fmt.Errorf("%w: a chunk is longer than it says", ErrMalformed)
		}
		f.state = chunkSize
	default:
		if f.extra += len(line); f.extra > maxTrailer {
			return fmt.Errorf("%w: the trailers are too long", ErrMalformed)
		}
		if len(line) == 0 {
			f.kind = bodyNone
		}
	}
	return nil
}

// parseChunkSize reads the hexadecimal size before an optional extension.
func parseChunkSize(line []byte) (int64, error) {
	if i := bytes.IndexByte(line, ';'); i >= 0 {
		line = line[:i]
	}
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > 15 {
		return 0, fmt.Errorf("%w: a chunk's size is missing or too large", ErrMalformed)
	}
	var n int64
	for _, c := range line {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, fmt.Errorf("%w: a chunk's size is not hexadecimal", ErrMalformed)
		}
		n = n<<4 | int64(c)
	}
	return n, nil
}
