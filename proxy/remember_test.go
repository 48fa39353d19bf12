package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/view"
	"remora/providers"
	"remora/wire"
	"remora/wire/breakpoint"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// fakeTurn is a turn that records its commit.
type fakeTurn struct {
	forwarded atomic.Int32
	commit    func(memory.Answer)
}

func (f *fakeTurn) Forwarded()             { f.forwarded.Add(1) }
func (f *fakeTurn) Commit(a memory.Answer) { f.commit(a) }

// book is a memory that records its calls.
type book struct {
	calls   chan memory.Call
	answers chan memory.Answer
	edit    func(items []wire.Item) []wire.Item
	gate    chan struct{} // if set, a commit waits for it
	turns   chan *fakeTurn
}

func newBook() *book {
	return &book{calls: make(chan memory.Call, 100), answers: make(chan memory.Answer, 100), turns: make(chan *fakeTurn, 100)}
}

func (b *book) begin(_ context.Context, c memory.Call) (*turn, error) {
	b.calls <- c
	items := c.Request.Items()
	if b.edit != nil {
		items = b.edit(items)
	}
	f := &fakeTurn{commit: func(a memory.Answer) {
		b.answers <- a
		if b.gate != nil {
			<-b.gate
		}
	}}
	b.turns <- f
	return newTurn("T1", items, memory.Summary{Items: 5, Sent: len(items), Windowed: 2, Orphans: 1, Repaired: 1}, f), nil
}

// newTurn is a turn whose view is the same in every shape.
func newTurn(id string, items []wire.Item, sum memory.Summary, f *fakeTurn) *turn {
	t := &turn{Turn: &memory.Turn{View: items, Summary: sum}, reported: sum, ender: f, judge: noJudge{}}
	t.ID = id
	t.shaper = shapes{turn: t, sent: func(view.Shape) view.Sent { return view.Sent{Items: t.View, Repaired: t.reported.Repaired} }}
	return t
}

// noJudge lets all answers pass.
type noJudge struct{}

func (noJudge) Review(context.Context, wire.Reply) memory.Next { return memory.Next{} }
func (noJudge) LastRound() bool                                { return false }
func (noJudge) WithoutTools()                                  {}

// shapes is what a turn says about its view.
type shapes struct {
	turn   *turn
	sent   func(s view.Shape) view.Sent
	tokens int
}

func (f shapes) Sent(s view.Shape) view.Sent { return f.sent(s) }
func (f shapes) Shorten(int) bool            { return false }
func (f shapes) Tokens() int                 { return f.tokens }

func (f shapes) TextTokens(moreThan int) int {
	if f.tokens > moreThan {
		return f.tokens
	}
	return 0
}

func (f shapes) RecordAsCame() memory.Summary {
	return memory.Summary{Status: memory.StatusDegraded, Items: 7, Sent: 7}
}

func (f shapes) Record(_ view.Shape, sent view.Sent) memory.Summary {
	summary := f.turn.reported
	summary.Repaired = sent.Repaired
	return summary
}

const (
	chatBody   = `{"model":"m" , "messages":[ {"role":"user","content":"hi"}],"x":1.0}`
	chatAnswer = `{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`
	chatDone   = "data: [DONE]\n\n"
)

