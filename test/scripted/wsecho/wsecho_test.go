package wsecho_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"remora/test/scripted"
	"remora/test/scripted/wsecho"
)

// masked is a client's frame.
func masked(first byte, payload []byte) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = append(b, 0x80|126, byte(n>>8), byte(n))
	default:
		b = append(b, 0x80|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	mask := []byte{1, 2, 3, 4}
	b = append(b, mask...)
	for i, c := range payload {
		b = append(b, c^mask[i%4])
	}
	return b
}

func unmasked(first byte, payload []byte) []byte {
	b := masked(first, payload)
	at := len(b) - len(payload) - 4
	b[1] &= 0x7f
	return append(b[:at:at], payload...)
}

func dial(t *testing.T, s *scripted.Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

const upgrade = " HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: realtime, other\r\n\r\n"

func TestEcho(t *testing.T) {
	s, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, path := range []string{"/v1/responses", "/v1/realtime?model=m", "/api/v1/responses"} {
		conn, r := dial(t, s)
		// The first frame is sent together with the handshake.
		if _, err := conn.Write(append([]byte("GET "+path+upgrade), masked(0x81, []byte("early"))...)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		// The accept value is the example of RFC 6455, section 1.3.
		if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" ||
			resp.Header.Get("Sec-WebSocket-Protocol") != "realtime" {
			t.Fatalf("%s: %v", path, resp)
		}
		want := unmasked(0x81, []byte("early"))
		for _, c := range []struct {
			send, back byte
			payload    []byte
		}{
			{0x81, 0x81, []byte("hello")},
			{0x82, 0x82, bytes.Repeat([]byte{7}, 300)},
			{0x01, 0x01, bytes.Repeat([]byte("a"), 70_000)}, // a fragment
			{0x89, 0x8a, []byte("ping")},
			{0x8a, 0, nil}, // a pong is not answered
			{0x88, 0x88, []byte{3, 232}},
		} {
			if _, err := conn.Write(masked(c.send, c.payload)); err != nil {
				t.Fatal(err)
			}
			if c.back != 0 {
				want = append(want, unmasked(c.back, c.payload)...)
			}
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes back, want %d; %v", path, len(got), len(want), err)
		}
	}
	for _, rec := range s.Requests() {
		if rec.Status != 101 {
			t.Errorf("recorded status %d", rec.Status)
		}
	}
}

func TestCloseEndsWebSockets(t *testing.T) {
	s, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	conn, r := dial(t, s)
	if _, err := io.WriteString(conn, "GET /v1/realtime"+upgrade); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(r, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
}

func TestServeRefuses(t *testing.T) {
	f := func(frame []byte, header http.Header, want error) {
		t.Helper()
		server, client := net.Pipe()
		defer client.Close()
		ended := make(chan error, 1)
		go func() {
			defer server.Close()
			rw := bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server))
			ended <- wsecho.Serve(server, rw, &http.Request{Header: header})
		}()
		if want == nil {
			if _, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil {
				t.Fatal(err)
			}
			_, _ = client.Write(frame)
		}
		err := <-ended
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("Serve: %v", err)
		}
	}
	good := http.Header{"Connection": {"upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"k"}}
	f(nil, http.Header{}, wsecho.ErrHandshake)
	f(nil, http.Header{"Connection": {"upgrade"}, "Upgrade": {"h2c"}}, wsecho.ErrHandshake)
	f(unmasked(0x81, []byte("x")), good, nil)
	f([]byte{0x82, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0}, good, nil)
}
