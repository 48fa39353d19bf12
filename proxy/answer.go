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
	"remora/wire"
)

// answer is upstream's answer as the client gets its head, and the log its content.
type answer struct {
	req     *request
	attempt *attempt
	head    *answerHead // of upstream's answer, nil once the client's connection has it

	modelCalls int    // that it is made of so far, where layers have a say in it
	usage      []byte // the sum over those
	steered    bool   // it is a stream that layers have a say in: its rounds close their spans themselves
	committed  bool
}

func (a *answer) reset() {
	if a.head != nil {
		a.head.Release()
	}
	*a = answer{req: a.req, attempt: a.attempt}
}

// isKept reports whether the answer is parsed: it ends a turn, or rules judge it.
func (a *answer) isKept() bool { return a.req.turn != nil || a.req.late.turn != nil }

// isSteered reports whether layers have a say in the answer, isJudged whether nothing of it may pass unjudged.
func (a *answer) isSteered() bool { return a.req.turn != nil && a.req.turn.steered }
func (a *answer) isJudged() bool  { return a.req.turn != nil && a.req.turn.steering.Judges() }

// dialect is that in which the answer is read.
func (a *answer) dialect() wire.Dialect {
	if a.req.late.turn != nil {
		return a.req.late.dialect
	}
	return a.req.dialect
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
	p, err := a.attempt.beginning()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return wire.BeginsStream(p), err
}

// heldKeepAlive is the interval of comments while a whole answer is held back, unless keep_alive is set.
const heldKeepAlive = 15 * time.Second

// silence returns after how long without a byte the client gets a comment, 0 for never.
func (a *answer) silence() time.Duration {
	every := a.req.s.o.KeepAlive
	if every <= 0 && a.steered && a.req.turn.holdsAll() {
		return heldKeepAlive
	}
	return every
}

// fold reads a whole answer.
func (a *answer) fold(encoding, body []byte) (r wire.Reply) {
	switch {
	case !a.isKept() || a.committed:
		return r
	case !decodable(encoding):
		return wire.Reply{Truncated: true}
	case len(body) == 0:
		return r
	}
	plain, err := decode(encoding, body, foldLimit, a.attempt.hold)
	if wire.BeginsStream(plain) {
		f := wire.NewFolder(a.dialect())
		f.Write(plain)
		return f.Reply()
	}
	if err == nil {
		r, err = wire.FoldBody(a.dialect(), plain)
	}
	if err != nil {
		a.notStored("the answer cannot be read")
	}
	return r
}

// notStored reports an answer that cannot be read: it passes unchanged, and is not stored.
func (a *answer) notStored(reason string) {
	id := ""
	switch {
	case a.req.turn != nil:
		id, a.req.reason = a.req.turn.ID, reason
	case a.req.late.turn != nil:
		id = a.req.late.turn.ID()
	}
	a.req.s.log.Warn("an answer can't be read; it is passed on and not kept", "turn", id, "reason", reason)
}

// cutShort logs that an answer passes of which there is no room to store the rest: later requests of its session get only its
// beginning.
func (a *answer) cutShort() {
	const what = "there is no room to store the rest of an answer; it is passed on"
	s := a.req.s
	if _, due := s.bypasses.Due(what, s.now(), bypassEvery); due {
		s.log.Warn(what, "room", Size(foldLimit).String()+", or what limits.global.body_bytes leaves")
	}
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
		defer a.req.s.commits.wait(r)()
	}

	switch {
	case !a.steered:
		a.req.trace.answeredUntil(a.attempt, a.attempt.status, &r, aborted)
	case aborted != memory.NotAborted: // r has all rounds, and those before are counted
		a.req.trace.answeredUntil(a.attempt, a.attempt.status, &wire.Reply{}, aborted)
	}
	out, turn := &a.attempt.out, a.req.turn
	if len(r.Error) > 0 && turn != nil {
		out.learnLength(newRefusal(a.attempt.status, r.Error)) // streams, and some gateways, refuse with status 200
	} else if turn != nil && a.modelCalls <= 1 && aborted == memory.NotAborted {
		out.noteCut(&r.Used)
	}
	if a.modelCalls > 1 {
		r.Usage = a.usage // the client's usage has the input of the last round alone
	}

	step := a.req.trace.Step("commit")
	end := memory.Answer{Reply: r, HTTPStatus: a.attempt.status, Aborted: aborted, Model: out.model}
	if out.provider != nil { // there may be none for the model that a request about an answer names
		end.Provider = out.provider.Name()
	}
	if turn != nil {
		turn.ender.Commit(end)
	} else {
		a.req.late.turn.Commit(end)
	}
	step.End(nil)
}

// abandon ends the turn of a request that has got no answer. It survives a panic: its callers run after the one place that does.
func (a *answer) abandon(aborted memory.Aborted) {
	defer a.req.s.recoverPanic()
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
