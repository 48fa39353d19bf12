// Package telemetry exports spans and metrics, by OTLP over HTTP and as a Prometheus page, and adds trace ids to log lines.
// Command remora sets it up; the proxy, its store and the layers record through it. It takes plain values, so no other package
// imports OpenTelemetry.
//
// A request is a [Call]: Begin opens its server span, Send a client span for each call of upstream, Answered and End close
// them. Other packages get the parent span from the context of [Call.Context] and [Step.Context]. Metrics never contain session
// ids, credentials or content, and the number of series is bounded: at most 100 names chosen by callers are recorded, all
// others become "other".
//
// A nil *Telemetry and a zero Call do nothing, at the cost of a comparison.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	promexport "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// Telemetry records spans and metrics. It is safe for concurrent use. All methods do nothing on nil.
type Telemetry struct {
	now     func() time.Time
	content bool
	tracer  trace.Tracer // nil without traces
	context propagation.TraceContext
	handler http.Handler // nil without Prometheus

	in   *instruments
	rows tables

	models, providers, operations, layers *names

	streams atomic.Int64
	spool   atomic.Pointer[func() (turns int, bytes int64)]
}

const (
	// queuedSpans is the number of ended spans that may wait for export; further ones are dropped. It is enough for a few hundred
	// requests per second with ten spans each, during a short outage of the collector.
	queuedSpans = 8192
	spansAtOnce = 512
	exportWait  = 10 * time.Second
	stopWait    = 5 * time.Second
)

// nothing is the shutdown function if telemetry is off.
func nothing(context.Context) error { return nil }

// Setup starts the configured exports. shutdown exports the remaining data, for at most five seconds; call it after everything
// that records has ended. If nothing is configured, the Telemetry is nil. Options must be valid.
//
// Failed exports are logged, at most one per minute. OpenTelemetry has one error handler per process, so the log of the last
// Setup gets them.
func Setup(ctx context.Context, o Options, log *slog.Logger) (t *Telemetry, shutdown func(context.Context) error, err error) {
	if o.Traces.Endpoint == "" && o.Metrics.Endpoint == "" && !o.Metrics.Prometheus {
		return nil, nothing, nil
	}
	t = &Telemetry{
		now: o.Now, content: o.Traces.Content, rows: newTables(),
		models: newNames(), providers: newNames(), operations: newNames(), layers: newNames(),
	}
	if t.now == nil {
		t.now = time.Now //nolint:forbidigo // the default of the clock
	}
	failures := newFailures(t, o, log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn(unusable, "problem", failures.text(err)) })) // until its counter exists
	otel.SetLogger(logr.New(otherTroubles{log}))
	attrs := resource.NewSchemaless(semconv.ServiceName(o.ServiceName), semconv.ServiceVersion(o.Version))
	about, err := resource.Merge(resource.Default(), attrs)
	if err != nil {
		return nil, nothing, fmt.Errorf("telemetry: describe the service: %w", err)
	}

	var closers []func(context.Context) error
	stop := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, stopWait) // the exporters retry until their context ends
		defer cancel()
		var errs []error
		for _, c := range closers {
			errs = append(errs, c(ctx))
		}
		return failures.redact(errors.Join(errs...))
	}

	closeTraces, err := t.openTraces(ctx, o, about)
	if err != nil {
		return nil, nothing, failures.redact(err)
	}
	closers = append(closers, closeTraces)
	closeMetrics, err := t.openMetrics(ctx, o, about)
	if err != nil {
		return nil, nothing, errors.Join(failures.redact(err), stop(ctx))
	}
	closers = append(closers, closeMetrics)
	otel.SetErrorHandler(failures)
	return t, stop, nil
}

func (t *Telemetry) openTraces(ctx context.Context, o Options, about *resource.Resource) (func(context.Context) error, error) {
	if o.Traces.Endpoint == "" {
		return nothing, nil
	}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(endpoint(o.Traces.Endpoint, "/v1/traces")),
		otlptracehttp.WithHeaders(headerMap(o.Traces.Headers)),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithTimeout(exportWait),
	)
	if err != nil {
		return nil, fmt.Errorf("telemetry.traces: %w", err)
	}

	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = -1 // values are bounded where they are set
	sampler := sdktrace.TraceIDRatioBased(o.Traces.SampleRatio)
	if o.Traces.ParentBased {
		sampler = sdktrace.ParentBased(sampler)
	}
	p := sdktrace.NewTracerProvider(
		sdktrace.WithResource(about),
		sdktrace.WithSampler(sampler),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(queuedSpans), sdktrace.WithMaxExportBatchSize(spansAtOnce)),
	)
	t.tracer = p.Tracer(scope, trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))
	return p.Shutdown, nil
}

