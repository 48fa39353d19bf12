package providers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/valyala/fasthttp"
)

// roundTrip sends the request and reads the head of the answer. It returns how many bytes were sent.
func (x *Exchange) roundTrip(head, body []byte, resp *fasthttp.ResponseHeader) (int64, error) {
	if len(body) > largeBody {
		return x.roundTripLarge(head, body, resp)
	}
	wrote, err := x.write(head, body)
	if err != nil && (wrote == 0 || !x.link.readBy(x.client.o.Now().Add(refusalWait))) {
		return wrote, err
	}
	x.keep = err == nil
	x.sent()
	return wrote, x.readHead(resp)
}

// refusalWait is how long an upstream that has stopped reading gets to say why.
const refusalWait = time.Second

// largeBody is the size above which a body may fill the buffers between here and upstream.
const largeBody = 128 << 10

// roundTripLarge reads while it writes. An upstream that refuses a large body, or redirects it, answers and stops reading;
// a client that only writes would block.
func (x *Exchange) roundTripLarge(head, body []byte, resp *fasthttp.ResponseHeader) (int64, error) {
	x.keep = true
	x.sent()
	type result struct {
		wrote int64
		err   error
	}
	written := make(chan result, 1)
	go func() {
		n, err := x.write(head, body)
		written <- result{n, err}
	}()
	err := x.readHead(resp)
	switch {
	case err != nil || resp.StatusCode() >= fasthttp.StatusMultipleChoices:
		x.link.writeBy(past())
	case x.allHere(resp, isHead(head)):
		x.link.writeBy(x.client.o.Now().Add(time.Second)) // for an upstream that reads on although it has said all
	}
	w := <-written
	if w.err != nil {
		x.keep = false
		if w.wrote == 0 && err != nil {
			return 0, w.err
		}
	}
	return w.wrote, err
}

