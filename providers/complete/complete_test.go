package complete_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/providers"
	"remora/providers/complete"
	"remora/secret"
	"remora/test/scripted"
)

const callers = "Bearer callers-own"

// upstream starts a scripted upstream that answers every prompt with text.
func upstream(t *testing.T, text string) *scripted.Server {
	t.Helper()
	s, err := scripted.Start(scripted.Options{Respond: func(scripted.Prompt) (scripted.Answer, bool) {
		return scripted.Answer{Text: text}, true
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newSet(t *testing.T, list ...providers.Options) *providers.Set {
	t.Helper()
	set, err := providers.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func newClient(t *testing.T) *providers.Client {
	t.Helper()
	c := providers.NewClient(providers.ClientOptions{MaxIdleConns: 8})
	t.Cleanup(c.Close)
	return c
}

// source is a model of one provider, named "up", at url.
func source(t *testing.T, url string, key secret.String) *complete.Source {
	t.Helper()
	set := newSet(t, providers.Options{Name: "up", Kind: "compatible", BaseURL: url + "/v1", APIKey: key})
	s, err := complete.New(newClient(t), set, complete.Options{Provider: "up", Model: "small"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestComplete(t *testing.T) {
	up := upstream(t, "  Anna likes tea. naïve 🦈\n")
	m := source(t, up.URL(), "operators").Bind(secret.Credential{})
	have, err := m.Complete(t.Context(), "Be short.", "Summarise </x> \"this\"", 50)
	if err != nil || have != "  Anna likes tea. naïve 🦈\n" {
		t.Fatalf("have %q (%v)", have, err)
	}
	if _, err := m.Complete(t.Context(), "", "Hi", 0); err != nil {
		t.Fatal(err)
	}
	requests := up.Requests()
	if f := up.Faults(); len(requests) != 2 || len(f) != 0 {
		t.Fatal(len(requests), f)
	}
	var bodies []any
	for _, r := range requests {
		var body any
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, body)
		if r.Method+" "+r.Target != "POST /v1/chat/completions" {
			t.Error(r.Method, r.Target)
		}
	}
	message := func(role, text string) any { return map[string]any{"role": role, "content": text} }
	want := []any{
		map[string]any{
			"model": "small", "stream": false, "temperature": 0.0, "max_tokens": 50.0,
			"messages": []any{message("system", "Be short."), message("user", "Summarise </x> \"this\"")},
		},
		map[string]any{"model": "small", "stream": false, "temperature": 0.0, "messages": []any{message("user", "Hi")}},
	}
	if diff := cmp.Diff(want, bodies); diff != "" {
		t.Errorf("bodies (-want +have):\n%s", diff)
	}
}

// TestCredentials: the provider's own key, or else the caller's where the caller's request goes to the same provider;
// never both, never another's.
func TestCredentials(t *testing.T) {
	for _, tt := range []struct {
		name string
		key  secret.String
		c    secret.Credential
		want map[string]string
	}{
		{"own key only", "own", secret.Credential{Header: "authorization", Value: callers, Provider: "up"}, map[string]string{"Authorization": "Bearer own"}},
		{"own key, other header", "own", secret.Credential{Header: "x-api-key", Value: "c", Provider: "up"}, map[string]string{"Authorization": "Bearer own"}},
		{"the caller's", "", secret.Credential{Header: "authorization", Value: callers, Provider: "up"}, map[string]string{"Authorization": callers}},
		{"the caller's header", "", secret.Credential{Header: "X-Api-Key", Value: "c", Provider: "up"}, map[string]string{"X-Api-Key": "c"}},
		{"a caller of another provider", "", secret.Credential{Header: "authorization", Value: callers, Provider: "other"}, map[string]string{}},
		{"no credential", "", secret.Credential{}, map[string]string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := upstream(t, "ok")
			if _, err := source(t, up.URL(), tt.key).Bind(tt.c).Complete(t.Context(), "", "Hi", 0); err != nil {
				t.Fatal(err)
			}
			have := map[string]string{}
			for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie"} {
				if v := up.Requests()[0].Header.Values(name); len(v) > 0 {
					have[name] = strings.Join(v, "|")
				}
			}
			if diff := cmp.Diff(tt.want, have); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
	for _, c := range []secret.Credential{
		{Header: "Content-Length", Value: "1", Provider: "up"},
		{Header: "authorization", Value: "a\r\nX: b", Provider: "up"},
	} {
		up := upstream(t, "ok")
		_, err := source(t, up.URL(), "").Bind(c).Complete(t.Context(), "", "Hi", 0)
		if err == nil || len(up.Requests()) != 0 || strings.Contains(err.Error(), "X: b") {
			t.Errorf("%d requests, error %v", len(up.Requests()), err)
		}
	}
	c := secret.Credential{Header: "authorization", Value: callers}
	js, err := json.Marshal(c)
	if s := fmt.Sprintf("%v %+v %#v %s %x %s %s", c, c, c, c, c, js, slog.AnyValue(c)); err != nil || strings.Contains(s, "callers") || strings.Contains(s, "6361") {
		t.Error(s, err)
	}
}

func TestFailures(t *testing.T) {
	const word = "s3cret"
	plain := func(body string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
			t.Cleanup(s.Close)
			return s.URL
		}
	}
	fault := func(spec string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			up := upstream(t, word)
			if err := up.Inject(spec, 1); err != nil {
				t.Fatal(err)
			}
			return up.URL()
		}
	}
	for _, tt := range []struct {
		name string
		url  func(*testing.T) string
		want error
		code int
	}{
		{"nobody there", func(*testing.T) string { return "http://127.0.0.1:1" }, providers.ErrUnreachable, 0},
		{"status 500", fault("status=500"), nil, 500},
		{"status 429", fault("status=429;retry-after=2"), nil, 429},
		{"an edge's page", fault("html"), nil, 502},
		{"broken off", fault("cut-after=1"), providers.ErrClosed, 0},
		{"larger than 1 MiB", fault("big=1100"), complete.ErrAnswer, 0},
		{"compressed unasked", fault("gzip"), complete.ErrAnswer, 0},
		{"not JSON", plain("<html>" + word), complete.ErrAnswer, 0},
		{"an error with status 200", plain(`{"error":{"message":"` + word + `"}}`), complete.ErrAnswer, 0},
		{"no choice", plain(`{"choices":[]}`), complete.ErrAnswer, 0},
		{"a refusal", plain(`{"choices":[{"message":{"content":null,"refusal":"` + word + `"}}]}`), complete.ErrAnswer, 0},
		{"no content", plain(`{"choices":[{"message":{}}]}`), complete.ErrAnswer, 0},
		{"empty content", plain(`{"choices":[{"finish_reason":"stop","message":{"content":" \n"}}]}`), complete.ErrAnswer, 0},
		{"empty parts", plain(`{"choices":[{"message":{"content":[{"type":"text","text":""}]}}]}`), complete.ErrAnswer, 0},
		{"all reasoning", plain(`{"choices":[{"finish_reason":"length","message":{"content":""}}]}`), complete.ErrAnswer, 0},
		{"content of a wrong type", plain(`{"choices":[{"message":{"content":{"` + word + `":1}}}]}`), complete.ErrAnswer, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := source(t, tt.url(t), "").Bind(secret.Credential{Header: "authorization", Value: callers, Provider: "up"})
			have, err := m.Complete(t.Context(), "system "+word, "user "+word, 0)
			status, ok := errors.AsType[*complete.StatusError](err)
			if have != "" || tt.want != nil && !errors.Is(err, tt.want) || ok != (tt.code > 0) || ok && status.Code != tt.code {
				t.Errorf("have %q (%v)", have, err)
			}
			if err != nil && (strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "callers")) {
				t.Errorf("the error quotes: %v", err)
			}
		})
	}
	t.Run("prompt", func(t *testing.T) {
		up := upstream(t, "ok")
		_, err := source(t, up.URL(), "").Bind(secret.Credential{}).Complete(t.Context(), "", strings.Repeat("x", 4<<20+1), 0)
		if !errors.Is(err, complete.ErrPrompt) || len(up.Requests()) != 0 {
			t.Errorf("%d requests, %v", len(up.Requests()), err)
		}
	})
}

// TestCutAnswer: of an answer that ran into the limit of its length, half a sentence is not returned.
func TestCutAnswer(t *testing.T) {
	for _, tt := range []struct{ finish, content, want string }{
		{"length", "user: Ann likes tea\nuser: Ann is not", "user: Ann likes tea"},
		{"length", "Ann likes tea. Ann has two ca", "Ann likes tea."},
		{"length", "Ann likes tea.\n\nShe asked: why? Bob said v1.", "Ann likes tea.\n\nShe asked: why?"},
		{"length", "安喜欢茶。安有两", "安喜欢茶。"},
		{"length", "DENY: this is", "DENY: this is"}, // a verdict comes first
		{"length", "\n  7", "\n  7"},
		{"content_filter", "Ann likes tea.\nAnn wants to", "Ann likes tea."},
		{"stop", "Ann likes tea.\nAnn is", "Ann likes tea.\nAnn is"},
		{"", "Ann likes tea.\nAnn is", "Ann likes tea.\nAnn is"},
	} {
		content, _ := json.Marshal(tt.content)
		text, err := complete.Content(fmt.Appendf(nil, `{"choices":[{"finish_reason":%q,"message":{"content":%s}}]}`, tt.finish, content))
		if text != tt.want || err != nil {
			t.Errorf("%s: %q: have %q (%v)", tt.finish, tt.content, text, err)
		}
	}
}

// TestContext: a call ends with its context wherever it is, and the connection with it.
func TestContext(t *testing.T) {
	for _, spec := range []string{"stall-before", "stall-after=1"} {
		t.Run(spec, func(t *testing.T) {
			up := upstream(t, "never")
			if err := up.Inject(spec, 1); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				_, _ = up.Await(ctx, func(r scripted.Recorded) bool { return spec == "stall-before" || r.Events > 0 })
				cancel(context.DeadlineExceeded)
			}()
			m := source(t, up.URL(), "").Bind(secret.Credential{})
			if have, err := m.Complete(ctx, "", "Hi", 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("have %q (%v)", have, err)
			}
			if r, err := up.Await(t.Context(), func(r scripted.Recorded) bool { return r.End == scripted.ClientGone }); err != nil {
				t.Error(r.End, err)
			}
			if _, err := m.Complete(ctx, "", "Hi", 0); !errors.Is(err, context.DeadlineExceeded) || len(up.Requests()) != 1 {
				t.Errorf("after the end: %v, %d requests", err, len(up.Requests()))
			}
		})
	}
}

// TestReasoningModels: a model that refuses temperature or max_tokens is asked again without, and from then on at once.
func TestReasoningModels(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(body))
		switch {
		case strings.Contains(string(body), "too long"):
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"Too long, whatever max_tokens is"}}`)
		case strings.Contains(string(body), "temperature"):
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"Unsupported value","param":"temperature"}}`)
		default:
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}`)
		}
	}))
	t.Cleanup(s.Close)
	src := source(t, s.URL, "")
	ask := func(user string) (string, error) {
		return src.Bind(secret.Credential{}).Complete(t.Context(), "", user, 7)
	}
	status := func(err error) int {
		if e, ok := errors.AsType[*complete.StatusError](err); ok {
			return e.Code
		}
		return 0
	}
	requests := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
	if _, err := ask("too long"); status(err) != 400 || len(requests()) != 2 {
		t.Errorf("%v after %d requests", err, len(requests()))
	}
	for range 2 { // two requests for the first, one for the second
		if have, err := ask("Hi"); have != "ab" || err != nil {
			t.Errorf("have %q (%v)", have, err)
		}
	}
	if r := requests(); len(r) != 5 || !strings.Contains(r[4], `"max_completion_tokens":7`) || strings.Contains(r[4], "temperature") {
		t.Errorf("seen:\n%s", strings.Join(r, "\n"))
	}
	if _, err := ask("too long"); status(err) != 400 || len(requests()) != 6 {
		t.Errorf("%v after %d requests", err, len(requests()))
	}
}

func TestNew(t *testing.T) {
	set := newSet(t,
		providers.Options{Name: "a", Kind: "openai", Models: []string{"gpt-*"}},
		providers.Options{Name: "b", Kind: "compatible", BaseURL: "http://127.0.0.1:1/v1", Models: []string{"local"}},
	)
	for _, tt := range []struct {
		o    complete.Options
		want string // provider, or the key of the error
	}{
		{complete.Options{Provider: "b", Model: "gpt-5"}, "b"},
		{complete.Options{Model: "gpt-5"}, "a"},
		{complete.Options{Model: "claude"}, "provider:"},
		{complete.Options{Provider: "c", Model: "gpt-5"}, "provider:"},
		{complete.Options{Provider: "a"}, "model:"},
	} {
		s, err := complete.New(newClient(t), set, tt.o)
		have := fmt.Sprint(err)
		if err == nil {
			have = s.Provider()
		}
		if !strings.HasPrefix(have, tt.want) {
			t.Errorf("%+v: have %s, want %s", tt.o, have, tt.want)
		}
	}
}

// TestConcurrentUse: one source serves many callers, each with its own credential.
func TestConcurrentUse(t *testing.T) {
	up := upstream(t, "ok")
	s := source(t, up.URL(), "")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			name := fmt.Sprint("caller-", i)
			m := s.Bind(secret.Credential{Header: "authorization", Value: secret.String(name), Provider: "up"})
			for range 4 {
				if have, err := m.Complete(t.Context(), "", name, 0); have != "ok" || err != nil {
					t.Errorf("have %q (%v)", have, err)
				}
			}
		})
	}
	wg.Wait()
	for _, r := range up.Requests() {
		if who := r.Header.Get("Authorization"); !strings.Contains(string(r.Body), `"`+who+`"`) {
			t.Errorf("%s asked with %s", r.Body, who)
		}
	}
}

func FuzzContent(f *testing.F) {
	for _, s := range []string{`{"choices":[{"message":{"content":"a"}}]}`, `{"choices":[{"message":{"content":[{"text":"a"}]}}]}`, `{"choices":[null]}`, `[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if text, err := complete.Content(body); err != nil && (text != "" || !errors.Is(err, complete.ErrAnswer)) {
			t.Errorf("have %q (%v)", text, err)
		}
	})
}

