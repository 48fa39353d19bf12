package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"remora/proxy/listener"
	"remora/wire"
)

// exhausted is a listener that fails as one does in a process without free descriptors, then hands out a connection.
type exhausted struct {
	net.Listener
	failures int
	conn     net.Conn
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.conn, nil
}

func TestAcceptOutlastsExhaustion(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer shut(ln)
	want, other := net.Pipe()
	defer shut(want)
	defer shut(other)
	patient := listener.Patient(&exhausted{ln, 3, want}, slog.New(slog.DiscardHandler), time.Now)
	got, err := patient.Accept()
	if err != nil || got == nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestBombsAreForwardedUnread(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	write(z, `{"session_id":"s","messages":[],"x":"`)
	_, _ = io.CopyN(z, zeros{}, 8<<20)
	write(z, `"}`)
	shut(z)
	b := newBook()
	r := start(t, rigOptions{memory: b.begin, upstream: answering(t, func(_ *http.Request, body []byte) string {
		text := fmt.Sprint(bytes.Equal(body, bomb.Bytes()))
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	})})
	got := r.exchange(t, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Session-Id: s\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		bomb.Len(), bomb.Bytes()))
	if !strings.HasSuffix(got, "true") || !strings.Contains(got, "X-Memory: bypass") || len(b.calls) != 0 {
		t.Errorf("got %s, %d turns", got, len(b.calls))
	}
}

// zeros reads as the character 0 for ever.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestAbsoluteTargetsAreRemembered(t *testing.T) {
	f := func(target string, want wire.Dialect) {
		t.Helper()
		if got := dialectOf([]byte(target)); got != want {
			t.Errorf("%s: dialect %v, want %v", target, got, want)
		}
	}
	f("http://h/v1/chat/completions", wire.Chat)
	f("https://h:1/api/v1/responses?x=1", wire.Responses)
	f("http://h", 0)
	f("*", 0)
	f("/x?u=http://h/v1/responses", 0)
}

func TestKeysOutsideOfAuthorizationSeparateTenants(t *testing.T) {
	b := newBook()
	r := start(t, rigOptions{memory: b.begin, upstream: answering(t, func(*http.Request, []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(chatAnswer), chatAnswer)
	})})
	seen := map[string]string{}
	f := func(query, header string) {
		t.Helper()
		r.exchange(t, fmt.Sprintf("POST /v1/chat/completions%s HTTP/1.1\r\nHost: x\r\n%sX-Session-Id: s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			query, header, len(chatBody), chatBody))
		tenant := await(t, b.calls, "turn").Scope.Tenant
		if other, ok := seen[tenant]; ok || tenant == "anonymous" {
			t.Errorf("%s%s is tenant %s, as %s is", query, header, tenant, other)
		}
		seen[tenant] = query + header
		await(t, b.answers, "answer")
	}
	f("?api-key=one", "")
	f("?api-key=two", "")
	f("?a=b&key=three", "")
	f("", "X-Goog-Api-Key: four\r\n")
	f("", "Ocp-Apim-Subscription-Key: five\r\n")
	f("", "Cookie: s=six\r\n")
}

// A client that has only closed its sending side reads no answer that nobody gave.
func TestHalfClosedClientGetsNoEmptyAnswer(t *testing.T) {
	r := start(t, rigOptions{upstream: upstream(t, func(_ net.Conn, r *bufio.Reader) { drain(r) })})
	conn, _ := r.dial(t)
	write(conn, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(conn); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}
