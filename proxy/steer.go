package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/wire"
	"remora/wire/stitch"
)

// turn is a memory.Turn as far as an exchange uses it.
type turn struct {
	id        string
	view      []wire.Item
	tools     [][]byte // definitions that layers add to the client's
	summary   memory.Summary
	steering  memory.Steering
	steered   bool // layers have a say in the answer
	committed bool
	unkept    bool // nothing is kept of it, and the client is told nothing of it
	ender     interface {
		Forwarded()
		Commit(a memory.Answer)
	}
	judge interface {
		Review(ctx context.Context, r wire.Reply) memory.Next
		LastRound() bool
	}
}

type beginTurn func(ctx context.Context, c memory.Call) (*turn, error)

func adapt(m Memory) beginTurn {
	return func(ctx context.Context, c memory.Call) (*turn, error) {
		t, err := m.Begin(ctx, c)
		if err != nil {
			return nil, err
		}
		out := &turn{unkept: c.Unkept, id: t.ID, view: t.View, tools: t.Tools, summary: t.Summary, ender: t, judge: t}
		out.steering, out.steered = t.Steering()
		return out, nil
	}
}

// severalChoices is why an answer is denied of which not all calls can be judged.
const severalChoices = "several choices cannot be judged"

// unjudged tells of calls that layers want to judge but never see: they get the first choice.
func (t *turn) unjudged(r wire.Reply) bool {
	if !t.steering.HoldCalls && !t.steering.HoldAll || len(r.Choices) < 2 {
		return false
	}
	for _, choice := range r.Choices[1:] {
		if slices.ContainsFunc(choice, func(it wire.Item) bool { return len(it.Calls) > 0 }) {
			return true
		}
	}
	return false
}

// bare empties a head of which every line is to be upstream's.
func bare(h *fasthttp.ResponseHeader) {
	h.Reset()
	h.DisableNormalizing()
	h.SetNoDefaultContentType(true)
}

// readAll reads the rest of an answer that is not streamed. With errLarge it returns what it has read of it.
func (x *exchange) readAll() ([]byte, error) {
	body := []byte{}
	for {
		p, err := x.upstream.Next()
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if body = append(body, p...); len(body) > foldLimit {
			return body, errLarge
		}
	}
}

// again has the model go on: it sends another view, and returns when the head of the answer is here.
func (x *exchange) again(view []wire.Item, stream bool, head *fasthttp.ResponseHeader) error { //nolint:revive // stream is what the client asked for
	x.upstream.Close()
	if x.why.Load() != 0 {
		return providers.ErrAborted
	}
	var tools [][]byte
	if !x.turn.judge.LastRound() {
		tools = x.turn.tools
	}
	body, err := x.request.With(view, tools...)
	if err != nil {
		return fmt.Errorf("encode a view: %w", err)
	}
	x.send, x.viewed, x.decoded = x.dress(x.withModel(body)), view, len(x.head.encoded) > 0
	if err := x.proceed(head); err != nil {
		return err
	}
	if head.StatusCode() >= fasthttp.StatusMultipleChoices {
		return x.refused(head, stream)
	}
	if stream && !isEventStream(head.ContentType()) {
		return errUnread("it is no event stream, as its beginning was")
	}
	if stream && !decodable(head.ContentEncoding()) {
		return errUnread(unknownEncoding)
	}
	if stream && isPlain(head.ContentEncoding()) { // a decoder does not survive a report of silence
		x.upstream.Silence = x.answer.silence() // Close has forgotten it
	}
	x.pieces = pieces{encoding: bytes.Clone(head.ContentEncoding()), next: x.upstream.Next}
	return nil
}

// review lets layers judge an answer.
func (x *exchange) review(r wire.Reply) memory.Next {
	step := x.call.Step("review")
	defer step.End(nil)
	return x.turn.judge.Review(x.call.Context(), r)
}

// errRefused tells that the client is to get upstream's answer to a request that goes on with its own as it is.
var errRefused = errors.New("upstream refuses to go on")