// TestEmbed: texts come back as vectors, one for each, whatever form and order a server sends them in.
func TestEmbed(t *testing.T) {
	up := upstream(t, "")
	set := newSet(t, providers.Options{Name: "up", Kind: "compatible", BaseURL: up.URL() + "/v1", APIKey: "operators"})
	s, err := complete.New(newClient(t), set, complete.Options{Provider: "up", Model: "small", Dimensions: 8})
	if err != nil {
		t.Fatal(err)
	}
	have, err := s.Bind(secret.Credential{Header: "Authorization", Value: callers, Provider: "up"}).Embed(t.Context(), []string{"a", "b", "a"})
	if err != nil || len(have) != 3 || len(have[0]) != 8 || !slices.Equal(have[0], have[2]) || slices.Equal(have[0], have[1]) {
		t.Fatalf("have %v (%v)", have, err)
	}
	r := up.Requests()[0]
	if !strings.HasSuffix(r.Target, "/v1/embeddings") || r.Header.Get("Authorization") != "Bearer operators" {
		t.Errorf("asked %s with %v", r.Target, r.Header)
	}

	for _, c := range []struct {
		answer string
		want   [][]float32
	}{
		{`{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2]}]}`, [][]float32{{1, 2}, {3, 4}}},
		{`{"data":[{"embedding":[1,2]},{"embedding":[3,4]}]}`, [][]float32{{1, 2}, {3, 4}}},
		{`{"data":[{"index":0,"embedding":"AACAPwAAAEA="},{"index":1,"embedding":"AABAQAAAgEA="}]}`, [][]float32{{1, 2}, {3, 4}}},
		{`{"data":[{"index":0,"embedding":[1,2]}]}`, nil},
		{`{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[3]}]}`, nil},
		{`{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`, nil},
		{`{"data":[{"index":0,"embedding":"AAA="},{"index":1,"embedding":"AAA="}]}`, nil},
		{`{"data":[{"index":0,"embedding":{"secret":1}},{"index":1}]}`, nil},
		{`not JSON, secret`, nil},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) }))
		t.Cleanup(srv.Close)
		have, err := source(t, srv.URL, "k").Bind(secret.Credential{}).Embed(t.Context(), []string{"a", "b"})
		if diff := cmp.Diff(c.want, have); diff != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v\n%s", c.answer, err, diff)
		}
		if err != nil && (!errors.Is(err, complete.ErrAnswer) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", c.answer, err)
		}
	}
}

// TestRefused: a refused prompt is told apart from a provider that is down or wants another key.
func TestRefused(t *testing.T) {
	for status, want := range map[int]bool{400: true, 413: true, 422: true, 401: false, 404: false, 429: false, 500: false, 503: false} {
		err := fmt.Errorf("ask: %w", &complete.StatusError{Code: status})
		r, ok := errors.AsType[interface {
			error
			Refused() bool
		}](err)
		if !ok || r.Refused() != want {
			t.Errorf("status %d counts as refused: %v", status, !want)
		}
	}
	// A longer limit may give room for a text, so the prompt is not to blame.
	for finish, want := range map[string]bool{"stop": true, "content_filter": true, "length": false} {
		_, err := complete.Content(fmt.Appendf(nil, `{"choices":[{"finish_reason":%q,"message":{"content":""}}]}`, finish))
		r, ok := errors.AsType[interface {
			error
			Refused() bool
		}](err)
		if have := ok && r.Refused(); have != want {
			t.Errorf("no text, finish_reason %s: refused %v (%v)", finish, have, err)
		}
	}
}