var chatEvents = []string{
	`data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hel"}}]}` + "\n\n",
	`data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"lo"}}]}` + "\n\n",
	`data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n",
}

func chatIn(session, body string, headers ...string) string {
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Session-Id: %s\r\nAccept-Encoding: gzip, br\r\nAuthorization: Bearer k\r\n%sContent-Length: %d\r\n\r\n%s",
		session, strings.Join(headers, ""), len(body), body)
}

func sized(body string, headers ...string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", strings.Join(headers, ""), len(body), body)
}

const eventHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func textOf(t *testing.T, r wire.Reply) string {
	t.Helper()
	var b strings.Builder
	for _, c := range r.Choices {
		for _, it := range c {
			b.WriteString(it.Text())
		}
	}
	return b.String()
}

func TestRememberedCall(t *testing.T) {
	addr, requests := recording(t, sized(chatAnswer, "Server-Timing: up;dur=1\r\n", "X-Request-Id: r\r\n"), func(string) int {
		return len(chatBody)
	})
	b := newBook()
	r := start(t, rigOptions{upstream: addr, memory: b.begin})
	c, br := r.dial(t)
	write(c, chatIn("s 1/ü", chatBody, "X-Resource-Id: u\r\n", "X-History: CLIENT\r\n", "X-Parent-Session-Id: p\r\n", "X-Execution-Id: e\r\n"))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != chatAnswer || err != nil {
		t.Errorf("%q %v", body, err)
	}
	want := "POST /v1/chat/completions HTTP/1.1\r\nHost: " + addr + "\r\nX-Session-Id: s 1/ü\r\nAccept-Encoding: identity\r\nAuthorization: Bearer k\r\n" +
		"X-Resource-Id: u\r\nX-Parent-Session-Id: p\r\nX-Execution-Id: e\r\nContent-Length: " + fmt.Sprint(len(chatBody)) + "\r\n\r\n" + chatBody
	if diff := cmp.Diff(want, await(t, requests, "request")); diff != "" {
		t.Error(diff)
	}
	call := <-b.calls
	wantScope := memory.Scope{Tenant: call.Scope.Tenant, Session: "s 1/ü", Resource: "u", Execution: "e", Parent: "p"}
	if call.Scope != wantScope || call.History != memory.HistoryClient || call.Side != "" || len(call.Scope.Tenant) != 32 {
		t.Errorf("call %+v %v %q", call.Scope, call.History, call.Side)
	}
	answer := <-b.answers
	if answer.HTTPStatus != 200 || answer.Aborted != memory.NotAborted || !answer.Reply.Complete || textOf(t, answer.Reply) != "hello" {
		t.Errorf("answer %+v", answer)
	}
	if n := (<-b.turns).forwarded.Load(); n != 1 {
		t.Errorf("Forwarded was called %d times", n)
	}
	h := resp.Header
	if got := h.Get("X-Memory"); got != `ok;items=5;sent=1;windowed=2;orphans=1;recalled=0;repaired=1;source="x-session-id"` {
		t.Errorf("X-Memory: %s", got)
	}
	if h.Get("X-Session-Id") != "s%201/%C3%BC" || h.Get("X-Turn-Id") != "T1" || h.Get("X-Request-Id") != "r" {
		t.Errorf("headers %v", h)
	}
	if st := h.Values("Server-Timing"); len(st) != 2 || st[0] != "up;dur=1" || !strings.HasPrefix(st[1], "memory;dur=") || !strings.Contains(st[1], ", upstream;dur=") {
		t.Errorf("Server-Timing %q", st)
	}
}

// TestOnlyTheEndWaits checks that events pass as they come and that only what ends the stream waits for the commit.
func TestOnlyTheEndWaits(t *testing.T) {
	for _, typ := range []string{
		"Content-Type: text/event-stream; charset=utf-8\r\n", "", "Content-Type: text/plain\r\n", "content-type: application/octet-stream\r\n",
		"Content-Type: application/json\r\n", "Content-Type: application/x-ndjson\r\n",
	} {
		t.Run(typ, func(t *testing.T) { onlyTheEndWaits(t, typ) })
	}
}

// onlyTheEndWaits streams an answer of some type: SDKs do not look at it.
func onlyTheEndWaits(t *testing.T, contentType string) {
	t.Helper()
	addr, next := speaking(t, "HTTP/1.1 200 OK\r\n"+contentType+"Transfer-Encoding: chunked\r\n\r\n")
	b := newBook()
	b.gate = make(chan struct{})
	r := start(t, rigOptions{upstream: addr, memory: b.begin})
	c, br := r.dial(t)
	write(c, chatIn("s", liveChat))
	began := ""
	if strings.Contains(contentType, "json") { // a wrong label: the body is a stream
		began = ": ping\n\n"
		next <- chunk(began)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	read := func(want string) {
		t.Helper()
		buf := make([]byte, len(want))
		if n, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != want {
			t.Fatalf("read %q, want %q: %v", buf[:n], want, err)
		}
	}
	read(began)
	for _, e := range chatEvents {
		next <- chunk(e)
		read(e)
	}
	// Something that may go and the end in one piece, cut in the middle of the end.
	next <- chunk(": keep-alive\n\ndata: [DO")
	read(": keep-alive\n\n")
	next <- chunk("NE]\n\n: bye\n\n") + "0\r\n\r\n"
	close(next)
	answer := await(t, b.answers, "commit")
	got := make(chan string, 1)
	go func() {
		rest, err := io.ReadAll(resp.Body)
		got <- fmt.Sprint(string(rest), err)
	}()
	select {
	case s := <-got:
		t.Fatalf("the end came before the commit: %q", s)
	case <-time.After(50 * time.Millisecond):
	}
	close(b.gate)
	if s := await(t, got, "end"); s != chatDone+": bye\n\n<nil>" {
		t.Errorf("end %q", s)
	}
	if answer.Aborted != memory.NotAborted || answer.HTTPStatus != 200 || !answer.Reply.Complete || textOf(t, answer.Reply) != "hello" {
		t.Errorf("answer %+v", answer)
	}
	if len(b.answers) > 0 {
		t.Error("a second commit")
	}
}

func TestCommitForEveryOutcome(t *testing.T) {
	whole := strings.Join(chatEvents, "") + chatDone
	packed := gzipped(whole)
	f := func(name, answer string, status int, cut memory.Aborted, complete bool, text, clientSees string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
				if req, err := http.ReadRequest(r); err == nil {
					drain(req.Body)
					write(c, answer)
				}
			})
			b := newBook()
			r := start(t, rigOptions{upstream: addr, memory: b.begin})
			c, br := r.dial(t)
			write(c, chatIn("s", chatBody, "Connection: close\r\n"))
			all, _ := io.ReadAll(br)
			if !strings.HasSuffix(string(all), clientSees) {
				t.Errorf("the client saw %q", all)
			}
			got := await(t, b.answers, "commit")
			if got.HTTPStatus != status || got.Aborted != cut || got.Reply.Complete != complete || textOf(t, got.Reply) != text {
				t.Errorf("answer %+v with %q", got, textOf(t, got.Reply))
			}
			r.stop(t)
			if len(b.answers) > 0 {
				t.Errorf("a second commit %+v", <-b.answers)
			}
		})
	}
	f("stream without an end", eventHead+chunk(chatEvents[0])+"0\r\n\r\n", 200, memory.NotAborted, false, "hel", "0\r\n\r\n")
	f("stream of a whole message", eventHead+chunk("data: "+chatAnswer+"\n\n")+"0\r\n\r\n", 200, memory.NotAborted, true, "hello", "0\r\n\r\n")
	f("stream cut off", eventHead+chunk(chatEvents[0]), 200, memory.AbortedByUpstream, false, "hel", chunk(chatEvents[0]))
	f("stream cut after its end", eventHead+chunk(whole), 200, memory.NotAborted, true, "hello", chunk(chatDone))
	f("whole cut off", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", 200, memory.AbortedByUpstream, false, "", `"code":"upstream_closed"}}`)
	f("upstream's error", "HTTP/1.1 429 Slow down\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nwhy?", 429, memory.NotAborted, false, "", "why?")
	f("upstream's streamed error", "HTTP/1.1 503 x\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("data: x\n\n")+"0\r\n\r\n", 503, memory.NotAborted, false, "", "data: x\n\n\r\n0\r\n\r\n")
	f("no answer", "", 0, memory.AbortedByUpstream, false, "", `"code":"upstream_closed"}}`)
	f("no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, memory.NotAborted, false, "", "\r\n\r\n")
	f("not JSON", sized("<html>"), 200, memory.NotAborted, false, "", "<html>")
	f("compressed stream", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(packed)+"0\r\n\r\n",
		200, memory.NotAborted, true, "hello", chunk(packed)+"0\r\n\r\n")
	f("compressed stream of another type", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(packed)+"0\r\n\r\n",
		200, memory.NotAborted, true, "hello", packed)
	f("compressed whole", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(gzipped(chatAnswer)), gzipped(chatAnswer)),
		200, memory.NotAborted, true, "hello", gzipped(chatAnswer))
}

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	write(z, s)
	shut(z)
	return b.String()
}

func TestClientGoneKeepsThePartialAnswer(t *testing.T) {
	addr, arrived, gone := hanging(t, eventHead+chunk(chatEvents[0]))
	b := newBook()
	r := start(t, rigOptions{upstream: addr, memory: b.begin})
	c, br := r.dial(t)
	write(c, chatIn("s", chatBody))
	await(t, arrived, "request")
	if _, err := br.ReadString('h'); err != nil {
		t.Fatal(err)
	}
	shut(c)
	await(t, gone, "end of the upstream request")
	if a := await(t, b.answers, "commit"); a.Aborted != memory.AbortedByClient || a.Reply.Complete || textOf(t, a.Reply) != "hel" {
		t.Errorf("answer %+v", a)
	}

	// Before the head of the answer.
	addr, arrived, gone = hanging(t, "")
	r = start(t, rigOptions{upstream: addr, memory: b.begin})
	c, _ = r.dial(t)
	write(c, chatIn("s", chatBody))
	await(t, arrived, "request")
	shut(c)
	await(t, gone, "end of the upstream request")
	if a := await(t, b.answers, "commit"); a.Aborted != memory.AbortedByClient || a.HTTPStatus != 0 {
		t.Errorf("answer %+v", a)
	}
}

// TestBrokenOffTurnIsStoredFirst: a client that breaks an answer off and asks at once something else has the next view know of it;
// another client of the session that still listens is not waited for, nor is one of another session.
func TestBrokenOffTurnIsStoredFirst(t *testing.T) {
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) { // never ends
		if req, err := http.ReadRequest(r); err == nil {
			drain(req.Body)
			write(c, eventHead+chunk(chatEvents[0]))
			_, _ = r.ReadByte()
		}
	})
	b := newBook()
	before := make(chan int, 4) // answers stored before a request begins
	r := start(t, rigOptions{upstream: addr, memory: func(ctx context.Context, c memory.Call) (*turn, error) {
		before <- len(b.answers)
		return b.begin(ctx, c)
	}})
	ask := func(session string) net.Conn {
		t.Helper()
		c, br := r.dial(t)
		write(c, chatIn(session, chatBody))
		if _, err := br.ReadString('{'); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := ask("s")
	for _, session := range []string{"s", "other"} {
		listener := ask(session)
		defer shut(listener)
	}
	shut(first)
	defer shut(ask("s"))
	for i, want := range []int{0, 0, 0, 1} {
		if got := await(t, before, "begin"); got != want {
			t.Errorf("request %d began behind %d answers, want %d", i, got, want)
		}
	}
	if a := await(t, b.answers, "commit"); a.Aborted != memory.AbortedByClient || textOf(t, a.Reply) != "hel" {
		t.Errorf("answer %+v", a)
	}
}

func TestBodyOfTheView(t *testing.T) {
	drop := func(items []wire.Item) []wire.Item { return items[1:] }
	keep := func(items []wire.Item) []wire.Item { return items }
	two := `{"model":"m","messages":[ {"role":"system","content":"a"} , {"role":"user","content":"b"}],"z":2}`
	one := `{"model":"m","messages":[{"role":"user","content":"b"}],"z":2}`
	f := func(name string, edit func([]wire.Item) []wire.Item, encoding, body string, check func(t *testing.T, req *http.Request, body string)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			type arrival struct {
				req  *http.Request
				body string
			}
			ch := make(chan arrival, 1)
			addr := answering(t, func(req *http.Request, body []byte) string {
				ch <- arrival{req, string(body)}
				return sized(chatAnswer)
			})
			b := newBook()
			b.edit = edit
			r := start(t, rigOptions{upstream: addr, memory: b.begin})
			c, br := r.dial(t)
			var headers []string
			if encoding != "" {
				headers = []string{"Content-Encoding: " + encoding + "\r\n"}
			}
			write(c, chatIn("s", body, headers...))
			if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			a := await(t, ch, "request")
			check(t, a.req, a.body)
		})
	}
	is := func(want, encoding string) func(t *testing.T, req *http.Request, body string) {
		return func(t *testing.T, req *http.Request, body string) {
			t.Helper()
			if body != want || req.Header.Get("Content-Encoding") != encoding {
				t.Errorf("%q %v, want %q", body, req.Header, want)
			}
		}
	}
	f("unchanged", keep, "", two, is(two, ""))
	f("changed", drop, "", two, func(t *testing.T, _ *http.Request, body string) {
		t.Helper()
		if strings.ReplaceAll(body, " ", "") != one {
			t.Errorf("%q", body)
		}
	})
	f("unchanged and compressed", keep, "gzip", gzipped(two), is(gzipped(two), "gzip"))
	f("changed and compressed", drop, "gzip", gzipped(two), func(t *testing.T, req *http.Request, body string) {
		t.Helper()
		if strings.ReplaceAll(body, " ", "") != one || req.Header.Get("Content-Encoding") != "" {
			t.Errorf("%q %v", body, req.Header)
		}
	})
}

func TestNotRemembered(t *testing.T) {
	f := func(name, request, wantMemory string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			seen := make(chan string, 1)
			addr := answering(t, func(_ *http.Request, body []byte) string {
				seen <- string(body)
				return sized(chatAnswer)
			})
			r := start(t, rigOptions{upstream: addr, tune: func(o *Options) { o.MaxBody = 68 << 10 }})
			c, br := r.dial(t)
			write(c, request)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != chatAnswer || err != nil {
				t.Errorf("%q %v", body, err)
			}
			if got := await(t, seen, "request"); !strings.HasSuffix(request, "\r\n\r\n"+got) {
				t.Errorf("upstream got %q", got)
			}
			if got := resp.Header.Get("X-Memory"); got != wantMemory {
				t.Errorf("X-Memory: %q", got)
			}
		})
	}
	bypass := func(reason string) string { return `bypass;reason="` + reason + `";source="x-session-id"` }
	const path = "conversations on this path are not remembered"
	const encoding = "the body cannot be unpacked: its Content-Encoding is unknown or not that of its bytes, or it unpacks to more than is read"
	f("off", chatIn("s", chatBody, "X-Memory: OFF\r\n"), `off;source="x-session-id"`)
	f("no session", chatIn("", chatBody), "")
	f("null", chatIn("null", chatBody), "")
	f("undefined", chatIn(" undefined ", chatBody), "")
	f("broken body", chatIn("s", `{"messages":[`), bypass("the body cannot be read at byte 13: truncated"))
	f("no items", chatIn("s", `{"model":"m"}`), bypass("the body cannot be read at byte 0: no messages"))
	f("a form", chatIn("s", "a=b"), bypass("the body is not a JSON object"))
	f("nothing", chatIn("s", ""), bypass("the body is empty"))
	f("items too short for their number", chatIn("s", `{"messages":[`+strings.Repeat("0,", 30000)+strings.Repeat("0,", 2768)+`0]}`), bypass("the body cannot be read at byte 65549: too many items for their size"))
	f("unknown encoding", chatIn("s", chatBody, "Content-Encoding: br\r\n"), bypass(encoding))
	f("bytes that are not packed", chatIn("s", chatBody, "Content-Encoding: gzip\r\n"), bypass(encoding))
	f("two encodings", chatIn("s", gzipped(chatBody), "Content-Encoding: br\r\n", "Content-Encoding: gzip\r\n"), bypass(encoding))
	f("bomb", chatIn("s", gzipped(`{"messages":[],"x":"`+strings.Repeat("x", 70<<10)+`"}`), "Content-Encoding: gzip\r\n"), bypass(encoding))
	f("another endpoint", strings.Replace(chatIn("s", chatBody), "chat/completions", "embeddings", 1), bypass(path))
	f("sub-path", strings.Replace(chatIn("s", chatBody), "chat/completions", "responses/compact", 1), bypass(path))
	f("about an answer", strings.Replace(chatIn("s", chatBody), "chat/completions", "responses/resp_1/cancel", 1), "")
	f("off on another endpoint", strings.Replace(chatIn("s", chatBody, "X-Memory: off\r\n"), "chat/completions", "embeddings", 1), `off;source="x-session-id"`)
	f("another endpoint without a session", strings.Replace(chatIn("", chatBody), "chat/completions", "embeddings", 1), "")
}

func TestSessionFromTheBody(t *testing.T) {
	f := func(name, kind, header, body, wantSession, wantSource string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			addr := answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) })
			b := newBook()
			r := start(t, rigOptions{upstream: addr, memory: b.begin, kind: kind, tune: func(o *Options) {
				o.Session.Fields = append(o.Session.Fields, "metadata.session_id")
			}})
			c, br := r.dial(t)
			write(c, chatIn(header, body))
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if call := <-b.calls; call.Scope.Session != wantSession {
				t.Errorf("session %q", call.Scope.Session)
			}
			if m := resp.Header.Get("X-Memory"); !strings.HasSuffix(m, `;source="`+wantSource+`"`) {
				t.Errorf("X-Memory: %s", m)
			}
		})
	}
	body := `{"messages":[],"session_id":"b","metadata":{"session_id":"m"},"user":"u"}`
	f("body alone", "", "", body, "b", "session_id")
	f("nested", "", "null", `{"messages":[],"session_id":null,"metadata":{"session_id":"m"}}`, "m", "metadata.session_id")
	f("header wins", "", "h", body, "h", "x-session-id")
	f("openrouter", "openrouter", "h", body, "b", "session_id")
}

// Of body fields only session_id names a session by default: a conversation that upstream keeps for the client, and metadata
// that it reads, ask for no memory of ours.
func TestFieldsThatNameNoSession(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","input":"Hi.","conversation":"conv_1"}`,
		`{"model":"m","input":"Hi.","conversation":{"id":"conv_1"}}`,
		`{"model":"m","input":"Hi.","metadata":{"session_id":"s","conversation_id":"s","thread_id":"s","chat_id":"s"}}`,
		`{"model":"m","input":"Hi.","litellm_session_id":"s"}`,
		`{"model":"m","input":"Hi.","client_metadata":{"session_id":"s"}}`,
		`{"model":"m","input":"Hi.","prompt_cache_key":"s"}`,
	} {
		t.Run(body, func(t *testing.T) {
			addr := answering(t, func(_ *http.Request, got []byte) string {
				if string(got) != body {
					t.Errorf("upstream got %s", got)
				}
				return sized(chatAnswer)
			})
			r := start(t, rigOptions{upstream: addr, memory: func(_ context.Context, c memory.Call) (*turn, error) {
				t.Errorf("session %q", c.Scope.Session)
				return nil, memory.ErrUnavailable
			}})
			c, br := r.dial(t)
			write(c, strings.Replace(chatIn("", body), "chat/completions", "responses", 1))
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if m := resp.Header.Get("X-Memory"); resp.StatusCode != http.StatusOK || m != "" {
				t.Errorf("%s, X-Memory %q", resp.Status, m)
			}
		})
	}
}

