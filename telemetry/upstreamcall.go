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
	first time.Duration // until the first bytes of the answer, 0 before that
	send  Send
	round int // number of earlier calls of upstream in this request
}

// Send holds the attributes of a client span that are known at its start.
type Send struct {
	// Provider is the provider's configured name.
	Provider string
	// Operation is [OperationChat], or "" for a call that may not be a model call: it has a span, but no GenAI metrics.
	Operation string
	// Model is the model in the request, "" if it is unknown.
	Model string
	// Address is upstream's host:port.
	Address string
	// Stream: the client requested a stream.
	Stream bool
	// Layer is the id of the layer that asks, see [Telemetry.Ask]; "" for a client's call.
	Layer string
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
	// Status is upstream's, 0 without an answer.
	Status int
	// Failure is the class of the call's failure: "timeout", "unreachable", "closed", "malformed" or "cancelled"; other values
	// become "error". If it is empty, a Status of 400 or more is the failure.
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
