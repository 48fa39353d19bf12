package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"remora/wire"
)

// upstreamCall is one call of upstream.
type upstreamCall struct {
	open  bool
	ctx   context.Context //nolint:containedctx // of the client span, for as long as the call lasts
	span  trace.Span
	begun time.Time
	first time.Duration // to the first piece of the answer, 0 before that
	send  Send
	round int // calls of upstream before this one
}

// Send has the attributes of a client span that are known at its beginning.
type Send struct {
	// Provider is its configured name.
	Provider string
	// Operation is [OperationChat], or "" for a call that may not be one of a model: it has a span, and no GenAI metrics.
	Operation string
	// Model is the model that the request names, "" if that is not known.
	Model string
	// Address is upstream's host:port.
	Address string
	// Stream: the client asked for a stream.
	Stream bool
}

// name is the span's name by the GenAI semantic conventions.
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

// Answer is the result of a call of upstream.
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

func (x *upstreamCall) describe(a *Answer) {
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
