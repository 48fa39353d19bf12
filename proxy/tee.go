package proxy

import (
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/proxy/keepalive"
	"remora/wire"
	"remora/wire/stitch"
)

const (
	// wholeLimit is the largest answer without a session that is sent in one write with its head. A larger one goes
	// on as it arrives, which costs no buffer.
	wholeLimit = 32 << 10
	// foldLimit is how much of an answer is kept to be folded; of a larger one the transcript holds no items.
	foldLimit = 32 << 20
	// heldLimit is how much of an answer's end waits for the commit. An end of that size is not one.
	heldLimit = 16 << 20
)

// answer is the one reader of an answer's body: it passes the bytes on, folds them, and makes the end of the answer
// wait for the commit. fasthttp writes it and calls CloseWithError when that is done or has failed.
type answer struct {
	x       *exchange
	status  int
	mode    foldMode
	folder  *wire.Folder
	first   []byte           // what of the body was here before the head went out
	copied  []byte           // the answer as far as it came, where it is folded as a whole
	tooBig  bool             // it is not folded at all
	held    []byte           // bytes of the terminal event that wait for the commit
	stitch  *stitch.Stitcher // of an answer that layers have a say in
	spoke   time.Time        // when the client of such an answer last got something
	refusal []byte           // the whole of an answer that was read ahead
	gap     keepalive.Gap    // where the client's stream stands
	failed  error            // what upstream did
	done    bool             // the body was written to its end
	armed   time.Time
}

// heldKeepAlive is how often the client of an answer that is held back as a whole hears of it, unless keep_alive says.
const heldKeepAlive = 15 * time.Second

type foldMode uint8

const (
	foldNone    foldMode = iota // pass on
	foldStream                  // events: fold them as they pass
	foldWhole                   // one body, or one that is compressed: fold it at its end
	foldSteered                 // events that layers have a say in
)

func (a *answer) reset() { *a = answer{x: a.x} }

// reply passes the answer on.
func (x *exchange) reply() error {
	a, resp := &x.answer, &x.ctx.Response
	a.status = resp.StatusCode()
	// That upstream's connection ends is not the client's concern.
	resp.Header.ResetConnectionClose()
	x.report(&resp.Header)
	if a.refusal != nil {
		return x.replyRefusal()
	}
	length := x.upstream.Length()
	if length == 0 {
		x.commit(wire.Reply{}, memory.CutNone)
		return nil
	}
	stream := isEventStream(resp.Header.ContentType())
	if x.turn != nil && a.status < fasthttp.StatusMultipleChoices {
		if !stream {
			return x.replyWhole()
		}
		a.mode = foldWhole
		encoding := resp.Header.ContentEncoding()
		switch {
		case x.turn.steered && decodable(encoding):
			a.steer()
		case x.turn.steering.Judges():
			return errUnread(unknownEncoding)
		case len(encoding) == 0:
			a.mode, a.folder = foldStream, wire.NewFolder(x.dialect)
		}
	}
	if x.turn == nil && !stream && length > 0 && length <= wholeLimit {
		return x.collect(wholeLimit)
	}
	if stream {
		length = -1 // so that each event is flushed
		if len(resp.Header.ContentEncoding()) == 0 && isPlain(x.pieces.encoding) {
			x.upstream.Silence = a.silence()
		}
	}
	return x.stream(int(length))
}

// replyRefusal passes on an answer that was read ahead, and is none of the model's.
func (x *exchange) replyRefusal() error {
	x.commit(wire.Reply{}, memory.CutNone)
	x.ctx.Response.SetBodyRaw(x.answer.refusal)
	return nil
}

// stream hands the exchange to fasthttp, which calls answer's methods after the handler has returned. Its error is about a
// body that is broken from its beginning on, which the client can be told as long as nothing went out.
func (x *exchange) stream(length int) error {
	resp := &x.ctx.Response
	if x.upstream.Ready() {
		p, err := x.upstream.Next()
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, providers.ErrIdle) { // those will be told again
			return err
		}
		x.answer.first = p
	}
	x.call.Stream()
	x.send = nil // it went out, and a stream may last for long
	if x.sentHead != nil {
		x.s.heads.Put(x.sentHead)
		x.sentHead = nil
	}
	if length < 0 && !x.ctx.Request.Header.IsHTTP11() {
		x.streamToClose()
		return nil
	}
	x.answer.armed = x.s.now()
	x.streaming = true
	// With bytes of the body here already, head and body leave together.
	resp.ImmediateHeaderFlush = len(x.answer.first) == 0
	resp.SetBodyStream(&x.answer, length)
	return nil
}

