package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// hookFloor is the shortest hook that has a span of its own, unless it failed or ran a tool: most do nothing.
const hookFloor = 100 * time.Microsecond

// Hook is one call of a layer's hook that has ended.
type Hook struct {
	// Layer is the layer's id, Name the hook's: "recall", "store", "tools".
	Layer, Name string
	Begun       time.Time
	Took        time.Duration
	// Class is how it failed, empty if it did not. It must be one of few.
	Class string
}

// Hook records a call of a hook: always in metrics, and as a span where ctx is that of a traced request and the hook took
// time, failed, or ran a tool.
func (t *Telemetry) Hook(ctx context.Context, h Hook) {
	if t == nil {
		return
	}
	layer, name, class := t.layers.bound(h.Layer, true), t.layers.bound(h.Name, true), ""
	if h.Class != "" {
		class = t.layers.bound(h.Class, true)
	}
	if t.in != nil {
		t.in.hooks.Record(ctx, h.Took.Seconds(), t.rows.hooks.get(eventKey{what: layer, which: name}).rec...)
		if class != "" {
			t.in.hookErrors.Add(ctx, 1, t.rows.hooks.get(eventKey{layer, name, class}).add...)
		}
	}
	if h.Took < hookFloor && class == "" && h.Name != "tools" || !t.traced(ctx) {
		return
	}
	t.span(ctx, "layer "+layer+" "+name, h.Begun, h.Took, class,
		attribute.String("remora.layer.id", layer), attribute.String("remora.layer.hook", name))
}

// Store records an operation of the store that has ended: "read", "commit". A conflict is no error. The text of err is
// not recorded.
func (t *Telemetry) Store(ctx context.Context, operation string, begun time.Time, took time.Duration, err error) {
	if t == nil {
		return
	}
	operation, class := t.operations.bound(operation, true), failureOf(err)
	if t.in != nil {
		t.in.stores.Record(ctx, took.Seconds(), t.rows.store.get(eventKey{what: operation}).rec...)
		if class != "" {
			t.in.storeErrors.Add(ctx, 1, t.rows.store.get(eventKey{what: operation, failure: class}).add...)
		}
	}
	if t.traced(ctx) {
		t.span(ctx, "store "+operation, begun, took, class, attribute.String("remora.store.operation", operation))
	}
}

// Carry returns ctx with the span of another context, so that work which outlives a request, or has another end, still
// belongs to it.
func Carry(ctx, from context.Context) context.Context {
	s := trace.SpanFromContext(from)
	if !s.SpanContext().IsValid() {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s)
}

// traced tells whether a span with this context's as its parent would be kept. The parent may have ended: what is done
// after the answer belongs to the request as well.
func (t *Telemetry) traced(ctx context.Context) bool {
	return t.tracer != nil && trace.SpanContextFromContext(ctx).IsSampled()
}

// span records what has ended already.
func (t *Telemetry) span(ctx context.Context, name string, begun time.Time, took time.Duration, class string, kv ...attribute.KeyValue) {
	_, s := t.tracer.Start(ctx, name, trace.WithTimestamp(begun), trace.WithAttributes(kv...))
	fail(s, class)
	s.End(trace.WithTimestamp(begun.Add(took)))
}

// failureOf is the class of an error, empty for none.
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

// Lost counts turns that neither the store nor the spool has taken.
func (t *Telemetry) Lost(turns int) {
	if t != nil && t.in != nil {
		t.in.lost.Add(context.Background(), int64(turns))
	}
}

// Panic counts a panic that was recovered from.
func (t *Telemetry) Panic() {
	if t != nil && t.in != nil {
		t.in.panics.Add(context.Background(), 1)
	}
}