func (t *Telemetry) openMetrics(ctx context.Context, o Options, about *resource.Resource) (func(context.Context) error, error) {
	opts := []sdkmetric.Option{sdkmetric.WithResource(about), sdkmetric.WithCardinalityLimit(maxSeries)}
	if o.Metrics.Prometheus {
		reader, err := promexport.New(
			promexport.WithRegisterer(t.registry()),
			promexport.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
			promexport.WithoutScopeInfo(),
		)
		if err != nil {
			return nil, fmt.Errorf("telemetry.metrics.prometheus: %w", err)
		}
		opts = append(opts, sdkmetric.WithReader(reader))
	}

	if o.Metrics.Endpoint != "" {
		exporter, err := otlpmetrichttp.New(ctx,
			otlpmetrichttp.WithEndpointURL(endpoint(o.Metrics.Endpoint, "/v1/metrics")),
			otlpmetrichttp.WithHeaders(headerMap(o.Metrics.Headers)),
			otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression),
			otlpmetrichttp.WithTimeout(exportWait),
		)
		if err != nil {
			return nil, fmt.Errorf("telemetry.metrics: %w", err)
		}
		opts = append(opts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithInterval(o.Metrics.Interval))))
	}
	p := sdkmetric.NewMeterProvider(opts...)
	meter := p.Meter(scope)
	in, err := newInstruments(meter)
	if err == nil {
		t.in = in
		t.beginAtZero(ctx)
		_, err = meter.RegisterCallback(t.observe, in.streams, in.spoolBytes, in.spoolSize)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry.metrics: %w", err), p.Shutdown(ctx))
	}
	return p.Shutdown, nil
}

// beginAtZero adds the series of counters whose attributes are known: an alert on an increase does not see the first one of a series
// that begins with it.
func (t *Telemetry) beginAtZero(ctx context.Context) {
	in := t.in
	for _, c := range []metric.Int64Counter{
		in.panics, in.sent, in.cached, in.saved, in.recalled, in.windowed, in.orphans, in.lost, in.quarantined, in.dropped,
	} {
		c.Add(ctx, 0)
	}
	for _, status := range []string{"ok", "degraded", "bypass", "off"} {
		in.turns.Add(ctx, 0, t.rows.turns.get(eventKey{what: status}).add...)
	}
	for _, status := range []int{200, 300, 400, 500, StatusClientGone} {
		in.requests.Add(ctx, 0, t.rows.requests.get(eventKey{what: classOf(status)}).add...)
	}
}

// registry returns a Prometheus registry with the metrics of the Go runtime.
func (t *Telemetry) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, EnableOpenMetrics: true,
	})
	return r
}

func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	o.ObserveInt64(t.in.streams, t.streams.Load())
	turns, bytes := 0, int64(0)
	if f := t.spool.Load(); f != nil {
		turns, bytes = (*f)()
	}
	o.ObserveInt64(t.in.spoolSize, int64(turns))
	o.ObserveInt64(t.in.spoolBytes, bytes)
	return nil
}

// Headers are the headers of a request, which carry its trace context. Get must ignore the case of names; Keys is never called.
type Headers = propagation.TextMapCarrier

// Request holds the attributes of a server span that are known at its start.
type Request struct {
	Method []byte
	// Route is the path of a known endpoint, such as "/v1/chat/completions"; empty for others.
	Route string
	// Path is the target without the query, which may hold credentials.
	Path    []byte
	Headers Headers
}

// Begin opens a request in c, with a server span that is a child of the span in the request's headers.
func (t *Telemetry) Begin(c *Call, r Request) {
	if t == nil {
		return
	}
	*c = Call{t: t, ctx: context.Background()}
	if t.tracer == nil {
		return
	}
	method := methodOf(r.Method)
	name := method
	if method == otherMethod {
		name = "HTTP"
	}
	if r.Route != "" {
		name += " " + r.Route
	}
	c.ctx, c.span = t.tracer.Start(t.context.Extract(c.ctx, r.Headers), name, trace.WithSpanKind(trace.SpanKindServer))
	if !c.span.IsRecording() {
		return
	}
	c.span.SetAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.URLPath(clean(r.Path)))
	if r.Route != "" {
		c.span.SetAttributes(semconv.HTTPRoute(r.Route))
	}
}

