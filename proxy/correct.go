package proxy

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"remora/memory/view"
	"remora/providers"
	"remora/wire"
)

// shapeNow returns the shape for the provider and the model of an attempt, from the configuration and from earlier refusals.
func (o *outgoing) shapeNow() view.Shape {
	if o.req.turn.unkept {
		return view.Shape{}
	}
	up := o.provider.API()
	form, pinned := pinnedForm(up.Messages)
	if !pinned && up.JoinsSystem {
		form = view.Joined
	}
	s := view.Shape{Form: form, Portable: o.isFallback()}
	s = s.And(o.lesson(aboutItems).shape).And(o.lesson(aboutCalls).shape)
	session := o.req.head.id.session
	if !pinned {
		s = s.And(o.lesson(aboutRoles).shape).And(o.lesson(aboutRoles, session).shape)
	}
	if len(o.req.turn.tools) > 0 {
		s = s.And(o.lesson(aboutTools).shape).And(o.lesson(aboutTools, session).shape)
	}
	return s
}

// isFallback reports whether an attempt goes to another provider or model than the view was made for.
func (o *outgoing) isFallback() bool {
	return o.provider.Name() != o.req.turn.provider || o.model != "" && o.model != o.req.parsed.Model()
}

// pinnedForm returns the form that the operator has set (providers[].messages), and whether one is set.
func pinnedForm(messages string) (view.Form, bool) {
	if messages == providers.MessagesAuto || messages == "" {
		return view.AsIs, false
	}
	form, err := view.ParseForm(messages)
	return form, err == nil
}

// correction is a corrective try under way, with the refusal that led to it.
type correction struct {
	was, is view.Shape
	head    providers.Head
	refusal *refusal

	roles, tools bool // a refusal speaks of them

	second []byte // the refusal of this try, once it was read
	last   bool   // no third try follows
	later  bool   // it is of a later round of an answer: the order of tries is left to first rounds
}