// collect reads the answer into the response, up to about limit bytes.
func (x *exchange) collect(limit int) error {
	for n := 0; ; {
		p, err := x.upstream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		x.ctx.Response.AppendBody(p)
		if n += len(p); n > limit {
			return errTooLong
		}
	}
}

var errTooLong = errors.New("answer is too long to be collected")

// replyWhole answers a request for an unstreamed answer: the client gets it once it is committed.
func (x *exchange) replyWhole() error {
	a := &x.answer
	body, err := x.readAll()
	if err == nil && x.turn.steered {
		body, err = x.judgeWhole(body)
	}
	switch {
	case errors.Is(err, errRefused):
		x.report(&x.ctx.Response.Header)
		return x.replyRefusal()
	case errors.Is(err, errLarge) && !x.turn.steering.Judges():
		// Go on as with any long answer: what is here first, then the rest as it comes.
		a.held, a.tooBig, a.mode = body, true, foldWhole
		return x.stream(int(x.upstream.Length()))
	case err != nil:
		return err
	}
	a.copied = body
	x.commit(a.folded(), memory.CutNone)
	x.ctx.Response.SetBodyRaw(a.copied)
	return nil
}

// Read is never called, since WriteTo is preferred. It makes answer a reader.
func (a *answer) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// SupportsBodyWriteTo lets fasthttp call WriteTo, which hands on what arrived without copying it into a buffer.
func (a *answer) SupportsBodyWriteTo() bool { return true }

// WriteTo writes the answer as it arrives: each Write to w is flushed, for a body without a length. It returns an
// error for an answer that ends early, which makes the client see a broken connection and never a clean end.
func (a *answer) WriteTo(w io.Writer) (n int64, err error) {
	defer func() {
		if v := recover(); v != nil {
			a.x.s.recovered(v)
			err = errPanicked
		}
	}()
	if a.tooBig {
		if err := a.release(w, &n); err != nil {
			return n, err
		}
	}
	if a.mode == foldSteered {
		err = a.writeSteered(w, &n)
		return n, err
	}
	for {
		p, err := a.next()
		switch {
		case errors.Is(err, io.EOF):
			a.x.commit(a.folded(), memory.CutNone)
			if err := a.release(w, &n); err != nil {
				return n, err
			}
			a.done = true
			a.arm()
			return n, nil
		case errors.Is(err, providers.ErrIdle):
			if err := a.fill(w, &n); err != nil {
				return n, err
			}
			continue
		case err != nil:
			a.failed = err
			return n, err
		}
		if err := a.pass(w, p, &n); err != nil {
			return n, err
		}
	}
}

var errPanicked = errors.New("recovered from a panic")

// pass writes a piece of the body, as much of it as may go before the commit, and folds it.
func (a *answer) pass(w io.Writer, p []byte, n *int64) error {
	a.x.call.FirstByte()
	switch a.mode {
	case foldStream:
		safe, ended := a.folder.Write(p)
		if err := a.write(w, p[:safe], n); err != nil || safe == len(p) && len(a.held) == 0 {
			return err
		}
		a.held = append(a.held, p[safe:]...)
		if !ended && len(a.held) <= heldLimit {
			return nil
		}
		reply := a.folder.Reply()
		if !ended {
			// What came before is kept, marked as cut short, and the rest goes on unread.
			reply.Truncated = true
			a.mode = foldNone
		}
		a.x.commit(reply, memory.CutNone)
		return a.release(w, n)
	case foldWhole:
		if len(a.copied)+len(p) > foldLimit {
			a.tooBig, a.copied = true, nil
		}
		if !a.tooBig {
			a.copied = append(a.copied, p...)
		}
	default: // nothing to fold
	}
	return a.write(w, p, n)
}