func TestUnusableControls(t *testing.T) {
	addr := answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) })
	r := start(t, rigOptions{upstream: addr, memory: func(context.Context, memory.Call) (*turn, error) {
		return nil, fmt.Errorf("%w: %w", memory.ErrUnavailable, errors.New("secret address"))
	}})
	c, br := r.dial(t)
	write(c, chatIn("s", chatBody, "X-History: sideways\r\n"))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, resp, 400, "bad_request")
	write(c, chatIn("s", chatBody))
	if resp, err = http.ReadResponse(br, nil); err != nil {
		t.Fatal(err)
	}
	wantError(t, resp, 503, "memory_unavailable")
	for _, none := range []string{"none", "false", "on", "offf"} {
		write(c, chatIn("s", chatBody, "X-Memory: "+none+"\r\n"))
		if resp, err = http.ReadResponse(br, nil); err != nil {
			t.Fatal(err)
		}
		if text := wantError(t, resp, 400, "bad_request"); !strings.Contains(text, `X-Memory must be \"off\"`) {
			t.Errorf("X-Memory: %s: %s", none, text)
		}
		write(c, chatIn("null", chatBody, "X-Memory: "+none+"\r\n")) // without a session
		if resp, err = http.ReadResponse(br, nil); err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || err != nil {
			t.Errorf("X-Memory: %s without a session: %s, %s, %v", none, resp.Status, body, err)
		}
	}
}