const otherMethod = "_OTHER"

// methodOf returns a method as an attribute, "_OTHER" if it is unknown. It does not allocate.
func methodOf(m []byte) string {
	for _, known := range [...]string{"POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"} {
		if string(m) == known {
			return known
		}
	}
	return otherMethod
}

// hookFloor is the duration of the shortest hook that gets a span, unless it failed or ran a tool: most hooks do nothing.
const hookFloor = 100 * time.Microsecond

// Hook is a finished call of a layer's hook.
type Hook struct {
	// Layer is the layer's id, Name the hook's: "recall", "store", "tools".
	Layer, Name string
	Begun       time.Time
	Took        time.Duration
	// Class is the kind of failure, "" for none. It is an attribute of metrics, so there must be few kinds.
	Class string
}

// Hook records a call of a hook in metrics, and as a span if ctx belongs to a traced request and the hook took longer than
// hookFloor, failed, or ran a tool.
func (t *Telemetry) Hook(ctx context.Context, h Hook) {
	if t == nil {
		return
	}
	layer, name, class := t.layers.bound(h.Layer, true), t.layers.bound(h.Name, true), ""
	if h.Class != "" {
		class = t.layers.bound(h.Class, true)
	}
	t.in.hooks.Record(ctx, h.Took.Seconds(), t.rows.hooks.get(eventKey{what: layer, which: name}).rec...)
	if class != "" {
		t.in.hookErrors.Add(ctx, 1, t.rows.hooks.get(eventKey{layer, name, class}).add...)
	}
	if h.Took < hookFloor && class == "" && h.Name != "tools" || !t.traced(ctx) {
		return
	}
	t.span(ctx, "layer "+layer+" "+name, h.Begun, h.Took, class,
		attribute.String("remora.layer.id", layer), attribute.String("remora.layer.hook", name))
}

// Store records a finished operation of the store: "read" or "commit". Of err only the class is recorded, not the text.
func (t *Telemetry) Store(ctx context.Context, operation string, begun time.Time, took time.Duration, err error) {
	if t == nil {
		return
	}
	operation, class := t.operations.bound(operation, true), failureOf(err)
	t.in.stores.Record(ctx, took.Seconds(), t.rows.store.get(eventKey{what: operation}).rec...)
	if class != "" {
		t.in.storeErrors.Add(ctx, 1, t.rows.store.get(eventKey{what: operation, failure: class}).add...)
	}
	if t.traced(ctx) {
		t.span(ctx, "store "+operation, begun, took, class, attribute.String("remora.store.operation", operation))
	}
}

// traced reports whether a child of this context's span would be sampled. That span may have ended: work after the answer
// belongs to the request too.
func (t *Telemetry) traced(ctx context.Context) bool {
	return t.tracer != nil && trace.SpanContextFromContext(ctx).IsSampled()
}

// span records a finished span.
func (t *Telemetry) span(ctx context.Context, name string, begun time.Time, took time.Duration, class string, kv ...attribute.KeyValue) {
	_, s := t.tracer.Start(ctx, name, trace.WithTimestamp(begun), trace.WithAttributes(kv...))
	fail(s, class)
	s.End(trace.WithTimestamp(begun.Add(took)))
}

// failureOf returns the class of an error, "" for none.
func failureOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	default:
		return "error"
	}
}

// Lost counts turns that neither the store nor the spool accepted.
func (t *Telemetry) Lost(turns int) {
	if t != nil {
		t.in.lost.Add(context.Background(), int64(turns))
	}
}

// Quarantined counts turns that waited in the spool and cannot be read.
func (t *Telemetry) Quarantined(turns int) {
	if t != nil {
		t.in.quarantined.Add(context.Background(), int64(turns))
	}
}

// Panic counts a recovered panic.
func (t *Telemetry) Panic() {
	if t != nil {
		t.in.panics.Add(context.Background(), 1)
	}
}

// WatchSpool sets the function that the gauges of the spool read, once per scrape or export.
func (t *Telemetry) WatchSpool(f func() (turns int, bytes int64)) {
	if t != nil {
		t.spool.Store(&f)
	}
}

// Handler serves the metrics in the Prometheus format, or 404 if that is off.
func (t *Telemetry) Handler() http.Handler {
	if t == nil || t.handler == nil {
		return http.NotFoundHandler()
	}
	return t.handler
}
