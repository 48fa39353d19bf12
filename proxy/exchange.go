package proxy

import (
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/wire"
)

// exchange is one request and its answer. It is pooled. The handler closes it, or for a streamed answer, the stream does.
type exchange struct {
	watch

	s      *Server
	ctx    *fasthttp.RequestCtx
	ending ending

	request request // what the client asks for
	attempt attempt // what goes upstream
	answer  answer  // what the client gets, and the log
	trace   trace
}

func newExchange(s *Server) *exchange {
	x := &exchange{s: s}
	x.ended = x.end
	x.request.s = s
	x.trace.telemetry = s.telemetry

	a := &x.attempt
	a.s, a.req, a.trace, a.ending = s, &x.request, &x.trace, &x.ending
	a.out.s, a.out.req = s, &x.request
	a.portable, a.sent, a.held.ticket = a.isPortable, a.noteSent, &x.request.body.ticket

	x.answer = answer{s: s, req: &x.request, attempt: a, trace: &x.trace, ending: &x.ending, close: x.close}
	x.answer.stream.answer, x.answer.rounds.answer = &x.answer, &x.answer
	s.watcher.assign(&x.watch)
	return x
}

// open begins a request.
func (x *exchange) open(ctx *fasthttp.RequestCtx) {
	x.ctx, x.request.ctx, x.answer.ctx = ctx, ctx, ctx
	x.answer.head, _ = x.s.answerHeads.Get().(*answerHead)
	x.answer.head.Reset()
	x.attempt.routes = x.s.routes.Load()
	x.s.watcher.add(&x.watch, ctx.Conn())
}

// run takes a request through its steps. Without a session most of them do nothing. The client is answered with its error.
func (x *exchange) run() error {
	r, a := &x.request, &x.attempt
	err := r.identify() // method, path and headers -> endpoint, session, resource, execution
	x.trace.requestBegan(r)
	if err != nil {
		return err
	}
	if err := r.admit(); err != nil {
		return err
	}
	if r.head.upgrade != nil {
		return x.tunnel() // a WebSocket: no further step applies
	}

	if err := r.read(); err != nil { // the body, once
		return err
	}
	if err := r.parse(a.upstreams); err != nil { // body -> items, where they are needed
		return err
	}
	if err := a.choose(); err != nil { // model -> provider
		return err
	}
	r.follow()       // the id of an answer -> the one by which upstream keeps it
	err = x.recall() // load, merge, recall, assemble -> view
	x.trace.turnBegan(r, x.answer.turn)
	if err != nil {
		return err
	}

	if err := x.forward(a.send); err != nil { // view -> body, send it and wait for the head of the answer
		return err
	}
	if a.tooLong {
		if err := x.shorten(); err != nil {
			return err
		}
	}
	return x.answer.reply() // pass the answer on, fold it, commit before its end
}

// shorten ends a turn that was longer than the model's context, and begins it anew with the tokens that the refusal has taught.
// Where no window leaves less, the client gets the refusal.
func (x *exchange) shorten() error {
	a := &x.attempt
	a.corrected, a.tooLong, a.status = true, false, x.answer.head.Status()
	refused := len(a.out.turn.view)
	x.answer.commit(wire.Reply{}, memory.NotAborted)
	if err := x.recall(); err != nil {
		return err
	}
	if len(a.out.turn.view) >= refused {
		return nil
	}

	a.refusal = nil
	a.upstream.Close()
	if x.ending.over() {
		return providers.ErrAborted
	}
	return x.forward(a.sendAgain)
}

// recall begins the turn of a request that names a session, or whose answer rules must judge.
func (x *exchange) recall() error {
	r := &x.request
	id, o := &r.head.id, &x.s.o.Session
	if r.guarded() && r.inBackground() {
		return errBackground()
	}
	if r.late.turn != nil {
		x.answer.late, x.answer.dialect = r.late.turn, r.late.dialect // the request passes as it came
		return nil
	}
	again := x.session != (sessionName{}) // the session stays, though another provider may be meant by now
	if !again && (!r.remember || !r.nameSession(x.attempt.out.provider.Upstream())) {
		return x.guard()
	}
	if id.doubtful && o.Tenancy == TenancyCredential {
		return errTwoCredentials()
	}
	history, err := id.historyOf(o)
	if err != nil {
		return err
	}

	begun, step := x.s.now(), x.trace.step("recall")
	x.awaitLeaving()
	t, err := x.s.begin(x.trace.context(), memory.Call{
		Lasting: r.body.lasting(), Scope: id.scope(r.tenant()), Request: r.parsed, History: history, Side: id.side, Retry: id.retry,
		Credential: id.forModels(x.attempt.out.provider.Name()), Provider: x.attempt.out.provider.Name(), MaxTokens: x.attempt.out.lesson(aboutContext).tokens,
	})
	step.End(err)
	if err != nil {
		return err
	}
	t.provider = x.attempt.out.provider.Name()
	x.begin(t)
	x.trace.spent.memory, r.previous = x.s.now().Sub(begun), t.previous

	if r.inBackground() {
		if t.steering.Judges() { // the rules are newer than the request
			return errBackground()
		}
		t.steered = false
		t.offerNoTools()
	}
	return nil
}

// leavingWait is how long a request waits for an earlier one of its session whose client has gone.
const leavingWait = 250 * time.Millisecond