// TestUnjudgedBodiesAreExplained: a body that layers can't judge is refused with the reason, without its content.
func TestUnjudgedBodiesAreExplained(t *testing.T) {
	addr := answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) })
	b := newBook()
	r := start(t, rigOptions{upstream: addr, memory: b.begin})
	r.guards = func() bool { return true }
	c, br := r.dial(t)
	for body, want := range map[string]string{
		`{"messages": [secret]}`:  "the body cannot be read at byte 14: expected a value",
		`{"messages": "secret"}`:  "the body cannot be read at byte 13: the items are no list",
		`{"model":"secret"}`:      "the body cannot be read at byte 0: no messages",
		`{"messages": ["secret`:   "the body cannot be read at byte 21: truncated",
		`["secret"]`:              "the body is not a JSON object",
		"\x1f\x8b\x08secret gzip": "the body is not a JSON object",
	} {
		write(c, chatIn("null", body))
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := wantError(t, resp, 400, "bad_request"); !strings.Contains(text, want) || strings.Contains(text, "secret") {
			t.Errorf("%s: want %q, have %s", body, want, text)
		}
	}
	write(c, chatIn("null", "{}", "Content-Encoding: gzip\r\n"))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := wantError(t, resp, 400, "bad_request"); !strings.Contains(text, "the body cannot be unpacked: its Content-Encoding is unknown") {
		t.Errorf("broken gzip: %s", text)
	}
}

