package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
	"remora/wire/dialects"
)

// allHooks configures every hook and one tool.
func allHooks(url string) Options {
	return Options{
		URL: url, Hooks: hooks(), Secret: "k3y",
		Tools: []ToolOptions{{Name: "forget", Description: "Forgets.", Parameters: map[string]any{"type": "object"}}},
		Now:   func() time.Time { return time.Unix(1_770_000_000, 0) },
	}
}

func open(t *testing.T, o Options) *Layer {
	t.Helper()
	l := layertest.Must(New(o))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve starts a server that answers each hook with what f returns.
func serve(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL + "/hooks"
}

func message(t *testing.T, role wire.Role, text string) wire.Item {
	t.Helper()
	return wire.NewMessage(dialects.Chat, role, text)
}

func testTurn() *layer.Turn {
	return &layer.Turn{
		ID: "01JTURN", Thread: "chat-7", Resource: "ann", Execution: "e1",
		Now: time.Date(2026, 3, 5, 9, 7, 0, 0, time.UTC), Dialect: dialects.Chat, Model: "gpt-5",
		Query: "Which tea do I like?", Tools: []string{"get_weather"},
		Count: func(s string) int { return (len(s) + 3) / 4 },
	}
}

// TestConformance runs the suite of all layers over a server that stores what it is sent. There is no network, since
// the suite makes tens of thousands of calls.
func TestConformance(t *testing.T) {
	server := func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Hook  string            `json:"hook"`
			Turn  turn              `json:"turn"`
			State json.RawMessage   `json:"state"`
			Items []json.RawMessage `json:"items"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		said := []string{}
		if json.Unmarshal(q.State, &said) != nil || said == nil {
			said = []string{}
		}
		answer := map[string]any{}
		switch q.Hook {
		case layer.HookRecall:
			answer["messages"] = said
		case layer.HookStore, layer.HookReturn:
			if len(said) < 5 && len(q.Turn.Query) < 1000 {
				said = append(said, q.Turn.Query)
			}
			answer["state"] = said
		case layer.HookTools:
			answer["result"], answer["state"] = "gone", nil
		case layer.HookProjectHistory:
			answer["keep"] = []int{len(q.Items) - 1}
		case layer.HookAppendItems:
			answer["items"] = []any{map[string]int{"keep": 0}, map[string]string{"role": "user", "text": "and this"}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}
	layertest.Run(t, func() any {
		l := open(t, allHooks("http://layer.invalid/"))
		l.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			server(w, r)
			return w.Result(), nil
		})
		return l
	}, layertest.States(layer.State(`["I like tea."]`), layer.State(`{"a":[1.50]}`)))
}

// hook calls one hook and returns its error.
type hook struct {
	name string
	call func(ctx context.Context, l *Layer) error
}

func everyHook(t *testing.T) []hook {
	t.Helper()
	turn, s, items := testTurn(), layer.State(`{"a":1}`), []wire.Item{message(t, wire.User, "hi")}
	resp := &layer.Response{Items: items, Input: items, Text: "hi", Done: true}
	return []hook{
		{layer.HookInit, func(ctx context.Context, l *Layer) error { return errOf(l.Init(ctx, turn, s)) }},
		{layer.HookRecall, func(ctx context.Context, l *Layer) error { return errOf(l.Recall(ctx, turn, s, 100)) }},
		{layer.HookStore, func(ctx context.Context, l *Layer) error { return errOf(l.Store(ctx, turn, s, resp)) }},
		{layer.HookAppendItems, func(ctx context.Context, l *Layer) error { return errOf(l.AppendItems(ctx, turn, s, items)) }},
		{layer.HookProjectHistory, func(ctx context.Context, l *Layer) error { return errOf(l.ProjectHistory(ctx, turn, s, items)) }},
		{layer.HookReviewToolCall, func(ctx context.Context, l *Layer) error {
			return errOf(l.ReviewToolCall(ctx, turn, s, layer.ToolCall{Name: "f", Arguments: "not JSON"}))
		}},
		{layer.HookReviewResponse, func(ctx context.Context, l *Layer) error { return errOf(l.ReviewResponse(ctx, turn, s, resp)) }},
		{layer.HookSpawn, func(ctx context.Context, l *Layer) error { return errOf(l.Spawn(ctx, turn, s)) }},
		{layer.HookReturn, func(ctx context.Context, l *Layer) error { return errOf(l.Return(ctx, turn, s, nil, layer.Outcome{})) }},
		{layer.HookComplete, func(ctx context.Context, l *Layer) error { return errOf(l.Complete(ctx, turn, s, layer.Outcome{})) }},
		{layer.HookDispose, func(ctx context.Context, l *Layer) error { return l.Dispose(ctx, turn, s) }},
		{layer.HookTools, func(ctx context.Context, l *Layer) error {
			_, next, err := l.Tools()[0].Run(ctx, turn, s, []byte(`{}`))
			if err != nil && string(next) != string(s) {
				t.Errorf("a failed tool changed the state to %s", next)
			}
			return err
		}},
	}
}

func errOf[T any](_ T, err error) error { return err }

// TestBrokenServers: a broken server fails its hook with an error of its class that does not quote the answer.
func TestBrokenServers(t *testing.T) {
	const marker = "s3cret"
	body := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	for _, tt := range []struct {
		name  string
		serve http.HandlerFunc
		want  error
		tells string
	}{
		{"status 500", body(500, marker), ErrStatus, "status 500"},
		{"status 404", body(404, marker), ErrStatus, "status 404"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/hooks" {
				t.Error("a redirect was followed")
			}
			http.Redirect(w, r, "/"+marker, http.StatusTemporaryRedirect)
		}, ErrStatus, "status 307"},
		{"no JSON", body(200, "<html>"+marker), ErrAnswer, "want a JSON object"},
		{"half", body(200, `{"messages":["`+marker), ErrAnswer, "this is not JSON"},
		{"two answers", body(200, `{}{"`+marker+`":1}`), ErrAnswer, "this is not JSON"},
		{"empty", body(200, ""), ErrAnswer, "want a JSON object"},
		{"null", body(200, "null"), ErrAnswer, "want a JSON object"},
		{"list", body(200, `["`+marker+`"]`), ErrAnswer, "want a JSON object"},
		{"not UTF-8", body(200, "{\"state\":\"\xff"+marker+"\"}"), ErrAnswer, "want UTF-8"},
		{"other version", body(200, `{"version":2}`), ErrAnswer, "version: want 1"},
		{"text for a list", body(200, `{"messages":"`+marker+`"}`), ErrAnswer, "messages: want a list"},
		{"numbers for texts", body(200, `{"messages":[4711]}`), ErrAnswer, "messages: want text"},
		{"text for positions", body(200, `{"keep":["`+marker+`"]}`), ErrAnswer, "keep: want a whole number"},
		{"object for text", body(200, `{"action":{"`+marker+`":1}}`), ErrAnswer, "action: want text"},
		{"deep", body(200, `{"state":`+strings.Repeat("[", 1<<19)+strings.Repeat("]", 1<<18)+`}`), ErrAnswer, "this is not JSON"},
		{"length lies", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{}")
		}, ErrUnreachable, "closed the connection"},
		{"breaks off", func(_ http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, ErrUnreachable, "closed the connection"},
		{"not HTTP", func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, marker+"\r\n\r\n")
			_ = c.Close()
		}, ErrUnreachable, "not valid HTTP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := open(t, allHooks(serve(t, tt.serve)))
			for _, h := range everyHook(t) {
				err := h.call(t.Context(), l)
				if !errors.Is(err, tt.want) {
					t.Errorf("%s: have %v, want %v", h.name, err, tt.want)
				}
				if text := layer.SafeText(err); !strings.Contains(text, tt.tells) {
					t.Errorf("%s: the log is told %q, want %q in it", h.name, text, tt.tells)
				}
				if err != nil && (strings.Contains(err.Error(), marker) || strings.Contains(err.Error(), "4711")) {
					t.Errorf("%s: the error quotes the answer: %v", h.name, err)
				}
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	l := open(t, allHooks("http://127.0.0.1:1/?key=s3cret"))
	for _, h := range everyHook(t) {
		err := h.call(t.Context(), l)
		if !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "s3cret") || !strings.Contains(layer.SafeText(err), "connection refused") {
			t.Errorf("%s: have %v", h.name, err)
		}
	}
}

// TestHangingServer: a hook ends with its context, before the head of an answer and in the middle of its body.
func TestHangingServer(t *testing.T) {
	for name, begin := range map[string]string{"before the answer": "", "within the answer": `{"messages":[`} {
		t.Run(name, func(t *testing.T) {
			arrived, done := make(chan struct{}, 1), make(chan struct{})
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if begin != "" {
					_, _ = io.WriteString(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				arrived <- struct{}{}
				select {
				case <-r.Context().Done():
				case <-done:
				}
			})
			t.Cleanup(func() { close(done) })
			l := open(t, allHooks(url))
			for _, h := range everyHook(t) {
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					<-arrived
					cancel(context.DeadlineExceeded)
				}()
				if err := h.call(ctx, l); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: have %v, want the context's error", h.name, err)
				}
			}
		})
	}
}

