package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/valyala/fasthttp"

	"remora/memory/view"
	"remora/providers"
	"remora/providers/retry"
	"remora/wire"
)

// attempt sends a request upstream, and tries again where that helps: at another provider, or in another shape.
type attempt struct {
	req      *request
	out      outgoing
	portable func() bool // isPortable; a method value allocates, so it is made once

	corrected bool              // a corrective try was made
	tooLong   bool              // upstream refuses the length of the request, and windows leave less of the history from now on
	prepared  *fasthttp.Request // target, Host and additional headers of the provider
	head      *[]byte           // the head that is sent, pooled; nil while the answer streams

	upstream *providers.Exchange
	status   int    // of upstream's answer, 0 until there is one
	refusal  []byte // the body of an error answer that was read before it is passed on
	first    []byte // the part of an answer's body that was looked at and not taken
	held     int    // bytes of answers that were buffered
}

func (a *attempt) reset() {
	a.forget()
	a.out.reset()
	a.prepared.Reset()
	*a = attempt{req: a.req, out: a.out, portable: a.portable, prepared: a.prepared, upstream: a.upstream}
}

// choose picks the provider that has the answer which the request names, else the one for its model.
func (a *attempt) choose() error {
	if name := a.req.stored.provider; name != "" {
		if a.out.provider = a.req.upstreams.Named(name); a.out.provider != nil {
			return nil // else it was removed from the configuration
		}
	}
	model := ""
	switch {
	case !a.req.upstreams.NeedsModel():
	case a.req.parsed != nil:
		model = a.req.parsed.Model()
	default:
		model = deploymentOf(a.req.ctx.RequestURI())
	}
	if a.out.provider = a.req.upstreams.Pick(model); a.out.provider == nil {
		return &Error{
			Status: fasthttp.StatusNotFound, Code: codeNoProvider,
			Message: "no provider is configured for this model (providers.models)",
		}
	}
	return nil
}

// send sends the request and reads the head of the answer.
func (a *attempt) send(head *providers.Head) error {
	var plan retry.Plan
	if p := a.req.resilience; p != nil {
		plan = p.Plan(a.out.provider, a.portable)
	}
	first, err := plan.Begin()
	if err != nil {
		return err
	}
	a.out.to(first)
	return a.try(head, plan, false)
}

// goOn sends the continuation of the view for the next round of an answer, to the same provider, and reads the head of what
// comes.
func (a *attempt) goOn(head *providers.Head) error {
	a.upstream.Close()
	a.first, a.refusal, a.tooLong = nil, nil, false
	if a.req.ending.over() {
		return providers.ErrAborted
	}
	if err := a.out.goOn(); err != nil {
		return err
	}
	return a.stay(head, true)
}

// sendAgain sends the view of a turn that was begun anew to the same provider and model, and reads the head of the answer.
func (a *attempt) sendAgain(head *providers.Head) error {
	a.out.encode(a.out.shapeNow())
	return a.stay(head, false)
}

// stay calls the same provider again, with its retries. It ignores an open circuit.
func (a *attempt) stay(head *providers.Head, goesOn bool) error {
	var plan retry.Plan
	if p := a.req.resilience; p != nil {
		plan = p.Stay(a.out.provider, a.out.model)
	}
	if _, err := plan.Begin(); err != nil {
		plan = retry.Plan{}
	}
	return a.try(head, plan, goesOn)
}

// try calls upstream until there is an answer for the client. If upstream refuses the shape of the request, a corrective try
// follows, and in a first round a second one if that is refused for another fault. If a call fails and upstream cannot have served it,
// the plan decides whether it is repeated, or made elsewhere. With goesOn, it is a later round: the provider, the model and layers' tools
// stay.
func (a *attempt) try(head *providers.Head, plan retry.Plan, goesOn bool) error {
	defer func() { a.out.body = nil }() // it may be as large as the client's, and the answer may take long
	var correcting *correction
	for {
		err := a.call(head)
		switch {
		case correcting != nil:
			correcting, err = correcting.next(a, head, err)
		case err == nil && a.req.turn != nil:
			correcting, err = a.correct(head, goesOn)
		}
		if correcting != nil {
			continue
		}
		if err == nil && head.Status() == fasthttp.StatusSwitchingProtocols {
			err = fmt.Errorf("%w: it switches protocols unasked", providers.ErrMalformed)
		}

		next, again := plan.Next(retry.Outcome{Err: err, Head: head})
		if sent := err == nil && a.req.body.streamed; !again || sent {
			return err
		}
		if err != nil {
			a.req.trace.failed(0, err)
		} else {
			a.req.trace.answered(a, head.Status(), &wire.Reply{})
			if !goesOn { // else the client has the first round's status
				a.status = head.Status()
			}
		}
		a.refusal, a.first, a.tooLong = nil, nil, false
		if err := a.upstream.Again(next.Delay); err != nil {
			return err
		}
		if !goesOn {
			a.out.to(next)
		} else if err := a.out.goOn(); err != nil {
			return err
		}
	}
}