// A view that can't be encoded must not look like one that was sent.
func TestViewThatCannotBeEncoded(t *testing.T) {
	addr, requests := recording(t, sized(chatAnswer), func(string) int { return len(chatBody) })
	b := newBook()
	b.edit = func(items []wire.Item) []wire.Item { return append([]wire.Item{{Dialect: dialects.Chat}}, items...) }
	r := start(t, rigOptions{upstream: addr, memory: b.begin})
	c, br := r.dial(t)
	write(c, chatIn("s", chatBody))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := await(t, requests, "request"); !strings.HasSuffix(got, chatBody) {
		t.Errorf("sent %q", got)
	}
	if got := resp.Header.Get("X-Memory"); !strings.HasPrefix(got, "degraded;items=7;sent=7;") {
		t.Errorf("X-Memory: %s", got)
	}
	<-b.answers
}

// TestSecondViewCannotBeEncoded: nothing of the view before is left in a request that goes as it came: where that had layers' blocks,
// this one has the client's own messages.
func TestSecondViewCannotBeEncoded(t *testing.T) {
	t.Parallel()
	u := &refuser{refuse: func(body string) string {
		if strings.Contains(body, "a block") {
			return refused(400, `{"error":{"code":"context_length_exceeded"}}`)
		}
		return ""
	}}
	b := newBook()
	begin := func(ctx context.Context, c memory.Call) (*turn, error) {
		turn, err := b.begin(ctx, c)
		block, failed := wire.ParseItem(dialects.Chat, []byte(`{"role":"user","content":"a block"}`))
		sent, tokens := view.Sent{Items: slices.Insert(slices.Clone(turn.View), 2, block), UserBlocks: []int{2}}, 9000
		if c.MaxTokens > 0 { // the turn is begun anew
			sent, tokens = view.Sent{Items: []wire.Item{{Dialect: dialects.Chat}}}, c.MaxTokens
		}
		turn.shaper = shapes{turn, func(view.Shape) view.Sent { return sent }, tokens}
		return turn, errors.Join(err, failed)
	}
	r := start(t, rigOptions{
		upstream: answering(t, u.answer), memory: begin, provider: func(o *providers.Options) { o.CacheControl = true },
	})
	const body = `{"model":"m","messages":[{"role":"system","content":"x"},{"role":"user","content":"hi"},{"role":"user","content":"and"}]}`
	asCame := wiretest.Request(t, dialects.Chat, body)
	resp := ask(t, r, body)
	_ = bodyText(t, resp)
	sent := u.sent()
	if want := string(breakpoint.Cache(asCame)); len(sent) != 2 || sent[1] != want {
		t.Errorf("sent %q, want at last %q", sent, want)
	}
	if got := resp.Header.Get("X-Memory"); !strings.HasPrefix(got, "degraded;items=7;sent=7;") {
		t.Errorf("X-Memory: %s", got)
	}
}

