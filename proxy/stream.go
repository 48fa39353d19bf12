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
	client clientWriter
	mode   foldMode
	failed error // why upstream's answer ended early, nil if it did not
	begun  bool  // something other than blank lines has come
	done   bool  // the whole body was written

	folder *wire.Folder
	held   []byte // bytes of the terminal event that wait for the commit
	tooBig bool   // the answer is larger than foldLimit: it is not parsed

	// With foldWhole.
	copied   []byte // the answer so far
	encoding []byte // its Content-Encoding

	merger *merge.Merger // with foldSteered
	spoke  time.Time     // when the client last got something, with foldSteered
}

// foldMode is how an answer is parsed for the log.
type foldMode uint8

const (
	foldNone    foldMode = iota // not at all
	foldStream                  // event by event, as they pass
	foldWhole                   // at its end: it is not streamed, or compressed
	foldSteered                 // by the merger, since layers judge it or run tools
)

func (st *stream) reset() { *st = stream{answer: st.answer} }

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
			st.answer.s.recovered(v)
			n, err = st.client.n, errPanicked
		}
	}()
	if st.tooBig {
		if err := st.release(); err != nil {
			return st.client.n, err
		}
	}
	if st.mode == foldSteered {
		err = st.writeSteered()
		return st.client.n, err
	}
	for {
		p, err := st.answer.attempt.next()
		switch {
		case errors.Is(err, io.EOF):
			st.answer.commit(st.folded(), memory.NotAborted)
			if err := st.release(); err != nil {
				return st.client.n, err
			}
			st.done = true
			st.client.arm()
			return st.client.n, nil
		case errors.Is(err, providers.ErrIdle):
			if err := st.client.fill(); err != nil {
				return st.client.n, err
			}
			continue
		case err != nil:
			st.failed = err
			return st.client.n, err
		}
		if err := st.pass(p); err != nil {
			return st.client.n, err
		}
	}
}

var errPanicked = errors.New("recovered from a panic")

// beginning returns the first pieces of the body, which next will return again, up to one that is more than blank lines: servers
// send those to keep the connection open.
func (st *stream) beginning() ([]byte, error) {
	a := st.answer.attempt
	p, err := a.peek()
	for err == nil && len(bytes.TrimSpace(p)) == 0 && len(p) < wholeLimit {
		blank := bytes.Clone(p)
		a.first = nil
		p, err = a.next()
		p = append(blank, p...)
		a.first = p
	}
	return p, err
}

// pass parses a piece of the body, and writes the part of it that may be sent before the commit.
func (st *stream) pass(p []byte) error {
	st.answer.trace.firstByte()
	if said := bytes.TrimSpace(p); !st.begun && len(said) > 0 {
		st.begun = true
		if st.mode == foldStream && said[0] == '{' {
			st.mode = foldWhole // no stream, in spite of its type
		}
	}
	switch st.mode {
	case foldStream:
		if !st.answer.attempt.held.hold(len(p)) {
			reply := st.folder.Reply()
			reply.Truncated = true
			st.mode = foldNone
			st.answer.commit(reply, memory.NotAborted)
			break
		}
		safe, ended := st.folder.Write(p)
		if err := st.client.write(p[:safe]); err != nil || safe == len(p) && len(st.held) == 0 {
			return err
		}
		st.held = append(st.held, p[safe:]...)
		if !ended && len(st.held) <= heldLimit {
			return nil
		}
		reply := st.folder.Reply()
		if !ended {
			// Store what came before, marked as truncated. The rest is passed on unparsed.
			reply.Truncated = true
			st.mode = foldNone
		}
		st.answer.commit(reply, memory.NotAborted)
		return st.release()
	case foldWhole:
		if !st.tooBig && (len(st.copied)+len(p) > foldLimit || !st.answer.attempt.held.hold(len(p))) {
			st.tooBig, st.copied = true, nil
		}
		if !st.tooBig {
			st.copied = append(st.copied, p...)
		}
	default: // nothing to fold
	}
	if err := st.release(); err != nil {
		return err
	}
	return st.client.write(p)
}

// release writes the bytes that waited for the commit.
func (st *stream) release() error {
	p := st.held
	st.held = nil
	return st.client.write(p)
}

// silence returns after how long without a byte the client gets a comment, 0 for never.
func (st *stream) silence() time.Duration {
	if every := st.answer.s.o.KeepAlive; every > 0 || st.mode != foldSteered || !st.answer.turn.steering.HoldAll {
		return every
	}
	return heldKeepAlive
}

// CloseWithError ends the exchange after its body was written, or when that failed.
func (st *stream) CloseWithError(error) error {
	if st.answer.streaming { // else an error was sent in its place
		defer st.answer.close()
		st.settle()
	}
	return nil
}

// settle ends a stream that was not written to its end: it aborts the call of upstream and stores what has come.
func (st *stream) settle() {
	defer func() {
		if v := recover(); v != nil {
			st.answer.s.recovered(v)
		}
	}()
	if st.done {
		return
	}
	cut := memory.AbortedByClient
	switch {
	case st.failed != nil && upstreamFault(st.failed):
		cut = memory.AbortedByUpstream
		st.answer.s.logUpstream(st.answer.attempt.out.provider, asError(st.failed))
	case st.answer.ending.is(endShutdown):
		cut = memory.AbortedByUpstream
	}
	// Upstream stops before the commit, which may take a moment.
	st.answer.attempt.upstream.Abort()
	st.answer.commit(st.folded(), cut)
}

// folded returns the parsed answer so far.
func (st *stream) folded() wire.Reply {
	switch {
	case !st.answer.isKept() || st.answer.committed:
		return wire.Reply{}
	case st.mode == foldStream:
		return st.folder.Reply()
	case st.mode == foldSteered:
		return st.merger.Merged()
	case st.tooBig, !decodable(st.encoding):
		return wire.Reply{Truncated: true}
	case len(st.copied) == 0:
		return wire.Reply{}
	}
	plain, err := decode(st.encoding, st.copied, foldLimit, st.answer.attempt.held.hold)
	if wire.BeginsStream(plain) {
		f := wire.NewFolder(st.answer.dialect)
		f.Write(plain)
		return f.Reply()
	}
	var r wire.Reply
	if err == nil {
		r, err = wire.FoldBody(st.answer.dialect, plain)
	}
	if err != nil {
		st.answer.notStored("the answer cannot be read")
	}
	return r
}

// The reader's optional methods, which fasthttp looks for.
var (
	_ fasthttp.BodyWriterTo        = (*stream)(nil)
	_ fasthttp.ReadCloserWithError = (*stream)(nil)
)

// heldKeepAlive is the interval of comments while a whole answer is held back, unless keep_alive is set.
const heldKeepAlive = 15 * time.Second

// freeHold is how many bytes of an answer are not counted: most answers are smaller, and their number is bounded.
const freeHold = 64 << 10

// budget counts the bytes of an answer that are buffered, against limits.global.body_bytes.
type budget struct {
	ticket *limit.Ticket
	taken  int
}

// hold counts n more bytes. It reports whether the process may buffer them.
func (b *budget) hold(n int) bool {
	b.taken += n
	over := b.taken - freeHold
	if over <= 0 {
		return true
	}
	return b.ticket.Hold(int64(min(n, over))) == nil
}

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
