package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/memory"
	"remora/providers"
	"remora/providers/retry"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// steerer is a memory whose layers judge answers.
type steerer struct {
	*book
	tools    [][]byte
	steering *memory.Steering
	review   func(r wire.Reply) memory.Next
	more     []wire.Item // the view with which the model goes on
}

func (s *steerer) LastRound() bool { return false }

// judgedTurn is a turn of a memory without hidden calls.
type judgedTurn struct {
	*steerer
	turn *turn
}

// Review makes of the next view what is sent from now on.
func (t judgedTurn) Review(_ context.Context, r wire.Reply) memory.Next {
	next := t.review(r)
	if next.GoesOn {
		t.turn.View = t.more
	}
	return next
}

func (t judgedTurn) WithoutTools() { t.turn.Tools = nil }

func (s *steerer) begin(ctx context.Context, c memory.Call) (*turn, error) {
	t, err := s.book.begin(ctx, c)
	t.Tools, t.judge = s.tools, judgedTurn{s, t}
	if s.steering != nil {
		t.steering, t.steered = *s.steering, true
	}
	return t, err
}

// TestToolless: a model that refuses tools is offered none for an hour, but only to the tenant that it refused them, and
// not because of tools of a client's own.
func TestToolless(t *testing.T) {
	const own = `{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"hi"}]}`
	var mu sync.Mutex
	offered := 0
	now := time.Now()
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	addr := answering(t, func(_ *http.Request, body []byte) string {
		if strings.Contains(string(body), "mem_x") {
			mu.Lock()
			defer mu.Unlock()
			offered++
			return "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nno tools!"
		}
		return sized(chatAnswer)
	})
	m := &steerer{book: newBook(), tools: [][]byte{[]byte(`{"type":"function","function":{"name":"mem_x"}}`)}}
	r := start(t, rigOptions{upstream: addr, memory: m.begin, now: clock})
	for _, step := range []struct {
		name, body, key string
		after           time.Duration
		want            int
	}{
		{"tools of the client's own", own, "k", 0, 1},
		{"none of its own", chatBody, "k", 0, 1},
		{"remembered", chatBody, "k", 0, 0},
		{"another tenant", chatBody, "other", 0, 1},
		{"an hour later", chatBody, "k", time.Hour, 1},
	} {
		mu.Lock()
		offered, now = 0, now.Add(step.after)
		mu.Unlock()
		in := strings.Replace(chatIn("s", step.body, "Connection: close\r\n"), "Bearer k", "Bearer "+step.key, 1)
		if got := r.exchange(t, in); !strings.Contains(got, "hello") {
			t.Errorf("%s: %s", step.name, got)
		}
		mu.Lock()
		if offered != step.want {
			t.Errorf("%s: tools were offered %d times, want %d", step.name, offered, step.want)
		}
		mu.Unlock()
	}
}

// streamed is an answer of events.
func streamed(events ...string) string {
	var b strings.Builder
	b.WriteString(eventHead)
	for _, e := range events {
		b.WriteString(chunk("data: " + e + "\n\n"))
	}
	return b.String() + chunk(chatDone) + chunk("")
}

// TestCutWhileHeld: the client gets the head of a stream of which upstream breaks off while all that has come is held back.
func TestCutWhileHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steering *memory.Steering
		body     string
		came     string
	}{
		"JSON beside layers' tools": {toolsOnly(), strings.Replace(liveChat, `"stream"`, `"response_format":{"type":"json_object"},"stream"`, 1), chatEvents[0]},
		"all is judged":             {&memory.Steering{HoldAll: true}, liveChat, chatEvents[0]},
		"a hidden call":             {toolsOnly(), liveChat, `data: {"choices":[{"index":0,"delta":{"tool_calls":[` + hiddenCall + `]}}]}` + "\n\n"},
		"a part of an event":        {toolsOnly(), liveChat, `data: {"id":`},
	} {
		t.Run(name, func(t *testing.T) {
			addr := upstream(t, func(conn net.Conn, r *bufio.Reader) {
				if req, err := http.ReadRequest(r); err == nil {
					drain(req.Body)
					write(conn, eventHead+chunk(c.came))
				}
			})
			m := &steerer{book: newBook(), steering: c.steering, tools: [][]byte{[]byte(layerTool)}, review: nothing}
			conn, br := start(t, rigOptions{upstream: addr, memory: m.begin}).dial(t)
			write(conn, chatIn("s", c.body))
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			shut(resp.Body)
			if resp.StatusCode != http.StatusOK || len(got) > 0 || err == nil {
				t.Errorf("%s %q %v", resp.Status, got, err)
			}
			if a := await(t, m.answers, "commit"); a.Aborted != memory.AbortedByUpstream {
				t.Errorf("cut %v", a.Aborted)
			}
		})
	}
}

