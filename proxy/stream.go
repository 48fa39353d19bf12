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
	"remora/wire/merge"
)

const (
	// foldLimit is the size in bytes up to which an answer is buffered to be parsed. Of a larger one no items are stored.
	foldLimit = 32 << 20
	// heldLimit is how many bytes of a stream's end wait for the commit at most. No terminal event is larger.
	heldLimit = 16 << 20
)

// stream passes the body of an answer on, parses it for the log, and holds the end back until the turn is committed. Once it
// has begun nothing else reads from upstream. fasthttp calls WriteTo, and CloseWithError after that.
type stream struct {
	answer *answer
	rounds *rounds
	close  func() // ends the exchange

	// One of these parses the answer, none of them where nothing is stored of it: event by event as they pass; at its end, as it
	// is not streamed, or compressed; since layers judge it or run tools.
	folder *wire.Folder
	whole  *wholeBody
	merger *merge.Merger

	owns     bool // the stream closes the exchange
	client   clientWriter
	encoding []byte    // Content-Encoding
	begun    bool      // something other than blank lines has come
	held     []byte    // bytes that wait for the commit, or were read before the stream began
	spoke    time.Time // when the client last got something, with merger
	done     bool      // the whole body was written
	err      error     // why it was not
}

// wholeBody is the copy of an answer that is parsed at its end.
type wholeBody struct {
	copied []byte
	tooBig bool // it is larger than foldLimit: it is not parsed
}

func (st *stream) reset() { *st = stream{answer: st.answer, rounds: st.rounds, close: st.close} }

// read chooses how an answer is parsed. It returns an error for one that layers have to judge and cannot read.
func (st *stream) read() error {
	a := st.answer
	encoding := a.head.ContentEncoding()
	switch {
	case a.isSteered() && decodable(encoding):
		st.steer()
	case a.isJudged():
		return errUnread(unknownEncoding)
	case len(encoding) == 0:
		st.folder = wire.NewFolder(a.dialect())
	default:
		st.whole = new(wholeBody)
	}
	return nil
}

// Read makes stream an io.Reader. It is never called, since fasthttp prefers WriteTo.
func (st *stream) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// SupportsBodyWriteTo lets fasthttp call WriteTo, which passes on what arrived without another copy.
func (st *stream) SupportsBodyWriteTo() bool { return true }

// WriteTo writes the answer as it arrives. Each Write to w is flushed for a body without a length. It returns an error for an
// answer that ends early, so that the client sees a broken connection and never a clean end.
func (st *stream) WriteTo(w io.Writer) (n int64, err error) {
	st.client.w = w
	defer func() {
		if v := recover(); v != nil {
			st.answer.req.s.recovered(v)
			n, err = st.client.n, errPanicked
		}
	}()
	if st.err = st.release(); st.err == nil {
		if st.merger != nil {
			st.err = st.writeSteered()
		} else {
			st.err = st.write()
		}
	}
	if st.err == nil {
		st.done = true
		st.client.arm()
	}
	return st.client.n, st.err
}

var errPanicked = errors.New("recovered from a panic")

// write writes an answer that layers have no say in.
func (st *stream) write() error {
	for {
		p, err := st.answer.attempt.next()
		switch {
		case errors.Is(err, io.EOF):
			st.answer.commit(st.folded(), memory.NotAborted)
			return st.release()
		case errors.Is(err, providers.ErrIdle):
			err = st.client.fill()
		case err == nil:
			err = st.pass(p)
		}
		if err != nil {
			return err
		}
	}
}

// pass parses a piece of the body, and writes the part of it that may be sent before the commit.
func (st *stream) pass(p []byte) error {
	a := st.answer
	a.req.trace.FirstByte()
	if said := bytes.TrimSpace(p); !st.begun && len(said) > 0 {
		st.begun = true
		if st.folder != nil && said[0] == '{' {
			st.folder, st.whole = nil, new(wholeBody) // no stream, in spite of its type
		}
	}

	switch {
	case st.folder != nil && !a.attempt.hold(len(p)):
		st.commitFolded(true)
	case st.folder != nil:
		safe, ended := st.folder.Write(p)
		if err := st.client.write(p[:safe]); err != nil || safe == len(p) && len(st.held) == 0 {
			return err
		}
		st.held = append(st.held, p[safe:]...)
		if ended || len(st.held) > heldLimit {
			st.commitFolded(!ended)
			return st.release()
		}
		return nil
	case st.whole != nil && !st.whole.tooBig:
		if st.whole.copied = append(st.whole.copied, p...); len(st.whole.copied) > foldLimit || !a.attempt.hold(len(p)) {
			*st.whole = wholeBody{tooBig: true}
		}
	}
	if err := st.release(); err != nil {
		return err
	}
	return st.client.write(p)
}