// awaitLeaving waits until turns that the client has broken off are stored, so that this one sees what they were about.
func (x *exchange) awaitLeaving() {
	if x.session != (sessionName{}) {
		return // the turn begins anew
	}
	leaving := x.s.watcher.enter(&x.watch, sessionName{x.request.tenant(), x.request.head.id.session})
	if len(leaving) == 0 {
		return
	}
	enough := time.NewTimer(leavingWait) //nolint:forbidigo // wakes; no clock is read
	defer enough.Stop()
	for _, over := range leaving {
		select {
		case <-over:
		case <-enough.C:
			return
		}
	}
}

// guard begins a turn for a request that is not remembered, where rules have to judge all answers: leaving out the session,
// or sending a body that only upstream can read, must not be a way around them.
func (x *exchange) guard() error {
	r := &x.request
	if !r.guarded() || len(r.body.bytes) == 0 {
		return nil
	}
	if r.parsed == nil {
		return errUnreadable(r.wrong)
	}

	id := &r.head.id
	t, err := x.s.begin(x.trace.context(), memory.Call{
		Unkept: true, Lasting: r.body.lasting(), Request: r.parsed, Credential: id.forModels(x.attempt.out.provider.Name()),
		Scope: memory.Scope{Tenant: r.tenant(), Session: id.session, Resource: id.resource},
	})
	if err != nil {
		return err
	}
	x.begin(t)
	return nil
}

func (x *exchange) begin(t *turn) {
	x.attempt.out.turn, x.answer.turn, x.answer.committed, x.answer.dialect = t, t, false, x.request.dialect
}

// forward sends the request by send, and reads the head of the answer into the client's response.
func (x *exchange) forward(send func(*providers.Head) error) error {
	a := &x.attempt
	if a.out.turn == nil {
		x.request.streams = x.request.asksForStream()
		defer x.releaseBody() // the answer may stream for minutes
		return send(&x.answer.head.Head)
	}
	a.upstream.Sent = a.sent
	begun := x.s.now()
	err := send(&x.answer.head.Head)
	x.trace.spent.upstream = x.s.now().Sub(begun)
	return err
}

func (x *exchange) releaseBody() {
	x.request.body.release(x.s)
	x.request.parsed, x.attempt.out.body = nil, nil
}

// fail answers with an error, unless the client has disconnected or an answer has begun.
func (x *exchange) fail(err error) {
	a := &x.answer
	a.streaming = false
	if x.ending.is(endClientGone) {
		x.ctx.Response.ResetBody()
		// A client that has closed only its sending side still reads: it must not get an empty 200 that upstream never sent.
		x.s.takeConn(x.ctx, func(net.Conn) {})
		return
	}

	e := asError(err)
	if upstreamFault(err) {
		x.trace.failed(x.attempt.status, err)
		x.s.logUpstream(x.attempt.out.provider, e)
	}
	a.abandon(memory.AbortedByUpstream)
	a.head.Reset()
	e.write(&x.ctx.Response, x.request.dialect)
	a.report()
	a.openErrorToPages()
	if x.request.body.unread(x.ctx, x.request.head.length) {
		x.answerFirst(&x.ctx.Response)
	}
}

// answerFirst sends the answer and then drains the body for a while. Closing a connection with unread bytes resets it, and a
// client that is still sending would not see the answer.
func (x *exchange) answerFirst(resp *fasthttp.Response) {
	resp.Header.SetConnectionClose()
	resp.Header.SetContentLength(len(resp.Body()))
	head, _ := x.answer.head.Join(nil, resp.Header.AppendBytes(nil))
	answer := append(head, resp.Body()...)
	conn, s, rest := x.ctx.Conn(), x.s, x.ctx.RequestBodyStream()
	s.hijack(x.ctx, func() { _ = conn.SetDeadline(past()) }, func(c net.Conn) {
		const limit = 30 * time.Second
		_ = c.SetDeadline(s.now().Add(limit))
		if s.stopping.Load() {
			_ = c.SetDeadline(past())
		}
		if _, err := c.Write(answer); err == nil && rest != nil {
			_, _ = io.CopyN(io.Discard, rest, 2*int64(s.o.MaxBody))
		}
	})
}

// end is called by the watcher when the client has disconnected or the server stops.
func (x *exchange) end(why end) {
	x.ending.set(why)
	x.attempt.upstream.Abort()
	if why == endShutdown {
		_ = x.conn.SetDeadline(past())
	}
}

// past is a deadline that ends every pending read and write.
func past() time.Time { return time.Unix(1, 0) }

// close ends the exchange. A turn that is not committed by now is committed as cut off.
func (x *exchange) close() {
	defer func() {
		// Whatever panics, the watcher must let go of the connection before the server uses it again.
		x.s.watcher.remove(&x.watch)
		x.attempt.upstream.Close()
		x.releaseBody()
		x.reset()
		x.s.exchanges.Put(x)
	}()
	aborted := x.ending.cut()
	x.answer.abandon(aborted)
	x.trace.ended(x.ctx.Response.StatusCode(), x.attempt.status, aborted == memory.AbortedByClient)
	x.request.body.ticket.Leave()
}

func (x *exchange) reset() {
	x.ctx = nil
	x.ending.set(endNone)
	x.request.reset()
	x.attempt.reset()
	x.answer.reset()
	x.trace.reset()
}
