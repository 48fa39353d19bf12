package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/wire"
)

// wholeLimit is the size in bytes up to which an answer without a session is sent in one write with its head. A larger one is
// passed on as it arrives, without a buffer.
const wholeLimit = 32 << 10

// answer turns upstream's answer into the client's and the log's: as a whole, as a stream, or made of several rounds.
type answer struct {
	s       *Server
	ctx     *fasthttp.RequestCtx
	req     *request
	attempt *attempt
	trace   *trace
	ending  *ending
	close   func()       // ends the exchange
	turn    *turn        // nil unless memory has a part in the request
	late    *memory.Late // the turn that waits for this answer, where the request fetches one; nil for none
	dialect wire.Dialect // in which the turn's answer is read
	head    *answerHead  // of upstream's answer, nil once the client's connection has it

	stream    stream
	streaming bool // the stream owns the exchange now
	committed bool
	rounds    rounds
}

func (a *answer) reset() {
	if a.head != nil {
		a.head.Release()
		a.head = nil
	}
	a.ctx, a.turn, a.late, a.streaming, a.committed = nil, nil, nil, false, false
	a.stream.reset()
	a.rounds.reset()
}

// isKept reports whether the answer is parsed: it ends a turn, or rules judge it.
func (a *answer) isKept() bool { return a.turn != nil || a.late != nil }

// isSteered reports whether layers have a say in the answer, isJudged whether nothing of it may pass unjudged.
func (a *answer) isSteered() bool { return a.turn != nil && a.turn.steered }
func (a *answer) isJudged() bool  { return a.turn != nil && a.turn.steering.Judges() }

// reply passes the answer on.
func (a *answer) reply() error {
	a.attempt.status = a.head.Status()
	a.answerWith(&a.head.Head)
	a.noteEncoding()
	a.noteNoPath()
	a.openToPages(a.report())
	if a.attempt.refusal != nil {
		return a.replyRefusal()
	}

	length := a.attempt.upstream.Length()
	if length == 0 {
		a.commit(wire.Reply{}, memory.NotAborted)
		return nil
	}

	stream, err := a.isStream(&a.head.Head)
	if err != nil {
		return err
	}
	if a.isKept() && a.attempt.status < fasthttp.StatusMultipleChoices {
		if !stream {
			return a.replyWhole()
		}
		a.stream.mode = foldWhole
		encoding := a.head.ContentEncoding()
		switch {
		case a.isSteered() && decodable(encoding):
			a.stream.steer()
		case a.isJudged():
			return errUnread(unknownEncoding)
		case len(encoding) == 0:
			a.stream.mode, a.stream.folder = foldStream, wire.NewFolder(a.dialect)
		}
	}

	if a.req.stored.target != nil && !stream {
		return a.replyStored()
	}
	if !a.isKept() && !stream && length > 0 && length <= wholeLimit {
		return a.collect()
	}
	if stream {
		length = -1 // so that each event is flushed
		if len(a.head.ContentEncoding()) == 0 && isPlain(a.rounds.pieces.encoding) {
			a.attempt.upstream.Silence = a.stream.silence()
		}
	}
	return a.startStream(int(length))
}

// noteEncoding reports, in X-Memory and the log, an answer that is not stored since its Content-Encoding is unknown.
func (a *answer) noteEncoding() {
	kept := a.late != nil || a.turn != nil && !a.turn.unkept && !a.turn.steering.Judges()
	if kept && a.attempt.status < fasthttp.StatusMultipleChoices && !decodable(a.head.ContentEncoding()) {
		a.notStored("the Content-Encoding of the answer is unknown")
	}
}

// notStored reports an answer that cannot be read: it passes unchanged, and is not stored.
func (a *answer) notStored(reason string) {
	id := ""
	switch {
	case a.turn != nil:
		id, a.req.reason = a.turn.id, reason
	case a.late != nil:
		id = a.late.ID()
	}
	a.s.log.Warn("an answer can't be read; it is passed on and not kept", "turn", id, "reason", reason)
}

