package proxy

import (
	"bytes"
	"context"
	"maps"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/proxy/limit"
	"remora/telemetry"
	"remora/wire"
)

// run takes a request through the steps of DESIGN.md section 3, as far as its session asks for them. Its error is what
// the client is answered with.
func (x *exchange) run() error {
	err := x.identify() // method, path and headers -> endpoint, session, resource, execution
	x.begun()
	if err != nil {
		return err
	}
	if err := x.enter(); err != nil {
		return err
	}
	if x.head.upgrade != nil {
		return x.tunnel() // a WebSocket: no further step applies
	}
	if err := x.read(); err != nil { // the body, once
		return err
	}
	x.parse()                        // body -> items, where somebody needs to know
	if err := x.pick(); err != nil { // model -> provider
		return err
	}
	if err := x.recall(); err != nil { // load, merge, recall, assemble -> view
		return err
	}
	x.remembered()
	x.encode()                          // view -> body
	if err := x.forward(); err != nil { // send it and wait for the head of the answer
		return err
	}
	return x.reply() // pass the answer on, fold it, commit before its end
}

// exchange is one request and its answer. It is pooled; whoever ends it last (the handler, or the stream of the
// answer) closes it.
type exchange struct {
	watch

	s        *Server
	ctx      *fasthttp.RequestCtx
	head     head
	owner    owner        // of the request's credential; kept from one request to the next
	dialect  wire.Dialect // 0 where nothing is remembered
	remember bool         // unless the request says otherwise
	provider providers.Provider
	model    string      // that a fallback asks for in place of the client's, "" for the client's
	*routes              // as they were when the request came
	portable func() bool // elsewhere, made a function once
	ticket   limit.Ticket

	raw     *[]byte       // pooled buffer behind body, nil once it was given back
	body    []byte        // as it came
	plain   []byte        // decoded; the same as body unless it has a Content-Encoding
	request *wire.Request // nil unless the body was parsed
	send    []byte        // what goes upstream
	viewed  []wire.Item   // the items of that, nil for those of request
	decoded bool          // send goes without the body's Content-Encoding

	out      fasthttp.Request // what the provider prepares: target, Host, additions
	sentHead *[]byte          // pooled, nil while the answer streams
	upstream providers.Exchange
	pieces   pieces // of upstream's answer, where layers have a say in it

	call      telemetry.Call
	turn      *turn  // nil unless the request is remembered
	status    string // of X-Memory where a session was named but there is no turn
	spent     struct{ memory, upstream time.Duration }
	answer    answer
	streaming bool // the answer's stream owns the exchange now
	why       atomic.Uint32
}

func newExchange(s *Server) *exchange {
	x := &exchange{s: s}
	x.answer.x = x
	x.ended, x.portable = x.end, x.elsewhere
	s.watcher.assign(&x.watch)
	return x
}

// open begins a request.
func (x *exchange) open(ctx *fasthttp.RequestCtx) {
	x.ctx, x.routes = ctx, x.s.routes.Load()
	x.s.watcher.add(&x.watch, ctx.Conn())
}

// end is called by the watcher: the client is gone, or the server stops.
func (x *exchange) end(why end) {
	x.why.Store(uint32(why))
	x.upstream.Abort()
	if why == endShutdown {
		_ = x.conn.SetDeadline(past())
	}
}

// past is a deadline that wakes every read and write.
func past() time.Time { return time.Unix(1, 0) }

// close ends the exchange. A turn that nobody has committed by now broke off.
func (x *exchange) close() {
	defer func() {
		// Whatever happens in the commit, the connection leaves the watcher before the server goes on with it.
		x.s.watcher.remove(&x.watch)
		x.upstream.Close()
		x.releaseBody()
		x.reset()
		x.s.exchanges.Put(x)
	}()
	x.commit(wire.Reply{}, x.cut())
	x.traced()
	x.ticket.Leave()
}

func (x *exchange) reset() {
	x.ctx, x.provider, x.model, x.routes, x.turn = nil, nil, "", nil, nil
	x.dialect, x.remember, x.request, x.status = 0, false, nil, ""
	x.body, x.plain, x.send, x.viewed, x.decoded = nil, nil, nil, nil, false
	x.pieces = pieces{}
	x.spent.memory, x.spent.upstream = 0, 0
	x.streaming = false
	x.why.Store(0)
	x.answer.reset()
	x.head.reset()
}

