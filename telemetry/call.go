package telemetry

import (
	"context"
	"net"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"remora/wire"
)

// Call records one request. It is not safe for concurrent use. The zero value does nothing. End resets it to the zero value, so
// it can be part of a pooled struct.
type Call struct {
	t        *Telemetry
	ctx      context.Context //nolint:containedctx // of the server span, for as long as the request lasts
	span     trace.Span      // nil without traces
	session  string
	open     bool // counted as an open stream
	upstream upstreamCall
}

// Context returns the context for work on behalf of the request: spans become children of the server span, and log lines have
// its ids. It is never cancelled and may be used after End. Without a span it is context.Background().
func (c *Call) Context() context.Context {
	if c.ctx == nil {
		return context.Background()
	}
	return c.ctx
}

// recording reports whether the server span records attributes.
func (c *Call) recording() bool { return c.span != nil && c.span.IsRecording() }

// Turn is the result of memory for a request with a session.
type Turn struct {
	// Status is as in X-Memory: "ok", "degraded", "bypass" or "off". Side requests count as "ok".
	Status string
	// Session and ID are the session's and the turn's ids. They go into spans only.
	Session, ID string
	// Items is the number of items in the conversation, Sent the number of those sent upstream, Windowed and Orphans the numbers
	// of those left out by the window and as orphans.
	Items, Sent, Windowed, Orphans int
	// Recalled is the number of tokens of layers' blocks in the view, Saved that of the tokens left out of it.
	Recalled, Saved int
	// Side marks a side request.
	Side bool
	// Skipped is the number of layers that failed.
	Skipped int
}

// Turn records the result of memory.
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
	in.turns.Add(c.ctx, 1, c.t.rows.turns.get(eventKey{what: statusOf(m.Status)}).add...)
	add := func(counter metric.Int64Counter, n int) {
		if n > 0 {
			counter.Add(c.ctx, int64(n))
		}
	}
	add(in.windowed, m.Windowed)
	add(in.orphans, m.Orphans)
	add(in.recalled, m.Recalled)
	add(in.saved, m.Saved)
}

func statusOf(s string) string {
	switch s {
	case "ok", "degraded", "bypass", "off":
		return s
	default:
		return other
	}
}

// Step is a timed part of a request.
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

// End ends the step. Of err only the class is recorded, not the text.
func (s *Step) End(err error) {
	if s.t == nil {
		return
	}
	class := failureOf(err)
	took := s.t.now().Sub(s.begun)
	s.t.in.steps.Record(s.ctx, took.Seconds(), s.t.rows.steps.get(eventKey{what: s.name, failure: class}).rec...)
	if s.span != nil {
		fail(s.span, class)
		s.span.End()
	}
	s.t = nil
}

// OperationChat is the operation in the GenAI semantic conventions, for both dialects.
const OperationChat = "chat"

// Ask opens a call of a model that a layer makes, as part of the work that ctx belongs to. It is recorded as a client's call is,
// with the layer. What it returns ends the call.
func (t *Telemetry) Ask(ctx context.Context, s Send) func(status int, u wire.Usage, err error) {
	c := Call{t: t, ctx: ctx}
	c.Send(s, propagation.MapCarrier{})
	return func(status int, u wire.Usage, err error) {
		c.Answered(Answer{Status: status, Failure: failureOf(err), Usage: u})
	}
}

// Send opens a client span before the request is sent, and sets the headers with which upstream continues the trace. Without
// traces it sets none, and the caller should forward the client's. It closes an earlier open client span as failed.
func (c *Call) Send(s Send, headers Headers) {
	t := c.t
	if t == nil {
		return
	}
	if c.upstream.open {
		c.Answered(Answer{Failure: "error"})
	}
	c.upstream = upstreamCall{open: true, ctx: c.ctx, begun: t.now(), send: s, round: c.upstream.round}
	if t.tracer == nil {
		return
	}

	x := &c.upstream
	x.ctx, x.span = t.tracer.Start(c.ctx, s.name(), trace.WithSpanKind(trace.SpanKindClient))
	t.context.Inject(x.ctx, headers)
	if !x.span.IsRecording() {
		return
	}

	kv := append(make([]attribute.KeyValue, 0, 10), semconv.GenAIProviderNameKey.String(clean(s.Provider)))
	if s.Operation != "" {
		kv = append(kv, semconv.GenAIOperationNameKey.String(clean(s.Operation)),
			semconv.GenAIRequestModel(clean(s.Model)), semconv.GenAIRequestStream(s.Stream))
	}
	if host, port, err := net.SplitHostPort(s.Address); err == nil {
		kv = append(kv, semconv.ServerAddress(host))
		if n, err := strconv.Atoi(port); err == nil {
			kv = append(kv, semconv.ServerPort(n))
		}
	}
	if c.session != "" {
		kv = append(kv, semconv.GenAIConversationID(clean(c.session)))
	}
	if x.round > 0 {
		kv = append(kv, attribute.Int("remora.round", x.round))
	}
	if s.Layer != "" {
		kv = append(kv, attribute.String("remora.layer.id", clean(s.Layer)))
	}
	x.span.SetAttributes(kv...)
}

