package proxy

import (
	"bytes"
	"slices"

	"github.com/valyala/fasthttp"

	"remora/memory/view"
	"remora/providers"
	"remora/wire"
)

// correction is a corrective try under way.
type correction struct {
	was, is  view.Shape
	head     providers.Head // of the first refusal
	refusals []*refusal     // that led to it: one, or two for different faults
}

// correct prepares a try in another shape, if upstream may have refused the present one. It returns nil if there is none. Of a later
// round, the client may have seen those before it, but nothing of this one.
func (a *attempt) correct(head *providers.Head, later bool) (*correction, error) {
	status := head.Status()
	mayHelp := correctable(head) && (mayMeanRoles(status) || mayMeanItems(status) || status == fasthttp.StatusRequestEntityTooLarge || a.out.offersLayerTools())
	busy := status == fasthttp.StatusTooManyRequests // OpenAI answers so, too, if a request alone exceeds the tokens of a minute
	mayMeanLength := busy || status == fasthttp.StatusForbidden
	if a.req.turn.unkept || !mayHelp && !mayMeanLength || len(head.ContentEncoding()) > 0 {
		return nil, nil
	}
	body, err := a.readRefusal()
	if err != nil || body == nil {
		return nil, err
	}
	a.refusal = body
	r := newRefusal(status, body)
	r.later = later
	if r.aboutLength() {
		a.tooLong = a.out.learnLength(r) && !busy && !a.corrected
		return nil, nil
	}
	if !mayHelp || a.corrected {
		return nil, nil
	}
	a.out.body = nil // the next try has another
	next, ok := a.out.nextShape(r)
	if !ok {
		return nil, nil
	}

	c := &correction{was: a.out.shape, is: next, refusals: []*refusal{r}}
	c.head.Copy(head)
	a.corrected = true
	if !later { // else the client has the first round's status
		a.status = status
	}
	a.req.trace.answered(a, status, &wire.Reply{})

	a.upstream.Close()
	if a.req.ending.over() {
		return nil, providers.ErrAborted
	}
	a.out.encode(next)
	return c, nil
}

// next handles the result of a corrective try. A shape that helps is remembered for an hour. If it was refused for another fault,
// which the refusal names, it returns a second try: servers name one fault at a time. If no try helps, the client gets the first
// refusal.
func (c *correction) next(a *attempt, head *providers.Head, err error) (*correction, error) {
	first := c.refusals[0]
	refused := err == nil && correctable(head)
	var again *refusal // of this try, as far as it was read
	switch {
	case err == nil && head.Status() < fasthttp.StatusMultipleChoices:
		a.refusal = nil
		a.out.learnShape(c)
		return nil, nil
	case refused && len(head.ContentEncoding()) == 0:
		if body, _ := a.readRefusal(); body != nil && !bytes.Equal(first.body, body) {
			again = newRefusal(head.Status(), body)
		}
	}
	if a.req.ending.over() {
		return nil, providers.ErrAborted
	}

	if err != nil {
		a.req.trace.failed(0, err)
	} else {
		a.req.trace.answered(a, head.Status(), &wire.Reply{})
	}
	a.upstream.Close()
	if again != nil && len(c.refusals) == 1 && !first.later && !again.aboutContent() {
		wanted := a.out.wanted(again)
		wanted.NoTools = again.aboutTools() && a.out.offersLayerTools()
		if next := a.out.changed(wanted); len(next) > 0 {
			c.is, c.refusals = next[0], append(c.refusals, again)
			a.out.encode(c.is)
			return c, nil
		}
	}
	if !first.later && (refused || first.isFailure()) { // a failing server is not asked twice for each request
		c.noteUnhelpful(&a.out, again)
	}
	head.Copy(&c.head)
	a.out.encode(c.was)
	return nil, nil
}

// noteUnhelpful records a corrective try that did not help. If it was refused, too, in other words than the first, there is more than
// one thing to correct.
func (c *correction) noteUnhelpful(o *outgoing, again *refusal) {
	order := o.orderOf(c.refusals[0])
	l := o.lesson(aboutOrder, order...)
	if slices.Contains(l.tried, c.is) {
		l.tried = nil // all were: they are tried from the first again, since upstream may have changed
	}
	l.tried = append(slices.Clip(l.tried), c.is)
	if l.further = again != nil; l.further {
		l.shape = l.shape.And(o.wanted(again))
	}
	o.learn(aboutOrder, l, order...)
}