// identify reads the request's head.
func (x *exchange) identify() error {
	h := &x.ctx.Request.Header
	x.head.read(x.s.names, h)
	if string(h.Method()) != fasthttp.MethodGet {
		x.head.upgrade = nil // an ordinary request, whatever it would like to become
	}
	if x.head.broken {
		return &Error{
			Status: fasthttp.StatusBadRequest, Code: codeBadRequest, Message: "the name of a header has a space in it",
			Headers: maps.All(map[string]string{fasthttp.HeaderConnection: "close"}), // who reads such a head otherwise may see another end of it
		}
	}
	// A method has one spelling, but there are servers that take post for it.
	if x.s.begin == nil || !bytes.EqualFold(h.Method(), []byte(fasthttp.MethodPost)) {
		return nil
	}
	d, unclear := dialectOf(h.RequestURI())
	if unclear && x.s.guarded() {
		return &Error{
			Status: fasthttp.StatusBadRequest, Code: codeBadRequest,
			Message: "the rules of this gateway judge answers of /v1/chat/completions and /v1/responses, and this path may lead to others of the kind: use one of these",
		}
	}
	x.dialect = d
	x.remember = x.dialect != 0
	if x.remember && x.head.id.off && x.head.id.session != "" {
		x.remember, x.status = false, "off"
	}
	return nil
}

// parse splits the body if memory or the choice of a provider need to look into it.
func (x *exchange) parse() {
	guarded := x.guarded()
	needed := x.remember || guarded || x.upstreams.NeedsModel()
	if !needed || len(x.body) == 0 || !guarded && x.namesNoSession() {
		x.bypass()
		return
	}
	plain, err := x.decodeBody()
	if err != nil || !startsObject(plain) {
		x.bypass()
		return
	}
	d := x.dialect
	if d == 0 {
		d = wire.Responses // which does not ask for any member to be there
	}
	r, err := wire.Parse(d, plain)
	if err != nil && d == wire.Chat {
		// The answer tells that the session was bypassed, also where only this body names it.
		if r, err := wire.Parse(wire.Responses, plain); err == nil {
			x.head.id.readFields(&x.s.o.Session, r)
		}
	}
	if err != nil {
		x.bypass()
		return
	}
	x.plain, x.request = plain, r
	if x.remember && x.head.id.off {
		x.head.id.readFields(&x.s.o.Session, r)
		x.bypass()
	}
}

// namesNoSession tells of a body, without reading it, that it can't name a session when no header has.
func (x *exchange) namesNoSession() bool {
	known := x.head.id.session != "" || len(x.head.encoded) > 0 || x.upstreams.NeedsModel()
	return !known && !x.s.hints.In(x.body)
}

// bypass gives up on memory for a body that can't be read or is not to be remembered. It is forwarded as it is.
func (x *exchange) bypass() {
	if x.remember && x.head.id.session != "" {
		x.status = "bypass"
		if x.head.id.off {
			x.status = "off"
		}
	}
	x.remember = false
}

// pick chooses the provider.
func (x *exchange) pick() error {
	model := ""
	if x.request != nil && x.upstreams.NeedsModel() {
		model = x.request.Text("model")
	}
	if x.provider = x.upstreams.Pick(model); x.provider == nil {
		return &Error{
			Status: fasthttp.StatusNotFound, Code: codeNoProvider,
			Message: "no provider is configured for this model (providers.models)",
		}
	}
	return nil
}

// recall opens the turn of a request that names a session.
func (x *exchange) recall() error {
	if x.guarded() && x.inBackground() {
		return errBackground()
	}
	if !x.remember {
		return x.guard()
	}
	id, o := &x.head.id, &x.s.o.Session
	if x.provider.Upstream().BodySessionWins {
		// This upstream routes and groups by the member, so memory has to follow it.
		id.prefer(sessionField, x.request)
	}
	id.readFields(o, x.request)
	if id.session == "" {
		x.findSession()
	}
	if id.session == "" {
		return x.guard()
	}
	history, err := id.historyOf(o)
	if err != nil {
		return err
	}
	begun, step := x.s.now(), x.call.Step("recall")
	x.turn, err = x.s.begin(x.call.Context(), memory.Call{
		Scope: id.scope(x.owner.of(o, id.credential)), Request: x.request, History: history, Side: id.side, Credential: id.forModels(x.provider.Name()),
	})
	step.End(err)
	if err != nil {
		return err
	}
	x.spent.memory = x.s.now().Sub(begun)
	if x.inBackground() {
		if x.turn.steering.Judges() { // the rules are newer than the request
			return errBackground()
		}
		x.turn.tools, x.turn.steered = nil, false
	}
	if len(x.turn.tools) > 0 && x.s.toolless.has(x.modelKey(), x.s.now()) {
		x.turn.tools = nil
	}
	x.s.stats.remembered.Add(1)
	return nil
}

