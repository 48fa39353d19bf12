package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/proxy/limit"
	"remora/wire"
)

// exchange is one request and its answer. It is pooled. The handler closes it, or for a streamed answer, the stream does.
//
// Each part knows those above it, and none below.
type exchange struct {
	watch   watch   // of the client's connection
	request         // what the client asks for
	attempt attempt // what goes upstream
	answer  answer  // what the client gets, and the log
	rounds  rounds  // of the model, where layers judge an answer or run tools
	stream  stream  // the body of the answer, while it is passed on
	sent    func()  // tells the turn that its request is upstream; made once, as a function value allocates
}

func newExchange(s *Server) *exchange {
	x := new(exchange)
	x.watch.onEnd, x.sent = x.end, func() { x.turn.ender.Forwarded() }
	x.s, x.trace.telemetry = s, s.telemetry
	x.attempt = attempt{
		req: &x.request, out: outgoing{req: &x.request}, portable: x.attempt.isPortable, prepared: new(fasthttp.Request), upstream: new(providers.Exchange),
	}
	x.answer.req, x.answer.attempt = &x.request, &x.attempt
	x.rounds.answer = &x.answer
	x.stream = stream{answer: &x.answer, rounds: &x.rounds, close: x.close}
	s.watcher.assign(&x.watch)
	return x
}

// open begins a request.
func (x *exchange) open(ctx *fasthttp.RequestCtx) {
	x.ctx, x.routes = ctx, x.s.routes.Load()
	x.answer.head, _ = x.s.answerHeads.Get().(*answerHead)
	x.answer.head.Reset()
	x.s.watcher.add(&x.watch, ctx.Conn())
}

// run takes a request through its steps. Without a session most of them do nothing. The client is answered with its error.
func (x *exchange) run() error {
	a := &x.attempt
	err := x.identify() // method, path and headers -> endpoint, session, resource, execution
	x.trace.requestBegan(&x.request)
	if err != nil {
		return err
	}
	if err := x.admit(); err != nil {
		return err
	}
	if x.head.upgrade != nil {
		return x.tunnel() // a WebSocket: no further step applies
	}

	if err := x.read(); err != nil { // the body, once
		return err
	}
	if err := x.parse(); err != nil { // body -> items, where they are needed
		return err
	}
	x.follow() // the id of an answer -> its provider, and the id by which that keeps it

	if err := a.choose(); err != nil { // model -> provider
		return err
	}
	err = x.recall(false) // load, merge, recall, assemble -> view
	x.trace.turnBegan(&x.request)
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
	return x.reply() // pass the answer on, fold it, commit before its end
}

// tunnel serves a WebSocket. The handshake passes like any request; after a 101 bytes are copied in both directions.
func (x *exchange) tunnel() error {
	guarded := x.s.memory.Guards()
	wanted := x.head.id.session != "" && !x.head.id.off || guarded
	d, unclear := dialectOf(x.ctx.Request.Header.RequestURI())
	if wanted && (d.Known() && routeOf(d).socket || unclear && guarded) {
		return errWebSocket(guarded)
	}

	if err := x.read(); err != nil {
		return err
	}
	a, h := &x.attempt, &x.answer.head.Head
	if err := a.choose(); err != nil {
		return err
	}
	a.out.body = x.body.bytes
	if err := a.call(h); err != nil {
		return err
	}
	if h.Status() != fasthttp.StatusSwitchingProtocols {
		return x.reply()
	}

	up, buffered := a.upstream.Hijack()
	if up == nil {
		return errors.New("client left during the handshake")
	}
	x.ctx.Response.SetStatusCode(h.Status())
	t := &tunnel{s: x.s, up: up, buffered: buffered, client: x.ctx.Conn(), answer: append(bytes.Clone(h.Lines()), "\r\n"...), ticket: x.body.ticket}
	x.body.ticket = limit.Ticket{} // the request goes on with the tunnel
	x.s.hijack(x.ctx, t.stop, t.run)
	return nil
}

