package retry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/providers"
	"remora/providers/retry"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// three are the providers a, b and c; a has the given options.
func three(a retry.Options) []retry.Entry {
	var list []retry.Entry
	for _, name := range []string{"a", "b", "c"} {
		list = append(list, retry.Entry{Provider: providers.Options{
			Name: name, Kind: "compatible", BaseURL: "http://" + name + ".test/v1", APIKey: "k",
		}})
	}
	list[0].Resilience = a
	return list
}

type bench struct {
	policy *retry.Policy
	set    *providers.Set
	now    time.Time
	rand   float64
	seen   []string // changes of circuits
}

func setUp(t interface {
	Helper()
	Fatal(args ...any)
}, list []retry.Entry, previous *retry.Policy,
) *bench {
	t.Helper()
	b := &bench{now: noon, rand: 0.5}
	var options []providers.Options
	for _, e := range list {
		options = append(options, e.Provider)
	}
	var err error
	if b.set, err = providers.NewSet(options); err != nil {
		t.Fatal(err)
	}
	b.policy, err = retry.New(retry.Config{
		Set: b.set, Entries: list, Previous: previous,
		Now: func() time.Time { return b.now }, Rand: func() float64 { return b.rand },
		OnCircuit: func(p string, open bool) { b.seen = append(b.seen, fmt.Sprintf("%s %v", p, open)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) plan() retry.Plan { return b.policy.Plan(b.set.All()[0], nil) }

// pinned is a plan of a request that makes sense at its provider only, and how often it was asked about that.
func (b *bench) pinned() (p retry.Plan, asked *int) {
	asked = new(int)
	return b.policy.Plan(b.set.All()[0], func() bool {
		*asked++
		return false
	}), asked
}

// answer is the outcome of a status with headers: names and values in turn.
func answer(status int, headers ...string) retry.Outcome {
	raw := fmt.Sprintf("HTTP/1.1 %d\r\n", status)
	for pair := range slices.Chunk(headers, 2) {
		raw += pair[0] + ": " + pair[1] + "\r\n"
	}
	h := new(providers.Head)
	if _, err := h.Read([]byte(raw + "\r\n")); err != nil {
		panic(err)
	}
	return retry.Outcome{Head: h}
}

func broken(err error) retry.Outcome {
	return retry.Outcome{Err: fmt.Errorf("call: %w", err)}
}

// play makes attempts with the given outcomes, and shows them.
func play(t *testing.T, p retry.Plan, outcomes ...retry.Outcome) []string {
	t.Helper()
	show := func(a retry.Attempt) string {
		return strings.TrimSpace(fmt.Sprintf("%s %s", a.Provider.Name(), a.Model)) + " " + a.Delay.String()
	}
	a, err := p.Begin()
	if err != nil {
		return []string{err.Error()}
	}
	got := []string{show(a)}
	for _, o := range outcomes {
		a, ok := p.Next(o)
		if !ok {
			return append(got, "end")
		}
		got = append(got, show(a))
	}
	return got
}

func TestPlan(t *testing.T) {
	retries := retry.Options{Retry: retry.Retry{Attempts: 3, BaseDelay: time.Second, MaxDelay: 20 * time.Second}}
	both := retries
	both.Fallback = []retry.Target{{Provider: "b"}, {Model: "small"}, {Provider: "c", Model: "other"}}
	f := func(name string, o retry.Options, want string, outcomes ...retry.Outcome) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			if diff := cmp.Diff(want, strings.Join(play(t, setUp(t, three(o), nil).plan(), outcomes...), ", ")); diff != "" {
				t.Error(diff)
			}
		})
	}
	unreachable := broken(providers.ErrUnreachable)
	f("nothing is configured", retry.Options{}, "a 0s, end", answer(503))
	f("a success", both, "a 0s, end", answer(200))
	f("a refusal", both, "a 0s, end", answer(400))
	f("backoff doubles", retries, "a 0s, a 500ms, a 1s, end", answer(503), answer(429), answer(503))
	f("nobody there", retries, "a 0s, a 500ms, a 1s, end", unreachable, unreachable, unreachable)
	f("it may have been served: closed", both, "a 0s, end", broken(providers.ErrClosed))
	f("it may have been served: silence", both, "a 0s, end", broken(providers.ErrTimeout))
	f("it may have been served: nonsense", both, "a 0s, end", broken(providers.ErrMalformed))
	f("it may have been served: 500", both, "a 0s, end", answer(500))
	f("it may have been served: 502", both, "a 0s, end", answer(502))
	f("the client has gone", both, "a 0s, end", broken(providers.ErrAborted))
	f("a wait that is asked for", retries, "a 0s, a 7.5s, end", answer(429, "retry-after", "7"), answer(200))
	f("too long a wait", retries, "a 0s, end", answer(429, "Retry-After", "21"))
	f("too long a wait, with others", both, "a 0s, b 0s, end", answer(429, "Retry-After", "21"), answer(200))
	f("told not to", both, "a 0s, b 0s", answer(429, "X-Should-Retry", "false"))
	f("all fail", both, "a 0s, a 500ms, a 1s, b 0s, a small 0s, a small 500ms, a small 1s, c other 0s, end",
		answer(503), answer(503), answer(503), unreachable, answer(429), answer(429), answer(429), answer(503))
	f("a fallback's answer is the client's", both, "a 0s, b 0s, end", answer(429, "retry-after", "60"), answer(500))
	f("an own list", retry.Options{Retry: retry.Retry{Attempts: 2, On: []any{500, "529", 502.0}}},
		"a 0s, a 250ms, end", answer(529), answer(529))
	f("an own list has no connect", retry.Options{Retry: retry.Retry{Attempts: 2, On: []any{500}}}, "a 0s, end", unreachable)

	stays := setUp(t, three(both), nil)
	busy := []retry.Outcome{answer(503), answer(503), answer(503)}
	if diff := cmp.Diff("a 0s, a 500ms, a 1s, end", strings.Join(play(t, stays.policy.Stay(stays.set.All()[0], ""), busy...), ", ")); diff != "" {
		t.Errorf("an answer that has begun: %s", diff)
	}
	if diff := cmp.Diff("b 0s, end", strings.Join(play(t, stays.policy.Stay(stays.set.All()[1], ""), busy...), ", ")); diff != "" {
		t.Errorf("an answer that a fallback without options of its own has begun: %s", diff)
	}
	p, asked := setUp(t, three(both), nil).pinned()
	got := play(t, p, answer(503), answer(503), answer(503), answer(503), answer(503), answer(503))
	if diff := cmp.Diff("a 0s, a 500ms, a 1s, a small 0s, a small 500ms, a small 1s, end", strings.Join(got, ", ")); diff != "" {
		t.Errorf("a pinned request: %s", diff)
	}
	if *asked != 1 {
		t.Errorf("a pinned request: asked %d times whether it is portable", *asked)
	}
	if p, asked = setUp(t, three(both), nil).pinned(); strings.Join(play(t, p, answer(429), answer(200)), ", ") != "a 0s, a 500ms, end" || *asked != 0 {
		t.Errorf("no fallback is used, and asked %d times whether one could be", *asked)
	}
}

// TestAdvice looks at the wait through the plan, with no jitter.
func TestAdvice(t *testing.T) {
	b := setUp(t, three(retry.Options{Retry: retry.Retry{Attempts: 2, BaseDelay: time.Minute, MaxDelay: time.Hour}}), nil)
	b.rand = 0
	f := func(want time.Duration, headers ...string) {
		t.Helper()
		p := b.plan()
		_, _ = p.Begin()
		a, ok := p.Next(answer(429, headers...))
		if !ok {
			a.Delay = -1
		}
		if a.Delay != want {
			t.Errorf("%q: %s, want %s", headers, a.Delay, want)
		}
	}
	f(0)
	f(3*time.Second, "Retry-After", "3")
	f(1500*time.Millisecond, "RETRY-AFTER", "1.5")
	f(20*time.Millisecond, "retry-after-ms", "20", "retry-after", "1")
	f(90*time.Second, "retry-after", noon.Add(90*time.Second).Format(http.TimeFormat))
	f(0, "retry-after", noon.Add(-time.Hour).Format(http.TimeFormat))
	f(-1, "retry-after", "1e300")
	f(0, "retry-after", "soon", "retry-after-ms", "NaN")
	f(0, "retry-after", "-5")
	f(6*time.Minute, "x-ratelimit-reset-requests", "6m0s", "x-ratelimit-reset-tokens", "20ms")
	f(20*time.Millisecond, "x-ratelimit-reset-requests", "6m0s", "x-ratelimit-remaining-requests", "10",
		"x-ratelimit-reset-tokens", "20ms", "x-ratelimit-remaining-tokens", "0")
	f(time.Minute, "X-RateLimit-Reset", fmt.Sprint(noon.Add(time.Minute).UnixMilli()))
	f(time.Minute, "X-RateLimit-Reset", fmt.Sprint(noon.Add(time.Minute).Unix()))
	f(30*time.Second, "X-RateLimit-Reset", "30")
	f(time.Second, "retry-after", "1", "x-ratelimit-reset", "30")
	f(0, "x-ratelimit-reset", strings.Repeat("9", 400))
}

func FuzzAdvice(f *testing.F) {
	f.Add("retry-after", "1")
	f.Add("x-ratelimit-reset", "1764000000000")
	f.Add("X-Ratelimit-Reset-Tokens", "-1h")
	b := setUp(f, three(retry.Options{Retry: retry.Retry{Attempts: 2, MaxDelay: 10 * time.Second}}), nil)
	b.rand = 0.999
	f.Fuzz(func(t *testing.T, key, value string) {
		p := b.plan()
		_, _ = p.Begin()
		if a, ok := p.Next(answer(429, key, value)); ok && (a.Delay < 0 || a.Delay > 10*time.Second+500*time.Millisecond) {
			t.Errorf("%q: %q gives %s", key, value, a.Delay)
		}
	})
}

func TestCircuit(t *testing.T) {
	o := retry.Options{Breaker: retry.Breaker{Failures: 0.5, MinCalls: 4, Window: 10 * time.Second, Cooldown: 5 * time.Second}}
	b := setUp(t, three(o), nil)
	call := func(out retry.Outcome) error {
		p := b.plan()
		if _, err := p.Begin(); err != nil {
			return err
		}
		if _, again := p.Next(out); again {
			t.Fatal("nothing says to try again")
		}
		return nil
	}
	passes := func(when string, outs ...retry.Outcome) {
		t.Helper()
		for _, o := range outs {
			if err := call(o); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
	refused := func(when string, wait time.Duration) {
		t.Helper()
		var open *retry.OpenError
		if err := call(answer(200)); !errors.As(err, &open) || open.Provider != "a" || open.RetryAfter != wait {
			t.Fatalf("%s: %v, want a wait of %s", when, err, wait)
		}
	}
	// Refusals and aborts are no failures, and three calls too few.
	passes("healthy", answer(200), answer(429), answer(400), broken(providers.ErrAborted), answer(500))
	// 3 failures of 6.
	passes("closed", broken(providers.ErrTimeout))
	straggler := b.plan()
	_, _ = straggler.Begin()
	passes("closed", broken(providers.ErrUnreachable))
	refused("open", 5*time.Second)
	b.now = b.now.Add(4 * time.Second)
	// What began before the circuit opened changes nothing.
	straggler.Next(answer(200))
	refused("a second before the end", time.Second)
	b.now = b.now.Add(time.Second)
	passes("the probe", broken(providers.ErrClosed))
	refused("after a probe that failed", 5*time.Second)
	b.now = b.now.Add(5 * time.Second)
	slow := b.plan()
	if _, err := slow.Begin(); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(3 * time.Second)
	slow.Next(broken(providers.ErrTimeout))
	refused("after a probe that took long to fail", 5*time.Second)
	b.now = b.now.Add(5 * time.Second)
	lost := b.plan()
	if _, err := lost.Begin(); err != nil {
		t.Fatal(err)
	}
	refused("while a probe is under way", 5*time.Second)
	// Nobody reports that one; the next cooldown lets another through.
	b.now = b.now.Add(5 * time.Second)
	passes("the second probe", answer(200))
	passes("closed again", answer(500), answer(500), answer(200))
	// Failures are forgotten after the window.
	b.now = b.now.Add(11 * time.Second)
	passes("later", answer(500), answer(200), answer(200), answer(200))
	// So it is with each by itself: of 8 calls the first 4 are forgotten, and the others have failed.
	b.now = b.now.Add(11 * time.Second)
	passes("healthy", answer(200), answer(200), answer(200), answer(200))
	b.now = b.now.Add(6 * time.Second)
	passes("2 failures of 6", answer(500), answer(500))
	b.now = b.now.Add(5 * time.Second)
	passes("within the window", answer(500), answer(500))
	refused("4 failures of 4", 5*time.Second)
	if diff := cmp.Diff([]string{"a true", "a false", "a true"}, b.seen); diff != "" {
		t.Error(diff)
	}
}

func TestCircuitSendsElsewhereAndSurvivesReload(t *testing.T) {
	o := retry.Options{
		Breaker:  retry.Breaker{Failures: 1, MinCalls: 1},
		Fallback: []retry.Target{{Provider: "b"}},
	}
	b := setUp(t, three(o), nil)
	if got := play(t, b.plan(), answer(503), answer(200)); strings.Join(got, ", ") != "a 0s, b 0s, end" {
		t.Error(got)
	}
	f := func(name string, b *bench, want string) {
		t.Helper()
		if got := play(t, b.plan(), answer(200)); got[0] != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	f("open", b, "b 0s")
	f("the same configuration", setUp(t, three(o), b.policy), "b 0s")
	other := o
	other.Breaker.MinCalls = 2
	f("other options", setUp(t, three(other), b.policy), "a 0s")
	pinned, _ := b.pinned()
	if got := play(t, pinned); !strings.HasPrefix(got[0], "circuit of provider a is open for 10s") {
		t.Error(got)
	}
}

// TestPlansEnd checks for any configuration and any failures that a request has few attempts, in the order of the
// configuration, and none after an outcome that is not listed.
func TestPlansEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := retry.Options{
			Retry: retry.Retry{Attempts: rapid.IntRange(0, 10).Draw(t, "attempts")},
			Fallback: rapid.SliceOfN(rapid.SampledFrom([]retry.Target{{Provider: "b"}, {Provider: "c"}, {Model: "m"}}),
				0, 8).Draw(t, "fallback"),
			Breaker: retry.Breaker{Failures: rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "failures"), MinCalls: 3},
		}
		p := setUp(t, three(o), nil).plan()
		outcomes := map[string]retry.Outcome{
			"unreachable": broken(providers.ErrUnreachable), "429": answer(429), "503": answer(503, "retry-after", "1"),
			"closed": broken(providers.ErrClosed), "500": answer(500), "200": answer(200),
		}
		_, err := p.Begin()
		for n := 1; err == nil; n++ {
			if n > 10+8*10 {
				t.Fatalf("%d attempts", n)
			}
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(outcomes))).Draw(t, "outcome")
			a, again := p.Next(outcomes[name])
			if final := name == "closed" || name == "500" || name == "200"; again && final {
				t.Fatalf("another attempt after %s", name)
			}
			if !again {
				return
			}
			if a.Delay < 0 || a.Delay > 11*time.Second {
				t.Fatalf("attempt %d: %+v", n, a)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	list := three(retry.Options{
		Retry:    retry.Retry{Attempts: 11, BaseDelay: 2 * time.Second, MaxDelay: time.Second, On: []any{429, "connect", 200, "never", nil}},
		Fallback: []retry.Target{{Provider: "nobody"}, {Provider: "a"}, {Provider: "b"}, {Model: "m"}},
		Breaker:  retry.Breaker{Failures: 50, MinCalls: -1, Window: -time.Second, Cooldown: 2 * time.Hour},
	})
	list[1].Provider.APIKey = ""
	want := `providers[0].retry.attempts: must be from 0 to 10, is 11
providers[0].retry.max_delay: must not be less than base_delay (2s), is 1s
providers[0].retry.on[2]: must be a status from 400 to 599, or connect
providers[0].retry.on[3]: must be a status from 400 to 599, or connect
providers[0].retry.on[4]: must be a status from 400 to 599, or connect
providers[0].breaker.failures: must be from 0 to 1, is 50
providers[0].breaker.min_calls: must not be negative, is -1
providers[0].breaker.window: must be from 0 to 1h0m0s, is -1s
providers[0].breaker.cooldown: must be from 0 to 1h0m0s, is 2h0m0s
providers[0].fallback[0].provider: no provider is called "nobody"
providers[0].fallback[1].model: must name another model, since the provider is the same
providers[0].fallback[2].provider: must have an api_key, since the caller's credential is not for it`
	if diff := cmp.Diff(want, retry.Validate(list).Error()); diff != "" {
		t.Error(diff)
	}
	if err := retry.Validate(three(retry.Options{})); err != nil {
		t.Error(err)
	}
}

func TestWithModel(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"a","x":1.0}`:                        `{"model":"b","x":1.0}`,
		" \n{ \"x\" : 1 , \"model\" :\t\"a\" }":        " \n{ \"x\" : 1 , \"model\" :\t\"b\" }",
		`{"model":"a","model":null,"m":{"model":"a"}}`: `{"model":"b","model":"b","m":{"model":"a"}}`,
		`{"mod\u0065l":"a"}`:                           `{"mod\u0065l":"b"}`,
		`{}`:                                           `{"model":"b"}`,
		`{ "x":1}`:                                     `{"model":"b", "x":1}`,
	} {
		if got, err := retry.WithModel([]byte(body), "b"); err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", body, got, err, want)
		}
	}
	for _, body := range []string{"", "[]", "null", `"{"`, "{", `{"a":1}x`, "[{}]", "\x1f\x8b"} {
		if got, err := retry.WithModel([]byte(body), "b"); !errors.Is(err, retry.ErrNoObject) {
			t.Errorf("%q: %q %v", body, got, err)
		}
	}
}

func FuzzWithModel(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"model":2}],"model":"x" }`), "m\"\\\n")
	f.Add([]byte(` { }`), "")
	f.Fuzz(func(t *testing.T, body []byte, model string) {
		before := bytes.Clone(body)
		got, err := retry.WithModel(body, model)
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed in place")
		}
		var have, want map[string]any
		if err != nil || json.Unmarshal(body, &want) != nil || want == nil {
			return
		}
		for k := range want {
			if k != "model" && strings.EqualFold(k, "model") {
				return
			}
		}
		if err := json.Unmarshal(got, &have); err != nil {
			t.Fatalf("%q gave %q: %v", body, got, err)
		}
		text, _ := json.Marshal(model)
		var decoded any
		_ = json.Unmarshal(text, &decoded)
		want["model"] = decoded
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%q gave %q\n%s", body, got, diff)
		}
	})
}