// TestLargeAnswer: 10 MB are an error, with a length and without, and are never read whole.
func TestLargeAnswer(t *testing.T) {
	const size = 10 << 20
	for _, announced := range []bool{true, false} {
		t.Run(fmt.Sprint("announced ", announced), func(t *testing.T) {
			var written atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if announced {
					w.Header().Set("Content-Length", fmt.Sprint(size))
				}
				piece := []byte(strings.Repeat(" ", 64<<10))
				for range size / len(piece) {
					n, err := w.Write(piece)
					written.Add(int64(n))
					if err != nil {
						return
					}
				}
			}))
			l := open(t, allHooks(s.URL))
			if err := errOf(l.Recall(t.Context(), testTurn(), nil, 100)); !errors.Is(err, ErrAnswer) {
				t.Fatalf("have %v", err)
			}
			s.Close() // waits for the handler
			if n := written.Load(); n >= size {
				t.Errorf("the server could write all %d bytes", n)
			}
		})
	}
}

func TestLargeRequest(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") })
	o := allHooks(url)
	o.MaxRequest = 1000
	l := open(t, o)
	turn, items := testTurn(), []wire.Item{message(t, wire.User, strings.Repeat("x", 1000))}
	if kept, err := l.ProjectHistory(t.Context(), turn, nil, items); err == nil {
		t.Errorf("items: have %d items and no error", len(kept))
	}
	turn.Query = strings.Repeat("x", 1000)
	if err := errOf(l.Recall(t.Context(), turn, nil, 100)); err == nil || strings.Contains(err.Error(), "xx") {
		t.Errorf("query: have %v", err)
	}
}

