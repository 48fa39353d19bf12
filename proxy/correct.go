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

// learnLength remembers that a request was too long for the model, if the refusal says so, and reports whether less may help. Later
// requests have what fits by its figures; without figures half, since the context of most models is not known, and the answer needs
// room as well. A request may be longer than what was learnt before, as its current run always stays: then what was learnt stays.
func (o *outgoing) learnLength(r *refusal) bool {
	if !r.aboutLength() {
		return false
	}
	sent, known := o.req.turn.shaper.Tokens(), o.lesson(aboutContext).tokens
	if sent <= leastTokens {
		return false // nothing that could be left out is too long
	}
	next := sent / 2
	if fitting := r.fitting(sent); fitting > 0 {
		next = min(fitting, sent/4*3) // not more, so that few refusals are enough where the figures mean something else
	}
	if next = max(next, leastTokens); known > 0 && known <= next {
		return true // for a request that was begun before that was learnt
	}
	o.learn(aboutContext, lesson{tokens: next})
	o.req.s.log.Info("a request was longer than the model's context; for an hour requests have fewer tokens",
		"provider", o.provider.Name(), "model", bounded(o.modelName()), "max_tokens", next)
	return true
}

// noteCut logs, once an hour for each caller and model, that upstream has counted less than half of the text that it was sent: some
// servers cut a request that is longer than their context, and do not refuse it. This teaches nothing, since others may leave out
// of the count what they had in a cache.
func (o *outgoing) noteCut(u *wire.Usage) {
	const margin = 1000 // below which counts say little
	counted := int(u.Input + u.Cached)
	if counted == 0 {
		return
	}
	sent := o.req.turn.shaper.TextTokens(2*counted + margin)
	if s := o.req.s; sent > 0 && s.lessons.once(o.lessonKey(aboutCuts), s.now()) {
		s.log.Warn("upstream has counted less than half of the tokens that it was sent; it may cut requests that are longer than its context",
			"provider", o.provider.Name(), "model", bounded(o.modelName()), "sent", sent, "counted", counted)
	}
}

// leastTokens is the least that learnLength leaves of a request: a question, its system prompt and a little more.
const leastTokens = 250