// allHere reports whether the answer has ended, so that upstream may read no further. It waits for the rest of a short one; of
// one that is longer, or has no length, upstream may go on to say more as it reads more.
func (x *Exchange) allHere(resp *fasthttp.ResponseHeader, isHead bool) bool {
	var f framing
	f.begin(resp, isHead)
	if f.ended() {
		return true
	}
	if f.kind != bodySized || f.total > int64(x.in.br.Size()) || bytes.HasPrefix(ContentType(resp), []byte("text/event-stream")) {
		return false
	}
	_, err := x.in.br.Peek(int(f.total))
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

// Again gives up the answer at hand, if there is one, and waits for d, after which Send may be called once more. Unlike
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
func (x *Exchange) readHead(resp *fasthttp.ResponseHeader) error {
	for range 16 {
		n, err := x.waitHead()
		if err != nil {
			return err
		}
		head, _ := x.in.br.Peek(n)
		if !isHTTP1(head) {
			return fmt.Errorf("%w: the response head is not one of HTTP/1.x", ErrMalformed)
		}
		skip, keep := stripHead(head)
		x.keep = x.keep && keep
		_, _ = x.in.br.Discard(skip)
		if err := readDisguised(resp, x.in.br, head[skip:]); err != nil {
			return err
		}
		code := resp.StatusCode()
		if code < fasthttp.StatusContinue {
			return fmt.Errorf("%w: the status is %d", ErrMalformed, code)
		}
		if code >= fasthttp.StatusOK || code == fasthttp.StatusSwitchingProtocols {
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
			return 0, fmt.Errorf("%w: the response head is larger than %d bytes", ErrMalformed, x.client.o.MaxHeader)
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

// isHTTP1 reports whether a head has the protocol, the status and the end that it needs. fasthttp passes "HTTP/2.0" on, takes
// the status 000 for 200, and waits for more behind an end without CR, for which an upstream that has said all keeps it
// waiting. Line ends before the head are left over from an answer before.
func isHTTP1(head []byte) bool {
	const protocol = "HTTP/1."
	line := bytes.TrimLeft(head, "\r\n")
	if !bytes.HasSuffix(head, []byte("\r\n\r\n")) || !bytes.HasPrefix(line, []byte(protocol)) {
		return false
	}
	status := bytes.TrimLeft(line[len(protocol)+1:], " ")
	return len(status) > 0 && status[0] >= '1' && status[0] <= '9'
}

// stripHead removes from a response head the lines that concern this connection only. What remains is moved to the
// end of head, so that it still stands before the body; skip is where it begins. keep is true where the head lets the
// connection be used again. A head that does not look like HTTP is left for the real parser to refuse, and a 101 is left
// whole, since its Connection and Upgrade are the answer.
func stripHead(head []byte) (skip int, keep bool) {
	first := bytes.IndexByte(head, '\n') + 1
	if first < len("HTTP/1.1 200\n") || !bytes.HasPrefix(head, []byte("HTTP/1.")) {
		return 0, false
	}
	if bytes.Equal(head[9:12], []byte("101")) {
		return 0, false
	}
	keep = head[7] != '0'
	head[7] = '1' // a 1.0 answer goes on as a 1.1 answer, which is what this side speaks
	var named [8][]byte
	listed, drop, closes := named[:0], false, false
	for from, to := range headerLines(head, first) {
		name, value := splitLine(head[from:to])
		if !equalFold(name, "connection") {
			drop = drop || hopByHop(name)
			continue
		}
		drop = true
		for token := range bytes.SplitSeq(value, []byte(",")) {
			switch token = bytes.TrimSpace(token); {
			case equalFold(token, "close"):
				keep, closes = false, true
			case equalFold(token, "keep-alive"):
				keep = !closes
			case len(listed) < len(named):
				listed = append(listed, bytes.Clone(token)) // the lines are about to move
			}
		}
	}
	if !drop {
		return 0, keep
	}
	w := first
	for from, to := range headerLines(head, first) {
		name, _ := splitLine(head[from:to])
		if !hopByHop(name) && !contains(listed, name) {
			w += copy(head[w:], head[from:to])
		}
	}
	skip = len(head) - w
	copy(head[skip:], head[:w])
	return skip, keep
}

// headerLines yields where each header begins and ends, continuation lines and line ends included, and last the
// empty line.
func headerLines(head []byte, first int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from := first; from < len(head); {
			to := from
			for {
				n := bytes.IndexByte(head[to:], '\n')
				if n < 0 {
					to = len(head)
					break
				}
				to += n + 1
				if to >= len(head) || head[to] != ' ' && head[to] != '\t' {
					break
				}
			}
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// splitLine returns the name and the value of a header line; the line and nothing for one without a colon. Some servers write
// spaces before the colon.
func splitLine(line []byte) (name, value []byte) {
	i := bytes.IndexByte(line, ':') //nolint:modernize // bytes.Cut takes three times as long, for each line of each head
	if i < 0 {
		return line, nil
	}
	name, value = line[:i], line[i+1:]
	for len(name) > 0 && (name[len(name)-1] == ' ' || name[len(name)-1] == '\t') {
		name = name[:len(name)-1]
	}
	return name, value
}

// hopByHop names the headers of a response that concern one connection. Transfer-Encoding is not among them, because
// the parser needs it; it is never sent on as it came.
func hopByHop(name []byte) bool {
	switch len(name) {
	case len("te"):
		return equalFold(name, "te")
	case len("upgrade"):
		return equalFold(name, "upgrade") || equalFold(name, "trailer")
	case len("connection"):
		return equalFold(name, "connection") || equalFold(name, "keep-alive")
	case len("proxy-connection"):
		return equalFold(name, "proxy-connection")
	}
	return false
}

// contains reports whether Connection lists a name. What frames the message can't be listed away.
func contains(listed [][]byte, name []byte) bool {
	if equalFold(name, "content-length") || equalFold(name, "transfer-encoding") {
		return false
	}
	return slices.ContainsFunc(listed, func(l []byte) bool { return len(l) > 0 && bytes.EqualFold(l, name) })
}

// equalFold compares with a lower-case ASCII name.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
