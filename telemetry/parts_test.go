package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/telemetry"
)

// FuzzHeaders: no trace context breaks a call or its export.
func FuzzHeaders(f *testing.F) {
	f.Add(sampled, "a=1,b=2", "/v1/responses", "gpt-5")
	f.Add("ff-0-0-0", "\xff", "\xff/?", "\xfe")
	tel, _ := setup(f, nil, func(o *telemetry.Options) { o.Traces.Endpoint = "http://127.0.0.1:1" })
	f.Fuzz(func(t *testing.T, parent, state, path, model string) {
		var c telemetry.Call
		up := headers{}
		tel.Begin(&c, telemetry.Request{Method: []byte(model), Path: []byte(path), Headers: headers{"traceparent": parent, "tracestate": state}})
		c.Send(telemetry.Send{Provider: "p", Operation: "chat", Model: model}, up)
		c.End(200)
		if len(up["traceparent"]) != len(sampled) {
			t.Errorf("upstream gets %q", up["traceparent"])
		}
	})
}

func TestContentIsBoundedAndKeepsTheNewest(t *testing.T) {
	col := newCollector(t)
	tel, finish := setup(t, nil, func(o *telemetry.Options) { o.Traces.Endpoint, o.Traces.Content = col.URL, true })
	input := []telemetry.Message{
		{Role: "user", Parts: []telemetry.Part{{Type: "text", Content: "old"}}},
		{Role: "user", Parts: []telemetry.Part{{Type: "text", Content: strings.Repeat("é", 100<<10)}}},
		{Role: "assistant", Parts: []telemetry.Part{{Type: "tool_call", ID: "c1", Name: "f", Content: `{"x":1}`}}},
		{Role: "tool", Parts: []telemetry.Part{{Type: "tool_call_response", ID: "c1", Content: "\xff1"}}},
	}
	for range 10 {
		input = append(input, telemetry.Message{Role: "user", Parts: []telemetry.Part{{Type: "text", Content: strings.Repeat("x", 4<<10)}}})
	}
	output := []telemetry.Message{{Role: "assistant", Parts: []telemetry.Part{{Type: "text", Content: "done"}}}}
	var c telemetry.Call
	tel.Begin(&c, telemetry.Request{Method: []byte("POST"), Headers: none})
	if c.WantsContent() {
		t.Error("content is wanted where nothing is sent")
	}
	c.Send(telemetry.Send{Provider: "openai", Operation: "chat"}, headers{})
	c.Content(input, output)
	c.Answered(telemetry.Answer{Status: 200})
	c.End(200)
	finish()
	span := col.spans[0]
	if got, want := text(span.Attributes, "gen_ai.output.messages"), `[{"role":"assistant","parts":[{"type":"text","content":"done"}]}]`; got != want {
		t.Errorf("output %s", got)
	}
	got := text(span.Attributes, "gen_ai.input.messages")
	if len(got) > 80<<10 || !json.Valid([]byte(got)) {
		t.Errorf("input has %d bytes: %.200s", len(got), got)
	}
	for _, want := range []string{
		`{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"f","arguments":"{\"x\":1}"}]}`,
		`{"role":"tool","parts":[{"type":"tool_call_response","id":"c1","response":"1"}]}`, "é...",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("input does not have %s", want)
		}
	}
}

func TestLogHandler(t *testing.T) {
	tel, _ := setup(t, nil, func(o *telemetry.Options) { o.Traces.Endpoint = "http://127.0.0.1:1" })
	var c telemetry.Call
	tel.Begin(&c, telemetry.Request{Method: []byte("POST"), Headers: headers{"traceparent": sampled}})
	step := c.Step("recall")
	for name, do := range map[string]func(*slog.Logger) *slog.Logger{
		"plain": func(l *slog.Logger) *slog.Logger { return l },
		"attrs": func(l *slog.Logger) *slog.Logger { return l.With("a", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := do(slog.New(telemetry.LogHandler(slog.NewJSONHandler(&out, nil))))
			log.InfoContext(c.Context(), "in", "x", 3)
			log.InfoContext(context.Background(), "outside", "x", 3)
			log.DebugContext(c.Context(), "too detailed")
			var lines []map[string]any
			for d := json.NewDecoder(&out); d.More(); {
				var m map[string]any
				if err := d.Decode(&m); err != nil {
					t.Fatal(err)
				}
				lines = append(lines, m)
			}
			if len(lines) != 2 || lines[0]["trace_id"] != traceID || len(fmt.Sprint(lines[0]["span_id"])) != 16 {
				t.Fatalf("logged %v", lines)
			}
			delete(lines[0], "trace_id")
			delete(lines[0], "span_id")
			for _, l := range lines {
				delete(l, "time")
				delete(l, "msg")
			}
			if diff := cmp.Diff(lines[1], lines[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
	step.End(nil)
	c.End(200)
}

func TestOptionsValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*telemetry.Options)
		want   string
	}{
		"defaults":        {func(*telemetry.Options) {}, ""},
		"no name":         {func(o *telemetry.Options) { o.ServiceName = "" }, "telemetry.service_name:"},
		"not a URL":       {func(o *telemetry.Options) { o.Traces.Endpoint = "collector:4318" }, "telemetry.traces.endpoint:"},
		"port":            {func(o *telemetry.Options) { o.Traces.Endpoint = "http://c:99999" }, "telemetry.traces.endpoint:"},
		"port 0":          {func(o *telemetry.Options) { o.Metrics.Endpoint = "http://c:0" }, "telemetry.metrics.endpoint:"},
		"no IP address":   {func(o *telemetry.Options) { o.Metrics.Endpoint = "https://300.1.1.1:4318" }, "telemetry.metrics.endpoint:"},
		"a secret in it":  {func(o *telemetry.Options) { o.Metrics.Endpoint = "http://u:" + canaryKey + "@c" }, "telemetry.metrics.endpoint:"},
		"a query":         {func(o *telemetry.Options) { o.Metrics.Endpoint = "http://c?key=" + canaryKey }, "telemetry.metrics.endpoint:"},
		"ratio":           {func(o *telemetry.Options) { o.Traces.SampleRatio = 1.5 }, "telemetry.traces.sample_ratio:"},
		"ratio, no value": {func(o *telemetry.Options) { o.Traces.SampleRatio = math.NaN() }, "telemetry.traces.sample_ratio:"},
		"interval":        {func(o *telemetry.Options) { o.Metrics.Endpoint, o.Metrics.Interval = "http://c", time.Millisecond }, "telemetry.metrics.interval:"},
		"header's name":   {func(o *telemetry.Options) { o.Traces.Headers = []telemetry.Header{{Name: "a b"}} }, "telemetry.traces.headers[0]: name:"},
		"header's value": {
			func(o *telemetry.Options) {
				o.Metrics.Headers = []telemetry.Header{{Name: "a", Value: canaryKey + "\n"}}
			},
			"telemetry.metrics.headers[0]: value:",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := valid()
			c.change(&o)
			err := o.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("have %v, want %q", err, c.want)
			}
			if shown := fmt.Sprintf("%v %+v %#v", err, o.Traces, o.Metrics.Headers); strings.Contains(fmt.Sprint(err, o.Metrics.Headers), canaryKey) {
				t.Errorf("%s shows a secret", shown)
			}
		})
	}
}