// TestSeveralChoices: calls that layers never see do not pass where calls are judged.
func TestSeveralChoices(t *testing.T) {
	const call = `"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"rm","arguments":"{}"}}]`
	for _, tc := range []struct {
		name     string
		answer   string
		steering memory.Steering
		passes   bool
	}{
		{"whole", sized(`{"choices":[{"index":0,"message":{"role":"assistant","content":"x"}},{"index":1,"message":{"role":"assistant",` + call + `}}]}`), memory.Steering{HoldCalls: true}, false},
		{"streamed", streamed(`{"choices":[{"index":0,"delta":{"content":"x"}},{"index":1,"delta":{`+call+`}}]}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`), memory.Steering{HoldCalls: true}, false},
		{"streamed, all held", streamed(`{"choices":[{"index":0,"delta":{"content":"x"}},{"index":1,"delta":{` + call + `}}]}`), memory.Steering{HoldAll: true}, false},
		{"the only choice is another", streamed(`{"choices":[{"index":2,"delta":{` + call + `}}]}`), memory.Steering{HoldCalls: true}, false},
		{"the only choice is another, all held", streamed(`{"choices":[{"index":2,"delta":{` + call + `}}]}`), memory.Steering{HoldAll: true}, false},
		{"texts only", streamed(`{"choices":[{"index":0,"delta":{"content":"rm"}},{"index":1,"delta":{"content":"y"}}]}`), memory.Steering{HoldAll: true}, true},
		{"nothing is judged", sized(`{"choices":[{"index":0,"message":{"role":"assistant","content":"x"}},{"index":1,"message":{"role":"assistant",` + call + `}}]}`), memory.Steering{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := answering(t, func(*http.Request, []byte) string { return tc.answer })
			tc.steering.Hides = func(string) bool { return false }
			m := &steerer{book: newBook(), steering: &tc.steering, review: func(wire.Reply) memory.Next { return memory.Next{} }}
			r := start(t, rigOptions{upstream: addr, memory: m.begin})
			got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n"))
			if strings.Contains(got, "rm") != tc.passes || strings.Contains(got, codeDenied) == tc.passes {
				t.Errorf("got %s", got)
			}
			if a := await(t, m.answers, "commit"); !tc.passes && len(a.Reply.Choices) > 0 {
				t.Errorf("kept %v", a.Reply)
			}
		})
	}
}

// TestCallsBehindWhatIsRead: a call after the part of a stream that is parsed lacks its input. Rules do not judge it so, no
// layer's tool runs with it, and the client does not get it.
func TestCallsBehindWhatIsRead(t *testing.T) {
	const call = `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"h","type":"function","function":{"name":"mem_x","arguments":"{}"}}]}}]}`
	events := slices.Repeat([]string{`{"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 1<<20) + `"}}]}`}, 33)
	answer := streamed(append(events, call, `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`)...)
	for _, tc := range []struct {
		name    string
		judged  bool
		end     string
		aborted memory.Aborted
	}{
		{"judged", true, codeUnread, memory.AbortedByUpstream},
		{"a layer's", false, `"finish_reason":"stop"}]}`, memory.NotAborted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := answering(t, func(*http.Request, []byte) string { return answer })
			m := goesOn(t)
			m.steering.HoldCalls = tc.judged
			m.review = func(r wire.Reply) memory.Next {
				t.Errorf("reviewed: %v", r.Choices[0][0].Calls())
				return memory.Next{}
			}
			r := start(t, rigOptions{upstream: addr, memory: m.begin})
			got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n"))
			if end := got[max(0, len(got)-1000):]; strings.Contains(got, "mem_x") || !strings.Contains(end, tc.end) || strings.Contains(end, "[DONE]") == tc.judged {
				t.Errorf("%d bytes, which end in %s", len(got), end)
			}
			if a := await(t, m.answers, "commit"); !a.Reply.Truncated || a.Aborted != tc.aborted {
				t.Errorf("truncated %v, aborted %v", a.Reply.Truncated, a.Aborted)
			}
		})
	}
}

const (
	hiddenCall  = `{"id":"h","type":"function","function":{"name":"mem_x","arguments":"{}"}}`
	wholeHidden = `{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"one","tool_calls":[` + hiddenCall + `]},"finish_reason":"tool_calls"}]}`
)

var streamHidden = streamed(`{"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":"one"}}]}`,
	`{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[`+hiddenCall+`]}}]}`,
	`{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`)

// goesOn is a memory that has the model go on after its first answer.
func goesOn(t *testing.T) *steerer {
	t.Helper()
	more := wiretest.Parse(t, dialects.Chat, `{"role":"user","content":"go on"}`)
	asked := false
	return &steerer{
		book:     newBook(),
		steering: &memory.Steering{Hides: func(name string) bool { return name == "mem_x" }},
		more:     []wire.Item{more},
		review: func(wire.Reply) memory.Next {
			if asked {
				return memory.Next{}
			}
			asked = true
			return memory.Next{Hidden: map[string]bool{"h": true}, GoesOn: true}
		},
	}
}

// TestSecondCallFails: a client learns why the model could not go on, in the form that its SDK retries or raises.
func TestSecondCallFails(t *testing.T) {
	const limited = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nRetry-After: 7\r\nX-RateLimit-Reset: 9\r\nContent-Length: 9\r\n\r\nslow down"
	for _, tc := range []struct {
		name, first, second string
		want, not           []string
		kept                string
	}{
		{"whole", sized(wholeHidden), limited, []string{"HTTP/1.1 429", "Content-Type: text/plain\r\n", "Retry-After: 7\r\n", "X-RateLimit-Reset: 9\r\n", "\r\n\r\nslow down"}, []string{"one"}, ""},
		{"streamed", streamHidden, limited, []string{"HTTP/1.1 200", "one", `data: {"error":{"message":"upstream answered 429`, `"code":"upstream_error"`, "\r\n0\r\n\r\n"}, []string{"[DONE]", "mem_x", "finish_reason\":\"stop"}, "one"},
		{"whole, broken", sized(wholeHidden), "HTTP/1.1 nonsense\r\n\r\n", []string{"HTTP/1.1 502", "upstream_closed"}, []string{"one"}, ""},
		{"streamed, broken", streamHidden, "HTTP/1.1 nonsense\r\n\r\n", []string{"HTTP/1.1 200", "one", "upstream_closed"}, []string{"[DONE]", "\r\n0\r\n\r\n"}, "one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := answering(t, func(_ *http.Request, body []byte) string {
				if strings.Contains(string(body), "go on") {
					return tc.second
				}
				return tc.first
			})
			m := goesOn(t)
			r := start(t, rigOptions{upstream: addr, memory: m.begin})
			got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n"))
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in %s", want, got)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(got, not) {
					t.Errorf("%q in %s", not, got)
				}
			}
			if kept := textOf(t, await(t, m.answers, "commit").Reply); kept != tc.kept {
				t.Errorf("kept %q, want %q", kept, tc.kept)
			}
		})
	}
}

