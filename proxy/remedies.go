package proxy

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"remora/memory/view"
	"remora/providers"
	"remora/wire"
)

// remedy is a change of a request that upstream may take in place of a refused one.
type remedy struct {
	about string // the lesson that is learnt where it helps
	// part returns the part of a shape that it changes.
	part func(s view.Shape) view.Shape
	// tries returns the shapes that have it, the surest first, none if they make no other request or the refusal gives no reason for it.
	tries func(o *outgoing, r *refusal) []view.Shape
	// named reports whether the refusal asks for it. A nil one does so wherever there are tries.
	named func(o *outgoing, r *refusal) bool
	// forAll reports whether a refusal speaks of all requests to the model. Otherwise, and with a nil one, the session alone learns:
	// upstream may have accepted the request by luck.
	forAll func(r *refusal) bool
}

// remedies are tried in this order, and first the one that the refusal names.
var remedies = [...]remedy{ //nolint:gochecknoglobals // a constant table
	{
		about: aboutCalls, part: func(s view.Shape) view.Shape { return view.Shape{Mend: s.Mend} },
		tries:  (*outgoing).mended,
		forAll: func(*refusal) bool { return true },
	},
	{
		about: aboutMedia, part: func(s view.Shape) view.Shape { return view.Shape{NoMedia: s.NoMedia} },
		tries: (*outgoing).withoutMedia,
	},
	{
		about: aboutRoles, part: func(s view.Shape) view.Shape { return view.Shape{Form: s.Form} },
		tries:  (*outgoing).inOtherRoles,
		named:  func(_ *outgoing, r *refusal) bool { return r.form() != view.AsIs },
		forAll: (*refusal).aboutRoles,
	},
	{
		about: aboutItems, part: func(s view.Shape) view.Shape { return view.Shape{Portable: s.Portable, Own: s.Own, NoCalls: s.NoCalls} },
		tries: (*outgoing).portableItems,
		named: (*outgoing).areItemsNamed,
	},
	{
		about: aboutTools, part: func(s view.Shape) view.Shape { return view.Shape{NoTools: s.NoTools} },
		tries:  (*outgoing).withoutTools,
		named:  func(_ *outgoing, r *refusal) bool { return r.aboutTools() },
		forAll: func(r *refusal) bool { return r.aboutTemplate() || r.aboutTools() || r.listsRoles() },
	},
}

// shapeNow returns the shape for the provider and the model of an attempt, from the configuration and from earlier refusals.
func (o *outgoing) shapeNow() view.Shape {
	if o.req.turn.unkept {
		return view.Shape{}
	}
	s := view.Shape{Portable: o.isFallback()}
	if o.provider.API().JoinsSystem {
		s.Form = view.Joined
	}
	if !o.req.s.lessons.none(o.req.tenant()) { // asked once here, rather than for each lesson
		for i := range remedies {
			m := &remedies[i]
			if m.forAll != nil {
				s = s.And(o.lesson(m.about).shape)
			}
			s = s.And(o.lesson(m.about, o.req.head.id.session).shape)
		}
	}
	if form, pinned := o.pinnedForm(); pinned {
		s.Form = form
	}
	return s
}

// isFallback reports whether an attempt goes to another provider or model than the view was made for.
func (o *outgoing) isFallback() bool {
	return o.provider.Name() != o.req.turn.provider || o.model != "" && o.model != o.req.parsed.Model()
}

// pinnedForm returns the form that the operator has set (providers[].messages), and whether one is set.
func (o *outgoing) pinnedForm() (view.Form, bool) {
	messages := o.provider.API().Messages
	if messages == providers.MessagesAuto || messages == "" {
		return view.AsIs, false
	}
	form, err := view.ParseForm(messages)
	return form, err == nil
}