// refused takes an answer to a request that goes on with upstream's own which is no success. Unstreamed, it becomes the
// client's, with what it says about limits; of a stream the head is gone, and only the error tells of it.
func (x *exchange) refused(head *fasthttp.ResponseHeader, stream bool) error { //nolint:revive // stream is what the client asked for
	code, before := head.StatusCode(), x.answer.status
	x.answer.status = code
	if stream {
		x.answered(&wire.Reply{})
		x.answer.status = before // it is what the client has got
		return &Error{
			Status: fasthttp.StatusBadGateway, Code: codeUpstream,
			Message: fmt.Sprintf("upstream answered %d when the model was to go on", code), Err: errRefused,
		}
	}
	body, err := x.readAll()
	if err != nil {
		return err
	}
	h := &x.ctx.Response.Header
	head.CopyTo(h)
	h.ResetConnectionClose()
	x.answer.refusal = body
	return errRefused
}

// steer makes the answer one that layers have a say in. One that is compressed, although identity was asked for, gets to
// the client plain.
func (a *answer) steer() {
	x := a.x
	s := &x.turn.steering
	a.mode, a.spoke = foldSteered, x.s.now()
	a.stitch = stitch.New(x.dialect, stitch.Options{Hide: s.Hides, HoldCalls: s.HoldCalls, HoldAll: s.HoldAll})
	h := &x.ctx.Response.Header
	x.pieces = pieces{encoding: bytes.Clone(h.ContentEncoding()), next: a.next}
	h.Del(fasthttp.HeaderContentEncoding)
}

// writeSteered writes an answer that may be made of several of upstream's.
func (a *answer) writeSteered(w io.Writer, n *int64) error {
	for {
		p, err := a.x.pieces.Next()
		switch {
		case errors.Is(err, io.EOF):
			a.stitch.EOF()
		case errors.Is(err, providers.ErrIdle):
			if err := a.fill(w, n); err != nil {
				return err
			}
			a.spoke = a.x.s.now()
			continue
		case errors.Is(err, errIllegible):
			return a.breakOff(w, n, err)
		case err != nil:
			a.failed = err
			return err
		default:
			a.x.call.FirstByte()
			out := a.stitch.Write(p)
			if a.stitch.Degraded() {
				return a.overflow(w, n, out)
			}
			if err := a.write(w, out, n); err != nil {
				return err
			}
			a.keepAlive(w, n, len(out) == 0)
		}
		if !a.stitch.Ended() {
			continue
		}
		if more, err := a.judge(w, n); err != nil || !more {
			return err
		}
	}
}

// overflow is for an answer of which more would have to be held back than there is room for. out passes still. The rest
// does so as it comes, and is not kept, unless it would have to be judged: then the answer fails.
func (a *answer) overflow(w io.Writer, n *int64, out []byte) error {
	if a.x.turn.steering.Judges() {
		if err := a.write(w, out, n); err != nil {
			return err
		}
		return a.breakOff(w, n, errHeld())
	}
	reply := a.stitch.Merged()
	reply.Truncated = !reply.Complete
	a.x.answered(&reply)
	a.x.commit(reply, memory.CutNone)
	return a.finish(w, n, out)
}

// keepAlive tells a client that nothing passes to, now and then, that its answer is under way.
func (a *answer) keepAlive(w io.Writer, n *int64, quiet bool) { //nolint:revive // quiet is a fact
	every := a.silence()
	if every <= 0 {
		return
	}
	now := a.x.s.now()
	if !quiet {
		a.spoke = now
	}
	if quiet && now.Sub(a.spoke) >= every {
		a.spoke = now
		_ = a.fill(w, n) // a client that is gone is noticed by the next write
	}
}

// judge lets layers look at an answer of upstream's that has ended. It returns true if the model goes on.
func (a *answer) judge(w io.Writer, n *int64) (bool, error) {
	x := a.x
	if a.stitch.Illegible() {
		return false, a.breakOff(w, n, errUnread("it is no event stream"))
	}
	reply := a.stitch.Reply()
	x.answered(&reply)
	if a.stitch.Unjudged() || x.turn.unjudged(reply) {
		x.commit(wire.Reply{}, memory.CutNone)
		return false, a.finish(w, n, a.errorEvent(errDenied(severalChoices)))
	}
	next := x.review(reply)
	if next.Denied {
		x.commit(wire.Reply{}, memory.CutNone)
		return false, a.finish(w, n, a.errorEvent(errDenied(next.Reason)))
	}
	if !next.Discard {
		if err := a.write(w, a.stitch.Release(func(c wire.Call) bool { return !next.Hidden[c.ID] }), n); err != nil {
			return false, err
		}
	}
	if a.stitch.Unjudged() { // seen only now, where all was held
		x.commit(wire.Reply{}, memory.CutNone)
		return false, a.finish(w, n, a.errorEvent(errDenied(severalChoices)))
	}
	if next.View == nil {
		end := a.stitch.Finish() // the merged answer is whole only with it
		x.commit(a.stitch.Merged(), memory.CutNone)
		return false, a.finish(w, n, end)
	}
	a.stitch.Next()
	var head fasthttp.ResponseHeader
	if err := x.again(next.View, true, &head); err != nil {
		return false, a.breakOff(w, n, err)
	}
	return true, nil
}

