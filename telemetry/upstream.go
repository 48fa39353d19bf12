package telemetry

import (
	"context"
	"net"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"remora/wire"
)

// sending is one call of upstream.
type sending struct {
	open  bool
	ctx   context.Context //nolint:containedctx // of the client span, for as long as the call lasts
	span  trace.Span
	begun time.Time
	first time.Duration // to the first piece of the answer, 0 before that
	send  Send
	round int // calls of upstream before this one
}

// Operations of GenAI semantic conventions.
const (
	OperationChat       = "chat"
	OperationEmbeddings = "embeddings"
	OperationCompletion = "text_completion"
)

// Send is what a client span says from its beginning.
type Send struct {
	// Provider is its configured name.
	Provider string
	// Operation is one of the constants above. Without one the call is not known to be one of a model: it has a span
	// and counts for nothing else.
	Operation string
	// Model is the one that is asked for, empty where that is not known.
	Model string
	// Address is upstream's host:port.
	Address string
	// Stream tells that a stream was asked for.
	Stream bool
}

// Send opens a client span just before the request is sent, and sets the headers by which upstream continues the
// trace; without traces it sets none, and those of the client should pass. An earlier call that is still open failed.
func (c *Call) Send(s Send, headers Setter) {
	t := c.t
	if t == nil {
		return
	}
	if c.sending.open {
		c.Answered(Answer{Failure: "error"})
	}
	c.sending = sending{open: true, ctx: c.ctx, begun: t.now(), send: s, round: c.sending.round}
	if t.tracer == nil {
		return
	}
	x := &c.sending
	x.ctx, x.span = t.tracer.Start(c.ctx, s.name(), trace.WithSpanKind(trace.SpanKindClient))
	t.context.Inject(x.ctx, carrier{set: headers})
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
	x.span.SetAttributes(kv...)
}

// name is that of the span, as GenAI semantic conventions make it.
func (s *Send) name() string {
	switch {
	case s.Operation == "":
		return "upstream"
	case s.Model == "":
		return s.Operation
	default:
		return s.Operation + " " + clean(s.Model)
	}
}

// FirstByte tells that the first piece of the answer's body is here.
func (c *Call) FirstByte() {
	if c.t != nil && c.sending.open && c.sending.first == 0 {
		c.sending.first = max(1, c.t.now().Sub(c.sending.begun))
	}
}

// Answer is how a call of upstream ended.
type Answer struct {
	// Status is upstream's, 0 where it gave none.
	Status int
	// Failure is why the call failed: "timeout", "unreachable", "closed", "malformed", "cancelled" for one that was
	// given up, anything else is "error". Without one a Status of 400 or more is the failure.
	Failure string
	// ID, Model and Finish are the response's.
	ID, Model, Finish string
	Usage             wire.Usage
}

// Answered closes the client span, and records what the call has cost.
func (c *Call) Answered(a Answer) {
	x := &c.sending
	if c.t == nil || !x.open {
		return
	}
	x.open = false
	x.round++
	failure := a.failure()
	if x.send.Operation != "" && c.t.in != nil {
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

func (a *Answer) failure() string {
	switch {
	case a.Failure == "" && a.Status < 400:
		return ""
	case a.Failure == "" && a.Status < 600:
		return strconv.Itoa(a.Status)
	}
	switch a.Failure {
	case "timeout", "unreachable", "closed", "malformed", "cancelled":
		return a.Failure
	default:
		return "error"
	}
}

func (x *sending) describe(a *Answer) {
	kv := make([]attribute.KeyValue, 0, 10)
	if a.Status > 0 {
		kv = append(kv, semconv.HTTPResponseStatusCode(a.Status))
	}
	if x.first > 0 && x.send.Stream {
		kv = append(kv, semconv.GenAIResponseTimeToFirstChunk(x.first.Seconds()))
	}
	if a.ID != "" {
		kv = append(kv, semconv.GenAIResponseID(clean(a.ID)))
	}
	if a.Model != "" {
		kv = append(kv, semconv.GenAIResponseModel(clean(a.Model)))
	}
	if a.Finish != "" {
		kv = append(kv, semconv.GenAIResponseFinishReasons(clean(a.Finish)))
	}
	if u := &a.Usage; u.Known() {
		kv = append(kv,
			semconv.GenAIUsageInputTokens(int(u.Input)), semconv.GenAIUsageOutputTokens(int(u.Output)),
			semconv.GenAIUsageReasoningOutputTokens(int(u.Reasoning)))
		if u.CacheKnown {
			kv = append(kv, semconv.GenAIUsageCacheReadInputTokens(int(u.Cached)))
		}
	}
	x.span.SetAttributes(kv...)
}

// measure records the GenAI metrics of the call.
func (c *Call) measure(a *Answer, failure string) {
	t, x, in := c.t, &c.sending, c.t.in
	key := callKey{
		operation: t.operations.bound(x.send.Operation, true),
		provider:  t.providers.bound(x.send.Provider, true),
		// Only a model that upstream knows takes one of the places.
		model:   t.models.bound(x.send.Model, failure == "" && a.Status/100 == 2),
		failure: failure,
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