// nextShape chooses the shape of the first corrective try: what the refusal names comes first, and where it names nothing, all
// remedies together. After a try that did not help, the client's next request that is refused for the like gets the next shape, and
// the first one again after the last; not after a failure, unless it is the session's first of the kind within the hour. What a
// filter refuses, and what memory does not change, no shape avoids.
func (o *outgoing) nextShape(r *refusal) (view.Shape, bool) {
	if r.aboutContent() {
		return view.Shape{}, false
	}
	if r.isFailure() && r.form() == view.AsIs && !r.aboutTools() && !r.aboutMedia() && !r.aboutTemplate() && r.mend() == 0 {
		return view.Shape{}, false // probably a passing failure: if it helped, layers would lose their tools for an hour
	}
	var options []view.Shape
	named := false
	for i := range remedies {
		m := &remedies[i]
		tries := m.tries(o, r)
		asked := len(tries) > 0
		if m.named != nil {
			asked = m.named(o, r)
		}
		if asked && !named {
			named, options = true, slices.Concat(tries, options)
		} else {
			options = append(options, tries...)
		}
	}
	if len(options) == 0 || !named && r.aboutParameter() {
		return view.Shape{}, false
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

// mended changes the calls that a refusal asks for, and the names and arguments that no strict server takes: calls of another model
// often have several faults, a server names the first one, and there are few corrective tries. Odd ids stay, since Kimi wants its own.
func (o *outgoing) mended(r *refusal) []view.Shape {
	asked := r.mend()
	if asked == 0 || r.isTooLarge() {
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

// withoutMedia leaves out the pictures and files that the model has answered, if upstream speaks of those.
func (o *outgoing) withoutMedia(r *refusal) []view.Shape {
	return o.changed(view.Shape{NoMedia: r.aboutMedia()})
}

// inOtherRoles takes the next form of messages that changes the request, from the one that the refusal wants. If it mentions
// none, that is the form that every template accepts, and only where the proxy has put something into the view. A server that lists
// the roles that it takes, without that of results of tools, first gets no hidden calls either.
func (o *outgoing) inOtherRoles(r *refusal) []view.Shape {
	next := o.inOtherForm(r)
	if !r.listsRoles() {
		return next
	}
	tools, shaper := o.withoutTools(r), o.req.turn.shaper
	if len(tools) == 0 || len(shaper.Sent(tools[0]).Items) == len(shaper.Sent(o.shape).Items) {
		return next
	}
	for _, s := range next {
		tools[0] = tools[0].And(s)
	}
	return slices.Concat(tools, next)
}

func (o *outgoing) inOtherForm(r *refusal) (next []view.Shape) {
	if _, pinned := o.pinnedForm(); pinned || !mayMeanRoles(r.status) {
		return nil
	}
	wanted := r.form()
	if wanted == view.AsIs {
		own := o.req.turn.reported.Recalled == 0 && len(o.req.turn.View) == len(o.req.parsed.Items())
		if own || o.req.turn.reported.Recalled == 0 && o.offersLayerTools() && r.aboutTools() {
			return nil
		}
		wanted = view.NoSystem
	}
	for form := max(wanted, o.shape.Form+1); form <= view.NoSystem && next == nil; form++ {
		next = o.changed(view.Shape{Form: form})
	}
	return next
}

// areItemsNamed reports whether a refusal is about stored items. Upstream that speaks of tools where none are offered means the calls
// in the history.
func (o *outgoing) areItemsNamed(r *refusal) bool {
	offersNone := !o.req.parsed.OffersTools() && !o.offersLayerTools()
	return r.form() == view.AsIs && (r.aboutItems() || r.aboutTools() && offersNone)
}

// portableItems makes stored items portable, without calls if upstream speaks of tools. If it speaks of items, that includes those
// of models that the client resends: another provider may have made them.
func (o *outgoing) portableItems(r *refusal) []view.Shape {
	if !mayMeanItems(r.status) || r.status == fasthttp.StatusNotFound && !o.areItemsNamed(r) {
		return nil
	}
	return o.changed(view.Shape{Portable: true, Own: r.aboutItems(), NoCalls: r.aboutTools()})
}

// withoutTools leaves out the tools of layers. In a later round of an answer they stay, since the model has called one.
func (o *outgoing) withoutTools(r *refusal) []view.Shape {
	if r.later || r.isTooLarge() || !o.offersLayerTools() {
		return nil
	}
	return o.changed(view.Shape{NoTools: true})
}

// offersLayerTools reports whether the request was sent with tools of layers.
func (o *outgoing) offersLayerTools() bool { return len(o.req.turn.Tools) > 0 && !o.shape.NoTools }

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

// learnShape remembers the changes that made upstream accept a request.
func (o *outgoing) learnShape(c *correction) {
	first := c.refusals[0]
	before := o.lesson(aboutOrder, o.orderOf(first)...).shape // what refusals of earlier requests asked for
	o.req.s.lessons.forget(o.lessonKey(aboutOrder, o.orderOf(first)...))
	if first.aboutThisRequest() {
		return
	}
	for _, m := range remedies {
		learnt := m.part(c.is)
		switch {
		case learnt == m.part(c.was):
		case m.forAll != nil && (slices.ContainsFunc(c.refusals, m.forAll) || m.part(before) != view.Shape{}):
			o.learn(m.about, lesson{shape: learnt})
		default:
			o.learn(m.about, lesson{shape: learnt}, o.req.head.id.session)
		}
	}
	o.req.s.log.Info("upstream has taken a refused request of a model in another shape; that is remembered for an hour",
		"provider", o.provider.Name(), "model", bounded(o.modelName()), "messages", c.is.Form.String(), "layer_tools", !c.is.NoTools,
		"portable_items", c.is.Portable, "media", !c.is.NoMedia, "calls", strings.Join(c.is.Mend.Names(), " "))
}

// wanted returns the changes that a refusal asks for, without those that the operator rules out.
func (o *outgoing) wanted(r *refusal) view.Shape {
	wanted := r.wanted()
	if _, pinned := o.pinnedForm(); pinned {
		wanted.Form = view.AsIs
	}
	return wanted
}

// bounded shortens a caller's text for the log.
func bounded(s string) string { return s[:min(len(s), 128)] }

// What a lesson is about, and which requests share it.
const (
	aboutCalls    = "calls"    // per dialect: a server sees all calls alike
	aboutMedia    = "media"    // per session, as each has its own
	aboutRoles    = "roles"    // per dialect: a chat template sees all requests alike; per session what no refusal has spoken of
	aboutItems    = "items"    // per session, as each has its own
	aboutTools    = "tools"    // as for roles, also per response format, and whether the client offers tools
	aboutContext  = "context"  // per model
	aboutOrder    = "order"    // as for tools, and per kind of refusal (see orderOf)
	aboutFailures = "failures" // as for the order, and per session
	aboutCuts     = "cuts"     // per model; only that it was logged
)

// lesson returns what is known about the provider and the model of the attempt.
func (o *outgoing) lesson(about string, more ...string) lesson {
	if o.req.s.lessons.none(o.req.tenant()) {
		return lesson{}
	}
	return o.req.s.lessons.get(o.lessonKey(about, more...), o.req.s.now())
}

// learn writes down a lesson about the provider and the model of the attempt.
func (o *outgoing) learn(about string, l lesson, more ...string) {
	o.req.s.lessons.set(o.lessonKey(about, more...), l, o.req.s.now())
}

// leastTokens is the least that learnLength leaves of a request: a question, its system prompt and a little more.
const leastTokens = 250

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

// lessonKey identifies a lesson: what it is about, the tenant, the provider, the model, and more. Tenants are kept apart, since
// upstream may allow them different things.
func (o *outgoing) lessonKey(about string, more ...string) lessonKey {
	var room [512]byte
	name := room[:0]
	add := func(parts ...string) {
		for _, part := range parts {
			name = append(append(name, part...), 0)
		}
	}
	add(about, o.provider.Name(), o.provider.Address().Addr, o.modelName())
	add(more...)
	switch about {
	case aboutRoles, aboutCalls:
		add(o.req.dialect.String())
	case aboutTools, aboutOrder, aboutFailures:
		add(o.req.dialect.String(), strconv.FormatBool(o.req.wantsJSON()), strconv.FormatBool(o.req.parsed.OffersTools()))
	}
	sum := sha256.Sum256(name)
	key := lessonKey{tenant: o.req.tenant()}
	copy(key.rest[:], sum[:])
	return key
}
