package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/wire"
)

// toolsOnly is the steering of layers that have a tool and no verdict to give.
func toolsOnly() *memory.Steering {
	return &memory.Steering{Hides: func(name string) bool { return name == "mem_x" }}
}

func nothing(wire.Reply) memory.Next { return memory.Next{} }

// typed is a whole answer of some type.
func typed(contentType, body string, headers ...string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s", contentType, strings.Join(headers, ""), len(body), body)
}

// get sends a request and returns the answer with the whole of its body.
func (r *rig) get(t *testing.T, request string) (*http.Response, string) {
	t.Helper()
	c, br := r.dial(t)
	write(c, request)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(resp.Body)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(body), err)
	}
	return resp, string(body)
}

func sameText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %d bytes %.200q, want %d bytes %.200q", len(got), got, len(want), want)
	}
}

// TestUnreadableAnswers: an answer that was paid for and that no layer can read is the client's as it came, and is stored as
// it is without layers. Where rules judge answers it does not pass, and the client learns why.
func TestUnreadableAnswers(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("[1,2]"))
	_ = z.Close()
	for _, tc := range []struct {
		name, contentType, body, header, why string
	}{
		{"text", "text/plain", "hello", "", "not an object"},
		{"nothing but space", "application/json", " \n", "", "truncated"},
		{"an array", "application/json", "[1,2]", "", "at byte 0: not an object"},
		{"lines", "application/x-ndjson", "{\"a\":1}\n{\"a\":2}\n", "", "data behind the object"},
		{"sound", "audio/mpeg", "\x00\x01\x02", "", "not an object"},
		{"a mark alone", "application/json", "\ufeff", "", "truncated"},
		{"junk behind it", "application/json", chatAnswer + "\n\njunk", "", "data behind the object"},
		{"cut short", "application/json", chatAnswer[:60], "", "at byte"},
		{"brotli", "application/json", "\x0b\x01\x80a", "Content-Encoding: br\r\n", unknownEncoding},
		{"no gzip", "application/json", chatAnswer, "Content-Encoding: gzip\r\n", unknownEncoding},
		{"packed", "application/json", packed.String(), "Content-Encoding: gzip\r\n", "not an object"},
		{"a stream in brotli", "text/event-stream", "\x0b\x01\x80a", "Content-Encoding: br\r\n", unknownEncoding},
		{"more than is read", "application/json", strings.Repeat("x", foldLimit+1<<20), "", "larger than 32MiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := answering(t, func(*http.Request, []byte) string {
				return typed(tc.contentType, tc.body, tc.header, "X-Request-Id: r\r\n")
			})
			for _, s := range []*memory.Steering{toolsOnly(), {Hides: toolsOnly().Hides, HoldCalls: true}, {Hides: toolsOnly().Hides, HoldAll: true}} {
				m := &steerer{book: newBook(), steering: s, review: nothing}
				r := start(t, rigOptions{upstream: addr, memory: m.begin})
				resp, body := r.get(t, chatIn("s", chatBody))
				a := await(t, m.answers, "commit")
				if len(a.Reply.Choices) > 0 || a.Reply.Complete {
					t.Errorf("kept %+v", a.Reply)
				}
				if s.Judges() {
					if resp.StatusCode != fasthttp.StatusBadGateway || !strings.Contains(body, codeUnread) || !strings.Contains(body, tc.why) ||
						strings.Contains(body, "HTTP") || strings.Contains(body, "hello") {
						t.Errorf("judged: %d %.300q", resp.StatusCode, body)
					}
					continue
				}
				sameText(t, body, tc.body)
				h := resp.Header
				if resp.StatusCode != 200 || h.Get("Content-Type") != tc.contentType || h.Get("X-Request-Id") != "r" ||
					strings.HasPrefix(h.Get("X-Memory"), "bypass;") == (len(tc.body) > foldLimit) || strings.HasSuffix(h.Get("Content-Encoding"), "p") != strings.Contains(tc.header, "gzip") {
					t.Errorf("head %d %v", resp.StatusCode, h)
				}
				r.stop(t)
				warned := strings.Contains(r.log.String(), "passed on and not kept")
				if silent := len(tc.body) > foldLimit; warned == silent || a.Aborted != memory.NotAborted || r.upstreamFailures() > 0 {
					t.Errorf("cut %v, log %s", a.Aborted, r.log)
				}
			}
		})
	}
}