// TestLargeRefusalOfSecondCall: a refusal that is larger than one that is read teaches nothing, and the client gets all of it.
func TestLargeRefusalOfSecondCall(t *testing.T) {
	for name, size := range map[string]int{"more than is read": refusalLimit + 1, "more than is buffered": foldLimit + 1} {
		for _, chunked := range []bool{false, true} {
			text := "prompt is too long: 9000 tokens > 8192 maximum" + strings.Repeat("\n<p>", size/4)
			page := fmt.Sprintf("HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			if chunked {
				page = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(text) + chunk("")
			}
			u := &refuser{refuse: func(body string) string {
				if strings.Contains(body, "go on") {
					return page
				}
				return sized(wholeHidden)
			}}
			m := goesOn(t)
			r := start(t, rigOptions{upstream: answering(t, u.answer), memory: func(ctx context.Context, c memory.Call) (*turn, error) {
				turn, err := m.begin(ctx, c)
				turn.shaper = shapes{turn, turn.shaper.Sent, 9000}
				return turn, err
			}})
			resp := ask(t, r, plainChat)
			if got := bodyText(t, resp); resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Content-Type") != "text/html" || got != text {
				t.Errorf("%s, chunked %t: %d, %d bytes of %d", name, chunked, resp.StatusCode, len(got), len(text))
			}
			if end := await(t, m.answers, "commit"); end.HTTPStatus != http.StatusBadGateway || len(end.Reply.Choices) > 0 {
				t.Errorf("%s, chunked %t: committed %d with %d choices", name, chunked, end.HTTPStatus, len(end.Reply.Choices))
			}
			if sent := len(u.sent()); sent != 2 || len(r.lessons.table) > 0 {
				t.Errorf("%s, chunked %t: %d requests, learnt something: %t", name, chunked, sent, len(r.lessons.table) > 0)
			}
		}
	}
}

