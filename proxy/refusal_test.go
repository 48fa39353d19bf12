package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"remora/memory"
	"remora/proxy/limit"
	"remora/wire"
)

func fixed() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// TestEarlyRefusalsOfLargeBodiesAreRead: a client that writes all of its body before it reads gets the answer, and is told
// when to come back.
func TestEarlyRefusalsOfLargeBodiesAreRead(t *testing.T) {
	const large = 5 << 20
	for _, c := range []struct {
		name, target string
		limits       limit.Options
		status       int
		retry        bool
	}{
		{"429", "/v1/x", limit.Options{Tenant: limit.Tenant{RequestsPerMinute: 1, Burst: 1}}, 429, true},
		{"429 of concurrent requests", "/v1/x", limit.Options{Tenant: limit.Tenant{Concurrent: 1}}, 429, true},
		{"503", "/v1/x", limit.Options{Global: limit.Global{Concurrent: 1}}, 503, true},
		{"503 in the middle of the body", "/v1/chat/completions", limit.Options{Global: limit.Global{BodyBytes: 1 << 20}}, 503, true},
		{"400", "/v2/responses", limit.Options{}, 400, false},
		{"413", "/v1/chat/completions", limit.Options{}, 413, false},
	} {
		for _, framing := range []string{"length", "chunks"} {
			t.Run(c.name+", "+framing, func(t *testing.T) {
				hold := make(chan struct{})
				arrived := make(chan struct{}, 10)
				r := start(t, rigOptions{
					upstream: answering(t, func(*http.Request, []byte) string {
						arrived <- struct{}{}
						<-hold
						return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
					}),
					tune: func(o *Options) {
						if c.limits != (limit.Options{}) {
							o.Limits = limit.New(limit.Config{Options: c.limits, Now: fixed})
						}
						if c.status == 413 {
							o.MaxBody = 4 << 20
						}
					},
				})
				r.guards = func() bool { return true }
				if c.limits.Tenant != (limit.Tenant{}) || c.limits.Global.Concurrent > 0 {
					first, _ := r.dial(t)
					write(first, "GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n")
					await(t, arrived, "first request")
				}
				defer close(hold)

				conn, br := r.dial(t)
				body := strings.Repeat("x", large)
				head := fmt.Sprintf("Content-Length: %d\r\n\r\n", large)
				if framing == "chunks" {
					head, body = "Transfer-Encoding: chunked\r\n\r\n", strings.Repeat(chunk(body[:large/10]), 10)+"0\r\n\r\n"
				}
				if _, err := io.WriteString(conn, "POST "+c.target+" HTTP/1.1\r\nHost: x\r\n"+head+body); err != nil {
					t.Fatalf("send: %v", err)
				}
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatalf("read: %v", err)
				}
				defer shut(resp.Body)
				if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), "proxy_error") {
					t.Errorf("%s %v", text, err)
				}
				if resp.StatusCode != c.status || (resp.Header.Get("Retry-After") != "") != c.retry {
					t.Errorf("%d, Retry-After: %q", resp.StatusCode, resp.Header.Get("Retry-After"))
				}
			})
		}
	}
}