// commitFolded commits the events that have come. What comes after them is passed on unparsed.
func (st *stream) commitFolded(truncated bool) {
	reply := st.folder.Reply()
	reply.Truncated = reply.Truncated || truncated
	st.folder = nil
	if truncated {
		st.answer.cutShort()
	}
	st.answer.commit(reply, memory.NotAborted)
}

// release writes the bytes that waited for the commit.
func (st *stream) release() error {
	p := st.held
	st.held = nil
	return st.client.write(p)
}

// CloseWithError ends the exchange after its body was written, or when that failed.
func (st *stream) CloseWithError(error) error {
	if st.owns { // else an error was sent in its place
		defer st.close()
		st.settle()
	}
	return nil
}

// settle ends a stream that was not written to its end: it aborts the call of upstream and stores what has come.
func (st *stream) settle() {
	a := st.answer
	defer a.req.s.recoverPanic()
	if st.done {
		return
	}
	cut := memory.AbortedByClient
	switch {
	case upstreamFault(st.err):
		cut = memory.AbortedByUpstream
		a.req.s.logUpstream(a.attempt.out.provider, asError(st.err))
	case a.req.ending.is(endShutdown):
		cut = memory.AbortedByUpstream
	default:
		a.req.ending.set(endClientGone) // a failed write says so before the watcher looks
	}
	// Upstream stops before the commit, which may take a moment.
	a.attempt.upstream.Abort()
	reply := st.folded()
	st.folder, st.merger = nil, nil // a large commit may wait
	a.commit(reply, cut)
}

// folded returns the parsed answer so far.
func (st *stream) folded() wire.Reply {
	switch {
	case !st.answer.isKept() || st.answer.committed:
		return wire.Reply{}
	case st.folder != nil:
		return st.folder.Reply()
	case st.merger != nil:
		return st.merger.Merged()
	case st.whole == nil:
		return wire.Reply{}
	case st.whole.tooBig:
		st.answer.cutShort()
		return wire.Reply{Truncated: true}
	}
	return st.answer.fold(st.encoding, st.whole.copied)
}

// The reader's optional methods, which fasthttp looks for.
var (
	_ fasthttp.BodyWriterTo        = (*stream)(nil)
	_ fasthttp.ReadCloserWithError = (*stream)(nil)
)

// clientWriter writes the body of an answer to the client.
type clientWriter struct {
	s      *Server
	conn   net.Conn
	ending *ending

	w     io.Writer
	n     int64     // bytes written
	gap   gap       // whether a comment may be written now
	armed time.Time // when the deadline was last set
}

func (c *clientWriter) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	c.arm()
	m, err := c.w.Write(p)
	c.n += int64(m)
	c.gap.passed(p[:m])
	return err
}

// fill writes a comment if the stream is between two events, where a comment changes nothing.
func (c *clientWriter) fill() error {
	if !c.gap.open() {
		return nil
	}
	return c.write([]byte(keepAliveComment))
}

// arm extends the client's deadline by write_timeout. It does so after a quarter of that time at the earliest, since setting
// a deadline costs more than writing a small piece.
func (c *clientWriter) arm() {
	now, timeout := c.s.now(), c.s.o.WriteTimeout
	if now.Sub(c.armed) < timeout/4 {
		return
	}
	c.armed = now
	_ = c.conn.SetWriteDeadline(now.Add(timeout))
	if c.ending.is(endShutdown) {
		_ = c.conn.SetWriteDeadline(past())
	}
}

// keepAliveComment is a comment of server-sent events, which readers skip. Load balancers on the way to the client see that
// the connection is alive while the model thinks.
const keepAliveComment = ": keep-alive\n\n"

// gap finds the places between two events, where a comment may be put. It looks at the last bytes only. The zero value is
// the beginning of a stream, which is such a place.
type gap struct {
	tail [3]byte // the last bytes that passed, the newest at the end
	seen int     // how many of them count
}

// passed records bytes that were sent to the client.
func (g *gap) passed(p []byte) {
	if len(p) >= len(g.tail) {
		copy(g.tail[:], p[len(p)-len(g.tail):])
		g.seen = len(g.tail)
		return
	}
	for _, c := range p {
		g.tail[0], g.tail[1], g.tail[2] = g.tail[1], g.tail[2], c
		g.seen = min(g.seen+1, len(g.tail))
	}
}

// open reports whether the stream is between two events: nothing was sent yet, or the last line was empty. A carriage return
// at the very end may be half of a line end, and does not count.
func (g *gap) open() bool {
	t := g.tail[len(g.tail)-g.seen:]
	return g.seen == 0 || bytes.HasSuffix(t, []byte("\n\n")) || bytes.HasSuffix(t, []byte("\n\r\n"))
}