// TestSecondCallIsTriedAgain: when the model is to go on, its provider is asked as often as it is for a first answer, and
// no other provider is.
func TestSecondCallIsTriedAgain(t *testing.T) {
	const busy = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
	for _, tc := range []struct {
		name, first, second string
		refusals            int // of the second call
		want                string
		calls               int
	}{
		{"whole", sized(wholeHidden), sized(chatAnswer), 2, "hello", 4},
		{"streamed", streamHidden, eventHead + chunk(strings.Join(chatEvents, "")+chatDone) + "0\r\n\r\n", 2, "[DONE]", 4},
		{"whole, too often", sized(wholeHidden), sized(chatAnswer), 3, "503 Busy", 4},
		{"streamed, too often", streamHidden, busy, 3, "upstream answered 503", 4},
		{"whole, not to be repeated", sized(wholeHidden), "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", 0, "500 Oops", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls, refused atomic.Int32
			addr := answering(t, func(_ *http.Request, body []byte) string {
				calls.Add(1)
				if !strings.Contains(string(body), "go on") {
					return tc.first
				}
				if int(refused.Add(1)) <= tc.refusals {
					return busy
				}
				return tc.second
			})
			other := answering(t, func(*http.Request, []byte) string {
				t.Error("another provider was asked to go on")
				return busy
			})
			entry := func(name, addr string) retry.Entry {
				return retry.Entry{Provider: providers.Options{Name: name, Kind: "compatible", BaseURL: "http://" + addr + "/v1", APIKey: "k"}}
			}
			list := []retry.Entry{entry("first", addr), entry("other", other)}
			list[0].Resilience = retry.Options{
				Retry:    retry.Retry{Attempts: 3, BaseDelay: time.Millisecond},
				Fallback: []retry.Target{{Provider: "other"}, {Model: "small"}},
			}
			m := goesOn(t)
			r := start(t, rigOptions{upstream: addr, memory: m.begin})
			r.route(t, list)
			if got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n")); !strings.Contains(got, tc.want) {
				t.Errorf("no %q in %s", tc.want, got)
			}
			await(t, m.answers, "commit")
			if n := int(calls.Load()); n != tc.calls {
				t.Errorf("upstream was called %d times, want %d", n, tc.calls)
			}
		})
	}
}

// TestKeepAliveOfSteered: the client of a second answer hears of its silence too, and one that hears nothing since all
// is held, at keep_alive or every 15 seconds.
func TestKeepAliveOfSteered(t *testing.T) {
	const every = 20 * time.Millisecond
	silent := make(chan struct{})
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(req.Body)
			if !strings.Contains(string(body), "go on") {
				write(c, streamHidden)
				continue
			}
			write(c, eventHead)
			<-silent
			write(c, chunk(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")+chunk(chatDone)+chunk(""))
		}
	})
	m := goesOn(t)
	r := start(t, rigOptions{upstream: addr, memory: m.begin, tune: func(o *Options) { o.KeepAlive = every }})
	c, br := r.dial(t)
	write(c, chatIn("s", liveChat))
	for line := ""; !strings.HasPrefix(line, ": keep-alive"); {
		var err error
		if line, err = br.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	close(silent)
	await(t, m.answers, "commit")

	for _, tc := range []struct {
		every time.Duration
		all   bool
		want  time.Duration
	}{{0, true, heldKeepAlive}, {0, false, 0}, {time.Minute, true, time.Minute}} {
		now := time.Unix(0, 0)
		s := &Server{now: func() time.Time { return now }}
		s.o.KeepAlive = tc.every
		s.o.WriteTimeout = time.Hour
		st := &stream{
			answer: &answer{req: &request{s: s, turn: &turn{steering: memory.Steering{HoldAll: tc.all}}}, steered: true},
			client: clientWriter{s: s, w: new(strings.Builder), armed: now}, spoke: now,
		}
		var at []time.Duration
		for range 130 {
			now = now.Add(time.Second)
			before := st.client.n
			if st.keepAlive(true); st.client.n > before {
				at = append(at, now.Sub(time.Unix(0, 0)))
			}
		}
		if tc.want == 0 && len(at) > 0 || tc.want > 0 && (len(at) == 0 || at[0] != tc.want || len(at) != int(130*time.Second/tc.want)) {
			t.Errorf("keep_alive %v, all held %v: comments at %v", tc.every, tc.all, at)
		}
	}
}

// TestDeniedIsNotCut: a denied answer was whole, and nothing of it is kept.
func TestDeniedIsNotCut(t *testing.T) {
	for name, answer := range map[string]string{"whole": sized(wholeHidden), "streamed": streamHidden} {
		t.Run(name, func(t *testing.T) {
			addr := answering(t, func(*http.Request, []byte) string { return answer })
			m := goesOn(t)
			m.steering.HoldAll = true
			m.review = func(wire.Reply) memory.Next { return memory.Next{Denied: true} }
			r := start(t, rigOptions{upstream: addr, memory: m.begin})
			if got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n")); !strings.Contains(got, codeDenied) || strings.Contains(got, "one") {
				t.Errorf("got %s", got)
			}
			if a := await(t, m.answers, "commit"); a.Aborted != memory.NotAborted || len(a.Reply.Choices) > 0 {
				t.Errorf("committed %+v", a)
			}
		})
	}
}
