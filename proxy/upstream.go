package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/providers/resilience"
	"remora/telemetry"
	"remora/wire"
)

// enter asks for the request to be let in.
func (x *exchange) enter() (err error) {
	if !x.s.room.For(x.ctx.Conn()) {
		drainBody(x.ctx, x.s.now())
		return errCrowded(x.s.o.MaxConnections)
	}
	if x.s.limits != nil {
		x.ticket, err = x.s.limits.Enter(x.owner.of(&x.s.o.Session, x.head.id.credential))
	}
	return err
}

// forward sends the request and reads the head of the answer into the client's response. A call that upstream can't have
// served is sent again, or elsewhere, if the configuration says so.
func (x *exchange) forward() error {
	if x.turn != nil {
		x.upstream.Sent = x.turn.ender.Forwarded
		begun := x.s.now()
		defer func() { x.spent.upstream = x.s.now().Sub(begun) }()
	} else {
		defer x.releaseBody() // a stream that lasts for minutes need not hold it
	}
	plan := x.plan()
	attempt, err := plan.Begin()
	if err != nil {
		return err
	}
	body, decoded := x.send, x.decoded
	for {
		x.send, x.decoded = body, decoded
		if err := x.aim(attempt); err != nil {
			return err
		}
		err := x.attempt()
		next, again := plan.Next(resilience.Outcome{Err: err, Header: &x.ctx.Response.Header})
		if !again {
			return err
		}
		if err != nil {
			x.failing(err)
		} else {
			x.answer.status = x.ctx.Response.StatusCode()
			x.answered(&wire.Reply{})
		}
		x.answer.refusal = nil
		if err := x.upstream.Again(next.Delay); err != nil {
			return err
		}
		bare(&x.ctx.Response.Header)
		attempt = next
	}
}

// plan says what to do about a call that fails: nothing, unless the configuration says otherwise.
func (x *exchange) plan() resilience.Plan {
	if x.resilience == nil {
		return resilience.Plan{}
	}
	return x.resilience.Plan(x.provider, x.portable)
}

// proceed sends a request that goes on with an answer which its provider has begun, and reads the head of what comes. A
// call that upstream can't have served is sent again, if the configuration says so. A circuit that has opened meanwhile
// does not end an answer that the client has a part of.
func (x *exchange) proceed(head *fasthttp.ResponseHeader) error {
	var plan resilience.Plan
	if x.resilience != nil {
		plan = x.resilience.Stay(x.provider)
	}
	if _, err := plan.Begin(); err != nil {
		plan = resilience.Plan{}
	}
	for {
		bare(head)
		err := x.prepare(rewrite{body: len(x.send), remembered: true, decoded: x.decoded})
		if err == nil {
			err = x.s.client.Send(&x.upstream, x.provider.Upstream(), *x.sentHead, x.send, head)
		}
		next, again := plan.Next(resilience.Outcome{Err: err, Header: head})
		if !again {
			return err
		}
		if err != nil {
			x.failing(err)
		} else {
			before := x.answer.status // it is what the client has got
			x.answer.status = head.StatusCode()
			x.answered(&wire.Reply{})
			x.answer.status = before
		}
		if err := x.upstream.Again(next.Delay); err != nil {
			return err
		}
	}
}

// elsewhere tells whether another provider could serve the request. It reads all of the body.
func (x *exchange) elsewhere() bool {
	body := x.body
	if x.request != nil {
		body = x.plain
	}
	return resilience.Portable(x.ctx.Method(), x.ctx.RequestURI(), body)
}

// aim turns the request to the provider and the model of an attempt.
func (x *exchange) aim(a resilience.Attempt) error {
	if a.Provider != nil {
		x.provider = a.Provider
	}
	x.model = a.Model
	x.suit()
	return nil
}

// suit makes of the body what the attempt's provider and model want. One that is compressed stays so if they want nothing.
func (x *exchange) suit() {
	body, packed := x.send, len(x.head.encoded) > 0 && !x.decoded
	if packed {
		if x.request == nil {
			return // nobody has read it: the model stays
		}
		body = x.plain
	}
	out := x.dress(x.withModel(body))
	if packed && sameBody(out, body) {
		return
	}
	x.send, x.decoded = out, x.decoded || packed
}

// withModel is a body with the model of the attempt. One in which no model can be named goes as it is.
func (x *exchange) withModel(body []byte) []byte {
	if x.model == "" {
		return body
	}
	other, err := resilience.WithModel(body, x.model)
	if err != nil {
		return body
	}
	return other
}

// attempt is one call of upstream, up to the head of its answer.
func (x *exchange) attempt() error {
	if err := x.prepare(rewrite{body: len(x.send), remembered: x.turn != nil, decoded: x.decoded}); err != nil {
		return err
	}
	err := x.roundTrip()
	if err == nil && x.turn != nil && len(x.turn.tools) > 0 {
		err = x.retryToolless()
	}
	if err == nil && x.ctx.Response.StatusCode() == fasthttp.StatusSwitchingProtocols {
		return fmt.Errorf("%w: it switches protocols unasked", providers.ErrMalformed)
	}
	return err
}