// release writes what waited for the commit.
func (a *answer) release(w io.Writer, n *int64) error {
	p := a.held
	a.held = nil
	return a.write(w, p, n)
}

func (a *answer) write(w io.Writer, p []byte, n *int64) error {
	if len(p) == 0 {
		return nil
	}
	a.arm()
	m, err := w.Write(p)
	*n += int64(m)
	a.gap.Passed(p[:m])
	return err
}

// silence is after how long without a byte for the client it gets a comment, 0 for never.
func (a *answer) silence() time.Duration {
	if every := a.x.s.o.KeepAlive; every > 0 || a.mode != foldSteered || !a.x.turn.steering.HoldAll {
		return every
	}
	return heldKeepAlive
}

// fill writes a comment into a stream that upstream is silent on, where that changes nothing.
func (a *answer) fill(w io.Writer, n *int64) error {
	return a.gap.Fill(func(p []byte) error { return a.write(w, p, n) })
}

// arm gives the client another write_timeout. It is set anew only after a quarter of it, since that costs more than
// handing on a small piece does.
func (a *answer) arm() {
	x := a.x
	now, timeout := x.s.now(), x.s.o.WriteTimeout
	if now.Sub(a.armed) < timeout/4 {
		return
	}
	a.armed = now
	_ = x.ctx.Conn().SetWriteDeadline(now.Add(timeout))
	if end(x.why.Load()) == endShutdown {
		_ = x.ctx.Conn().SetWriteDeadline(past())
	}
}

// CloseWithError ends the exchange after its body was written, or when that failed.
func (a *answer) CloseWithError(error) error {
	if a.x.streaming { // else an error took the stream's place before it began
		defer a.x.close()
		a.settle()
	}
	return nil
}

// settle is for an answer that could not be written to its end: upstream is cut off and what came of it is kept.
func (a *answer) settle() {
	x := a.x
	defer func() {
		if v := recover(); v != nil {
			x.s.recovered(v)
		}
	}()
	if a.done {
		return
	}
	cut := memory.CutClient
	switch {
	case a.failed != nil && upstreamFault(a.failed):
		cut = memory.CutUpstream
		x.s.stats.upstreamFailed.Add(1)
		x.s.logUpstream(x.provider, asError(a.failed))
	case end(x.why.Load()) == endShutdown:
		cut = memory.CutUpstream
	default:
		x.s.stats.clientGone.Add(1)
	}
	// Upstream stops before the commit, which may take a moment.
	x.upstream.Abort()
	x.commit(a.folded(), cut)
}

// folded is the answer so far.
func (a *answer) folded() wire.Reply {
	x := a.x
	switch {
	case x.turn == nil || x.turn.committed:
		return wire.Reply{}
	case a.mode == foldStream:
		return a.folder.Reply()
	case a.mode == foldSteered:
		return a.stitch.Merged()
	case a.tooBig:
		return wire.Reply{Truncated: true}
	case len(a.copied) == 0:
		return wire.Reply{}
	}
	h := &x.ctx.Response.Header
	plain, err := decode(h.ContentEncoding(), a.copied, foldLimit)
	if isEventStream(h.ContentType()) {
		f := wire.NewFolder(x.dialect)
		f.Write(plain)
		return f.Reply()
	}
	var r wire.Reply
	if err == nil {
		r, err = wire.FoldBody(x.dialect, plain)
	}
	if err != nil {
		x.s.log.Warn("an answer can't be read; it is passed on and not kept", "turn", x.turn.id)
	}
	return r
}

// The reader's optional methods, which fasthttp looks for.
var (
	_ fasthttp.BodyWriterTo        = (*answer)(nil)
	_ fasthttp.ReadCloserWithError = (*answer)(nil)
)

// merged makes one body of several answers. hidden are the calls of each that the client does not see.
func (x *exchange) merged(answers []stitch.Answer, hidden []map[string]bool) []byte {
	if len(answers) == 1 && !answers[0].Withheld && len(hidden[0]) == 0 {
		return answers[0].Body // what stitch would find after reading it twice
	}
	return stitch.Whole(x.dialect, answers, func(i int, c wire.Call) bool { return hidden[i][c.ID] })
}