// TestRequest: the signature is one over what was sent, and nothing else goes out.
func TestRequest(t *testing.T) {
	raw := `{"role":"user","content":"a <b> & \u003c 1.50","n":1e3}`
	item := layertest.Must(wire.ParseItem(dialects.Chat, []byte(raw)))(t)
	var headers http.Header
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		headers = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	l := open(t, allHooks(url))
	kept, err := l.ProjectHistory(t.Context(), testTurn(), layer.State("{damaged"), []wire.Item{item})
	if err != nil || len(kept) != 1 {
		t.Fatal(len(kept), err)
	}
	if !strings.Contains(string(body), raw) || !strings.Contains(string(body), `"state":null`) {
		t.Errorf("body %s", body)
	}
	const at = "1770000000"
	want := http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"remora"},
		"Content-Length": {fmt.Sprint(len(body))}, headerTimestamp: {at}, headerSignature: {signature("k3y", at, body)},
	}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("headers (-want +have):\n%s", diff)
	}
	// As openssl computes it: printf '1.{}' | openssl dgst -sha256 -hmac k3y
	if have := signature("k3y", "1", []byte("{}")); have != "sha256="+opensslSays {
		t.Errorf("have %s", have)
	}
}

const opensslSays = "50f3f7ebd799d00581aa918ac0c4e0741250032cba5e49d0011c741f4b06ae62"

