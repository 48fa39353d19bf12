package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"remora/telemetry"
	"remora/wire"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	parentID = "b7ad6b7169203331"
	sampled  = "00-" + traceID + "-" + parentID + "-01"
)

// play records one request with a layer's tool, with two calls of upstream.
func play(tel *telemetry.Telemetry, in headers) (up []headers) {
	var c telemetry.Call
	tel.Begin(&c, telemetry.Request{Method: []byte("POST"), Route: "/v1/responses", Path: []byte("/v1/responses"), Headers: in})
	recall := c.Step("recall")
	tel.Hook(c.Context(), hook("notes", "recall", 2*time.Millisecond, ""))
	tel.Hook(c.Context(), hook("quick", "recall", time.Microsecond, ""))
	tel.Hook(c.Context(), hook("bad", "recall", time.Microsecond, "panic"))
	recall.End(nil)
	c.Turn(telemetry.Turn{
		Status: "ok", Session: canarySession, ID: "T1", Items: 10, Sent: 6, Windowed: 3, Orphans: 1, Recalled: 70, Saved: 900, Skipped: 1,
	})
	send := telemetry.Send{Provider: "openai", Operation: telemetry.OperationChat, Model: "gpt-5", Address: "api.openai.com:443", Stream: true}
	for i, finish := range []string{"tool_calls", "stop"} {
		h := headers{}
		up = append(up, h)
		c.Send(send, h)
		c.Stream()
		c.FirstByte()
		c.FirstByte()
		c.Content([]telemetry.Message{{Role: "user", Parts: []telemetry.Part{{Type: "text", Content: canaryContent}}}}, nil)
		c.Answered(telemetry.Answer{
			Status: 200, ID: fmt.Sprint("resp_", i), Model: "gpt-5-2026", Finish: finish,
			Usage: wire.Usage{Input: 100, Cached: 60, Output: 20, Reasoning: 5, CacheKnown: true},
		})
		if i == 0 {
			review := c.Step("review")
			tel.Hook(c.Context(), hook("notes", "tools", time.Microsecond, ""))
			review.End(nil)
		}
	}
	asked := tel.Ask(c.Context(), telemetry.Send{Provider: "openai", Operation: "embeddings", Model: "small", Layer: "notes"})
	asked(200, wire.Usage{Input: 30}, nil)
	commit := c.Step("commit")
	now := time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC)
	tel.Store(c.Context(), "commit", now, 3*time.Millisecond, context.DeadlineExceeded)
	commit.End(errors.New(canaryContent))
	late := c.Context()
	c.End(200)
	c.End(500)
	tel.Hook(late, hook("notes", "store", 5*time.Second, ""))
	return up
}

func hook(layer, name string, took time.Duration, class string) telemetry.Hook {
	return telemetry.Hook{Layer: layer, Name: name, Begun: time.Date(2026, 11, 21, 0, 0, 1, 0, time.UTC), Took: took, Class: class}
}

