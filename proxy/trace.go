package proxy

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/telemetry"
	"remora/wire"
)

// trace observes one exchange, for telemetry and for the client's Server-Timing. The exchange calls its methods where
// something happens; nothing in them changes what happens next.
type trace struct {
	telemetry *telemetry.Telemetry // nil for none
	telemetry.Call
	spent struct{ memory, upstream time.Duration }
}

// requestBegan opens the request's span.
func (t *trace) requestBegan(r *request) {
	h := &r.ctx.Request.Header
	target, _ := providers.OriginForm(h.RequestURI()) // a URL may have a password
	path, _, _ := bytes.Cut(target, []byte("?"))
	t.telemetry.Begin(&t.Call, telemetry.Request{Method: h.Method(), Route: routeOf(r.dialect).String(), Path: path, Headers: traceHeaders{h}})
}

// turnBegan notes what memory made of the request. There is no turn for one that it has no part in.
func (t *trace) turnBegan(r *request) {
	began := r.turn
	noted := telemetry.Turn{Status: r.status, Session: r.head.id.session}
	if began.kept() {
		s := &began.reported
		noted = telemetry.Turn{
			Status: s.Status.String(), Session: r.head.id.session, ID: began.ID, Items: s.Items, Sent: s.Sent, Windowed: s.Windowed,
			Orphans: s.Orphans, Recalled: s.Recalled, Saved: s.Saved, Side: s.Side, Skipped: len(s.Skipped),
		}
	}
	if noted.Status != "" {
		t.Turn(noted)
	}
}

// sending opens the span of a call of upstream, and puts its context into the headers that the provider adds.
func (t *trace) sending(a *attempt) {
	if t.telemetry == nil {
		return
	}

	r := a.req
	send := telemetry.Send{Provider: a.out.provider.Name(), Address: a.out.provider.Address().Addr}
	if r.dialect.Known() {
		send.Operation = telemetry.OperationChat
	}
	if r.dialect.Known() || r.parsed != nil {
		send.Model, send.Stream = a.out.modelName(), r.asksForStream()
	}
	t.Send(send, traceHeaders{&a.prepared.Header})
}

// answered closes the span of a call of upstream, with what its answer says.
func (t *trace) answered(a *attempt, status int, r *wire.Reply) {
	t.answeredUntil(a, status, r, memory.NotAborted)
}

// answeredUntil is answered for an answer that was maybe broken off.
func (t *trace) answeredUntil(a *attempt, status int, r *wire.Reply, aborted memory.Aborted) {
	if t.telemetry == nil {
		return
	}

	if t.WantsContent() {
		input := a.out.items
		if input == nil && a.req.parsed != nil {
			input = a.req.parsed.Items()
		}
		t.Content(messagesOf(input), messagesOf(slices.Concat(r.Choices...)))
	}
	failure := ""
	switch aborted {
	case memory.NotAborted:
	case memory.AbortedByClient:
		failure = "cancelled"
	case memory.AbortedByUpstream:
		failure = "closed"
	}
	t.Answered(telemetry.Answer{
		Status: status, Failure: failure, ID: r.ID, Model: r.Model, Finish: r.Finish, Usage: r.Used,
	})
}

// failed closes the span of a call of upstream that failed. The status is 0 where no answer came.
func (t *trace) failed(status int, err error) {
	class := "error"
	if f := failureOf(err); f != nil {
		class = f.class
	}
	t.Answered(telemetry.Answer{Status: status, Failure: class})
}

// ended closes the request's span. Upstream's status is 0 where it has not answered.
func (t *trace) ended(status, upstreamStatus int, clientGone bool) {
	switch {
	case clientGone:
		status = telemetry.StatusClientGone
	case upstreamStatus != 0:
		t.Answered(telemetry.Answer{Status: upstreamStatus})
	}
	t.End(status)
}

// appendServerTiming writes how long memory and upstream took, as the value of Server-Timing.
func (t *trace) appendServerTiming(dst []byte) []byte {
	dst = appendMilliseconds(append(dst, "memory;dur="...), t.spent.memory)
	return appendMilliseconds(append(dst, ", upstream;dur="...), t.spent.upstream)
}

func appendMilliseconds(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, float64(d)/float64(time.Millisecond), 'f', 3, 64)
}

// traceHeaders are the headers of a request as telemetry reads and sets them.
type traceHeaders struct{ *fasthttp.RequestHeader }

// Get returns the first header of that name, in any case, since the proxy has fasthttp keep names as they came. Longer values
// than 8 KiB are no context of a trace: W3C lets those of more than 512 bytes be left out.
func (h traceHeaders) Get(name string) string {
	const longest = 8 << 10
	for key, value := range h.All() {
		if len(key) == len(name) && bytes.EqualFold(key, []byte(name)) && len(value) <= longest {
			return string(value)
		}
	}
	return ""
}

// Keys is empty: telemetry never asks for it.
func (traceHeaders) Keys() []string { return nil }

// messagesOf returns items as messages of GenAI semantic conventions. Items without text or calls are left out.
func messagesOf(items []wire.Item) []telemetry.Message {
	var out []telemetry.Message
	for _, it := range items {
		m := telemetry.Message{Role: "assistant"}
		text := telemetry.Part{Type: "text", Content: it.Text()}
		switch {
		case it.Kind == wire.ToolResult:
			m.Role, text.Type, text.ID = "tool", "tool_call_response", it.Answers().ID
		case it.Role == wire.System || it.Role == wire.Developer:
			m.Role = "system"
		case it.Role == wire.User:
			m.Role = "user"
		}
		if text.Content != "" {
			m.Parts = append(m.Parts, text)
		}
		for i, call := range it.Calls() {
			m.Parts = append(m.Parts, telemetry.Part{Type: "tool_call", ID: call.ID, Name: call.Name, Content: it.Input(i)})
		}
		if len(m.Parts) > 0 {
			out = append(out, m)
		}
	}
	return out
}
