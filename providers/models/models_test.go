package models

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/providers"
)

// What servers answer, cut down to what matters.
func TestParse(t *testing.T) {
	f := func(name, list string, want map[string]int) {
		t.Helper()
		got, err := parse([]byte(list))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	f("OpenAI", `{"object":"list","data":[{"id":"gpt-5","object":"model","created":1,"owned_by":"openai"}]}`, map[string]int{})
	f("OpenRouter", `{"data":[{"id":"a/b","name":"B","context_length":262144,"top_provider":{"context_length":131072,"is_moderated":false}},
		{"id":"a/c","context_length":8192.0,"top_provider":{"context_length":null}},{"id":"a/d","context_length":null}]}`,
		map[string]int{"a/b": 131072, "a/c": 8192})
	f("vLLM", `{"object":"list","data":[{"id":"Qwen/Qwen3","max_model_len":40960,"permission":[{}]}]}`, map[string]int{"Qwen/Qwen3": 40960})
	f("Together", ` [{"id":"x","context_length":4096},{"id":"y"}]`, map[string]int{"x": 4096})
	f("Groq", `{"data":[{"id":"llama","context_window":131072}]}`, map[string]int{"llama": 131072})
	f("Mistral, LM Studio", `{"data":[{"id":"m","max_context_length":32768},{"id":"l","max_context_length":32768,"loaded_context_length":4096}]}`,
		map[string]int{"m": 32768, "l": 4096})
	f("Anthropic", `{"data":[{"id":"claude","max_input_tokens":200000}]}`, map[string]int{"claude": 200000})
	f("llama.cpp", `{"models":[{"name":"q"}],"data":[{"id":"q","meta":{"n_ctx_train":262144,"n_ctx":16384}},{"id":"r","meta":{"n_ctx_train":8192}}]}`,
		map[string]int{"q": 16384})
	f("values of other types", `{"data":[{"id":"a","context_length":"many","max_model_len":5,"top_provider":"x","meta":[]},{"id":7,"context_window":6},4,null,
		{"id":"b","context_length":-1},{"id":"c","context_length":1e300},{"id":"d","context_length":7}]}`, map[string]int{"a": 5, "d": 7})
	f("twice", `{"data":[{"id":"a","context_length":5},{"id":"a","context_length":4},{"id":"a","context_length":9}]}`, map[string]int{"a": 4})
	f("a name that is too long", `[{"id":"`+strings.Repeat("x", maxName+1)+`","context_length":5}]`, map[string]int{})

	for _, list := range []string{``, `{}`, `{"error":{}}`, `{"data":{}}`, `{"data":[`, `[{"id":"a"},`, `[1`, `7`, `<html>`} {
		if got, err := parse([]byte(list)); err == nil {
			t.Errorf("%s: got %v", list, got)
		}
	}
}

func TestParseIsBounded(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`[{"id":"first","context_length":9}`)
	for i := range maxModels + 100 {
		fmt.Fprintf(&b, `,{"id":"m%d","context_length":9}`, i)
	}
	b.WriteString(`,{"id":"first","context_length":5}]`)
	got, err := parse(b.Bytes())
	if err != nil || len(got) != maxModels || got["first"] != 5 {
		t.Errorf("%d models, first %d, %v", len(got), got["first"], err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"a/b","context_length":262144,"top_provider":{"context_length":131072}}]}`))
	f.Add([]byte(`[{"name":"x","max_model_len":1e3,"meta":{"n_ctx":"7"}},{}]`))
	f.Fuzz(func(t *testing.T, list []byte) {
		got, err := parse(list)
		if err != nil && err.Error() != errList.Error() {
			t.Fatalf("%v", err)
		}
		for name, n := range got {
			if name == "" || len(name) > maxName || n < 1 || n > maxContext {
				t.Fatalf("%q: %d", name, n)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	f := func(o Options, key string) {
		t.Helper()
		errs := o.Validate([]string{"up"})
		if key == "" && errs != nil || key != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), key+": ")) {
			t.Errorf("%+v: want an error about %q, have %v", o, key, errs)
		}
	}
	model := func(name, provider string, n int) Options { return Options{Models: []Model{{name, provider, n}}} }
	f(Options{}, "")
	f(Options{Refresh: time.Hour}, "")
	f(model("gpt-*", "", 400_000), "")
	f(model("gpt-*", "up", 1), "")
	f(Options{Refresh: time.Minute}, "refresh")
	f(Options{Refresh: -1}, "refresh")
	f(model("", "", 1), "known[0].name")
	f(model("m", "down", 1), "known[0].provider")
	f(model("m", "", 0), "known[0].context_length")
	f(Options{Models: make([]Model, maxEntries+1)}.trimmed(), "known")
}

// trimmed makes all entries of options valid.
func (o Options) trimmed() Options {
	for i := range o.Models {
		o.Models[i] = Model{"m", "", 1}
	}
	return o
}

// upstream is a server with a list of models, which records its requests.
type upstream struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string // the Authorization of each request for the list
	answer func(w http.ResponseWriter)
}

func newUpstream(t *testing.T, answer func(w http.ResponseWriter)) *upstream {
	t.Helper()
	u := &upstream{answer: answer}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.asked = append(u.asked, fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header.Get("Authorization")))
		u.answer(w)
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) questions() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.asked...)
}

// bench is a catalog with a clock of its own.
type bench struct {
	*Catalog
	log bytes.Buffer
	at  time.Time
}

func newBench(t *testing.T, o Options, list ...providers.Options) *bench {
	t.Helper()
	set, err := providers.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	client := providers.NewClient(providers.ClientOptions{MaxIdleConns: 8})
	t.Cleanup(client.Close)
	b := &bench{at: time.Unix(1_750_000_000, 0)}
	b.Catalog = New(client, set, o, slog.New(slog.NewTextHandler(&b.log, nil)), func() time.Time { return b.at })
	t.Cleanup(b.Close)
	return b
}

// settled is Context after what it began in the background.
func (b *bench) settled(provider, model string) int {
	b.Context(provider, model)
	b.work.Wait()
	return b.Context(provider, model)
}

func list(text string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }
}

func TestConfiguredLengths(t *testing.T) {
	b := newBench(t, Options{Models: []Model{
		{"gpt-*", "", 100}, {"gpt-5*", "", 200}, {"gpt-5", "", 300}, {"*", "other", 400}, {"llama*", "up", 500},
	}}, providers.Options{Name: "up", Kind: "openai"}, providers.Options{Name: "other", Kind: "openai", Models: []string{"x"}})
	for _, test := range []struct {
		provider, model string
		want            int
	}{
		{"up", "gpt-5", 300},
		{"up", "gpt-5-mini", 100},
		{"up", "o3", 0},
		{"other", "o3", 400},
		{"up", "llama3", 500},
		{"", "llama3", 0},
		{"unknown", "gpt-4", 100},
		{"up", "", 0},
	} {
		if got := b.Context(test.provider, test.model); got != test.want {
			t.Errorf("%s, %s: %d, want %d", test.provider, test.model, got, test.want)
		}
	}
}

func TestProvidersAreAskedOncePerRefresh(t *testing.T) {
	u := newUpstream(t, list(`{"data":[{"id":"m","max_model_len":4096}]}`))
	b := newBench(t, Options{Refresh: time.Hour}, providers.Options{Name: "up", Kind: "compatible", BaseURL: u.URL + "/api/v1", APIKey: "own"})
	if got := b.Context("up", "m"); got != 0 {
		t.Errorf("known before it was asked: %d", got)
	}
	if got := b.settled("up", "m"); got != 4096 {
		t.Errorf("got %d", got)
	}
	b.at = b.at.Add(time.Hour - 1)
	b.settled("up", "m")
	if diff := cmp.Diff([]string{"GET /api/v1/models Bearer own"}, u.questions()); diff != "" {
		t.Error(diff)
	}
	u.answer = list(`{"data":[{"id":"m","max_model_len":8192},{"id":"n","max_model_len":1}]}`)
	b.at = b.at.Add(1)
	if got := b.settled("up", "m"); got != 8192 || b.Context("up", "n") != 1 {
		t.Errorf("after an hour: %d", got)
	}
}

// A provider that fails is left alone for longer each time, and keeps what was known of it.
func TestFailuresBackOff(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) })
	b := newBench(t, Options{Refresh: time.Hour}, providers.Options{Name: "up", Kind: "compatible", BaseURL: u.URL + "/v1"})
	b.lists["up"].add(map[string]int{"m": 5})
	asked := 0
	for _, wait := range []time.Duration{0, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
		if wait > 0 {
			b.at = b.at.Add(wait - 1)
			b.settled("up", "m")
			b.at = b.at.Add(1)
		}
		if got := len(u.questions()); got != asked {
			t.Fatalf("asked %d times before %s were over, want %d", got, wait, asked)
		}
		if got := b.settled("up", "m"); got != 5 {
			t.Errorf("got %d", got)
		}
		asked++
	}
	if got := u.questions()[0]; got != "GET /v1/models " {
		t.Errorf("asked with %q", got)
	}
	if text := b.log.String(); strings.Count(text, "\n") != asked || !strings.Contains(text, "provider=up") || !strings.Contains(text, "status 401") {
		t.Errorf("log: %s", text)
	}
}

func TestAnswersThatAreNoUse(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"no list":   list("<html>"),
		"too large": func(w http.ResponseWriter) { _, _ = w.Write(bytes.Repeat([]byte(" "), maxList+1)) },
		"cut off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `[{"id":"m","context_length":5}]`)
		},
	} {
		u := newUpstream(t, answer)
		b := newBench(t, Options{Refresh: time.Hour}, providers.Options{Name: "up", Kind: "compatible", BaseURL: u.URL + "/v1"})
		if got := b.settled("up", "m"); got != 0 || len(u.questions()) != 1 || !strings.Contains(b.log.String(), "error=") {
			t.Errorf("%s: %d, asked %d times, log %s", name, got, len(u.questions()), b.log.String())
		}
	}
}

// OpenAI lists no models without a key: the provider has none of its own, and callers' keys are not for that.
func TestNobodyIsAskedWithoutNeed(t *testing.T) {
	u := newUpstream(t, list(`[]`))
	f := func(o Options, p providers.Options) {
		t.Helper()
		p.Name, p.BaseURL = "up", u.URL+"/v1"
		b := newBench(t, o, p)
		b.settled("up", "m")
		if got := u.questions(); len(got) > 0 || b.log.Len() > 0 {
			t.Errorf("%+v: asked %q, log %s", p, got, b.log.String())
		}
	}
	f(Options{Refresh: time.Hour}, providers.Options{Kind: "openai"})
	f(Options{}, providers.Options{Kind: "compatible", APIKey: "own"})
	f(Options{Refresh: time.Hour, Models: []Model{{"m", "", 7}}}, providers.Options{Kind: "compatible"})
}

// TestModelsThatALaterListLacks keep their length, and variants have that of their model.
func TestModelsThatALaterListLacks(t *testing.T) {
	u := newUpstream(t, list(`{"data":[{"id":"a/b","context_length":9}]}`))
	b := newBench(t, Options{Refresh: time.Hour}, providers.Options{Name: "router", Kind: "openrouter", BaseURL: u.URL + "/api/v1"})
	b.lists["router"].add(map[string]int{"a/b": 5, "mine": 6})
	if got := b.Context("router", "a/b"); got != 5 {
		t.Errorf("got %d", got)
	}
	b.work.Wait()
	for model, want := range map[string]int{"a/b": 9, "mine": 6, "a/b:nitro": 9, "a/c": 0, "b": 0} {
		if got := b.Context("router", model); got != want {
			t.Errorf("%s: %d, want %d", model, got, want)
		}
	}
}

// A new configuration keeps the lengths of providers that it has not moved, and asks them again.
func TestLengthsSurviveAReload(t *testing.T) {
	u := newUpstream(t, list(`{"data":[{"id":"m","max_model_len":4096}]}`))
	up := providers.Options{Name: "up", Kind: "compatible", BaseURL: u.URL + "/v1"}
	before := newBench(t, Options{Refresh: time.Hour}, up)
	before.settled("up", "m")
	f := func(name string, want int, o Options, p providers.Options) {
		t.Helper()
		after := newBench(t, o, p)
		after.TakeOver(before.Catalog)
		if got := after.Context("up", "m"); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	f("same", 4096, Options{Refresh: time.Hour}, up)
	f("never asked", 0, Options{}, up)
	f("moved", 0, Options{Refresh: time.Hour}, providers.Options{Name: "up", Kind: "compatible", BaseURL: u.URL + "/v2"})

	u.mu.Lock()
	u.answer = list(`{"data":[{"id":"m","max_model_len":8192}]}`)
	u.mu.Unlock()
	after := newBench(t, Options{Refresh: time.Hour}, up)
	after.TakeOver(before.Catalog)
	if got := after.settled("up", "m"); got != 8192 {
		t.Errorf("asked again: %d", got)
	}
}

// Close does not wait for a provider that is silent, and nothing is asked after it.
func TestClose(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, func(http.ResponseWriter) { close(arrived); <-release })
	b := newBench(t, Options{Refresh: time.Hour}, providers.Options{Name: "up", Kind: "compatible", BaseURL: u.URL + "/v1"})
	b.Context("up", "m")
	<-arrived
	b.Close()
	b.at = b.at.Add(2 * time.Hour)
	b.Context("up", "m")
	close(release)
	if got := u.questions(); len(got) != 1 || b.log.Len() > 0 {
		t.Errorf("asked %q, log %s", got, b.log.String())
	}
}
