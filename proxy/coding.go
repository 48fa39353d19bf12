package proxy

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"remora/providers"
)

const (
	// A compressed body may unpack to minDecoded bytes, and beyond that to maxRatio times its size. JSON hardly ever
	// compresses that well. A body that does is taken for an attack on memory, and forwarded unread.
	minDecoded = 1 << 20
	maxRatio   = 100
	// maxWindow is the window that every zstd decoder should support (RFC 8878, 3.1.1.1.2). The decoder allocates what the
	// frame's header claims.
	maxWindow = 8 << 20
)

var errEncoding = errors.New("content encoding is not supported")

// unknownEncoding is the reason why an answer in an unknown Content-Encoding cannot be read.
const unknownEncoding = "its Content-Encoding cannot be undone"

// isPlain reports whether a body has no Content-Encoding to undo.
func isPlain(encoding []byte) bool {
	encoding = bytes.TrimSpace(encoding)
	return len(encoding) == 0 || bytes.EqualFold(encoding, []byte("identity"))
}

// decodable reports whether decoder knows a Content-Encoding, or there is none.
func decodable(encoding []byte) bool {
	return isPlain(bytes.TrimSpace(encoding)) || coding(encoding) != ""
}

// coding returns the name that decoder has for a Content-Encoding, "" for one that it does not know.
func coding(encoding []byte) string {
	switch encoding = bytes.TrimSpace(encoding); {
	case bytes.EqualFold(encoding, []byte("gzip")), bytes.EqualFold(encoding, []byte("x-gzip")):
		return "gzip"
	case bytes.EqualFold(encoding, []byte("zstd")):
		return "zstd"
	}
	return ""
}

// decode undoes a Content-Encoding. Without one it returns its input. hold counts the memory of what it returns; where it refuses a
// piece, the error is errNoRoom.
func decode(encoding, b []byte, limit int, hold func(n int) bool) ([]byte, error) {
	if isPlain(encoding) {
		return b, nil
	}
	r, err := decoder(encoding, bytes.NewReader(b), limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it has no error of its own
	// Return what was decoded before an error, too: an answer that was cut off is stored as far as it came.
	var plain []byte
	for {
		if room := cap(plain); len(plain) == room {
			plain = slices.Grow(plain, min(max(room/4, perRead), limit+1-room)) // what remains free stays as long as the body
			if !hold(cap(plain) - room) {
				return plain, errNoRoom
			}
		}
		n, err := r.Read(plain[len(plain):cap(plain)])
		plain = plain[:len(plain)+n]
		switch {
		case len(plain) > limit:
			return plain, errEncoding
		case errors.Is(err, io.EOF):
			return plain, nil
		case err != nil:
			return plain, err
		}
	}
}

// decoder returns a reader that undoes a Content-Encoding. It refuses a zstd frame that claims more than limit bytes.
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

// pieces reads an answer as it arrives, and undoes its Content-Encoding.
type pieces struct {
	encoding []byte
	next     func() ([]byte, error)
	rest     []byte        // the part of the last piece that was not decoded yet
	plain    io.ReadCloser // the decoder, nil before the first piece
	buf      []byte
}

// Read serves the decoder with the encoded bytes.
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

// Next returns the next piece, decoded. It is valid until the next call. The error is io.EOF at the end.
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

// brokenPiece passes on io.EOF and errors of the connection. Any other error means that the encoding is broken.
func brokenPiece(err error) error {
	if errors.Is(err, io.EOF) || upstreamFault(err) || errors.Is(err, providers.ErrAborted) {
		return err
	}
	return errUnread(unknownEncoding)
}
