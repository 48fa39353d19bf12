package main

import (
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"remora/test/scripted"
)

// spans decodes the collected spans.
func (c *collector) spans(t *testing.T) []*trace.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*trace.Span
	for _, body := range c.bodies {
		var req coltrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &req); err != nil {
			t.Fatal(err)
		}
		for _, r := range req.ResourceSpans {
			for _, s := range r.ScopeSpans {
				all = append(all, s.Spans...)
			}
		}
	}
	return all
}

// TestTraceOfALayerTool: the trace of a call in which the model calls a layer's tool shows every step with its time, below the
// caller's span. It contains content only if the operator enables that.
func TestTraceOfALayerTool(t *testing.T) {
	t.Parallel()
	for _, content := range []bool{false, true} {
		up, err := scripted.Start(scripted.Options{})
		if err != nil {
			t.Fatal(err)
		}
		traces := &collector{}
		sink := httptest.NewServer(traces)
		t.Cleanup(func() { _ = up.Close(); sink.Close() })
		d := &workspace{t: t, dir: t.TempDir()}
		d.start(fmt.Sprintf(
			"providers: [{name: up, kind: compatible, base_url: %q}]\ntelemetry: {traces: {endpoint: %q, content: %v}}\nmemory: {layers: [{kind: working_memory}]}\n",
			up.URL()+"/v1", sink.URL, content))
		d.say("chat/completions", chat("user: CALL working-memory_update {\"bird\":\"canary\"} ;; SAY Noted."),
			"X-Session-Id: s", "Authorization: Bearer k", "traceparent: 00-0123456789abcdef0123456789abcdef-00f067aa0ba902b7-01")
		d.proxy.Stop() // flushes
		count, root := map[string]int{}, ""
		for _, s := range traces.spans(t) {
			count[s.Name]++
			if hex.EncodeToString(s.TraceId) != "0123456789abcdef0123456789abcdef" {
				t.Errorf("span %q is of another trace", s.Name)
			}
			if s.EndTimeUnixNano <= s.StartTimeUnixNano {
				t.Errorf("span %q took no time", s.Name)
			}
			if s.Name == "POST /v1/chat/completions" {
				root = hex.EncodeToString(s.ParentSpanId)
			}
		}
		if root != "00f067aa0ba902b7" {
			t.Errorf("the request's span is below %q", root)
		}
		for name, want := range map[string]int{
			"POST /v1/chat/completions": 1, "recall": 1, "store read": 1, "chat m": 2, "review": 2, "layer working-memory tools": 1,
			"commit": 1, "store commit": 1,
		} {
			if count[name] < want {
				t.Errorf("%d spans %q, want %d; have %v", count[name], name, want, count)
			}
		}
		if has := strings.Contains(traces.sent.String(), "canary"); has != content {
			t.Errorf("telemetry.traces.content %v: content in spans: %v", content, has)
		}
	}
}