func newCorrection(was, is view.Shape, r *refusal, head *providers.Head) *correction {
	c := &correction{was: was, is: is, refusal: r}
	c.roles, c.tools = r.asksFor()
	c.head.Copy(head)
	return c
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
	if r.aboutLength() {
		a.tooLong = a.out.learnLength(r) && !busy && !a.corrected
		return nil, nil
	}
	if !mayHelp || a.corrected {
		return nil, nil
	}
	a.out.body = nil // the next try has another
	next, ok := a.out.nextShape(r, later)
	if !ok {
		return nil, nil
	}

	c := newCorrection(a.out.shape, next, r, head)
	c.last, c.later = later, later
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

// next handles the result of a corrective try. It returns a second one, if that follows.
func (c *correction) next(a *attempt, head *providers.Head, err error) (*correction, error) {
	if further := c.further(a, head, err); further != nil {
		return further, nil
	}
	return nil, c.end(a, head, err)
}

// further prepares a second corrective try, if the first was refused for another fault, which the refusal names: servers name one at a
// time. It returns nil if there is none.
func (c *correction) further(a *attempt, head *providers.Head, err error) *correction {
	if err != nil || c.last || !correctable(head) || len(head.ContentEncoding()) > 0 {
		return nil
	}
	if c.second, err = a.readRefusal(); err != nil || c.second == nil || bytes.Equal(c.refusal.body, c.second) {
		return nil
	}
	second := newRefusal(head.Status(), c.second)
	wanted := a.out.wanted(second)
	wanted.NoTools = second.aboutTools() && a.out.offersLayerTools()
	next := a.out.changed(wanted)
	if len(next) == 0 || second.aboutContent() || a.req.ending.over() {
		return nil
	}

	roles, tools := second.asksFor()
	also := newCorrection(c.was, next[0], c.refusal, &c.head)
	also.roles, also.tools, also.last = also.roles || roles, also.tools || tools, true
	a.req.trace.answered(a, head.Status(), &wire.Reply{})
	a.upstream.Close()
	a.out.encode(also.is)
	return also
}

// wanted returns the changes that a refusal asks for, without those that the operator rules out.
func (o *outgoing) wanted(r *refusal) view.Shape {
	wanted := r.wanted()
	if _, pinned := pinnedForm(o.provider.API().Messages); pinned {
		wanted.Form = view.AsIs
	}
	return wanted
}

// end handles the result of a corrective try. A shape that helps is remembered for an hour. If it does not help, the client
// gets the first refusal.
func (c *correction) end(a *attempt, head *providers.Head, err error) error {
	if err == nil && head.Status() < fasthttp.StatusMultipleChoices {
		a.refusal = nil
		a.out.learnShape(c)
		return nil
	}
	if a.req.ending.over() {
		return providers.ErrAborted
	}

	if err != nil {
		a.req.trace.failed(0, err)
	} else {
		a.req.trace.answered(a, head.Status(), &wire.Reply{})
	}
	if again := err == nil && correctable(head); !c.later && (again || c.refusal.isFailure()) { // a failing server is not asked twice for each request
		a.noteUnhelpful(c, again)
	}
	a.upstream.Close()
	head.Copy(&c.head)
	a.out.encode(c.was)
	return nil
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
func (o *outgoing) noteCut(usage []byte) {
	const margin = 1000 // below which counts say little
	u := wire.ParseUsage(usage)
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

// nextShape chooses the shape of the first corrective try. The order is roles, portable items, tools, then all of them together, which
// come first where the refusal names nothing. What it mentions comes first, and calls and media are changed only if it asks for that.
// After a try that did not help, the client's next request that is refused for the like gets the next shape, and the first one again
// after the last; not after a failure, unless it is the session's first of the kind within the hour. In a later round of an answer,
// tools stay. What a filter refuses, and what memory does not change, no shape avoids.
func (o *outgoing) nextShape(r *refusal, later bool) (view.Shape, bool) {
	if r.aboutContent() {
		return view.Shape{}, false
	}
	form, aboutTools := r.form(), r.aboutTools()
	if r.isFailure() && form == view.AsIs && !aboutTools && !r.aboutMedia() && !r.aboutTemplate() && r.mend() == 0 {
		return view.Shape{}, false // probably a passing failure: if it helped, layers would lose their tools for an hour
	}
	// Upstream that speaks of tools where none are offered means the calls in the history.
	offersNone := len(o.req.parsed.Tools()) == 0 && !o.offersLayerTools()
	aboutItems := form == view.AsIs && (r.aboutItems() || aboutTools && offersNone)

	mended, media := o.mended(r), o.withoutMedia(r)
	roles, items, tools := o.inOtherRoles(r), o.portableItems(r, aboutItems), []view.Shape(nil)
	if !later {
		tools = o.withoutTools()
	}
	options := slices.Concat(mended, media, roles, items, tools)
	named := form != view.AsIs || aboutTools || aboutItems || len(mended)+len(media) > 0
	switch {
	case r.isTooLarge() && len(media) > 0:
		return media[0], true
	case r.isTooLarge(), len(options) == 0, !named && r.aboutParameter():
		return view.Shape{}, false
	case len(mended) > 0, len(media) > 0: // in words that leave little doubt
	case aboutItems:
		options = slices.Concat(items, roles, tools)
	case form == view.AsIs && aboutTools:
		options = slices.Concat(tools, roles, items)
	case r.listsRoles() && o.hasHiddenCalls(tools):
		both := tools[0] // whose results have a role that is not listed
		if len(roles) > 0 {
			both = roles[0].And(both)
		}
		options = slices.Concat([]view.Shape{both}, options)
	}

	before := o.lesson(aboutOrder, o.orderOf(r)...)
	all := o.shape.And(before.shape)
	for _, s := range options {
		all = all.And(s)
	}
	switch {
	case before.further && (named && len(options) > 1 || before.shape != view.Shape{}):
		options = []view.Shape{all}
	case len(options) > 1 && !named:
		options = slices.Concat([]view.Shape{all}, options)
	case len(options) > 1:
		options = append(options, all)
	}
	first := !r.isFailure() || o.req.s.lessons.once(o.lessonKey(aboutFailures, r.kind(), o.req.head.id.session), o.req.s.now())
	for _, next := range options {
		if !slices.Contains(before.tried, next) {
			return next, true
		}
	}
	return options[0], first
}

// orderOf identifies the refusals that share an order of tries: those of a kind, and those about calls, items or media by session,
// since each has its own.
func (o *outgoing) orderOf(r *refusal) []string {
	of := r.wanted()
	if of.Form = view.AsIs; of == (view.Shape{}) {
		return []string{r.kind()}
	}
	return []string{r.kind(), o.req.head.id.session}
}

// hasHiddenCalls reports whether the view has calls of layers' tools, with their results, which are left out without these tools.
func (o *outgoing) hasHiddenCalls(withoutTools []view.Shape) bool {
	if len(withoutTools) == 0 {
		return false
	}
	shaper := o.req.turn.shaper
	return len(shaper.Sent(withoutTools[0]).Items) < len(shaper.Sent(o.shape).Items)
}

// mended changes the calls that a refusal asks for, and the names and arguments that no strict server takes: calls of another model
// often have several faults, a server names the first one, and there are few corrective tries. Odd ids stay, since Kimi wants its own.
func (o *outgoing) mended(r *refusal) []view.Shape {
	asked := r.mend()
	if asked == 0 {
		return nil
	}
	next := o.changed(view.Shape{Mend: asked})
	if next == nil && asked&view.OddCallIDs != 0 { // then it is another id that it does not take
		asked |= view.CallIDs
		next = o.changed(view.Shape{Mend: asked})
	}
	if next != nil {
		next = o.changed(view.Shape{Mend: asked | view.ToolNames | view.Arguments})
	}
	return next
}

// inOtherRoles takes the next form of messages that changes the request, from the one that the refusal wants. If it mentions
// none, that is the form that every template accepts, and only where the proxy has put something into the view.
func (o *outgoing) inOtherRoles(r *refusal) (next []view.Shape) {
	if _, pinned := pinnedForm(o.provider.API().Messages); pinned || !mayMeanRoles(r.status) {
		return nil
	}
	wanted := r.form()
	if wanted == view.AsIs {
		own := o.req.turn.summary.Recalled == 0 && len(o.req.turn.view) == len(o.req.parsed.Items())
		if own || o.req.turn.summary.Recalled == 0 && o.offersLayerTools() && r.aboutTools() {
			return nil
		}
		wanted = view.NoSystem
	}
	for form := max(wanted, o.shape.Form+1); form <= view.NoSystem && next == nil; form++ {
		next = o.changed(view.Shape{Form: form})
	}
	return next
}

// withoutMedia leaves out the pictures and files that the model has answered, if upstream speaks of those.
func (o *outgoing) withoutMedia(r *refusal) []view.Shape {
	return o.changed(view.Shape{NoMedia: r.aboutMedia()})
}

// portableItems makes stored items portable, without calls if upstream speaks of tools. If it speaks of items, that includes those
// of models that the client resends: another provider may have made them.
func (o *outgoing) portableItems(r *refusal, aboutItems bool) []view.Shape {
	if !mayMeanItems(r.status) || r.status == fasthttp.StatusNotFound && !aboutItems {
		return nil
	}
	return o.changed(view.Shape{Portable: true, Own: r.aboutItems(), NoCalls: r.aboutTools()})
}

// withoutTools leaves out the tools of layers.
func (o *outgoing) withoutTools() []view.Shape {
	if !o.offersLayerTools() {
		return nil
	}
	return o.changed(view.Shape{NoTools: true})
}

// offersLayerTools reports whether the request was sent with tools of layers.
func (o *outgoing) offersLayerTools() bool { return len(o.req.turn.tools) > 0 && !o.shape.NoTools }

// changed returns the present shape with another change, nothing where that makes the same body.
func (o *outgoing) changed(by view.Shape) []view.Shape {
	next := o.shape.And(by)
	if next == o.shape {
		return nil
	}
	other, _, failed := o.bodyOf(next)
	sent, _, err := o.bodyOf(o.shape)
	if failed != nil || err != nil || bytes.Equal(other, sent) {
		return nil
	}
	return []view.Shape{next}
}

// learnShape remembers the changes that made upstream accept a request. Roles and tools that no refusal has spoken of change for the
// session alone: upstream may have accepted the request by luck.
func (o *outgoing) learnShape(c *correction) {
	was, is := c.was, c.is
	before := o.lesson(aboutOrder, o.orderOf(c.refusal)...).shape // what refusals of earlier requests asked for
	o.req.s.lessons.forget(o.lessonKey(aboutOrder, o.orderOf(c.refusal)...))
	if c.refusal.aboutThisRequest() {
		return
	}
	who := func(named bool) []string {
		if named {
			return nil
		}
		return []string{o.req.head.id.session}
	}
	if is.Form != was.Form {
		o.learn(aboutRoles, lesson{shape: view.Shape{Form: is.Form}}, who(c.roles || before.Form != view.AsIs)...)
	}
	if is.NoTools != was.NoTools {
		o.learn(aboutTools, lesson{shape: view.Shape{NoTools: true}}, who(c.tools)...)
	}
	if is.Mend != was.Mend {
		o.learn(aboutCalls, lesson{shape: view.Shape{Mend: is.Mend}})
	}
	if is.Portable != was.Portable || is.Own != was.Own || is.NoCalls != was.NoCalls || is.NoMedia != was.NoMedia {
		o.learn(aboutItems, lesson{shape: view.Shape{Portable: is.Portable, Own: is.Own, NoCalls: is.NoCalls, NoMedia: is.NoMedia}})
	}
	o.req.s.log.Info("upstream has taken a refused request of a model in another shape; that is remembered for an hour",
		"provider", o.provider.Name(), "model", bounded(o.modelName()), "messages", is.Form.String(), "layer_tools", !is.NoTools, "portable_items", is.Portable, "media", !is.NoMedia, "calls", strings.Join(is.Mend.Names(), " "))
}

// noteUnhelpful records a corrective try that did not help. If it was refused as well, and the refusal differs from the first, there
// is more than one thing to correct.
func (a *attempt) noteUnhelpful(c *correction, refused bool) {
	first := c.refusal
	l := a.out.lesson(aboutOrder, a.out.orderOf(first)...)
	if slices.Contains(l.tried, c.is) {
		l.tried = nil // all were: they are tried from the first again, since upstream may have changed
	}
	l.tried = append(slices.Clip(l.tried), c.is)
	l.further = false
	if refused && c.second == nil {
		c.second, _ = a.readRefusal()
	}
	if refused && c.second != nil && !bytes.Equal(first.body, c.second) {
		l.further = true
		l.shape = l.shape.And(a.out.wanted(newRefusal(first.status, c.second)))
	}
	a.out.learn(aboutOrder, l, a.out.orderOf(first)...)
}

// bounded shortens a caller's text for the log.
func bounded(s string) string { return s[:min(len(s), 128)] }

// What a lesson is about.
const (
	aboutRoles    = "roles"    // per dialect: a chat template sees all requests alike; per session what no refusal has spoken of
	aboutTools    = "tools"    // likewise, also per response format, and whether the client offers tools
	aboutContext  = "context"  // per model
	aboutCalls    = "calls"    // per dialect: a server sees all calls alike
	aboutItems    = "items"    // per session, as each has its own items
	aboutOrder    = "order"    // as for tools, and per kind of refusal (see orderOf)
	aboutFailures = "failures" // as for the order, and per session
	aboutCuts     = "cuts"     // per model; only that it was logged
)

// lesson returns what is known about the provider and the model of the attempt.
func (o *outgoing) lesson(about string, more ...string) lesson {
	if o.req.s.lessons.none() {
		return lesson{}
	}
	return o.req.s.lessons.get(o.lessonKey(about, more...), o.req.s.now())
}

// learn writes down a lesson about the provider and the model of the attempt.
func (o *outgoing) learn(about string, l lesson, more ...string) {
	o.req.s.lessons.set(o.lessonKey(about, more...), l, o.req.s.now())
}

// lessonKey identifies a lesson: what it is about, the tenant, the provider, the model, and more. Tenants are kept apart, since
// upstream may allow them different things.
func (o *outgoing) lessonKey(about string, more ...string) lessonKey {
	parts := append([]string{about, o.provider.Name(), o.provider.Address().Addr, o.modelName()}, more...)
	switch about {
	case aboutRoles, aboutCalls:
		parts = append(parts, o.req.dialect.String())
	case aboutItems:
		parts = append(parts, o.req.head.id.session)
	case aboutTools, aboutOrder, aboutFailures:
		format := "text"
		if o.req.wantsJSON() {
			format = "json"
		}
		parts = append(parts, o.req.dialect.String(), format, fmt.Sprint(len(o.req.parsed.Tools()) > 0))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	key := lessonKey{tenant: o.req.tenant()}
	copy(key.rest[:], sum[:])
	return key
}