// TestConnectionsAreBounded: more hooks at once than connections wait for each other, and are all answered.
func TestConnectionsAreBounded(t *testing.T) {
	var now, most atomic.Int64
	full, once := make(chan struct{}), sync.Once{}
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == maxConnections {
			once.Do(func() { close(full) })
		}
		<-full
		w.WriteHeader(http.StatusNoContent)
	})
	l := open(t, allHooks(url))
	var wg sync.WaitGroup
	for range 3 * maxConnections {
		wg.Go(func() {
			if err := l.Dispose(t.Context(), testTurn(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n != maxConnections {
		t.Errorf("%d requests at once, want %d", n, maxConnections)
	}
}

func TestOptions(t *testing.T) {
	const url = "http://127.0.0.1:1/"
	tool := func(p any) Options { return Options{URL: url, Tools: []ToolOptions{{Name: "t", Parameters: p}}} }
	for _, tt := range []struct {
		name string
		o    Options
		want []string // the keys of the problems, in order
	}{
		{"recall only", Options{URL: url, Hooks: []string{"recall"}}, nil},
		{"tools only", tool(nil), nil},
		{"nothing", Options{}, []string{"url", "hooks"}},
		{"scheme", Options{URL: "file:///etc/passwd", Hooks: []string{"recall"}}, []string{"url"}},
		{"port", Options{URL: "http://h:99999/", Hooks: []string{"recall"}}, []string{"url"}},
		{"no IP address", Options{URL: "http://300.1.1.1/?key=k", Hooks: []string{"recall"}}, []string{"url"}},
		{"password", Options{URL: "http://u:p4ss@h/", Hooks: []string{"recall"}}, []string{"url"}},
		{"hooks", Options{URL: url, Hooks: []string{"recall", "recal", "recall", "tools"}}, []string{"hooks[1]", "hooks[2]", "hooks[3]"}},
		{"async", Options{URL: url, Hooks: []string{"recall"}, Async: true}, []string{"async"}},
		{"tag", Options{URL: url, Hooks: []string{"recall"}, Tag: "a b"}, []string{"tag"}},
		{"limits", Options{URL: url, Hooks: []string{"recall"}, MaxAnswer: -1, MaxRequest: 1 << 40}, []string{"max_answer", "max_request"}},
		{"schema as text", tool(`{"type":"object","properties":{"userId":{"type":"string"}}}`), nil},
		{"schema as mapping", tool(map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "number"}}}), nil},
		{"schema of text", tool(`{"type":"string"}`), []string{"tools[0].parameters"}},
		{"schema not JSON", tool(`{"type":"object"`), []string{"tools[0].parameters"}},
		{"schema a number", tool(7), []string{"tools[0].parameters"}},
		{"schema too large", tool(`{"type":"object","x":"` + strings.Repeat("x", maxParameters) + `"}`), []string{"tools[0].parameters"}},
		{
			"tool names",
			Options{URL: url, Tools: []ToolOptions{{Name: "a/b"}, {Name: "c"}, {Name: "c", Description: strings.Repeat("d", maxDescription+1)}}},
			[]string{"tools[0].name", "tools[2].name", "tools[2].description"},
		},
		{"too many tools", Options{URL: url, Tools: make([]ToolOptions, maxTools+1)}, []string{"tools"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := New(tt.o)
			var keys []string
			if err != nil {
				for line := range strings.SplitSeq(err.Error(), "\n") {
					key, _, _ := strings.Cut(line, ": ")
					keys = append(keys, key)
				}
				if strings.Contains(err.Error(), "p4ss") {
					t.Errorf("the error shows a password: %v", err)
				}
			}
			if diff := cmp.Diff(tt.want, keys); diff != "" {
				t.Errorf("%v (-want +have):\n%s", err, diff)
			}
			if (l == nil) != (err != nil) {
				t.Errorf("layer %v, error %v", l, err)
			}
		})
	}
}

// TestHas: only what the configuration names is called.
func TestHas(t *testing.T) {
	l := open(t, Options{URL: "http://127.0.0.1:1", Hooks: []string{"recall", "store"}})
	var have []string
	for _, h := range append(hooks(), layer.HookTools) {
		if l.Has(h) {
			have = append(have, h)
		}
	}
	if diff := cmp.Diff([]string{"recall", "store"}, have); diff != "" {
		t.Error(diff)
	}
	if l.Async() || !l.Slow() {
		t.Error("want synchronous reviews and a slow store")
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	o := Options{Secret: "k3y"}
	js := layertest.Must(json.Marshal(o.Secret))(t)
	if s := fmt.Sprintf("%v %+v %#v %x %s %s", o, o, o, o.Secret, o.Secret.LogValue(), js); strings.Contains(s, "k3y") || strings.Contains(s, "6b33") {
		t.Error(s)
	}
}