// TestKeepAlive: a silent stream gets comments, between events only, and none where that is off.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{0, 20 * time.Millisecond} {
		more := make(chan struct{})
		addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			write(c, eventHead+chunk(chatEvents[0])+chunk(chatEvents[1][:10]))
			<-more
			write(c, chunk(chatEvents[1][10:])+chunk(chatEvents[2]+chatDone)+"0\r\n\r\n")
		})
		b := newBook()
		r := start(t, rigOptions{upstream: addr, memory: b.begin, tune: func(o *Options) { o.KeepAlive = every }})
		c, br := r.dial(t)
		write(c, chatIn("s", chatBody))
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*every+50*time.Millisecond, func() { close(more) })
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(body), strings.Join(chatEvents, "")+chatDone; got != want {
			t.Errorf("every %v, in the middle of an event: %q", every, got)
		}
	}
}

// TestKeepAliveWithoutType: the comments come in a stream that the client asks for and upstream gives no type, without a session too.
func TestKeepAliveWithoutType(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		write(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(chatEvents[0]))
		<-more
		write(c, chunk(chatDone)+"0\r\n\r\n")
	})
	r := start(t, rigOptions{upstream: addr, tune: func(o *Options) { o.KeepAlive = 20 * time.Millisecond }})
	c, br := r.dial(t)
	const body = `{"model":"m","stream":true,"messages":[]}`
	write(c, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	got := make([]byte, len(chatEvents[0])+len(keepAliveComment))
	_, err = io.ReadFull(resp.Body, got)
	close(more)
	if want := chatEvents[0] + keepAliveComment; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}
