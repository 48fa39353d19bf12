package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// Call is one request. It belongs to one goroutine at a time; the zero value does nothing, and End makes it one again,
// so that it may be part of something that is reused.
type Call struct {
	t       *Telemetry
	ctx     context.Context //nolint:containedctx // of the server span, for as long as the request lasts
	span    trace.Span      // nil where nothing is traced
	begun   time.Time
	session string
	open    bool // it counts as an open stream
	sending sending
}

// Request is what a server span says from its beginning.
type Request struct {
	Method []byte
	// Route is the endpoint where it is one of ours, such as "/v1/chat/completions"; empty for all others.
	Route string
	// Path is the target without the query, which may hold credentials.
	Path    []byte
	Headers Getter
}

// Begin opens a request in c: the server span, as a child of what the request's headers name.
func (t *Telemetry) Begin(c *Call, r Request) {
	if t == nil {
		return
	}
	*c = Call{t: t, ctx: context.Background(), begun: t.now()}
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
	c.ctx, c.span = t.tracer.Start(t.context.Extract(c.ctx, carrier{get: r.Headers}), name, trace.WithSpanKind(trace.SpanKindServer))
	if !c.span.IsRecording() {
		return
	}
	c.span.SetAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.URLPath(clean(r.Path)))
	if r.Route != "" {
		c.span.SetAttributes(semconv.HTTPRoute(r.Route))
	}
}

const otherMethod = "_OTHER"

// methodOf is the method as the semantic conventions want it: one of those known, without an allocation.
func methodOf(m []byte) string {
	for _, known := range [...]string{"POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"} {
		if string(m) == known {
			return known
		}
	}
	return otherMethod
}

// Context is for what is done on behalf of the request: it makes spans children of the server span and log lines name
// it. It is never cancelled, and may be used after End. Without a span it is context.Background().
func (c *Call) Context() context.Context {
	if c.ctx == nil {
		return context.Background()
	}
	return c.ctx
}

// recording tells whether attributes of the server span are worth their making.
func (c *Call) recording() bool { return c.span != nil && c.span.IsRecording() }

// Turn is how memory served a request that names a session.
type Turn struct {
	// Status is as in X-Memory: "ok", "degraded", "bypass" or "off".
	Status string
	// Session and ID are the session's and the turn's ids. They go into spans only.
	Session, ID string
	// Items is how much the conversation holds, Sent how much of it went upstream, Windowed and Orphans what was left
	// out and why.
	Items, Sent, Windowed, Orphans int
	// Recalled is what layers have put into the view, Saved what was left out of it, in tokens.
	Recalled, Saved int
	// Side tells of a side request.
	Side bool
	// Skipped is how many layers failed.
	Skipped int
}

// Turn records what became of the request in memory.
func (c *Call) Turn(m Turn) {
	if c.t == nil {
		return
	}
	c.session = m.Session
	c.count(m)
	if !c.recording() {
		return
	}
	c.span.SetAttributes(
		semconv.GenAIConversationID(clean(m.Session)), attribute.String("remora.turn.id", clean(m.ID)),
		attribute.String("remora.memory.status", statusOf(m.Status)), attribute.Bool("remora.memory.side", m.Side),
		attribute.Int("remora.items.total", m.Items), attribute.Int("remora.items.sent", m.Sent),
		attribute.Int("remora.items.windowed", m.Windowed), attribute.Int("remora.items.orphaned", m.Orphans),
		attribute.Int("remora.tokens.recalled", m.Recalled), attribute.Int("remora.tokens.saved", m.Saved),
		attribute.Int("remora.layers.skipped", m.Skipped),
	)
}

func (c *Call) count(m Turn) {
	in := c.t.in
	if in == nil {
		return
	}
	in.turns.Add(c.ctx, 1, c.t.rows.turns.get(eventKey{what: statusOf(m.Status)}).add...)
	if m.Windowed > 0 {
		in.windowed.Add(c.ctx, int64(m.Windowed))
	}
	if m.Orphans > 0 {
		in.orphans.Add(c.ctx, int64(m.Orphans))
	}
	if m.Recalled > 0 {
		in.recalled.Add(c.ctx, int64(m.Recalled))
	}
	if m.Saved > 0 {
		in.saved.Add(c.ctx, int64(m.Saved))
	}
}

func statusOf(s string) string {
	switch s {
	case "ok", "degraded", "bypass", "off":
		return s
	default:
		return other
	}
}

// Step is one part of a request that takes time.
type Step struct {
	t     *Telemetry
	ctx   context.Context //nolint:containedctx // of the step's span, for as long as the step lasts
	span  trace.Span
	begun time.Time
	name  string
}

// Step begins a part of the request: "recall", "review", "commit". name must be a constant.
func (c *Call) Step(name string) Step {
	s := Step{t: c.t, ctx: c.Context(), name: name}
	if c.t == nil {
		return s
	}
	s.begun = c.t.now()
	if c.recording() {
		s.ctx, s.span = c.t.tracer.Start(c.ctx, name)
	}
	return s
}

// Context is for what the step does, as that of Call.
func (s *Step) Context() context.Context {
	if s.ctx == nil {
		return context.Background()
	}
	return s.ctx
}

// End closes the step. err is what it failed with; its text is not recorded.
func (s *Step) End(err error) {
	if s.t == nil {
		return
	}
	class := failureOf(err)
	if s.t.in != nil {
		took := s.t.now().Sub(s.begun)
		s.t.in.steps.Record(s.ctx, took.Seconds(), s.t.rows.steps.get(eventKey{what: s.name, failure: class}).rec...)
	}
	if s.span != nil {
		fail(s.span, class)
		s.span.End()
	}
	s.t = nil
}

// fail marks a span as failed, if class is not empty.
func fail(span trace.Span, class string) {
	if class != "" {
		span.SetStatus(codes.Error, class)
		span.SetAttributes(semconv.ErrorTypeKey.String(class))
	}
}

// Stream tells that the answer is a stream that has begun. It ends with the request.
func (c *Call) Stream() {
	if c.t != nil && !c.open {
		c.open = true
		c.t.streams.Add(1)
	}
}

// StatusClientGone is the status of a request whose client has left.
const StatusClientGone = 499

// End closes the request, with the status that the client was answered with, and what is still open of it. It must be
// called however a request ends; a second call does nothing.
func (c *Call) End(status int) {
	t := c.t
	if t == nil {
		return
	}
	if c.sending.open {
		class := "cancelled"
		if status != StatusClientGone {
			class = "error"
		}
		c.Answered(Answer{Failure: class})
	}
	if c.open {
		t.streams.Add(-1)
	}
	if t.in != nil {
		t.in.requests.Add(c.ctx, 1, t.rows.requests.get(eventKey{what: classOf(status)}).add...)
	}
	if c.span != nil {
		if c.span.IsRecording() {
			c.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
			if status >= 500 {
				fail(c.span, strconv.Itoa(status))
			}
		}
		c.span.End()
	}
	*c = Call{}
}

// classOf is the class of a status: "2xx", or "client_gone" for a client that has left.
func classOf(status int) string {
	switch {
	case status == StatusClientGone:
		return "client_gone"
	case status >= 100 && status < 600:
		return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[status/100-1]
	default:
		return other
	}
}