// TestNoEventStream: of an answer that is an event stream by its type alone the client gets all that upstream sent. Where
// rules judge answers it gets none of it, and learns why.
func TestNoEventStream(t *testing.T) {
	const comments = ": a\n\n: b\n"
	for _, body := range []string{chatAnswer, `{"error":{"message":"hello"}}` + "\n\n", "<html>\n\nhello</html>", "hello\n", comments} {
		addr := answering(t, func(*http.Request, []byte) string {
			return eventHead + chunk(body) + chunk("")
		})
		for _, s := range []*memory.Steering{toolsOnly(), {Hides: toolsOnly().Hides, HoldCalls: true}, {Hides: toolsOnly().Hides, HoldAll: true}} {
			got, a, err := steered(t, addr, s)
			if len(a.Reply.Choices) > 0 || a.Reply.Complete {
				t.Errorf("%q: kept %+v", body, a.Reply)
			}
			if !s.Judges() || body == comments {
				if sameText(t, got, body); err != nil || a.Aborted != memory.NotAborted {
					t.Errorf("%q: %v, cut %v", body, err, a.Aborted)
				}
				continue
			}
			if err == nil || !strings.Contains(got, `data: {"error":{"message":"upstream's answer cannot be read`) ||
				!strings.Contains(got, codeUnread) || strings.Contains(got, "hello") || a.Aborted != memory.AbortedByUpstream {
				t.Errorf("%q, judged: %v %q, cut %v", body, err, got, a.Aborted)
			}
		}
	}
}

// steered sends a streamed request through layers with this steering, and returns the client's bytes, the committed
// answer, and how it ended for the client.
func steered(t *testing.T, upstream string, s *memory.Steering) (string, memory.Answer, error) {
	t.Helper()
	m := &steerer{book: newBook(), steering: s, review: nothing}
	c, br := start(t, rigOptions{upstream: upstream, memory: m.begin}).dial(t)
	write(c, chatIn("s", liveChat))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	shut(resp.Body)
	return string(got), await(t, m.answers, "commit"), err
}

// TestWholeAnswerOfAStreamsTypeIsJudged: where the client has not asked for a stream, layers see the answer that it is.
func TestWholeAnswerOfAStreamsTypeIsJudged(t *testing.T) {
	addr := answering(t, func(*http.Request, []byte) string {
		return eventHead + chunk("\n") + chunk(chatAnswer) + chunk("")
	})
	for _, s := range []*memory.Steering{toolsOnly(), {Hides: toolsOnly().Hides, HoldCalls: true}, {Hides: toolsOnly().Hides, HoldAll: true}} {
		m := &steerer{book: newBook(), steering: s, review: nothing}
		resp, body := start(t, rigOptions{upstream: addr, memory: m.begin}).get(t, chatIn("s", chatBody))
		a := await(t, m.answers, "commit")
		if resp.StatusCode != 200 || strings.TrimSpace(body) != chatAnswer || !a.Reply.Complete || textOf(t, a.Reply) != "hello" {
			t.Errorf("%d %q, stored %+v", resp.StatusCode, body, a)
		}
	}
}