// call sends the request once and reads the head of the answer.
func (a *attempt) call(head *providers.Head) error {
	if err := a.prepare(); err != nil {
		return err
	}
	if a.req.body.streamed {
		a.upstream.Rest = &a.req.body
	}
	return a.req.s.client.Send(a.upstream, a.out.provider.Address(), *a.head, a.out.body, head)
}

// prepare builds the head of the upstream request.
func (a *attempt) prepare() error {
	in, out := &a.req.ctx.Request.Header, a.prepared
	out.Reset()
	out.Header.DisableNormalizing()
	out.Header.SetNoDefaultContentType(true)
	out.Header.SetMethodBytes(in.Method())
	out.Header.SetRequestURIBytes(in.RequestURI())
	if a.req.stored.target != nil {
		out.Header.SetRequestURIBytes(a.req.stored.target)
	}
	if err := a.out.provider.Prepare(out); err != nil {
		return err
	}
	length := len(a.out.body)
	if a.req.body.streamed {
		length = int(a.req.head.length)
	}
	rw := rewrite{
		body: length, decoded: a.out.decoded, tunnel: a.req.head.upgrade != nil, ownCredential: a.bringsCredential(&out.Header),
		remembered: a.req.turn != nil || a.req.late.turn != nil || a.req.stored.target != nil,
	}
	if rw.ownCredential {
		// The caller's own credential is not for this provider.
		out.Header.SetRequestURIBytes(withoutCredentials(bytes.Clone(out.Header.RequestURI())))
	}

	a.req.trace.sending(a)
	if a.head == nil {
		a.head, _ = a.req.s.heads.Get().(*[]byte)
	}
	*a.head = a.req.head.appendHead((*a.head)[:0], &out.Header, rw)
	if length < 0 {
		*a.head = append(strconv.AppendInt(*a.head, int64(len(a.out.body)), 16), "\r\n"...) // the first chunk
	}
	return nil
}

// bringsCredential reports whether the provider's headers have a credential.
func (a *attempt) bringsCredential(h *fasthttp.RequestHeader) bool {
	for name := range h.All() {
		if a.req.s.names.lookup(name).role == roleCredential {
			return true
		}
	}
	return false
}

// forget frees the memory of the head that was sent, as an answer may stream for long.
func (a *attempt) forget() {
	if a.head != nil {
		a.req.s.heads.Put(a.head)
		a.head = nil
	}
}

// next returns the next piece of the answer's body.
func (a *attempt) next() ([]byte, error) {
	if p := a.first; len(p) > 0 {
		a.first = nil
		return p, nil
	}
	return a.upstream.Next()
}

// peek returns the next piece of the body, which next will return again.
func (a *attempt) peek() ([]byte, error) {
	p, err := a.next()
	a.first = p
	return p, err
}

// beginning returns the first pieces of the body, which next will return again, up to one that is more than blank lines: servers
// send those to keep the connection open.
func (a *attempt) beginning() ([]byte, error) {
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

// readAll reads the rest of an answer that is not streamed. With errLarge and errNoRoom it returns what it has read so far.
func (a *attempt) readAll() ([]byte, error) { return a.readUpTo(foldLimit, a.hold) }

// readRefusal reads the body of an error answer. Of one that is larger than refusalLimit it takes nothing, and returns nil. It is
// too small to count as held. One without a length is read, too: some gateways send all their errors that way.
func (a *attempt) readRefusal() ([]byte, error) {
	if a.upstream.Length() > refusalLimit {
		return nil, nil
	}
	body, err := a.readUpTo(refusalLimit, func(int) bool { return true })
	if errors.Is(err, errLarge) {
		a.first = body
		return nil, nil
	}
	return body, err
}

// readUpTo reads the rest of the body. With errLarge, for more than limit bytes, and errNoRoom, where hold refuses a piece, it
// returns what it has read so far.
func (a *attempt) readUpTo(limit int, hold func(n int) bool) ([]byte, error) {
	body := []byte{}
	for {
		p, err := a.next()
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if body = append(body, p...); len(body) > limit {
			return body, errLarge
		}
		if !hold(len(p)) {
			return body, errNoRoom
		}
	}
}

// freeHold is how many bytes of an answer are not counted: most answers are smaller, and their number is bounded.
const freeHold = 64 << 10

// hold counts n more bytes of answers that are buffered, against limits.global.body_bytes. It reports whether the process may
// buffer them.
func (a *attempt) hold(n int) bool {
	a.held += n
	over := a.held - freeHold
	return over <= 0 || a.req.body.ticket.Hold(int64(min(n, over))) == nil
}

// isPortable reports whether another provider could serve the request, as the client sent it or as the view changes it. It reads all
// of the body.
func (a *attempt) isPortable() bool {
	if a.req.body.streamed {
		return false
	}
	body := a.req.body.bytes
	if a.req.parsed != nil {
		body = a.req.body.plain
	}
	method, target := a.req.ctx.Method(), a.req.ctx.RequestURI()
	if retry.Portable(method, target, body) {
		return true
	}
	if !a.req.turn.kept() {
		return false
	}
	sent, _, err := a.out.bodyOf(view.Shape{Portable: true})
	return err == nil && retry.Portable(method, target, sent)
}