// finish writes the end of the answer, and what upstream has behind that, unless it would have to be judged.
func (a *answer) finish(w io.Writer, n *int64, end []byte) error {
	if err := a.write(w, end, n); err != nil {
		return err
	}
	for {
		p, err := a.x.pieces.Next()
		if errors.Is(err, io.EOF) {
			a.done = true
			a.arm()
			return nil
		}
		if errors.Is(err, providers.ErrIdle) {
			continue // it has its end, which nothing should follow
		}
		if err != nil {
			a.failed = err
			return err
		}
		if err := a.write(w, a.stitch.Behind(p), n); err != nil {
			return err
		}
	}
}

// judgeWhole lets layers look at an answer that is not streamed, and returns what the client gets instead. An answer that
// cannot be understood passes as it is, with its head, unless it has to be judged.
func (x *exchange) judgeWhole(body []byte) ([]byte, error) {
	var head fasthttp.ResponseHeader // of any answer but the first
	h := &x.ctx.Response.Header
	came, encoding := body, h.ContentEncoding()
	var first []byte
	var answers []stitch.Answer
	var hidden []map[string]bool
	for {
		plain, reply, err := x.legible(encoding, came)
		if err != nil {
			return x.unread(came, &head, len(answers) > 0, err)
		}
		if len(answers) == 0 {
			first = plain
		}
		x.answered(&reply)
		if x.turn.unjudged(reply) {
			x.commit(wire.Reply{}, memory.CutNone)
			return nil, errDenied(severalChoices)
		}
		next := x.review(reply)
		if next.Denied {
			x.commit(wire.Reply{}, memory.CutNone)
			return nil, errDenied(next.Reason)
		}
		answers = append(answers, stitch.Answer{Body: plain, Withheld: next.Discard})
		hidden = append(hidden, next.Hidden)
		if next.View == nil {
			break
		}
		if err := x.again(next.View, false, &head); err != nil {
			return nil, err
		}
		if came, err = x.readAll(); err != nil {
			return x.unread(came, &head, true, err)
		}
		encoding = x.pieces.encoding
	}
	out := x.merged(answers, hidden)
	if x.dialect == wire.Responses {
		out = stitch.WithoutTools(out, x.turn.steering.Hides)
	}
	if len(answers) == 1 && len(out) == len(first) && &out[0] == &first[0] {
		return body, nil
	}
	h.Del(fasthttp.HeaderContentEncoding)
	return out, nil
}

// legible reads a whole answer. Its error is errUnread.
func (x *exchange) legible(encoding, body []byte) (plain []byte, r wire.Reply, err error) {
	if plain, err = decode(encoding, body, foldLimit); err != nil {
		return nil, wire.Reply{}, errUnread(unknownEncoding)
	}
	if r, err = wire.FoldBody(x.dialect, plain); err != nil {
		why := "it is not a JSON object"
		if wrong, ok := errors.AsType[*wire.ParseError](err); ok {
			why = fmt.Sprintf("at byte %d: %s", wrong.Offset, wrong.Reason)
		}
		return nil, wire.Reply{}, errUnread(why)
	}
	return wire.WithoutBOM(plain), r, nil
}

// unread is for an answer of which layers can make nothing, for the reason err. Where nobody has to judge it, it is the
// client's as it came, with its own head if it is a later one of upstream's: then it stands for all of them.
func (x *exchange) unread(came []byte, head *fasthttp.ResponseHeader, later bool, err error) ([]byte, error) { //nolint:revive // later is a fact
	large := errors.Is(err, errLarge)
	if x.turn.steering.Judges() || !large && !errors.Is(err, errIllegible) {
		return nil, err
	}
	if later {
		head.CopyTo(&x.ctx.Response.Header)
		x.ctx.Response.Header.ResetConnectionClose()
		x.report(&x.ctx.Response.Header)
	}
	if large {
		return came, err
	}
	return came, nil
}