// TestTraceOfACall: a trace has every step of a call with a layer's tool.
func TestTraceOfACall(t *testing.T) {
	col := newCollector(t)
	tel, finish := setup(t, nil, func(o *telemetry.Options) {
		o.Traces.Endpoint = col.URL
		o.Traces.Headers = []telemetry.Header{{Name: "Authorization", Value: "Bearer " + canaryKey}}
	})
	up := play(tel, headers{"traceparent": sampled, "tracestate": "vendor=1"})
	finish()

	if col.service != "remora v1" || !slices.Contains(col.auth, "Bearer "+canaryKey) {
		t.Errorf("service %q, credentials %q", col.service, col.auth)
	}
	var clients []string
	for _, s := range col.spans {
		if fmt.Sprintf("%x", s.TraceId) != traceID {
			t.Errorf("%s belongs to another trace", s.Name)
		}
		if strings.HasPrefix(s.Name, "chat") {
			clients = append(clients, fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId))
		}
		if s.StartTimeUnixNano > s.EndTimeUnixNano {
			t.Errorf("%s ends before it begins", s.Name)
		}
		if s.Name == "layer notes store" && s.EndTimeUnixNano-s.StartTimeUnixNano != 5e9 {
			t.Errorf("%s took %d ns", s.Name, s.EndTimeUnixNano-s.StartTimeUnixNano)
		}
	}
	for i, h := range up {
		if !slices.Contains(clients, h["traceparent"]) || h["tracestate"] != "vendor=1" {
			t.Errorf("upstream call %d got %v, its spans are %q", i, h, clients)
		}
	}
	chat := func(round, id, finish string) string {
		return `
  chat gpt-5 (client)
    - gen_ai.conversation.id=` + canarySession + `
    - gen_ai.operation.name=chat
    - gen_ai.provider.name=openai
    - gen_ai.request.model=gpt-5
    - gen_ai.request.stream=true
    - gen_ai.response.finish_reasons=[` + finish + `]
    - gen_ai.response.id=` + id + `
    - gen_ai.response.model=gpt-5-2026
    - gen_ai.response.time_to_first_chunk=0.001
    - gen_ai.usage.cache_read.input_tokens=60
    - gen_ai.usage.input_tokens=100
    - gen_ai.usage.output_tokens=20
    - gen_ai.usage.reasoning.output_tokens=5
    - http.response.status_code=200` + round + `
    - server.address=api.openai.com
    - server.port=443`
	}
	parent := []byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}
	want := `POST /v1/responses (server)
  - gen_ai.conversation.id=` + canarySession + `
  - http.request.method=POST
  - http.response.status_code=200
  - http.route=/v1/responses
  - remora.items.orphaned=1
  - remora.items.sent=6
  - remora.items.total=10
  - remora.items.windowed=3
  - remora.layers.skipped=1
  - remora.memory.side=false
  - remora.memory.status=ok
  - remora.tokens.recalled=70
  - remora.tokens.saved=900
  - remora.turn.id=T1
  - url.path=/v1/responses
  layer notes recall (internal)
    - remora.layer.hook=recall
    - remora.layer.id=notes
  layer bad recall (internal) failed: panic
    - error.type=panic
    - remora.layer.hook=recall
    - remora.layer.id=bad
  layer notes tools (internal)
    - remora.layer.hook=tools
    - remora.layer.id=notes
  layer notes store (internal)
    - remora.layer.hook=store
    - remora.layer.id=notes
  store commit (internal) failed: timeout
    - error.type=timeout
    - remora.store.operation=commit
  recall (internal)` + chat("", "resp_0", "tool_calls") + `
  review (internal)` + chat("\n    - remora.round=1", "resp_1", "stop") + `
  embeddings small (client)
    - gen_ai.operation.name=embeddings
    - gen_ai.provider.name=openai
    - gen_ai.request.model=small
    - gen_ai.request.stream=false
    - gen_ai.usage.input_tokens=30
    - gen_ai.usage.output_tokens=0
    - gen_ai.usage.reasoning.output_tokens=0
    - http.response.status_code=200
    - remora.layer.id=notes
  commit (internal) failed: error
    - error.type=error
`
	if diff := cmp.Diff(want, col.tree(parent, "")); diff != "" {
		t.Error(diff)
	}
}

func TestWhoDecidesWhatIsSampled(t *testing.T) {
	for name, c := range map[string]struct {
		ratio  float64
		parent string
		own    bool // parent_based: false
		spans  bool
		flags  string
	}{
		"all, by default":             {1, "", false, true, "-01"},
		"none":                        {0, "", false, false, "-00"},
		"the caller's yes holds":      {0, sampled, false, true, "-01"},
		"the caller's no holds":       {1, strings.TrimSuffix(sampled, "01") + "00", false, false, "-00"},
		"a broken parent is nobody":   {1, "00-zz-01", false, true, "-01"},
		"a parent too long to be it":  {1, strings.Repeat("0", 10<<10), false, true, "-01"},
		"the caller's yes is ignored": {0, sampled, true, false, "-00"},
		"the caller's no is ignored":  {1, strings.TrimSuffix(sampled, "01") + "00", true, true, "-01"},
	} {
		t.Run(name, func(t *testing.T) {
			col := newCollector(t)
			tel, finish := setup(t, nil, func(o *telemetry.Options) {
				o.Traces.Endpoint, o.Traces.SampleRatio, o.Traces.ParentBased = col.URL, c.ratio, !c.own
			})
			in := headers{}
			if c.parent != "" {
				in["traceparent"] = c.parent
			}
			up := play(tel, in)
			finish()
			if got := len(col.spans) > 0; got != c.spans {
				t.Errorf("%d spans", len(col.spans))
			}
			if h := up[0]["traceparent"]; !strings.HasSuffix(h, c.flags) || c.own && !strings.Contains(h, traceID) {
				t.Errorf("upstream got %q", h)
			}
		})
	}
}