// TestCallBehindTheEnd: where calls are judged, a call after the end of an answer does not pass, however that ended.
func TestCallBehindTheEnd(t *testing.T) {
	call := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"rm","arguments":"{}"}}]}}]}` + "\n\n"
	behind := call + ": bye\n\n" + chatDone
	for _, tc := range []struct {
		name     string
		steering memory.Steering
		denied   bool
	}{
		{"nothing is judged", memory.Steering{}, false},
		{"calls", memory.Steering{HoldCalls: true}, false},
		{"all", memory.Steering{HoldAll: true}, false},
		{"all, and denied", memory.Steering{HoldAll: true}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			more := make(chan struct{})
			addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				write(c, eventHead+chunk(strings.Join(chatEvents, "")+chatDone+behind+call[:40]))
				<-more
				write(c, chunk(call[40:]+call)+chunk(""))
			})
			tc.steering.Hides = toolsOnly().Hides
			m := &steerer{book: newBook(), steering: &tc.steering, review: func(wire.Reply) memory.Next { return memory.Next{Denied: tc.denied} }}
			r := start(t, rigOptions{upstream: addr, memory: m.begin})
			c, br := r.dial(t)
			write(c, chatIn("s", chatBody))
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			await(t, m.answers, "commit")
			close(more)
			body, err := io.ReadAll(resp.Body)
			shut(resp.Body)
			got := string(body)
			if err != nil || strings.Contains(got, `"rm"`) == tc.steering.Judges() || strings.Contains(got, codeDenied) != tc.denied {
				t.Errorf("%v %s", err, got)
			}
			switch whole := strings.Join(chatEvents, "") + chatDone; {
			case !tc.steering.Judges():
				sameText(t, got, whole+behind+call+call)
			case !tc.steering.HoldAll: // else the comment comes earlier
				sameText(t, got, whole+": bye\n\n"+chatDone)
			}
		})
	}
}

// TestMarkBeforeAnswer: a byte order mark in front of an answer changes nothing for clients that skip it, nor for the
// log and the rules.
func TestMarkBeforeAnswer(t *testing.T) {
	const mark = "\ufeff"
	answer := mark + chatAnswer
	addr := answering(t, func(*http.Request, []byte) string { return sized(answer) })
	for _, s := range []*memory.Steering{nil, toolsOnly(), {Hides: toolsOnly().Hides, HoldAll: true}} {
		m := &steerer{book: newBook(), steering: s, review: nothing}
		r := start(t, rigOptions{upstream: addr, memory: m.begin})
		_, body := r.get(t, chatIn("s", chatBody))
		sameText(t, body, answer)
		if a := await(t, m.answers, "commit"); textOf(t, a.Reply) != "hello" || !a.Reply.Complete {
			t.Errorf("kept %+v", a.Reply)
		}
	}
	answer = mark + wholeHidden
	m := &steerer{book: newBook(), steering: toolsOnly(), review: func(wire.Reply) memory.Next { return memory.Next{Hidden: map[string]bool{"h": true}} }}
	r := start(t, rigOptions{upstream: addr, memory: m.begin})
	if _, body := r.get(t, chatIn("s", chatBody)); !strings.Contains(body, "one") || strings.Contains(body, "mem_x") {
		t.Errorf("a hidden call: %s", body)
	}
}

// TestUnreadableSecondAnswer: an unreadable answer to a continued turn replaces the whole answer, with its own head,
// unless a stream has begun.
func TestUnreadableSecondAnswer(t *testing.T) {
	long := strings.Repeat("y", foldLimit+1<<20)
	for _, tc := range []struct {
		name, first, contentType, second string
	}{
		{"text", sized(wholeHidden), "text/plain", "hello"},
		{"a stream", sized(wholeHidden), "text/event-stream", "data: hello\n\n"},
		{"more than is read", sized(wholeHidden), "text/plain", long},
		{"behind a stream", streamHidden, "text/plain", "hello"},
		{"behind a stream, called one", streamHidden, "text/event-stream", chatAnswer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := answering(t, func(_ *http.Request, body []byte) string {
				if strings.Contains(string(body), "go on") {
					return typed(tc.contentType, tc.second, "X-Request-Id: second\r\n")
				}
				return tc.first
			})
			m := goesOn(t)
			r := start(t, rigOptions{upstream: addr, memory: m.begin})
			if tc.first == streamHidden {
				c, br := r.dial(t)
				write(c, chatIn("s", chatBody))
				all, err := io.ReadAll(br) // what has begun cannot end well
				if got := string(all); err != nil || !strings.Contains(got, `"content":"one"`) || !strings.Contains(got, codeUnread) ||
					!strings.Contains(got, "no event stream") || strings.Contains(got, "[DONE]") || strings.Contains(got, "mem_x") {
					t.Errorf("%v %s", err, got)
				}
				if a := await(t, m.answers, "commit"); a.Aborted != memory.AbortedByUpstream || textOf(t, a.Reply) != "one" {
					t.Errorf("committed %+v", a)
				}
				return
			}
			resp, body := r.get(t, chatIn("s", chatBody))
			sameText(t, body, tc.second)
			if h := resp.Header; h.Get("Content-Type") != tc.contentType || h.Get("X-Request-Id") != "second" || h.Get("X-Turn-Id") != "T1" || len(h["X-Memory"]) != 1 {
				t.Errorf("head %v", h)
			}
			if a := await(t, m.answers, "commit"); len(a.Reply.Choices) > 0 || a.Aborted != memory.NotAborted || a.HTTPStatus != 200 {
				t.Errorf("committed %+v", a)
			}
		})
	}
}

// TestMoreThanCanBeHeld: of a stream with an event that is larger than what can be held back nothing is missing, and
// nothing changes its place, where no layer judges. Where one does, the stream breaks and says so.
func TestMoreThanCanBeHeld(t *testing.T) {
	large := `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("z", 17<<20) + `"}}]}` + "\n\n"
	before := chatEvents[0] + `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"1"}}]}}]}` + "\n\n"
	events := []string{before, large, chatEvents[2] + chatDone}
	answer := eventHead
	for _, e := range events {
		answer += chunk(e)
	}
	answer += chunk("")
	addr := answering(t, func(*http.Request, []byte) string { return answer })
	for _, s := range []*memory.Steering{toolsOnly(), {Hides: toolsOnly().Hides, HoldCalls: true}} {
		got, a, err := steered(t, addr, s)
		if s.Judges() {
			if err == nil || !strings.Contains(got, codeUnread) || strings.Contains(got, "zzz") || a.Aborted != memory.AbortedByUpstream {
				t.Errorf("judged: %v, %d bytes %.300q, cut %v", err, len(got), got, a.Aborted)
			}
			continue
		}
		if err != nil {
			t.Error(err)
		}
		sameText(t, got, strings.Join(events, ""))
		if !a.Reply.Truncated || a.Aborted != memory.NotAborted {
			t.Errorf("committed %v %v", a.Reply.Truncated, a.Aborted)
		}
	}
}