func TestPortable(t *testing.T) {
	for _, tc := range []struct {
		method, target, body string
		want                 bool
	}{
		{"POST", "/v1/chat/completions", `{"messages":[]}`, true},
		{"POST", "/api/v1/responses?x=y", `{"input":"previous_response_id","previous_response_id":null}`, true},
		{"POST", "/v1/embeddings", `{"input":"a"}`, true},
		{"POST", "/v1/completions", `{"prompt":"a"}`, true},
		{"POST", "/v1/chat/completions", `{"tools":[{"function":{"parameters":{"properties":{"file_id":{},"conversation":{}}}}}]}`, true},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"say \"file_id\""}]}`, true},
		{"POST", "/v1/responses", `{"input":[{"type":"message","encrypted_content": null}]}`, true},
		{"POST", "/v1/responses", `{"input":[{"type":"reasoning","id":"rs_1","encrypted_content": null}]}`, false},
		{"POST", "/v1/responses", `{"input":[{"type":"image_generation_call","id":"ig_1"}]}`, false},
		{"POST", "/v1/responses", `{"input":[{"type":"code_interpreter_call","container_id":"cntr_1"}]}`, false},
		{"POST", "/v1/chat/completions", `{"messages":[{"reasoning_details":[{"signature":"s"}]}]}`, false},
		{"POST", "/v1/chat/completions", `{"messages":[{"reasoning":"hm","reasoning_details":[{"text":"hm"}]}]}`, true},
		{"POST", "/v1/responses", `{"previous_response_id":"r"}`, false},
		{"POST", "/v1/responses", `{"conversation":{"id":"c"}}`, false},
		{"POST", "/v1/responses", `{"prompt":{"id":"p"}}`, false},
		{"POST", "/v1/responses", `{"input":[{"type":"item_reference","id":"x"}]}`, false},
		{"POST", "/v1/responses", `{"input":[{"encrypted_content":null},{"encrypted_content":"x"}]}`, false},
		{"POST", "/v1/chat/completions", `{"messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}]}`, false},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"assistant","audio":{"id":"a"}}]}`, false},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"assistant","audio":null},{"content":[{"type":"input_audio","input_audio":{}}]}]}`, true},
		{"POST", "/v1/responses", `{"tools":[{"type":"file_search","vector_store_ids":["v"]}]}`, false},
		{"POST", "/v1/responses", `{"tools":[{"type":"code_interpreter","container":"cntr_1"}]}`, false},
		{"POST", "/v1/responses", `{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["f"]}}]}`, false},
		{"POST", "/v1/responses", `{"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}`, true},
		{"POST", "/v1/responses/compact", `{}`, false},
		{"POST", "/v1/files", ``, false},
		{"GET", "/v1/chat/completions", ``, false},
	} {
		if got := retry.Portable([]byte(tc.method), []byte(tc.target), []byte(tc.body)); got != tc.want {
			t.Errorf("%s %s %s: %v", tc.method, tc.target, tc.body, got)
		}
	}
}