// findSession finds the session of a request that names nothing but the response that it follows.
func (x *exchange) findSession() {
	previous := x.request.Text(previousResponse)
	if x.dialect != wire.Responses || previous == "" {
		return
	}
	id, o := &x.head.id, &x.s.o.Session
	// Without the store there is no session to be found, and the request passes as one that has none.
	if session, err := x.s.sessionOf(context.Background(), x.owner.of(o, id.credential), previous); err == nil && session != "" {
		id.session, id.source = session, previousResponse
		id.readFields(o, x.request)
	}
}

// encode makes the body of the view. If nothing has changed it is the client's own, compression included. So it is,
// and the answer's header says degraded, if the view can't be encoded.
func (x *exchange) encode() {
	x.send, x.decoded = x.body, false
	if x.turn == nil {
		return
	}
	b, err := x.request.With(x.turn.view, x.turn.tools...)
	if err != nil {
		x.s.log.Error("encode a view; the request goes as it came", "turn", x.turn.id, "error", err.Error())
		n := len(x.request.Items())
		x.turn.summary = memory.Summary{Status: memory.StatusDegraded, Items: n, Sent: n, Side: x.turn.summary.Side}
		return
	}
	x.viewed = x.turn.view
	if sameBody(b, x.plain) {
		return
	}
	x.send, x.decoded = b, len(x.head.encoded) > 0
}

// prepare writes the head of the upstream request.
func (x *exchange) prepare(rw rewrite) error {
	in, out := &x.ctx.Request.Header, &x.out
	out.Reset()
	out.Header.DisableNormalizing()
	out.Header.SetNoDefaultContentType(true)
	out.Header.SetMethodBytes(in.Method())
	out.Header.SetRequestURIBytes(in.RequestURI())
	if err := x.provider.Prepare(out); err != nil {
		return err
	}
	x.sending()
	if x.sentHead == nil {
		x.sentHead, _ = x.s.heads.Get().(*[]byte)
	}
	*x.sentHead = x.head.appendHead((*x.sentHead)[:0], &out.Header, rw)
	return nil
}

func (x *exchange) roundTrip() error {
	return x.s.client.Send(&x.upstream, x.provider.Upstream(), *x.sentHead, x.send, &x.ctx.Response.Header)
}

// commit ends the turn, if there is one that has not ended.
func (x *exchange) commit(r wire.Reply, cut memory.Cut) {
	if x.turn == nil || x.turn.committed {
		return
	}
	x.turn.committed = true
	if cut != memory.CutNone {
		// No more is to come, and r is all of it that is needed. An aborted connection is closed only here.
		x.upstream.Close()
		x.answer.folder, x.answer.stitch = nil, nil
		defer x.s.parts.wait(r)()
	}
	if x.answer.mode != foldSteered {
		x.answered(&r)
	}
	if x.dialect == wire.Responses && (r.Finish == "queued" || r.Finish == "in_progress") {
		r.Complete = false // its body is whole, but the answer is still to come
	}
	step := x.call.Step("commit")
	x.turn.ender.Commit(memory.Answer{Reply: r, HTTPStatus: x.answer.status, Cut: cut})
	step.End(nil)
}

// fail answers with an error, unless the client has gone or reads an answer already.
func (x *exchange) fail(err error) {
	if end(x.why.Load()) == endClientGone {
		x.s.stats.clientGone.Add(1)
		x.streaming = false
		x.ctx.Response.ResetBody()
		// One that has only closed its sending side still reads, and an empty 200 would be an answer that nobody gave.
		x.ctx.HijackSetNoResponse(true)
		x.ctx.Hijack(func(net.Conn) {})
		return
	}
	e := asError(err)
	if upstreamFault(err) {
		x.failing(err)
		x.s.stats.upstreamFailed.Add(1)
		x.s.logUpstream(x.provider, e)
	} else {
		x.s.stats.refused.Add(1)
	}
	x.commit(wire.Reply{}, memory.CutUpstream)
	x.streaming = false
	e.write(&x.ctx.Response)
	x.report(&x.ctx.Response.Header)
}
