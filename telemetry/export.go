package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	promexport "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	// queuedSpans is how many ended spans wait for export; more are dropped. Ten for each of some hundred calls a second
	// and a collector that is away for a moment.
	queuedSpans = 8192
	spansAtOnce = 512
	exportWait  = 10 * time.Second
	stopWait    = 5 * time.Second
)

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
	limits.AttributeValueLengthLimit = -1 // ours are bounded where they are set
	p := sdktrace.NewTracerProvider(
		sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Traces.SampleRatio))),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(queuedSpans), sdktrace.WithMaxExportBatchSize(spansAtOnce)),
	)
	t.tracer = p.Tracer(scope, trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))
	return p.Shutdown, nil
}

func (t *Telemetry) openMetrics(ctx context.Context, o Options, about *resource.Resource) (func(context.Context) error, error) {
	opts := []sdkmetric.Option{sdkmetric.WithResource(about)}
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
	if len(opts) == 1 {
		return nothing, nil
	}
	p := sdkmetric.NewMeterProvider(opts...)
	meter := p.Meter(scope)
	in, err := newInstruments(meter)
	if err == nil {
		t.in = in
		_, err = meter.RegisterCallback(t.observe, in.streams, in.spoolBytes, in.spoolSize)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry.metrics: %w", err), p.Shutdown(ctx))
	}
	return p.Shutdown, nil
}

// failures is where OpenTelemetry reports what it could not export.
type failures struct {
	t      *Telemetry
	log    *slog.Logger
	secret *strings.Replacer // a collector may repeat in its answer what it was sent

	mu     sync.Mutex
	next   time.Time
	silent int
}

// failureEvery is how often failures are logged: a collector that is away fails every export.
const failureEvery = time.Minute

func newFailures(t *Telemetry, o Options, log *slog.Logger) *failures {
	var pairs []string
	for _, list := range [][]Header{o.Traces.Headers, o.Metrics.Headers} {
		for _, h := range list {
			if s := h.Value.Reveal(); s != "" {
				pairs = append(pairs, s, h.Value.String())
			}
			// "Bearer KEY" is as secret without its first word.
			if _, s, ok := strings.Cut(h.Value.Reveal(), " "); ok && s != "" {
				pairs = append(pairs, s, h.Value.String())
			}
		}
	}
	return &failures{t: t, log: log, secret: strings.NewReplacer(pairs...)}
}

// text is what may be logged of an error.
func (f *failures) text(err error) string {
	const longest = 512
	s := f.secret.Replace(err.Error())
	return strings.ToValidUTF8(s[:min(len(s), longest)], "")
}

func (f *failures) redact(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(f.text(err))
}

// Handle logs an error, unless it has logged another one shortly before.
func (f *failures) Handle(err error) {
	if err == nil {
		return
	}
	if f.t.in != nil {
		f.t.in.dropped.Add(context.Background(), 1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.t.now()
	if now.Before(f.next) {
		f.silent++
		return
	}
	f.log.Warn("export telemetry", "error", f.text(err), "unlogged", f.silent)
	f.next, f.silent = now.Add(failureEvery), 0
}
