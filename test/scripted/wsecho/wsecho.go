// Package wsecho is the server side of a WebSocket (RFC 6455) that echoes every message, to test whether a proxy forwards an
// upgrade and the frames after it.
package wsecho

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // RFC 6455 requires it, not for security
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

const (
	acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	maxPayload = 16 << 20

	opClose = 8
	opPing  = 9
	opPong  = 10
)

// ErrHandshake is the error of Serve for a request that is no WebSocket upgrade. Nothing has been written then.
var ErrHandshake = errors.New("not a websocket handshake")

// IsUpgrade reports whether r asks for a WebSocket.
func IsUpgrade(r *http.Request) bool {
	return hasToken(r.Header, "Connection", "upgrade") && hasToken(r.Header, "Upgrade", "websocket")
}

func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// Accept returns the Sec-WebSocket-Accept for a Sec-WebSocket-Key.
func Accept(key string) string {
	sum := sha1.Sum([]byte(key + acceptGUID)) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Serve answers the upgrade r on its connection, and echoes messages until a close frame. It accepts the first offered
// subprotocol and no extensions. The caller closes conn.
func Serve(conn net.Conn, rw *bufio.ReadWriter, r *http.Request) error {
	key := r.Header.Get("Sec-WebSocket-Key")
	if !IsUpgrade(r) || key == "" || r.Header.Get("Sec-WebSocket-Version") != "13" {
		return ErrHandshake
	}
	head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + Accept(key) + "\r\n"
	if offered, _, _ := strings.Cut(r.Header.Get("Sec-WebSocket-Protocol"), ","); offered != "" {
		head += "Sec-WebSocket-Protocol: " + strings.TrimSpace(offered) + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return fmt.Errorf("write websocket handshake: %w", err)
	}
	for {
		f, err := readFrame(rw.Reader)
		if err != nil {
			return err
		}
		switch f.op() {
		case opPong:
			continue
		case opPing:
			f.first = f.first&0xf0 | opPong
		}
		if err := f.write(conn); err != nil {
			return err
		}
		if f.op() == opClose {
			return nil
		}
	}
}

// frame is an unmasked frame. first holds FIN, the reserved bits and the opcode.
type frame struct {
	first   byte
	payload []byte
}

func (f *frame) op() byte { return f.first & 0x0f }

func readFrame(r *bufio.Reader) (*frame, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("read websocket frame: %w", err)
	}
	size := uint64(head[1] & 0x7f)
	var long [8]byte
	switch size {
	case 126:
		if _, err := io.ReadFull(r, long[6:]); err != nil {
			return nil, fmt.Errorf("read websocket frame: %w", err)
		}
		size = binary.BigEndian.Uint64(long[:])
	case 127:
		if _, err := io.ReadFull(r, long[:]); err != nil {
			return nil, fmt.Errorf("read websocket frame: %w", err)
		}
		size = binary.BigEndian.Uint64(long[:])
	}
	if size > maxPayload {
		return nil, errors.New("read websocket frame: too large")
	}
	if head[1]&0x80 == 0 {
		return nil, errors.New("read websocket frame: not masked")
	}
	body := make([]byte, 4+size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("read websocket frame: %w", err)
	}
	mask, payload := body[:4], body[4:]
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return &frame{first: head[0], payload: payload}, nil
}

func (f *frame) write(w io.Writer) error {
	b := make([]byte, 0, 10+len(f.payload))
	b = append(b, f.first)
	switch n := len(f.payload); {
	case n < 126:
		b = append(b, byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	if _, err := w.Write(append(b, f.payload...)); err != nil {
		return fmt.Errorf("write websocket frame: %w", err)
	}
	return nil
}