// TestAnnouncedBodiesAreRefusedAtOnce: a client that says that it will send too much is told so before it has sent it.
func TestAnnouncedBodiesAreRefusedAtOnce(t *testing.T) {
	r := start(t, rigOptions{upstream: "127.0.0.1:1", tune: func(o *Options) { o.MaxBody = 100 << 10 }})
	conn, br := r.dial(t)
	if _, err := fmt.Fprintf(conn, "POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", 1<<20); err != nil {
		t.Fatalf("send: %v", err)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	wantError(t, resp, 413, "body_too_large")
}

// TestHeldAnswersShareTheBudget: buffered answers count together with buffered requests. Beyond the limit an answer
// still goes to the client but not to the session, unless it must be judged.
func TestHeldAnswersShareTheBudget(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	whole := strings.Replace(chatAnswer, "hello", long, 1)
	events := strings.Replace(chatEvents[0], "hel", long, 1) + chatEvents[2] + chatDone
	for _, c := range []struct {
		name, answer    string
		judged          bool
		budget          int64
		status          int
		complete, short bool
	}{
		{"whole, within", sized(whole), false, 1 << 20, 200, true, false},
		{"whole, beyond", sized(whole), false, 128 << 10, 200, false, true},
		{"whole, judged, within", sized(whole), true, 1 << 20, 200, true, false},
		{"whole, judged, beyond", sized(whole), true, 128 << 10, 502, false, false},
		{"streamed, within", eventHead + chunk(events) + chunk(""), false, 1 << 20, 200, true, false},
		{"streamed, beyond", eventHead + chunk(events) + chunk(""), false, 128 << 10, 200, false, true},
		{"streamed, with layers' tools, within", eventHead + chunk(events) + chunk(""), false, 1 << 20, 200, true, false},
		{"streamed, with layers' tools, beyond", eventHead + chunk(events) + chunk(""), false, 128 << 10, 200, false, true},
		{"streamed, judged, within", eventHead + chunk(events) + chunk(""), true, 1 << 20, 200, true, false},
		{"streamed, judged, beyond", eventHead + chunk(events) + chunk(""), true, 128 << 10, 200, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBook()
			begin := b.begin
			if steered := strings.Contains(c.name, "tools"); c.judged || steered {
				steering := &memory.Steering{HoldAll: c.judged, Hides: func(string) bool { return steered }}
				begin = (&steerer{book: b, steering: steering, review: func(wire.Reply) memory.Next { return memory.Next{} }}).begin
			}
			limits := limit.New(limit.Config{Options: limit.Options{Global: limit.Global{BodyBytes: c.budget}}, Now: fixed})
			r := start(t, rigOptions{
				memory: begin, upstream: answering(t, func(*http.Request, []byte) string { return c.answer }),
				tune: func(o *Options) { o.Limits = limits },
			})
			got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n"))
			passed := strings.Count(got, "x") >= len(long)
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", c.status)) || passed != (c.complete || c.short) {
				t.Errorf("the text has passed: %v\n%.600s", passed, got)
			}
			if !passed && (!strings.Contains(got, "upstream_unreadable") || strings.Contains(got, "xxxx")) {
				t.Errorf("something passes unjudged, or nothing says why: %.600s", got)
			}
			a := await(t, b.answers, "answer")
			if a.Reply.Complete != c.complete || a.Reply.Truncated != c.short {
				t.Errorf("complete %v, truncated %v", a.Reply.Complete, a.Reply.Truncated)
			}
			r.stop(t)
			if told := strings.Contains(r.log.String(), "limits.global.body_bytes"); told != c.short {
				t.Errorf("the log is: %s", r.log)
			}
			next, err := limits.Enter(func() []string { return []string{"next"} })
			if err := errors.Join(err, next.Hold(c.budget)); err != nil {
				t.Errorf("bytes are still held: %v", err)
			}
		})
	}
}

// TestUnpackedBodiesShareTheBudget: what a packed body unpacks to counts as much as a body that came so.
func TestUnpackedBodiesShareTheBudget(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprintf(z, `{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("hello there, ", 60<<10))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for budget, want := range map[int64]int{256 << 10: 503, 4 << 20: 200} {
		limits := limit.New(limit.Config{Options: limit.Options{Global: limit.Global{BodyBytes: budget}}, Now: fixed})
		b := newBook()
		r := start(t, rigOptions{
			memory: b.begin, upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) }),
			tune: func(o *Options) { o.Limits = limits },
		})
		got := r.exchange(t, chatIn("s", packed.String(), "Content-Encoding: gzip\r\nConnection: close\r\n"))
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", want)) || want == 503 && !strings.Contains(got, "\r\nRetry-After: ") {
			t.Errorf("a budget of %d: %.300s", budget, got)
		}
		r.stop(t)
		next, err := limits.Enter(func() []string { return []string{"next"} })
		if err := errors.Join(err, next.Hold(budget)); err != nil {
			t.Errorf("bytes are still held: %v", err)
		}
	}
}

// TestItemsShareTheBudget: very short items take many times the bytes of their body, and count so. Where there can never be room for
// them, the request passes without memory, unless rules have to judge its answer.
func TestItemsShareTheBudget(t *testing.T) {
	const items, budget = 20000, int64(64 << 20) // about 40 MiB
	body := `{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":""},`, items) + `{"role":"user","content":"hi"}]}`
	for _, c := range []struct {
		name   string
		budget int64
		held   int64
		judged bool
		want   []string
	}{
		{"room", budget, 0, false, []string{"HTTP/1.1 200 ", "X-Memory: ok"}},
		{"no room now", budget, budget / 2, false, []string{"HTTP/1.1 503 ", "Retry-After: ", "limits.global.body_bytes"}},
		{"no room ever", budget / 4, 0, false, []string{"HTTP/1.1 200 ", `X-Memory: bypass;reason="the body has more items than limits.global.body_bytes has room for"`}},
		{"no room ever, judged", budget / 4, 0, true, []string{"HTTP/1.1 400 ", "limits.global.body_bytes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits := limit.New(limit.Config{Options: limit.Options{Global: limit.Global{BodyBytes: c.budget}}, Now: fixed})
			other, err := limits.Enter(nil)
			if err := errors.Join(err, other.Hold(c.held)); err != nil {
				t.Fatal(err)
			}
			r := start(t, rigOptions{
				memory: newBook().begin, upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) }),
				tune: func(o *Options) { o.Limits = limits },
			})
			r.guards = func() bool { return c.judged }
			got := r.exchange(t, chatIn("s", body, "Connection: close\r\n"))
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("there is no %q in %.500s", want, got)
				}
			}
			r.stop(t)
			other.Leave()
			next, err := limits.Enter(nil)
			if err := errors.Join(err, next.Hold(c.budget)); err != nil {
				t.Errorf("bytes are still held: %v", err)
			}
		})
	}
}

