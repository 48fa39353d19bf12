package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
)

// old makes a request one of HTTP/1.0.
func old(request string) string { return strings.Replace(request, " HTTP/1.1\r\n", " HTTP/1.0\r\n", 1) }

// TestOldClientsGetNoChunks: what has no length ends with the connection for a client of HTTP/1.0, also where upstream
// sends a length with a stream, and the client would keep the connection.
func TestOldClientsGetNoChunks(t *testing.T) {
	events := strings.Join(chatEvents, "") + chatDone
	for _, c := range []struct{ name, answer, head, body string }{
		{"chunks", eventHead + chunk(events) + "0\r\n\r\n", "HTTP/1.1 200 OK\nContent-Type: text/event-stream; charset=utf-8\nConnection: close\n\n", events},
		{
			"events with a length", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\nX-A: b\r\n\r\n%s", len(events), events),
			"HTTP/1.1 200 OK\nContent-Type: text/event-stream\nX-A: b\nConnection: close\n\n", events,
		},
		{"chunks of no events", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk("one") + chunk("two") + "0\r\n\r\n", "HTTP/1.1 200 OK\nConnection: close\n\n", "onetwo"},
		{"a body with a length", sized("{}"), "HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 2\nConnection: close\n\n", "{}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, rigOptions{upstream: answering(t, func(*http.Request, []byte) string { return c.answer })})
			got := r.exchange(t, "POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
			if diff := cmp.Diff(crlf(c.head)+c.body, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOldClientsAreRemembered: they get each event as it comes, and its turn is committed before the last.
func TestOldClientsAreRemembered(t *testing.T) {
	addr, next := speaking(t, eventHead)
	b := newBook()
	b.gate = make(chan struct{})
	r := start(t, rigOptions{upstream: addr, memory: b.begin})
	c, br := r.dial(t)
	write(c, old(chatIn("s", chatBody, "Connection: keep-alive\r\n")))
	resp, err := http.ReadResponse(br, nil) // the head comes before any event
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	if !resp.Close || resp.ContentLength != -1 || len(resp.TransferEncoding) > 0 || !strings.HasPrefix(resp.Header.Get("X-Memory"), "ok;") {
		t.Errorf("head %+v", resp)
	}
	read := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
	}
	for _, e := range chatEvents {
		next <- chunk(e)
		read(e)
	}
	next <- chunk(chatDone) + "0\r\n\r\n"
	close(next)
	answer := await(t, b.answers, "commit")
	if answer.Aborted != memory.NotAborted || textOf(t, answer.Reply) != "hello" {
		t.Errorf("answer %+v", answer)
	}
	close(b.gate)
	read(chatDone)
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("rest %q, %v", rest, err)
	}
}

// TestOldClientsSeeBrokenAnswers: without chunks, only a reset shows a client that its answer is incomplete, below TLS too.
func TestOldClientsSeeBrokenAnswers(t *testing.T) {
	for _, withTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", withTLS), func(t *testing.T) {
			addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err == nil {
					write(c, eventHead+chunk(chatEvents[0]))
				}
			})
			b := newBook()
			ro := rigOptions{upstream: addr, memory: b.begin}
			if withTLS {
				ro.list = overTLS(t)
			}
			r := start(t, ro)
			c, _ := r.dial(t)
			if withTLS {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			}
			write(c, old(chatIn("s", chatBody)))
			if all, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read %q, %v; want a reset", all, err)
			}
			if a := await(t, b.answers, "commit"); a.Aborted != memory.AbortedByUpstream || textOf(t, a.Reply) != "hel" {
				t.Errorf("answer %+v", a)
			}
		})
	}
}

// TestOldClientsGetAnswersInOrder: also those who send a request before the answer to the last one has come.
func TestOldClientsGetAnswersInOrder(t *testing.T) {
	events := strings.Join(chatEvents, "") + chatDone
	r := start(t, rigOptions{upstream: answering(t, func(req *http.Request, _ []byte) string {
		if req.Method == http.MethodGet {
			return sized("{}")
		}
		return eventHead + chunk(events) + "0\r\n\r\n"
	})})
	got := r.exchange(t, "GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"+
		"POST /v1/chat/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}")
	want := crlf("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 2\nConnection: keep-alive\n\n") + "{}" +
		crlf("HTTP/1.1 200 OK\nContent-Type: text/event-stream; charset=utf-8\nConnection: close\n\n") + events
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
