package telemetry

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// LogHandler adds trace_id and span_id to every record that is logged with the context of a span. They are at the top level of
// the record, outside of groups.
func LogHandler(next slog.Handler) slog.Handler { return &logHandler{root: next, next: next} }

type logHandler struct {
	root  slog.Handler                      // before the first group was opened
	next  slog.Handler                      // with all groups and attributes
	since []func(slog.Handler) slog.Handler // the calls that turn root into next
}

// Enabled asks the next handler.
func (h *logHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// Handle adds the ids of the context's span and calls the next handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return h.next.Handle(ctx, r)
	}
	ids := []slog.Attr{slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String())}
	if len(h.since) == 0 {
		r = r.Clone()
		r.AddAttrs(ids...)
		return h.next.Handle(ctx, r)
	}
	next := h.root.WithAttrs(ids)
	for _, step := range h.since {
		next = step(next)
	}
	return next.Handle(ctx, r)
}

// WithAttrs returns a handler with more attributes.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(len(h.since) > 0, func(n slog.Handler) slog.Handler { return n.WithAttrs(attrs) })
}

// WithGroup returns a handler that puts later attributes into a group.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(true, func(n slog.Handler) slog.Handler { return n.WithGroup(name) })
}

func (h *logHandler) with(grouped bool, step func(slog.Handler) slog.Handler) slog.Handler {
	next := step(h.next)
	if !grouped {
		return &logHandler{root: next, next: next}
	}
	return &logHandler{root: h.root, next: next, since: append(slices.Clip(h.since), step)}
}
