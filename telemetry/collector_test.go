package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	colmetric "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"remora/telemetry"
)

// collector is an OTLP receiver that stores what it receives.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*tracev1.Span
	service string
	traces  []byte // all bodies of spans
	metrics []byte // all bodies of metrics
	auth    []string
	refuse  bool // answer 401 with the credential
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(r)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.auth = append(c.auth, r.Header.Get("Authorization"))
		if c.refuse {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "no such key: "+r.Header.Get("Authorization"))
			return
		}
		switch r.URL.Path {
		case "/v1/traces":
			c.traces = append(c.traces, body...)
			var req coltrace.ExportTraceServiceRequest
			if err := proto.Unmarshal(body, &req); err != nil {
				t.Error(err)
			}
			for _, rs := range req.ResourceSpans {
				c.service = text(rs.Resource.Attributes, "service.name") + " " + text(rs.Resource.Attributes, "service.version")
				for _, ss := range rs.ScopeSpans {
					c.spans = append(c.spans, ss.Spans...)
				}
			}
		case "/v1/metrics":
			c.metrics = append(c.metrics, body...)
			if err := proto.Unmarshal(body, new(colmetric.ExportMetricsServiceRequest)); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("exported to %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func readBody(r *http.Request) ([]byte, error) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		in = z
	}
	return io.ReadAll(in)
}

func text(kv []*common.KeyValue, key string) string {
	for _, a := range kv {
		if a.Key == key {
			return show(a.Value)
		}
	}
	return ""
}

func show(v *common.AnyValue) string {
	switch v := v.Value.(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *common.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	case *common.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	case *common.AnyValue_ArrayValue:
		var all []string
		for _, e := range v.ArrayValue.Values {
			all = append(all, show(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	default:
		return fmt.Sprintf("%T", v)
	}
}

// tree formats the spans below a parent, siblings in order of their start: name, kind, failure, duration, attributes.
func (c *collector) tree(parent []byte, indent string) string {
	slices.SortStableFunc(c.spans, func(a, b *tracev1.Span) int {
		return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano))
	})
	var b strings.Builder
	for _, s := range c.spans {
		if !bytes.Equal(s.ParentSpanId, parent) {
			continue
		}
		kind := strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"))
		fmt.Fprintf(&b, "%s%s (%s)", indent, s.Name, kind)
		if s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR {
			fmt.Fprintf(&b, " failed: %s", s.Status.Message)
		}
		b.WriteString("\n")
		var lines []string
		for _, a := range s.Attributes {
			lines = append(lines, fmt.Sprintf("%s  - %s=%s\n", indent, a.Key, show(a.Value)))
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
		b.WriteString(c.tree(s.SpanId, indent+"  "))
	}
	return b.String()
}

// ticking returns a clock that advances by a millisecond each time it is read.
func ticking() func() time.Time {
	var mu sync.Mutex
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Millisecond)
		return now
	}
}

// valid returns the default options.
func valid() telemetry.Options {
	return telemetry.Options{
		ServiceName: "remora",
		Traces:      telemetry.TraceOptions{SampleRatio: 1, ParentBased: true},
		Metrics:     telemetry.MetricsOptions{Interval: time.Minute, Prometheus: true},
	}
}

// setup opens telemetry with options modified by change. finish exports everything and shuts it down, once.
func setup(tb testing.TB, log *slog.Logger, change func(*telemetry.Options)) (tel *telemetry.Telemetry, finish func()) {
	tb.Helper()
	o := valid()
	o.Now, o.Version = ticking(), "v1"
	if change != nil {
		change(&o)
	}
	if err := o.Validate(); err != nil {
		tb.Fatal(err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	tel, shutdown, err := telemetry.Setup(context.Background(), o, log)
	if err != nil {
		tb.Fatal(err)
	}
	finish = sync.OnceFunc(func() { _ = shutdown(context.Background()) })
	tb.Cleanup(finish)
	return tel, finish
}

// page returns the metrics page.
func page(tb testing.TB, tel *telemetry.Telemetry) string {
	tb.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		tb.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// headers implements telemetry.Headers.
type headers map[string]string

func (h headers) Get(name string) string { return h[name] }
func (h headers) Set(name, value string) { h[name] = value }
func (headers) Keys() []string           { return nil }