// TestSlowBodiesAreGivenUpForOthers: bodies that come too slowly are refused while others need their room, whether they are held or go
// upstream as they arrive. A quick one is answered then.
func TestSlowBodiesAreGivenUpForOthers(t *testing.T) {
	piece := strings.Repeat(" ", perRead-1) // a held body with more would ask for more room
	for _, c := range []struct{ name, head string }{
		{"held, with a length", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n" + piece},
		{"held, in chunks", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(piece)},
		{"passed on, with a length", "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n" + piece + " "},
	} {
		t.Run(c.name, func(t *testing.T) {
			const slow = 20 // bodies of perRead, which fill the room
			var later atomic.Int64
			limits := limit.New(limit.Config{
				Options: limit.Options{Global: limit.Global{BodyBytes: slow * perRead}},
				Now:     func() time.Time { return time.Unix(later.Load(), 0) }, // stands still until the room is full
			})
			r := start(t, rigOptions{
				upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) }),
				tune:     func(o *Options) { o.Limits = limits },
			})
			status := func(br *bufio.Reader) int {
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					return 0
				}
				drain(resp.Body)
				return resp.StatusCode
			}
			quick := func() int {
				conn, br := r.dial(t)
				defer func() { _ = conn.Close() }()
				write(conn, chatIn("null", chatBody+strings.Repeat(" ", perRead)))
				return status(br)
			}
			refused := make(chan int, 10*slow)
			for quick() != http.StatusServiceUnavailable { // until slow ones fill the room
				conn, br := r.dial(t)
				write(conn, c.head)
				go func() { refused <- status(br) }()
			}
			later.Store(3600)
			if got := quick(); got != http.StatusOK {
				t.Errorf("a quick request beside slow bodies: %d, want 200", got)
			}
			if got := await(t, refused, "answer to a slow body"); got != http.StatusServiceUnavailable {
				t.Errorf("a slow body: %d, want 503", got)
			}
		})
	}
}

// TestSlowBodiesLeaveRoom: a body that is still to come takes none of limits.global.concurrent from the requests that are there.
func TestSlowBodiesLeaveRoom(t *testing.T) {
	entered := make(chan struct{}, 64)
	limits := limit.New(limit.Config{Options: limit.Options{Global: limit.Global{Concurrent: 1}}, Now: func() time.Time {
		entered <- struct{}{}
		return time.Now()
	}})
	arrived, more := make(chan struct{}, 2), make(chan struct{})
	r := start(t, rigOptions{
		upstream: answering(t, func(*http.Request, []byte) string {
			arrived <- struct{}{}
			<-more
			return sized(chatAnswer)
		}),
		tune: func(o *Options) { o.Limits = limits },
	})
	request := chatIn("null", chatBody+strings.Repeat(" ", 64<<10)) // of a small body fasthttp itself waits for the end
	begin := func(part string) (net.Conn, *bufio.Reader) {
		c, br := r.dial(t)
		write(c, part)
		await(t, entered, "request")
		await(t, entered, "wait for its body")
		return c, br
	}
	status := func(br *bufio.Reader) int {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		drain(resp.Body)
		return resp.StatusCode
	}
	half := len(request) - 1
	late, lateAnswer := begin(request[:half])
	slow, slowAnswer := begin(request[:half])
	_, quickAnswer := begin(request)
	await(t, arrived, "request upstream")
	write(late, request[half:])
	if got := status(lateAnswer); got != http.StatusServiceUnavailable {
		t.Errorf("a body that arrives beside a running request: %d, want 503", got)
	}
	close(more)
	if got := status(quickAnswer); got != http.StatusOK {
		t.Errorf("a request beside slow bodies: %d, want 200", got)
	}
	write(slow, request[half:])
	if got := status(slowAnswer); got != http.StatusOK {
		t.Errorf("a body that arrives later: %d, want 200", got)
	}
}