// noteNoPath logs, once for each provider, a 404 that a base URL without a path explains. The client gets upstream's answer as
// it came: that URL may be right, and the 404 about something else.
func (a *answer) noteNoPath() {
	if a.attempt.status != fasthttp.StatusNotFound || !a.req.dialect.Known() || a.attempt.out.provider.Upstream().Path != "" {
		return
	}
	name := a.attempt.out.provider.Name()
	if _, logged := a.attempt.noPath.LoadOrStore(name, true); !logged {
		a.s.log.Warn("upstream answers 404, and its base_url has no path: most servers want one that ends in /v1 (providers[].base_url)",
			"provider", name)
	}
}

// replyRefusal passes on an error answer that was read before.
func (a *answer) replyRefusal() error {
	a.commit(wire.Reply{}, memory.NotAborted)
	a.ctx.Response.SetBodyRaw(a.attempt.refusal)
	return nil
}

// replyWhole passes on an answer that is not streamed, after it is committed.
func (a *answer) replyWhole() error {
	body, err := a.attempt.readAll()
	if err == nil && a.isSteered() {
		body, err = a.rounds.judgeWhole(body)
	}
	switch {
	case errors.Is(err, errRefused):
		a.report()
		return a.replyRefusal()
	case isLarge(err) && !a.isJudged():
		// Pass on the part read so far, then the rest as it comes.
		a.stream.held, a.stream.tooBig, a.stream.mode = body, true, foldWhole
		return a.startStream(int(a.attempt.upstream.Length()))
	case err != nil:
		return err
	}

	a.stream.copied, a.stream.encoding = body, a.head.ContentEncoding()
	reply := a.stream.folded()
	a.reportWhole()
	a.commit(reply, memory.NotAborted)
	a.ctx.Response.SetBodyRaw(a.stream.copied)
	return nil
}

// replyStored passes on an answer that upstream stores under another id, with the id that the client knows. A stream, and an
// answer that is too large to be buffered, keep upstream's ids.
func (a *answer) replyStored() error {
	body, err := a.attempt.readAll()
	if isLarge(err) {
		a.stream.held, a.stream.tooBig, a.stream.mode = body, true, foldWhole
		return a.startStream(int(a.attempt.upstream.Length()))
	}
	if err != nil {
		return err
	}
	if wire.Text(wire.Member(bytes.TrimSpace(body), "id")) == a.req.stored.last {
		body = wire.ReplaceMember(body, "id", wire.AppendString(nil, a.req.stored.id))
	}
	a.ctx.Response.SetBodyRaw(body)
	return nil
}

// collect reads an answer of at most wholeLimit bytes into the response.
func (a *answer) collect() error {
	for {
		p, err := a.attempt.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		a.ctx.Response.AppendBody(p)
	}
}

// startStream makes the stream the body of fasthttp's response: fasthttp calls its methods after the handler has returned. It
// returns an error if the body is broken at its beginning, while an error can still be sent to the client.
func (a *answer) startStream(length int) error {
	resp := &a.ctx.Response
	a.stream.client = clientWriter{s: a.s, conn: a.ctx.Conn(), ending: a.ending}
	a.stream.encoding = bytes.Clone(a.head.ContentEncoding()) // the head leaves before the body
	if a.attempt.upstream.Ready() {
		// Those errors will be told again.
		if _, err := a.attempt.peek(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, providers.ErrIdle) {
			return err
		}
	}
	a.trace.streaming()
	a.attempt.forget()

	if length < 0 && !a.ctx.Request.Header.IsHTTP11() {
		a.streamToClose()
		return nil
	}

	a.stream.client.armed = a.s.now()
	a.streaming = true
	// With bytes of the body here already, head and body leave together.
	resp.ImmediateHeaderFlush = len(a.attempt.first) == 0
	resp.SetBodyStream(&a.stream, length)
	return nil
}