// TestMetricsPage: the page passes promtool's linter, and has the series that operators rely on.
func TestMetricsPage(t *testing.T) {
	tel, _ := setup(t, nil, nil)
	tel.WatchSpool(func() (int, int64) { return 4, 512 })
	play(tel, nil)
	tel.Panic()
	tel.Lost(2)
	tel.Quarantined(3)
	var streaming, gone telemetry.Call
	tel.Begin(&streaming, telemetry.Request{Method: []byte("POST"), Headers: none})
	streaming.Stream()
	tel.Begin(&gone, telemetry.Request{Method: []byte("POST"), Headers: none})
	gone.Send(telemetry.Send{Provider: "openai", Operation: "chat", Model: "gpt-5"}, nil)
	gone.Stream()
	gone.End(telemetry.StatusClientGone)

	text := page(t, tel)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	call := `gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="gpt-5"`
	for _, want := range []string{
		`gen_ai_client_operation_duration_seconds_count{` + call + `} 2`,
		`gen_ai_client_operation_duration_seconds_count{error_type="cancelled",gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="gpt-5"} 1`,
		`gen_ai_client_operation_time_to_first_chunk_seconds_sum{` + call + `} 0.002`,
		`gen_ai_client_token_usage_sum{` + call + `,gen_ai_token_type="input"} 200`,
		`gen_ai_client_token_usage_sum{` + call + `,gen_ai_token_type="output"} 40`,
		`gen_ai_client_token_usage_sum{gen_ai_operation_name="embeddings",gen_ai_provider_name="openai",gen_ai_request_model="small",gen_ai_token_type="input",layer="notes"} 30`,
		`remora_tokens_sent_total 200`,
		`remora_tokens_cached_total 120`,
		`remora_tokens_saved_total 900`,
		`remora_tokens_recalled_total 70`,
		`remora_items_windowed_total 3`,
		`remora_items_orphaned_total 1`,
		`remora_layer_hook_duration_seconds_count{hook="recall",layer="notes"} 1`,
		`remora_layer_hook_duration_seconds_sum{hook="store",layer="notes"} 5`,
		`remora_layer_hook_errors_total{error_type="panic",hook="recall",layer="bad"} 1`,
		`remora_store_operation_duration_seconds_sum{operation="commit"} 0.003`,
		`remora_store_operation_errors_total{error_type="timeout",operation="commit"} 1`,
		`remora_step_duration_seconds_count{step="recall"} 1`,
		`remora_spool_size_bytes 512`,
		`remora_spool_turns 4`,
		`remora_spool_lost_total 2`,
		`remora_spool_quarantined_total 3`,
		`remora_streams_open 1`,
		`remora_requests_total{class="2xx"} 1`,
		`remora_requests_total{class="client_gone"} 1`,
		`remora_requests_total{class="5xx"} 0`,
		`remora_turns_total{status="ok"} 1`,
		`remora_turns_total{status="degraded"} 0`,
		`remora_panics_total 1`,
		`target_info{service_name="remora",service_version="v1"`,
		`go_goroutines `,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("the page does not have %s", want)
		}
	}
	if t.Failed() {
		t.Log(regexp.MustCompile(`(?m)^(go|process)_.*\n|^#.*\n|.*_bucket.*\n`).ReplaceAllString(text, ""))
	}
	streaming.End(200)
	if text := page(t, tel); !strings.Contains(text, "\nremora_streams_open 0\n") {
		t.Error("a stream that has ended is still open")
	}
}