// FirstByte records the arrival of the first bytes of the answer's body.
func (c *Call) FirstByte() {
	if c.t != nil && c.upstream.open && c.upstream.first == 0 {
		c.upstream.first = max(1, c.t.now().Sub(c.upstream.begun))
	}
}

// WantsContent reports whether Content would be recorded: it is enabled and the client span is sampled. Call it before building
// messages.
func (c *Call) WantsContent() bool {
	return c.t != nil && c.t.content && c.upstream.open && c.upstream.span != nil && c.upstream.span.IsRecording()
}

// Content adds the sent messages and the answer to the client span. Call it before Answered.
func (c *Call) Content(input, output []Message) {
	if !c.WantsContent() {
		return
	}
	add := func(key attribute.Key, list []Message) {
		if len(list) > 0 {
			c.upstream.span.SetAttributes(key.String(encodeMessages(list)))
		}
	}
	add(semconv.GenAIInputMessagesKey, input)
	add(semconv.GenAIOutputMessagesKey, output)
}

// Answered closes the client span, and records duration and tokens of the call.
func (c *Call) Answered(a Answer) {
	x := &c.upstream
	if c.t == nil || !x.open {
		return
	}
	x.open = false
	x.round++
	failure := a.failure()
	if x.send.Operation != "" {
		c.measure(&a, failure)
	}
	if x.span == nil {
		return
	}
	if x.span.IsRecording() {
		x.describe(&a)
		fail(x.span, failure)
	}
	x.span.End()
	x.span = nil
}

// measure records the GenAI metrics of the call.
func (c *Call) measure(a *Answer, failure string) {
	t, x, in := c.t, &c.upstream, c.t.in
	key := callKey{
		operation: t.operations.bound(x.send.Operation, true),
		provider:  t.providers.bound(x.send.Provider, true),
		// Only a model that upstream accepted may take one of the limited names.
		model:   t.models.bound(x.send.Model, a.Status/100 == 2),
		failure: failure,
	}
	if x.send.Layer != "" {
		key.layer = t.layers.bound(x.send.Layer, true)
	}
	in.callDuration.Record(x.ctx, t.now().Sub(x.begun).Seconds(), t.rows.calls.get(key).rec...)
	key.failure = ""
	if x.first > 0 && x.send.Stream {
		in.firstChunk.Record(x.ctx, x.first.Seconds(), t.rows.calls.get(key).rec...)
	}
	u := &a.Usage
	if !u.Known() {
		return
	}
	key.token = "input"
	in.tokenUsage.Record(x.ctx, float64(u.Input), t.rows.calls.get(key).rec...)
	key.token = "output"
	in.tokenUsage.Record(x.ctx, float64(u.Output), t.rows.calls.get(key).rec...)
	if c.session == "" {
		return
	}
	in.sent.Add(x.ctx, u.Input)
	if u.Cached > 0 {
		in.cached.Add(x.ctx, u.Cached)
	}
}

// fail marks a span as failed, if class is not empty.
func fail(span trace.Span, class string) {
	if class != "" {
		span.SetStatus(codes.Error, class)
		span.SetAttributes(semconv.ErrorTypeKey.String(class))
	}
}

// Stream counts the answer as an open stream until the request ends.
func (c *Call) Stream() {
	if c.t != nil && !c.open {
		c.open = true
		c.t.streams.Add(1)
	}
}

// StatusClientGone is the status of a request whose client has disconnected.
const StatusClientGone = 499

// End closes all open spans of the request, with the status of the answer to the client. Call it for every request; a second call
// does nothing.
func (c *Call) End(status int) {
	t := c.t
	if t == nil {
		return
	}
	if c.upstream.open {
		class := "cancelled"
		if status != StatusClientGone {
			class = "error"
		}
		c.Answered(Answer{Failure: class})
	}
	if c.open {
		t.streams.Add(-1)
	}
	t.in.requests.Add(c.ctx, 1, t.rows.requests.get(eventKey{what: classOf(status)}).add...)
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

// classOf returns the class of a status: "2xx", or "client_gone" for StatusClientGone.
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