// recall begins the turn of a request that names a session, or whose answer rules must judge; again: it was begun before, in the
// session that stays, though another provider may be meant by now.
func (x *exchange) recall(again bool) error {
	id, o, out := &x.head.id, &x.s.o.Session, &x.attempt.out
	if x.guarded() && x.inBackground() {
		return errBackground()
	}
	if x.late.turn != nil {
		return nil // the request passes as it came
	}
	if !again && (!x.remember || !x.nameSession(out.provider)) {
		return x.guard()
	}
	if o.Tenancy == TenancyCredential && id.doubtful() {
		return errTwoCredentials()
	}
	history, err := id.historyOf(o)
	if err != nil {
		return err
	}

	begun, step := x.s.now(), x.trace.Step("recall")
	if !again {
		x.awaitLeaving()
	}
	t, err := x.s.begin(x.trace.Context(), memory.Call{
		Lasting: x.body.lasting(), Scope: id.scope(x.tenant()), Request: x.parsed,
		History: history, Side: id.side, Retry: id.retry, Resends: id.source == openWebUIChat,
		Credential: id.forModels(out.provider.Name()), Provider: out.provider.Name(), MaxTokens: out.lesson(aboutContext).tokens,
	})
	step.End(err)
	if err != nil {
		return err
	}
	t.provider = out.provider.Name()
	t.lastText = len(t.Tools) > 0 && x.wantsJSON() && x.wantsOneChoice()
	x.turn, x.answer.committed, x.previous = t, false, t.Previous
	x.trace.spent.memory = x.s.now().Sub(begun)

	if x.inBackground() {
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
	leaving := x.s.watcher.enter(&x.watch, sessionName{x.tenant(), x.head.id.session})
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
	if !x.guarded() || len(x.body.bytes) == 0 {
		return nil
	}
	if x.parsed == nil {
		return errUnreadable(x.wrong)
	}

	id := &x.head.id
	t, err := x.s.begin(x.trace.Context(), memory.Call{
		Unkept: true, Lasting: x.body.lasting(), Request: x.parsed, Credential: id.forModels(x.attempt.out.provider.Name()),
		Scope: memory.Scope{Tenant: x.tenant(), Session: id.session, Resource: id.resource},
	})
	if err != nil {
		return err
	}
	x.turn, x.answer.committed = t, false
	return nil
}

// forward sends the request by send, and reads the head of the answer into the client's response.
func (x *exchange) forward(send func(*providers.Head) error) error {
	if x.turn == nil {
		x.streams = x.asksForStream()
		defer x.releaseBody() // the answer may stream for minutes
		return send(&x.answer.head.Head)
	}
	x.attempt.upstream.Sent = x.sent
	begun := x.s.now()
	err := send(&x.answer.head.Head)
	x.trace.spent.upstream = x.s.now().Sub(begun)
	return err
}

// shorten ends a turn that was longer than the model's context, and begins it anew with the tokens that the refusal has taught.
// Where nothing can be left out, the client gets the refusal.
func (x *exchange) shorten() error {
	a := &x.attempt
	a.corrected, a.tooLong, a.status = true, false, x.answer.head.Status()
	refused := x.turn.shaper.Tokens()
	x.answer.commit(wire.Reply{}, memory.NotAborted)
	if err := x.recall(true); err != nil {
		return err
	}
	if x.turn.shaper.Tokens() >= refused {
		return nil
	}

	a.refusal = nil
	a.upstream.Close()
	if x.ending.over() {
		return providers.ErrAborted
	}
	return x.forward(a.sendAgain)
}

// reply passes the answer on.
func (x *exchange) reply() error {
	a := &x.answer
	x.attempt.status = a.head.Status()
	a.answerWith(&a.head.Head)
	a.noteEncoding()
	a.noteNoPath()
	a.openToPages(a.report())
	if x.attempt.refusal != nil {
		x.replyRefusal()
		return nil
	}

	length := x.attempt.upstream.Length()
	if x.body.unread() { // upstream has answered without it
		return x.startStream(nil, length)
	}
	if length == 0 {
		a.commit(wire.Reply{}, memory.NotAborted)
		return nil
	}
	stream, err := a.isStream(&a.head.Head)
	if err != nil {
		return err
	}
	kept := a.isKept() && x.attempt.status < fasthttp.StatusMultipleChoices
	switch {
	case kept && !stream:
		return x.replyWhole()
	case kept:
		if err := x.stream.read(); err != nil {
			return err
		}
	case !stream && x.stored.target != nil:
		return x.replyStored()
	case !stream && !a.isKept() && length > 0 && length <= wholeLimit:
		return x.collect()
	}

	if stream {
		length = -1 // so that each event is flushed
		if len(a.head.ContentEncoding()) == 0 && isPlain(x.rounds.pieces.encoding) {
			x.attempt.upstream.Silence = a.silence()
		}
	}
	return x.startStream(nil, length)
}

// replyRefusal passes on an error answer that was read before.
func (x *exchange) replyRefusal() {
	x.answer.commit(wire.Reply{}, memory.NotAborted)
	x.ctx.Response.SetBodyRaw(x.attempt.refusal)
}

// replyWhole passes on an answer that is not streamed, after it is committed.
func (x *exchange) replyWhole() error {
	a := &x.answer
	body, err := x.attempt.readAll()
	if err == nil && a.isSteered() {
		body, err = x.rounds.judgeWhole(body)
	}
	switch {
	case errors.Is(err, errRefused):
		a.report()
		x.replyRefusal()
		if x.attempt.refusal == nil { // it is too large to be read, and passes as it arrives
			return x.startStream(nil, x.attempt.upstream.Length())
		}
		return nil
	case isLarge(err) && !a.isJudged():
		x.stream.whole = &wholeBody{tooBig: true}
		return x.startStream(body, x.attempt.upstream.Length())
	case err != nil:
		return err
	}

	reply := a.fold(a.head.ContentEncoding(), body)
	a.reportWhole()
	a.commit(reply, memory.NotAborted)
	x.ctx.Response.SetBodyRaw(body)
	return nil
}

// replyStored passes on an answer that upstream stores under another id, with the id that the client knows. A stream, and an
// answer that is too large to be buffered, keep upstream's ids.
func (x *exchange) replyStored() error {
	body, err := x.attempt.readAll()
	if isLarge(err) {
		return x.startStream(body, x.attempt.upstream.Length())
	}
	if err != nil {
		return err
	}
	if wire.Text(wire.Member(bytes.TrimSpace(body), "id")) == x.stored.last {
		body = wire.ReplaceMember(body, "id", wire.AppendString(nil, x.stored.id))
	}
	x.ctx.Response.SetBodyRaw(body)
	return nil
}

// wholeLimit is the size in bytes up to which an answer without a session is sent in one write with its head. A larger one is
// passed on as it arrives, without a buffer.
const wholeLimit = 32 << 10

// collect reads an answer of at most wholeLimit bytes into the response.
func (x *exchange) collect() error {
	for {
		p, err := x.attempt.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		x.ctx.Response.AppendBody(p)
	}
}

// startStream makes the stream the body of fasthttp's response: fasthttp calls its methods after the handler has returned. begun
// is the part of the body that was read. It returns an error if the body is broken at its beginning, while an error can still be
// sent to the client.
func (x *exchange) startStream(begun []byte, length int64) error {
	resp, st, a := &x.ctx.Response, &x.stream, &x.attempt
	st.held = begun
	st.client = clientWriter{s: x.s, conn: x.ctx.Conn(), ending: &x.ending}
	st.encoding = bytes.Clone(x.answer.head.ContentEncoding()) // the head leaves before the body
	if a.upstream.Ready() {
		// Those errors will be told again.
		if _, err := a.peek(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, providers.ErrIdle) {
			return err
		}
	}
	x.trace.Stream()
	a.forget()

	if length < 0 && !x.ctx.Request.Header.IsHTTP11() || x.body.unread() {
		x.streamToClose(length)
		return nil
	}

	st.client.armed = x.s.now()
	st.owns = true
	// With bytes of the body here already, head and body leave together. Layers may hold those back, and upstream may break off then:
	// the client would get no answer at all.
	resp.ImmediateHeaderFlush = len(a.first) == 0 || x.answer.steered
	resp.SetBodyStream(st, int(length))
	return nil
}

// streamToClose writes an answer after which the connection is closed, and bypasses fasthttp for it: to an HTTP/1.0 client, which does
// not know chunks, where the length is unknown, and to one that may still be sending its body.
func (x *exchange) streamToClose(length int64) {
	h, c := &x.ctx.Response.Header, x.ctx.Conn()
	h.SetConnectionClose()
	if length >= 0 && !x.ctx.IsHead() {
		h.SetContentLength(int(length))
	}
	x.stream.client.arm()
	head, _ := x.answer.head.Join(nil, h.Header())
	_, err := c.Write(head)
	if err == nil {
		_, err = x.stream.WriteTo(c)
	}
	x.stream.settle()
	if err == nil && x.body.unread() {
		x.s.answerFirst(x.ctx, nil)
		return
	}
	x.s.takeConn(x.ctx, func(net.Conn) {
		if err != nil {
			breakConn(c)
		}
	})
}

// fail answers with an error, unless the client has disconnected or an answer has begun.
func (x *exchange) fail(err error) {
	a := &x.answer
	x.stream.owns = false
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
	e.write(&x.ctx.Response, x.dialect)
	a.report()
	a.openErrorToPages()
	if x.body.unread() {
		resp := &x.ctx.Response
		resp.Header.SetConnectionClose()
		resp.Header.SetContentLength(len(resp.Body()))
		head, _ := a.head.Join(nil, resp.Header.AppendBytes(nil))
		x.s.answerFirst(x.ctx, append(head, resp.Body()...))
	}
}

// answerFirst sends an answer, or what is left of it, and then drains the request's body for a while. Closing a connection with unread
// bytes resets it, and a client that is still sending would not see the answer.
func (s *Server) answerFirst(ctx *fasthttp.RequestCtx, answer []byte) {
	conn, rest := ctx.Conn(), ctx.RequestBodyStream()
	s.hijack(ctx, func() { _ = conn.SetDeadline(past()) }, func(c net.Conn) {
		const limit = 30 * time.Second
		_ = c.SetDeadline(s.now().Add(limit))
		if s.stopping.Load() {
			_ = c.SetDeadline(past())
		}
		if _, err := c.Write(answer); err != nil || rest == nil {
			return
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the end of the answer, for a client that waits for it
		}
		if _, err := io.Copy(io.Discard, rest); err != nil {
			_, _ = io.Copy(io.Discard, c) // reading was stopped in the frame of a chunk: the end is the client's
		}
	})
}

// end is called by the watcher when the client has disconnected or the server stops.
func (x *exchange) end(why end) {
	x.ending.set(why)
	x.attempt.upstream.Abort()
	if why == endShutdown {
		_ = x.watch.conn.SetDeadline(past())
	}
}

// past is a deadline that ends every pending read and write.
func past() time.Time { return time.Unix(1, 0) }

// close ends the exchange. A turn that is not committed by now is committed as cut off.
func (x *exchange) close() {
	defer func() {
		// Whatever panics, the watcher must let go of the connection before the server uses it again, and the limits of the request.
		x.s.watcher.remove(&x.watch)
		x.body.ticket.Leave()
		x.attempt.upstream.Close()
		x.releaseBody()
		x.reset()
		x.s.exchanges.Put(x)
	}()
	aborted := x.ending.cut()
	x.answer.abandon(aborted)
	x.trace.ended(x.ctx.Response.StatusCode(), x.attempt.status, aborted == memory.AbortedByClient)
}

// reset forgets the request and all that came of it: the next one may be another tenant's.
func (x *exchange) reset() {
	x.stream.reset()
	x.rounds = rounds{answer: x.rounds.answer}
	x.answer.reset()
	x.attempt.reset()
	x.request.reset()
}

func (x *exchange) releaseBody() {
	x.body.release()
	x.parsed, x.attempt.out.body = nil, nil
}
