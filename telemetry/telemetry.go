// Package telemetry tells operators what happens: spans and metrics, by OTLP over HTTP and as a Prometheus page, and log
// lines that name the span they belong to. It imports nothing of ours and takes plain values, so that no other package
// knows OpenTelemetry.
//
// A request is a [Call]: Begin opens its server span, Send a client span for each call of upstream, Answered and End
// close them. What happens deeper down finds its span in the context that [Call.Context] and [Step.Context] return.
// Metrics never hold ids of sessions, credentials or content, and the number of their series is bounded: names that come
// from callers are at most 100, all others are "other".
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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// Telemetry records. Its methods are safe for use by several goroutines, and do nothing on nil.
type Telemetry struct {
	now     func() time.Time
	content bool
	tracer  trace.Tracer // nil without traces
	context propagation.TraceContext
	handler http.Handler // nil without Prometheus

	in   *instruments // nil without metrics
	rows tables

	models, providers, operations, layers names

	streams atomic.Int64
	spool   atomic.Pointer[func() (turns int, bytes int64)]
}

// nothing is the shutdown of telemetry that is off.
func nothing(context.Context) error { return nil }

// Setup begins to export what the options ask for. shutdown hands over what is left, for at most five seconds; call it
// after everything that records. Where nothing is asked for, the Telemetry is nil. Options must be valid.
//
// Failures to export are logged, at most one a minute. OpenTelemetry reports them to one place for the whole process,
// so the log of the last Setup gets them.
func Setup(ctx context.Context, o Options, log *slog.Logger) (t *Telemetry, shutdown func(context.Context) error, err error) {
	if o.Traces.Endpoint == "" && o.Metrics.Endpoint == "" && !o.Metrics.Prometheus {
		return nil, nothing, nil
	}
	t = &Telemetry{now: o.Now, content: o.Traces.Content, rows: newTables()}
	if t.now == nil {
		t.now = time.Now //nolint:forbidigo // the default of the clock
	}
	attrs := resource.NewSchemaless(semconv.ServiceName(o.ServiceName), semconv.ServiceVersion(o.Version))
	about, err := resource.Merge(resource.Default(), attrs)
	if err != nil {
		return nil, nothing, fmt.Errorf("telemetry: describe the service: %w", err)
	}
	failures := newFailures(t, o, log)
	var closers []func(context.Context) error
	stop := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, stopWait) // a collector that is away is tried again for as long as it may
		defer cancel()
		var errs []error
		for _, c := range closers {
			errs = append(errs, c(ctx))
		}
		return failures.redact(errors.Join(errs...))
	}
	for _, open := range []func(context.Context, Options, *resource.Resource) (func(context.Context) error, error){
		t.openTraces, t.openMetrics,
	} {
		c, err := open(ctx, o, about)
		if err != nil {
			return nil, nothing, errors.Join(failures.redact(err), stop(ctx))
		}
		closers = append(closers, c)
	}
	otel.SetErrorHandler(failures)
	return t, stop, nil
}

// Handler serves the metrics as Prometheus reads them. It answers 404 where that is off.
func (t *Telemetry) Handler() http.Handler {
	if t == nil || t.handler == nil {
		return http.NotFoundHandler()
	}
	return t.handler
}

// registry is a Prometheus registry with what the runtime tells of itself.
func (t *Telemetry) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, EnableOpenMetrics: true,
	})
	return r
}

// WatchSpool has the gauges of the spool ask f, once per scrape or export.
func (t *Telemetry) WatchSpool(f func() (turns int, bytes int64)) {
	if t != nil {
		t.spool.Store(&f)
	}
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