// toolless remembers which models refuse tools, so that layers offer none to them.
type toolless struct {
	mu    sync.Mutex
	until map[string]time.Time // by modelKey: when it is forgotten
}

const (
	// maxToolless bounds what callers can make us remember: beyond it, all is forgotten and learnt again.
	maxToolless = 1024
	// toollessFor is how long a refusal is remembered: models learn, and upstreams err.
	toollessFor = time.Hour
)

func (t *toolless) add(key string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil || len(t.until) >= maxToolless {
		t.until = make(map[string]time.Time)
	}
	t.until[key] = now.Add(toollessFor)
}

func (t *toolless) has(key string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Before(t.until[key])
}

// modelKey names a model of a provider for one tenant: what upstream lets one caller do says nothing of others.
func (x *exchange) modelKey() string {
	return x.owner.of(&x.s.o.Session, x.head.id.credential) + "\x00" + x.provider.Name() + "\x00" + x.modelName()
}

// modelName is the model that upstream is asked for, "" for one that only reading all of a body would tell.
func (x *exchange) modelName() string {
	switch {
	case x.model != "":
		return x.model
	case x.request != nil:
		return x.request.Text("model")
	default:
		return wire.Text(wire.Glance(x.body, "model"))
	}
}

// asksForStream tells whether the client wants a stream, as far as modelName tells its model.
func (x *exchange) asksForStream() bool {
	if x.request != nil {
		return string(x.request.Member("stream")) == "true"
	}
	return string(wire.Glance(x.body, "stream")) == "true"
}

// refusalLimit is the longest answer in bytes that is read to see whether it refuses tools.
const refusalLimit = 64 << 10

// retryToolless sends a request again without the tools of layers if upstream has refused it because of them.
func (x *exchange) retryToolless() error {
	switch x.ctx.Response.StatusCode() {
	case fasthttp.StatusBadRequest, fasthttp.StatusNotFound, fasthttp.StatusUnprocessableEntity, fasthttp.StatusNotImplemented:
	default:
		return nil
	}
	// One without a length is read too: gateways in front of providers send all their errors so.
	if x.upstream.Length() > refusalLimit || len(x.ctx.Response.Header.ContentEncoding()) > 0 {
		return nil
	}
	body, err := x.readAll()
	if err != nil {
		return err
	}
	if !bytes.Contains(bytes.ToLower(body), []byte("tool")) {
		x.answer.refusal = body
		return nil
	}
	x.turn.tools = nil
	x.encode()
	x.suit()
	x.upstream.Close()
	if x.why.Load() != 0 {
		return providers.ErrAborted
	}
	if err := x.prepare(rewrite{body: len(x.send), remembered: true, decoded: x.decoded}); err != nil {
		return err
	}
	bare(&x.ctx.Response.Header)
	if err := x.roundTrip(); err != nil {
		return err
	}
	if x.ctx.Response.StatusCode() < fasthttp.StatusMultipleChoices {
		// Else it was about something else that has to do with tools, such as those of the client.
		x.answer.status = x.ctx.Response.StatusCode()
		x.answered(&wire.Reply{})
		if len(x.request.Tools()) == 0 {
			// With tools of the client's, it may have been their number that upstream refused.
			x.s.toolless.add(x.modelKey(), x.s.now())
		}
	}
	return nil
}

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
	if x.turn != nil && !x.turn.unkept {
		s := &x.turn.summary
		t = telemetry.Turn{
			Status: s.Status.String(), Session: x.head.id.session, ID: x.turn.id, Items: s.Items, Sent: s.Sent, Windowed: s.Windowed,
			Orphans: s.Orphans, Recalled: s.Recalled, Saved: s.Saved, Side: s.Side, Skipped: len(s.Skipped),
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
	if x.dialect != 0 {
		send.Operation = telemetry.OperationChat
	}
	if x.dialect != 0 || x.request != nil {
		send.Model, send.Stream = x.modelName(), x.asksForStream()
	}
	x.call.Send(send, &x.out.Header)
}

// answered closes the span of a call of upstream, with what its answer says.
func (x *exchange) answered(r *wire.Reply) {
	if x.s.telemetry == nil {
		return
	}
	if x.call.WantsContent() {
		input := x.viewed
		if input == nil && x.request != nil {
			input = x.request.Items()
		}
		x.call.Content(messagesOf(input), messagesOf(slices.Concat(r.Choices...)))
	}
	x.call.Answered(telemetry.Answer{
		Status: x.answer.status, ID: r.ID, Model: r.Model, Finish: r.Finish, Usage: wire.ParseUsage(r.Usage),
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
		{errIllegible, "malformed"},
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
