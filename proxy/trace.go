package proxy

import (
	"bytes"
	"errors"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/telemetry"
	"remora/wire"
)

// begun opens the request's span.
func (x *exchange) begun() {
	h := &x.ctx.Request.Header
	path, _, _ := bytes.Cut(h.RequestURI(), []byte("?"))
	x.s.telemetry.Begin(&x.call, telemetry.Request{Method: h.Method(), Route: routeOf(x.dialect), Path: path, Headers: peeker{h}})
}

// routeOf names an endpoint by its path below every base.
func routeOf(d wire.Dialect) string {
	switch d {
	case wire.Chat:
		return "/v1/chat/completions"
	case wire.Responses:
		return "/v1/responses"
	default:
		return ""
	}
}

// peeker finds headers whatever their case: names are not normalised here.
type peeker struct{ h *fasthttp.RequestHeader }

// Peek returns the first header of that name.
func (p peeker) Peek(name string) []byte {
	for key, value := range p.h.All() {
		if len(key) == len(name) && bytes.EqualFold(key, []byte(name)) {
			return value
		}
	}
	return nil
}

// remembered tells what memory made of the request.
func (x *exchange) remembered() {
	t := telemetry.Turn{Status: x.status, Session: x.head.id.session}
	if x.turn != nil {
		s := &x.turn.summary
		t = telemetry.Turn{
			Status: s.Status.String(), Session: x.head.id.session, ID: x.turn.id, Items: s.Items, Sent: s.Sent, Windowed: s.Windowed,
			Orphans: s.Orphans, Recalled: s.Recalled, Side: s.Side, Skipped: len(s.Skipped),
		}
	}
	if t.Status != "" {
		x.call.Turn(t)
	}
}

// sending opens the span of a call of upstream, and puts its context into the headers that x.out adds.
func (x *exchange) sending() {
	if x.s.telemetry == nil {
		return
	}
	send := telemetry.Send{Provider: x.provider.Name(), Address: x.provider.Upstream().Addr}
	if x.request != nil {
		send.Model = x.request.Text("model")
		send.Stream = string(x.request.Member("stream")) == "true"
	}
	if x.dialect != 0 {
		send.Operation = telemetry.OperationChat
	}
	x.call.Send(send, &x.out.Header)
}

// answered closes the span of a call of upstream, with what its answer says.
func (x *exchange) answered(r *wire.Reply) {
	if x.s.telemetry == nil {
		return
	}
	x.call.Answered(telemetry.Answer{
		Status: x.answer.status, ID: r.ID, Model: r.Model, Finish: r.Finish, Usage: telemetry.ParseUsage(r.Usage),
	})
}

// failing closes the span of a call of upstream that failed.
func (x *exchange) failing(err error) {
	class := "error"
	for _, c := range []struct {
		err  error
		name string
	}{
		{providers.ErrTimeout, "timeout"},
		{providers.ErrUnreachable, "unreachable"},
		{providers.ErrClosed, "closed"},
		{providers.ErrMalformed, "malformed"},
		{providers.ErrAborted, "cancelled"},
	} {
		if errors.Is(err, c.err) {
			class = c.name
		}
	}
	x.call.Answered(telemetry.Answer{Status: x.answer.status, Failure: class})
}

// traced closes the request's span.
func (x *exchange) traced() {
	status := x.ctx.Response.StatusCode()
	if x.cut() == memory.CutClient {
		status = telemetry.StatusClientGone
	} else if x.answer.status != 0 {
		x.call.Answered(telemetry.Answer{Status: x.answer.status})
	}
	x.call.End(status)
}