func respondIn(body string, headers ...string) string {
	return fmt.Sprintf("POST /v1/responses HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", strings.Join(headers, ""), len(body), body)
}

// TestBackground: a background answer cannot be judged, so it is refused where rules judge. Elsewhere no tool of a
// layer is offered, since its calls would not be answered, and the turn records that its answer has not come.
func TestBackground(t *testing.T) {
	const session = "X-Session-Id: s\r\n"
	const queued = `{"id":"resp_1","object":"response","status":"queued","background":true,"output":[]}`
	addr := answering(t, func(_ *http.Request, body []byte) string {
		if strings.Contains(string(body), "mem_x") {
			return sized(`{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":"mem_x was offered"}]}`)
		}
		return sized(queued)
	})
	for _, tc := range []struct {
		name, member, headers string
		judged                bool
		offered, complete     bool
	}{
		{"of a session", `"background":true`, session, false, false, false},
		{"not in the background", `"background":false`, session, false, true, true},
		{"null", `"background":null`, session, false, true, true},
		{"judged", `"background":true`, session, true, false, false},
		{"judged, no session", `"background":true`, "", true, false, false},
		{"judged, off", `"background":true`, session + "X-Memory: off\r\n", true, false, false},
		{"judged, the last one counts", `"background":false,"background":true`, session, true, false, false},
		{"judged, escaped", `"b\u0061ckground":true`, session, true, false, false},
		{"judged, no boolean", `"background":"true"`, session, true, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &steerer{book: newBook(), tools: [][]byte{[]byte(`{"type":"function","name":"mem_x"}`)}, steering: toolsOnly(), review: nothing}
			r := start(t, rigOptions{upstream: addr, memory: m.begin})
			r.guards = func() bool { return tc.judged }
			resp, body := r.get(t, respondIn(`{"model":"m",`+tc.member+`,"input":"hi"}`, tc.headers))
			if tc.judged {
				if resp.StatusCode != fasthttp.StatusBadRequest || !strings.Contains(body, `"param":"background"`) || !strings.Contains(body, codeBackground) {
					t.Errorf("%d %s", resp.StatusCode, body)
				}
				if len(m.calls) > 0 {
					t.Error("memory was asked")
				}
				return
			}
			a := await(t, m.answers, "commit")
			if strings.Contains(body, "offered") != tc.offered || a.Reply.Complete != tc.complete || !tc.offered && body != queued {
				t.Errorf("%s, complete %v", body, a.Reply.Complete)
			}
		})
	}
	t.Run("rules that came meanwhile", func(t *testing.T) {
		m := &steerer{book: newBook(), steering: &memory.Steering{HoldCalls: true}, review: nothing}
		r := start(t, rigOptions{upstream: addr, memory: m.begin})
		resp, body := r.get(t, respondIn(`{"background":true,"input":"hi"}`, session))
		if resp.StatusCode != fasthttp.StatusBadRequest || !strings.Contains(body, codeBackground) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	})
	t.Run("Chat knows no such member", func(t *testing.T) {
		m := &steerer{book: newBook(), steering: toolsOnly(), review: nothing}
		r := start(t, rigOptions{upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) }), memory: m.begin})
		r.guards = func() bool { return true }
		if _, body := r.get(t, chatIn("s", `{"background":true,"messages":[{"role":"user","content":"hi"}]}`)); body != chatAnswer {
			t.Error(body)
		}
	})
}

// TestWebSocketAdvice: what a client of a WebSocket is told to do instead works.
func TestWebSocketAdvice(t *testing.T) {
	const upgrade = "GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSession-Id: s\r\n"
	for _, judged := range []bool{false, true} {
		m := newBook()
		r := start(t, rigOptions{upstream: answering(t, func(*http.Request, []byte) string { return sized("{}") }), memory: m.begin})
		r.guards = func() bool { return judged }
		_, body := r.get(t, upgrade+"\r\n")
		if strings.Contains(body, "X-Memory: off") == judged || !strings.Contains(body, "HTTP POST") || strings.Contains(body, "rules") != judged {
			t.Errorf("judged %v: %s", judged, body)
		}
		resp, _ := r.get(t, upgrade+"X-Memory: off\r\n\r\n")
		if (resp.StatusCode == fasthttp.StatusUpgradeRequired) != judged {
			t.Errorf("judged %v, off: %d", judged, resp.StatusCode)
		}
		// Of a path that may lead to an endpoint, rules must not be the last to know.
		for path, refused := range map[string]bool{"/x/v1/responses": judged, "/v1/realtime": false} {
			resp, _ := r.get(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			if (resp.StatusCode == fasthttp.StatusUpgradeRequired) != refused {
				t.Errorf("judged %v, %s: %d", judged, path, resp.StatusCode)
			}
		}
	}
}