// streamToClose writes an answer of unknown length to an HTTP/1.0 client, which does not know chunks: the body ends with the
// connection. fasthttp would send chunks, so this bypasses it.
func (a *answer) streamToClose() {
	h, c := &a.ctx.Response.Header, a.ctx.Conn()
	h.SetConnectionClose()
	a.stream.client.arm()
	head, _ := a.head.Join(nil, h.Header())
	_, err := c.Write(head)
	if err == nil {
		_, err = a.stream.WriteTo(c)
	}
	a.stream.settle()
	a.s.takeConn(a.ctx, func(net.Conn) {
		if err != nil {
			breakConn(c)
		}
	})
}

// commit ends the turn, if there is one that is not committed yet.
func (a *answer) commit(r wire.Reply, aborted memory.Aborted) {
	if !a.isKept() || a.committed {
		return
	}
	a.committed = true
	if aborted != memory.NotAborted {
		// No more is to come, and r is all of it that is needed. An aborted connection is closed only here.
		a.attempt.upstream.Close()
		a.stream.folder, a.stream.merger = nil, nil
		defer a.s.commits.wait(r)()
	}

	if a.stream.mode != foldSteered {
		a.trace.answered(a.attempt, a.attempt.status, &r)
	}
	if len(r.Error) > 0 && a.turn != nil && newRefusal(a.attempt.status, r.Error).aboutLength() {
		a.attempt.out.learnLength() // streams, and some gateways, refuse with status 200
	}
	if a.rounds.n > 1 {
		r.Usage = a.rounds.usage // the client's usage has the input of the last round alone
	}

	step := a.trace.step("commit")
	end := memory.Answer{Reply: r, HTTPStatus: a.attempt.status, Aborted: aborted, Provider: a.attempt.out.provider.Name(), Model: a.attempt.out.model}
	if a.late != nil {
		a.late.Commit(end)
	} else {
		a.turn.ender.Commit(end)
	}
	step.End(nil)
}

// abandon ends the turn of a request that has got no answer. It survives a panic: its callers run after the one place that does.
func (a *answer) abandon(aborted memory.Aborted) {
	defer func() {
		if v := recover(); v != nil {
			a.s.recovered(v)
		}
	}()
	a.commit(wire.Reply{}, aborted)
}

// commitGate limits how many large answers that were cut off are committed at once. A commit takes several times the memory of
// its answer, no client waits for it, and all clients of a network may disconnect at once.
type commitGate struct {
	slots chan struct{}
	hurry chan struct{} // closed when the server stops
}

const (
	commitsAtOnce = 4
	largeCommit   = 256 << 10 // bytes
)

func newCommitGate() commitGate {
	return commitGate{slots: make(chan struct{}, commitsAtOnce), hurry: make(chan struct{})}
}

// wait returns when an answer may be committed. Call done after the commit.
func (p *commitGate) wait(r wire.Reply) (done func()) {
	size := 0
	for _, choice := range r.Choices {
		for i := range choice {
			size += len(choice[i].Raw)
		}
	}
	if size < largeCommit {
		return func() {}
	}
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }
	case <-p.hurry:
		return func() {}
	}
}

// isStream reports whether an answer is an event stream: by its type or, where the client has asked for one, if the type says
// nothing and the length is unknown. If the type and what the client has asked for differ, the body decides where that matters: SDKs
// do not look at the type, and some gateways say application/json of a stream, or text/event-stream of any answer.
func (a *answer) isStream(h *providers.Head) (bool, error) {
	typ := h.ContentType()
	is := func(name string) bool { return len(typ) >= len(name) && bytes.EqualFold(typ[:len(name)], []byte(name)) }
	events := is("text/event-stream")
	switch {
	case a.attempt.upstream.Length() < 0 && (len(typ) == 0 || is("text/plain") || is("application/octet-stream")):
		return a.req.asksForStream(), nil
	case !a.isKept(), h.Status() >= fasthttp.StatusMultipleChoices, events && !a.isSteered(), events && len(h.ContentEncoding()) > 0, events == a.req.asksForStream():
		return events, nil
	}
	p, err := a.stream.beginning()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return wire.BeginsStream(p), err
}

// breakConn resets a connection, so that the client does not take the end of what was written for the end of the body. With TLS
// it closes the connection below, since TLS would send an orderly end first.
func breakConn(c net.Conn) {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	if tcp, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
		_ = c.Close()
	}
}
