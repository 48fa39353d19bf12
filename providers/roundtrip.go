package providers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// roundTrip sends the request and reads the head of the answer. It returns how many bytes were sent.
func (x *Exchange) roundTrip(head, body []byte, answer *Head) (int64, error) {
	if len(body) > largeBody || x.Rest != nil {
		return x.roundTripLarge(head, body, answer)
	}
	wrote, err := x.write(head, body)
	if err != nil && (wrote == 0 || !x.link.readBy(x.client.o.Now().Add(refusalWait))) {
		return wrote, err
	}
	x.keep = err == nil
	x.sent()
	return wrote, x.readHead(answer)
}

// refusalWait is how long an upstream that has stopped reading gets to say why.
const refusalWait = time.Second

// largeBody is the size above which a body may fill the buffers between here and upstream.
const largeBody = 128 << 10

// roundTripLarge reads while it writes. An upstream that refuses a large body, or redirects it, answers and stops reading;
// a client that only writes would block.
func (x *Exchange) roundTripLarge(head, body []byte, answer *Head) (int64, error) {
	x.keep = true
	x.sent()
	w := writing{x: x, done: make(chan struct{})}
	if x.Rest != nil {
		x.link.writeBy(time.Time{}) // it takes as long as it comes; sendRest limits each piece
	}
	go w.run(head, body)
	err := x.readHead(answer)
	switch {
	case err != nil || answer.status >= fasthttp.StatusMultipleChoices:
		w.stop()
	case x.allHere(answer, isHead(head)):
		w.finish()
	}
	<-w.done
	if w.err != nil {
		x.keep = false
	}
	if cut, ok := errors.AsType[*restError](w.err); ok && (err != nil || answer.status < fasthttp.StatusMultipleChoices) {
		err = cut
	}
	return w.wrote, err // a failed write is a consequence of what the answer says, or of why there is none
}

// writing is a large request that is being written, by a goroutine of its own.
type writing struct {
	x       *Exchange
	stopped atomic.Bool
	done    chan struct{} // closed at the end

	// Valid when it is done.
	wrote int64
	err   error
}

func (w *writing) run(head, body []byte) {
	defer close(w.done)
	if w.wrote, w.err = w.x.write(head, body); w.err == nil && w.x.Rest != nil {
		w.err = w.sendRest()
	}
}

// restError is an error of Rest.
type restError struct{ error }

// sendRest writes the rest of the request as it comes. Upstream has the time for its answer from each piece on, and all the time while
// there is none to send.
func (w *writing) sendRest() error {
	x := w.x
	for limit := x.client.o.ResponseHeaderTimeout; ; {
		x.link.readBy(time.Time{})
		p, err := x.Rest.Next()
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			if !w.stopped.Load() {
				err = &restError{err}
				x.link.readBy(past()) // no answer can be to the whole request
			}
			return err
		}
		if limit > 0 {
			x.link.readBy(x.client.o.Now().Add(limit))
		}
		if len(p) > 0 {
			n, err := x.link.conn.Write(p)
			w.wrote += int64(n)
			if err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// stop ends it.
func (w *writing) stop() {
	w.stopped.Store(true)
	w.x.link.writeBy(past())
	if w.x.Rest != nil {
		w.x.Rest.Stop()
	}
}

// finish gives it another second, for an upstream that reads on although it has said all.
func (w *writing) finish() {
	const limit = time.Second
	w.x.link.writeBy(w.x.client.o.Now().Add(limit))
	if w.x.Rest == nil {
		return
	}
	enough := time.NewTimer(limit) //nolint:forbidigo // wakes; no clock is read
	defer enough.Stop()
	select {
	case <-w.done:
	case <-enough.C:
		w.stop()
	}
}

// allHere reports whether the answer has ended, so that upstream may read no further. It waits for the rest of a short one; of
// one that is longer, or has no length, upstream may go on to say more as it reads more.
func (x *Exchange) allHere(answer *Head, isHead bool) bool {
	var f framing
	f.begin(answer, isHead)
	if f.ended() {
		return true
	}
	if f.kind != bodySized || f.size > int64(x.in.br.Size()) || bytes.HasPrefix(answer.mimeType, []byte("text/event-stream")) {
		return false
	}
	_, err := x.in.br.Peek(int(f.size))
	return err == nil
}

func (x *Exchange) sent() {
	if x.Sent != nil {
		x.Sent()
		x.Sent = nil // a repeated GET is still one request
	}
}

// write sends head and body and returns how many bytes were sent.
func (x *Exchange) write(head, body []byte) (int64, error) {
	if len(body) == 0 {
		n, err := x.link.conn.Write(head)
		return int64(n), err
	}
	if len(head)+len(body) <= cap(head) {
		n, err := x.link.conn.Write(append(head, body...))
		return int64(n), err
	}
	x.pieces = [2][]byte{head, body}
	x.vector = x.pieces[:]
	n, err := x.vector.WriteTo(x.link.conn.Conn)
	x.pieces, x.vector = [2][]byte{}, nil
	return n, err
}

// Again gives up the current answer, if there is one, and waits for d, after which Send may be called once more. Unlike
// Close it forgets no Abort: one that comes before or during the wait ends it, with ErrAborted. Sent is kept, since it
// is still called once at most.
func (x *Exchange) Again(d time.Duration) error {
	if x.in.br != nil && x.body.kind == bodySized && x.body.left <= int64(x.in.br.Buffered()-x.consumed) {
		_, _ = x.Next() // the rest is here, so the connection can be kept
	}
	x.finish()
	x.renew()
	if !x.link.during(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		<-ctx.Done()
	}) {
		return ErrAborted
	}
	return nil
}

// renew forgets the answer.
func (x *Exchange) renew() {
	x.armed, x.quiet, x.keep, x.received, x.body = time.Time{}, time.Time{}, false, false, framing{}
	x.in.busy = false
}

// readHead reads the head of the final answer, skipping interim ones.
func (x *Exchange) readHead(head *Head) error {
	for range 16 {
		n, err := x.waitHead()
		if err != nil {
			return err
		}
		raw, _ := x.in.br.Peek(n)
		keep, err := head.Read(raw)
		_, _ = x.in.br.Discard(n) // it is buffered, so it can't fail
		if err != nil {
			return err
		}
		x.keep = x.keep && keep
		if head.status >= fasthttp.StatusOK || head.status == fasthttp.StatusSwitchingProtocols {
			return nil
		}
	}
	return fmt.Errorf("%w: more than 16 interim responses", ErrMalformed)
}

// waitHead waits until a complete response head is buffered and returns its length.
func (x *Exchange) waitHead() (int, error) {
	for need := 1; ; {
		_, err := x.in.br.Peek(need)
		buf, _ := x.in.br.Peek(x.in.br.Buffered())
		x.received = x.received || len(buf) > 0
		if n := headEnd(buf, max(need-4, 0)); n > 0 {
			return n, nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return 0, fmt.Errorf("%w: it has more than %d bytes", ErrLargeHead, x.client.o.MaxHeader)
		case err != nil:
			return 0, err
		}
		need = len(buf) + 1
	}
}

// headEnd returns the length of the head that ends in buf with an empty line, 0 if none does.
func headEnd(buf []byte, from int) int {
	for i := from; ; {
		n := bytes.IndexByte(buf[i:], '\n')
		if n < 0 {
			return 0
		}
		i += n + 1
		if rest := buf[i:]; len(rest) > 0 && rest[0] == '\n' {
			return i + 1
		} else if len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n' {
			return i + 2
		}
	}
}