func TestSeriesAreBounded(t *testing.T) {
	tel, _ := setup(t, nil, nil)
	ask := func(model string, status int) {
		var c telemetry.Call
		tel.Begin(&c, telemetry.Request{Method: []byte("POST"), Headers: none})
		c.Send(telemetry.Send{Provider: "openai", Operation: "chat", Model: model}, nil)
		c.Answered(telemetry.Answer{Status: status})
		c.End(status)
	}
	ask("\x1b[2Jclears the screen", 200)
	ask("\u009b2Jalso", 200)
	ask("not \xff UTF-8", 200)
	ask(strings.Repeat("long", 100), 200)
	for i := range 1000 {
		ask(fmt.Sprint("made-up-", i), 404) // not admitted
		ask(fmt.Sprint("real-", i), 200)
		tel.Hook(context.Background(), hook(fmt.Sprint("layer", i), "recall", 1, ""))
	}
	text := page(t, tel)
	models := map[string]bool{}
	for _, m := range regexp.MustCompile(`gen_ai_request_model="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		models[m[1]] = true
	}
	if len(models) != 101 || !models["other"] || !models["real-99"] || models["real-100"] {
		t.Errorf("%d models: %v", len(models), models)
	}
	if n := strings.Count(text, "remora_layer_hook_duration_seconds_count"); n > 101 {
		t.Errorf("%d layers", n)
	}
}

// TestSeriesBeyondTheBoundAreCountedTogether: a metric has at most 4096 series for any combination of names. The others are
// counted with OpenTelemetry's overflow attribute.
func TestSeriesBeyondTheBoundAreCountedTogether(t *testing.T) {
	const most, calls = 4096, 42 * 100
	tel, _ := setup(t, nil, nil)
	for provider := range 42 {
		for model := range 100 {
			var c telemetry.Call
			tel.Begin(&c, telemetry.Request{Method: []byte("POST"), Headers: none})
			c.Send(telemetry.Send{Provider: fmt.Sprint("p", provider), Operation: "chat", Model: fmt.Sprint("m", model)}, nil)
			c.Answered(telemetry.Answer{Status: 200})
			c.End(200)
		}
	}

	counts := regexp.MustCompile(`(?m)^gen_ai_client_operation_duration_seconds_count\{(.*)\} (\d+)$`).FindAllStringSubmatch(page(t, tel), -1)
	if len(counts) != most {
		t.Errorf("%d series, want %d", len(counts), most)
	}
	sum, together := 0, 0
	for _, m := range counts {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
		if m[1] == `otel_metric_overflow="true"` {
			together += n
		}
	}
	if sum != calls || together != calls-most+1 {
		t.Errorf("%d calls are counted, %d of them together; want %d and %d", sum, together, calls, calls-most+1)
	}
}

const (
	canaryContent = "CANARY-content-91"
	canarySession = "CANARY-session-37"
	canaryKey     = "CANARY-key-55"
	canary        = "CANARY"
)

// TestNothingPrivateLeaks searches all exported data for canaries.
func TestNothingPrivateLeaks(t *testing.T) {
	for _, content := range []bool{false, true} {
		t.Run(fmt.Sprint("content=", content), func(t *testing.T) {
			col := newCollector(t)
			tel, finish := setup(t, nil, func(o *telemetry.Options) {
				o.Traces.Endpoint, o.Metrics.Endpoint, o.Traces.Content = col.URL, col.URL, content
				auth := []telemetry.Header{{Name: "Authorization", Value: "Bearer " + canaryKey}}
				o.Traces.Headers, o.Metrics.Headers = auth, auth
			})
			play(tel, headers{"authorization": "Bearer " + canaryKey})
			text := page(t, tel)
			finish()
			if len(col.metrics) == 0 || len(col.traces) == 0 {
				t.Fatal("nothing was exported")
			}
			if strings.Contains(text, canary) || bytes.Contains(col.metrics, []byte(canary)) {
				t.Error("metrics hold something private")
			}
			if bytes.Contains(col.traces, []byte(canaryKey)) {
				t.Error("spans hold a key")
			}
			if got := bytes.Contains(col.traces, []byte(canaryContent)); got != content {
				t.Errorf("content in spans: %t", got)
			}
		})
	}
}

func TestFailedExportsAreLoggedOnceWithoutKeys(t *testing.T) {
	col := newCollector(t)
	col.refuse = true
	var log bytes.Buffer
	tel, finish := setup(t, slog.New(slog.NewJSONHandler(&log, nil)), func(o *telemetry.Options) {
		o.Now = func() time.Time { return time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC) }
		o.Traces.Endpoint, o.Metrics.Endpoint = col.URL, col.URL
		auth := []telemetry.Header{{Name: "Authorization", Value: "Bearer " + canaryKey}}
		o.Traces.Headers, o.Metrics.Headers = auth, auth
	})
	for range 2000 { // several batches
		var c telemetry.Call
		tel.Begin(&c, telemetry.Request{Method: []byte("GET"), Headers: none})
		c.End(200)
	}
	finish()
	if n := strings.Count(log.String(), "export telemetry"); n != 1 {
		t.Errorf("%d lines: %s", n, &log)
	}
	if strings.Contains(log.String(), canary) || !strings.Contains(log.String(), "401") {
		t.Errorf("log %s", &log)
	}
}

// TestOffCostsNothing: nil and zero values do nothing and do not allocate.
func TestOffCostsNothing(t *testing.T) {
	tel, _ := setup(t, nil, func(o *telemetry.Options) { o.Metrics.Prometheus = false })
	if tel != nil {
		t.Fatal("telemetry is on")
	}
	tel.WatchSpool(nil)
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 404 {
		t.Errorf("/metrics answers %d", w.Code)
	}
	var c telemetry.Call
	if n := testing.AllocsPerRun(100, func() { request(tel, &c) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	on, _ := setup(t, nil, nil)
	if n := testing.AllocsPerRun(100, func() { request(on, &c) }); n != 0 {
		t.Errorf("%v allocations with metrics", n)
	}
}

// request records a call with memory and eight hooks, as the proxy does.
func request(tel *telemetry.Telemetry, c *telemetry.Call) {
	tel.Begin(c, telemetry.Request{Method: post, Route: "/v1/responses", Path: path, Headers: none})
	recall := c.Step("recall")
	for range 8 {
		tel.Hook(c.Context(), telemetry.Hook{Layer: "working-memory", Name: "recall", Took: time.Microsecond})
	}
	tel.Store(c.Context(), "read", time.Time{}, time.Millisecond, nil)
	recall.End(nil)
	c.Turn(telemetry.Turn{Status: "ok", Session: "s", ID: "t", Items: 9, Sent: 8, Windowed: 1, Recalled: 70, Saved: 100})
	c.Send(telemetry.Send{Provider: "openai", Operation: "chat", Model: "gpt-5", Address: "api.openai.com:443", Stream: true}, none)
	c.Stream()
	c.FirstByte()
	c.Answered(telemetry.Answer{Status: 200, ID: "r", Model: "gpt-5", Finish: "stop", Usage: wire.Usage{Input: 100, Output: 10, Cached: 50}})
	commit := c.Step("commit")
	tel.Store(c.Context(), "commit", time.Time{}, time.Millisecond, nil)
	commit.End(nil)
	c.End(200)
}

var (
	post, path = []byte("POST"), []byte("/v1/responses")
	none       = discard{}
)

type discard struct{}

func (discard) Get(string) string { return "" }
func (discard) Set(_, _ string)   {}
func (discard) Keys() []string    { return nil }

// BenchmarkCall records a request with memory, eight hooks, two store operations and one call of upstream.
func BenchmarkCall(b *testing.B) {
	for _, v := range []struct {
		name            string
		metrics, traces bool
		ratio           float64
	}{{"off", false, false, 0}, {"metrics", true, false, 0}, {"metrics and 1% of traces", true, true, 0.01}, {"all", true, true, 1}} {
		b.Run(v.name, func(b *testing.B) {
			sink := httptest.NewServer(nil)
			defer sink.Close()
			tel, _ := setup(b, nil, func(o *telemetry.Options) {
				o.Now, o.Metrics.Prometheus = nil, v.metrics
				if v.traces {
					o.Traces.Endpoint, o.Traces.SampleRatio = sink.URL, v.ratio
				}
			})
			var c telemetry.Call
			b.ReportAllocs()
			for b.Loop() {
				request(tel, &c)
			}
		})
	}
}
