package proxy

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory/view"
	"remora/providers"
	"remora/wire"
)

// shape is the form in which a request of a session is sent. Servers differ in what they accept: docs/strict-servers.md.
type shape struct {
	form    view.Form
	noTools bool // without the tools of layers
	// portable: items of earlier answers that the proxy has put into the view are in a form that any provider accepts.
	portable bool
	// noCalls: and without calls and their results, if the request offers no tools.
	noCalls bool
	// mend changes calls, the client's own as well.
	mend view.Mend
}

// shapeNow returns the shape for the provider and the model of an attempt, from the configuration and from earlier refusals.
func (a *attempt) shapeNow() shape {
	if a.turn.unkept {
		return shape{}
	}
	up := a.provider.Upstream()
	form, pinned := pinnedForm(up.Messages)
	if !pinned {
		form = beginsWith(up)
	}
	s := shape{form: form, portable: a.isFallback()}
	if a.s.lessons.none() {
		return s
	}

	now := a.s.now()
	if !pinned {
		s.form = max(form, a.s.lessons.get(a.lessonKey(aboutRoles), now).form)
	}
	items := a.s.lessons.get(a.lessonKey(aboutItems), now)
	s.portable, s.noCalls = s.portable || items.portable, items.noCalls
	s.mend = a.s.lessons.get(a.lessonKey(aboutCalls), now).mend
	s.noTools = len(a.turn.tools) > 0 && a.s.lessons.get(a.lessonKey(aboutTools), now).noTools
	return s
}

// isFallback reports whether an attempt goes to another provider or model than the view was made for.
func (a *attempt) isFallback() bool {
	return a.provider.Name() != a.turn.provider || a.model != "" && a.model != a.req.parsed.Model()
}

// pinnedForm returns the form that the operator has set (providers[].messages), and whether one is set.
func pinnedForm(messages string) (view.Form, bool) {
	if messages == providers.MessagesAuto || messages == "" {
		return view.AsIs, false
	}
	form, err := view.ParseForm(messages)
	return form, err == nil
}

// beginsWith returns the form of a provider's requests before the first refusal.
func beginsWith(up providers.Upstream) view.Form {
	if up.JoinsSystem {
		return view.Joined
	}
	return view.AsIs
}

// refusalLimit is the size in bytes up to which a refusal is read. After a longer one no other shape is tried.
const refusalLimit = 64 << 10

// correction is a corrective try under way, with the refusal that led to it.
type correction struct {
	was, is shape
	head    fasthttp.ResponseHeader
	refusal []byte
}

// correct prepares a try in another shape, if upstream may have refused the present one. It returns nil if there is none.
func (a *attempt) correct(head *fasthttp.ResponseHeader) (*correction, error) {
	status := head.StatusCode()
	if a.corrected || a.turn.unkept || !correctable(status, head) || !a.hasCorrections(status) {
		return nil, nil
	}
	// Read an answer without a length, too: some gateways send all their errors that way.
	if a.upstream.Length() > refusalLimit || len(providers.ContentEncoding(head)) > 0 {
		return nil, nil
	}
	refusal, err := a.readAll()
	if err != nil {
		return nil, err
	}
	a.refusal = refusal
	if aboutLength(refusal) {
		a.learnLength()
		return nil, nil
	}
	next, ok := a.nextCorrection(status, refusal)
	if !ok {
		return nil, nil
	}

	c := &correction{was: a.out.shape, is: next, refusal: refusal}
	head.CopyTo(&c.head)
	a.corrected = true
	a.status = status
	a.trace.answered(a, status, &wire.Reply{})

	a.upstream.Close()
	if a.ending.over() {
		return nil, providers.ErrAborted
	}
	a.encode(next)
	a.adaptBody()
	return c, nil
}

// end handles the result of a corrective try. A shape that helps is remembered for an hour. If it does not help, the client
// gets the first refusal.
func (c *correction) end(a *attempt, head *fasthttp.ResponseHeader, err error) error {
	if err == nil && head.StatusCode() < fasthttp.StatusMultipleChoices {
		a.refusal = nil
		a.learn(c.was, c.is)
		return nil
	}
	if a.ending.over() {
		return providers.ErrAborted
	}

	if err != nil {
		a.trace.failed(0, err)
	} else {
		a.trace.answered(a, head.StatusCode(), &wire.Reply{})
		if correctable(head.StatusCode(), head) {
			a.noteUnhelpful(c.refusal)
		}
	}
	a.upstream.Close()
	c.head.CopyTo(head)
	a.encode(c.was)
	return nil
}

// correctable reports whether an answer is a refusal that another shape may avoid. Refusals about the caller's credential,
// money or rate, the size of the request, or upstream's health are not.
func correctable(status int, h *fasthttp.ResponseHeader) bool {
	if asksToWait(h) {
		return false
	}
	switch status {
	case fasthttp.StatusUnauthorized, fasthttp.StatusPaymentRequired, fasthttp.StatusForbidden, fasthttp.StatusRequestTimeout,
		fasthttp.StatusRequestEntityTooLarge, fasthttp.StatusTooManyRequests:
		return false
	case fasthttp.StatusInternalServerError, fasthttp.StatusNotImplemented:
		return true
	default:
		return status >= fasthttp.StatusBadRequest && status < fasthttp.StatusInternalServerError
	}
}

// asksToWait reports whether there is a Retry-After header, in any case.
func asksToWait(h *fasthttp.ResponseHeader) bool {
	for name := range h.All() {
		if bytes.EqualFold(name, []byte("retry-after")) || bytes.EqualFold(name, []byte("retry-after-ms")) {
			return true
		}
	}
	return false
}

// aboutTemplate reports whether servers refuse roles with this status: vLLM answers 400, llama.cpp 500.
func aboutTemplate(status int) bool {
	switch status {
	case fasthttp.StatusBadRequest, fasthttp.StatusUnprocessableEntity, fasthttp.StatusInternalServerError:
		return true
	}
	return false
}

// aboutLength reports whether a refusal says that the request is longer than the model's context.
func aboutLength(refusal []byte) bool {
	text := strings.ToLower(string(refusal))
	for _, s := range []string{
		"context length", "context_length", "context window", "context size", "context_size", "prompt is too long", "input is too long",
		"input token count", "too many tokens",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// learnLength remembers that the model does not take as much as it was sent. From then on windows that count tokens leave it half
// of that: what a model takes is known from few providers, and tools and the answer need room as well.
func (a *attempt) learnLength() {
	if a.turn.tokens == nil {
		return
	}
	half := a.turn.tokens() / 2
	if half < leastTokens {
		return // it is not the history that is too long
	}
	a.s.lessons.set(a.lessonKey(aboutContext), lesson{tokens: half}, a.s.now())
	a.s.log.Info("a request was longer than the model's context; for an hour windows send less of a history",
		"provider", a.provider.Name(), "model", bounded(a.modelName()), "max_tokens", half)
}

// leastTokens is the least that learnLength leaves of a history.
const leastTokens = 500

// maxTokens is how much of a history windows may send, 0 where no refusal has shown it.
func (a *attempt) maxTokens() int {
	if a.s.lessons.none() {
		return 0
	}
	return a.s.lessons.get(a.lessonKey(aboutContext), a.s.now()).tokens
}

// hasCorrections reports whether there may be another shape to try, before the refusal's text is read.
func (a *attempt) hasCorrections(status int) bool {
	_, pinned := pinnedForm(a.provider.Upstream().Messages)
	roles := aboutTemplate(status) && !pinned && a.out.shape.form < view.NoSystem && a.turn.sent != nil
	tools := len(a.turn.tools) > 0 && !a.out.shape.noTools
	return roles || tools || a.mayPort(status) || aboutTemplate(status) && a.turn.sent != nil
}

// mendShape returns the present shape with the change of calls that a refusal asks for, and whether that changes the body.
func (a *attempt) mendShape(refusal []byte) (shape, bool) {
	next, asked := a.out.shape, mendOf(refusal)
	if next.mend |= asked; next.mend == a.out.shape.mend || a.turn.sent == nil {
		return shape{}, false
	}

	// The turn's record shows the view that was built last.
	defer func() { _, _, _ = a.bodyOf(a.turn.view, a.out.shape) }()
	sent, _, err := a.bodyOf(a.turn.view, a.out.shape)
	if err != nil {
		return shape{}, false
	}
	other, _, err := a.bodyOf(a.turn.view, next)
	if err == nil && bytes.Equal(other, sent) && asked&view.OddCallIDs != 0 { // then it is another id that it does not take
		next.mend |= view.CallIDs
		other, _, err = a.bodyOf(a.turn.view, next)
	}
	return next, err == nil && !bytes.Equal(other, sent)
}

// mendOf reads in the text of a refusal which change of calls it asks for.
func mendOf(refusal []byte) (m view.Mend) {
	text := strings.ToLower(string(refusal))
	says := func(list ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(text, s) })
	}
	if says("tool call id", "tool_call_id", "].id", "call_id", "tool_use.id", "tool_use_id", "tooluseid") &&
		says("length", "pattern", "too long", "alphanumeric", "a-z", "regular expression", "missing", "empty") {
		if m = view.OddCallIDs; says("length of 9", "length 9", "9 char") {
			m = view.CallIDs
		}
	}
	if says("reasoning_content", "reasoning content") {
		m |= view.Reasoning
	}
	if says("thought_signature", "thought signature") {
		m |= view.Signatures
	}
	if says("null") && says("not a string", "expected a string") {
		m |= view.NullContent
	}
	return m
}

// mayPort reports whether upstream may have refused the stored items in the view.
func (a *attempt) mayPort(status int) bool {
	switch status {
	case fasthttp.StatusBadRequest, fasthttp.StatusNotFound, fasthttp.StatusUnprocessableEntity:
		return (!a.out.shape.portable || !a.out.shape.noCalls) && a.turn.sent != nil
	}
	return false
}

// portableShape returns the present shape with portable items, without calls if upstream speaks of tools, and whether that
// changes the body.
func (a *attempt) portableShape(status int, aboutItems, aboutTools bool) (shape, bool) {
	if !a.mayPort(status) || status == fasthttp.StatusNotFound && !aboutItems {
		return shape{}, false
	}

	// The turn's record shows the view that was built last.
	defer func() { _, _, _ = a.bodyOf(a.turn.view, a.out.shape) }()
	next := a.out.shape
	next.portable, next.noCalls = true, next.noCalls || aboutTools
	sent, _, err := a.bodyOf(a.turn.view, a.out.shape)
	if err != nil {
		return shape{}, false
	}
	other, _, err := a.bodyOf(a.turn.view, next)
	return next, err == nil && !bytes.Equal(other, sent)
}

// nextCorrection chooses the shape of the one corrective try. The order is roles, portable items, tools, then all of them
// together; what the text of the refusal mentions comes first, and calls are changed only if it asks for that. The text only decides the order: a shape is remembered only if
// it helped. After a try that did not help, the client's next request gets the next shape.
func (a *attempt) nextCorrection(status int, refusal []byte) (shape, bool) {
	form, aboutThem := hintOf(refusal)
	if status == fasthttp.StatusInternalServerError && form == view.AsIs && !aboutThem {
		return shape{}, false // probably a failure of upstream, which may have served the request
	}
	// Upstream that speaks of tools where none are offered means the calls in the history.
	offersNone := len(a.req.parsed.Tools()) == 0 && (len(a.turn.tools) == 0 || a.out.shape.noTools)
	hinted := form == view.AsIs && (speaksOfItems(refusal) || aboutThem && offersNone)

	all := a.out.shape
	var roles, items, tools []shape
	if len(a.turn.tools) > 0 && !a.out.shape.noTools {
		next := a.out.shape
		next.noTools, all.noTools = true, true
		tools = []shape{next}
	}
	if form, ok := a.nextForm(status, form, len(tools) > 0 && aboutThem); ok {
		next := a.out.shape
		next.form, all.form = form, form
		roles = []shape{next}
	}
	if next, ok := a.portableShape(status, hinted, aboutThem); ok {
		items, all.portable, all.noCalls = []shape{next}, true, next.noCalls
	}

	mended, asked := a.mendShape(refusal)
	if asked {
		all.mend = mended.mend
	}
	options := slices.Concat(roles, items, tools)
	switch {
	case asked: // in words that leave little doubt
		options = slices.Concat([]shape{mended}, options)
	case len(options) == 0:
		return shape{}, false
	case hinted:
		options = slices.Concat(items, roles, tools)
	case form == view.AsIs && aboutThem:
		options = slices.Concat(tools, roles, items)
	}
	tried := a.s.lessons.get(a.lessonKey(aboutOrder), a.s.now())
	all.mend |= tried.mend
	switch {
	case tried.further && (len(options) > 1 || tried.mend != 0):
		options = []shape{all}
	case len(options) > 1:
		options = append(options, all)
	}
	if status == fasthttp.StatusInternalServerError && !a.s.lessons.once(a.lessonKey(aboutFailures), a.s.now()) {
		return shape{}, false
	}
	return options[tried.failed%len(options)], true
}

// speaksOfItems reports whether the text of a refusal is about items of earlier answers.
func speaksOfItems(refusal []byte) bool {
	text := strings.ToLower(string(refusal))
	for _, s := range []string{
		"encrypted content", "encrypted_content", "'reasoning'", "reasoning item", "item with id", "not persisted", "signature", "container",
		"compaction", "thinking block", "redacted_thinking", "file with id", "file_id", "audio",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// nextForm returns the form of messages to try: from the hint on, the first one that changes the request. Without a hint that
// is the form that every template accepts, and only where the proxy has put something into the view.
func (a *attempt) nextForm(status int, hint view.Form, aboutTools bool) (view.Form, bool) {
	_, pinned := pinnedForm(a.provider.Upstream().Messages)
	if pinned || !aboutTemplate(status) || a.turn.sent == nil {
		return 0, false
	}
	if hint == view.AsIs {
		own := a.turn.summary.Recalled == 0 && len(a.turn.view) == len(a.req.parsed.Items())
		if own || aboutTools && a.turn.summary.Recalled == 0 {
			return 0, false
		}
		hint = view.NoSystem
	}
	// The turn's record shows the view that was built last.
	defer func() { _, _, _ = a.bodyOf(a.turn.view, a.out.shape) }()
	sent, _, err := a.bodyOf(a.turn.view, a.out.shape)
	for form := max(hint, a.out.shape.form+1); err == nil && form <= view.NoSystem; form++ {
		var other []byte
		next := a.out.shape
		next.form = form
		if other, _, err = a.bodyOf(a.turn.view, next); err == nil && !bytes.Equal(other, sent) {
			return form, true
		}
	}
	return 0, false
}

// hintOf reads the text of a refusal: which form of messages the server wants, AsIs if it does not mention roles, and whether
// it mentions tools.
func hintOf(refusal []byte) (form view.Form, tools bool) {
	text := strings.ToLower(string(refusal))
	says := func(list ...string) bool {
		for _, s := range list {
			if strings.Contains(text, s) {
				return true
			}
		}
		return false
	}
	tools = says("tool", "function")
	switch {
	case says("must alternate", "roles alternate", "alternating"):
		return view.Alternate, tools
	case !says("system message", "system role", "role system", "system prompt", "system instruction", "developer instruction", "developer message",
		"developer role", "message role", "'system'", "only user"):
		return view.AsIs, tools
	case says("not supported", "unsupported", "not support", "not enabled", "not allowed", "only user and assistant"):
		return view.NoSystem, tools
	default:
		return view.OneSystem, tools
	}
}

// learn remembers the change that made upstream accept a request.
func (a *attempt) learn(was, is shape) {
	now := a.s.now()
	if is.form != was.form {
		a.s.lessons.set(a.lessonKey(aboutRoles), lesson{form: is.form}, now)
	}
	if is.noTools != was.noTools {
		a.s.lessons.set(a.lessonKey(aboutTools), lesson{noTools: true}, now)
	}
	if is.mend != was.mend {
		a.s.lessons.set(a.lessonKey(aboutCalls), lesson{mend: is.mend}, now)
	}
	if is.portable != was.portable || is.noCalls != was.noCalls {
		a.s.lessons.set(a.lessonKey(aboutItems), lesson{portable: true, noCalls: is.noCalls}, now)
	}
	a.s.lessons.forget(a.lessonKey(aboutOrder))
	a.s.log.Info("upstream takes requests of a model in another shape only; that is remembered for an hour",
		"provider", a.provider.Name(), "model", bounded(a.modelName()), "messages", is.form.String(), "layer_tools", !is.noTools, "portable_items", is.portable, "calls", strings.Join(is.mend.Names(), " "))
}

// noteUnhelpful records a corrective try that did not help. If its refusal differs from the first, there is more than one
// thing to correct.
func (a *attempt) noteUnhelpful(first []byte) {
	key, now := a.lessonKey(aboutOrder), a.s.now()
	l := a.s.lessons.get(key, now)
	if l.failed++; l.failed > 2 {
		l.failed = 0
	}
	l.further = false
	if a.upstream.Length() <= refusalLimit {
		if second, err := a.readAll(); err == nil && !bytes.Equal(first, second) {
			l.further = true
			l.mend |= mendOf(second)
		}
	}
	a.s.lessons.set(key, l, now)
}

// bounded shortens a caller's text for the log.
func bounded(s string) string { return s[:min(len(s), 128)] }

// What a lesson is about.
const (
	aboutRoles    = "roles"    // per dialect: a chat template sees all requests alike
	aboutTools    = "tools"    // also per response format, and whether the client offers tools
	aboutContext  = "context"  // per model
	aboutCalls    = "calls"    // per dialect: a server sees all calls alike
	aboutItems    = "items"    // per session, as each has its own items
	aboutOrder    = "order"    // as for tools
	aboutFailures = "failures" // as for tools
)

// lessonKey identifies a lesson: what it is about, the tenant, the provider and the model. Tenants are kept apart, since
// upstream may allow them different things.
func (a *attempt) lessonKey(about string) lessonKey {
	parts := []string{about, a.req.tenant(), a.provider.Name(), a.provider.Upstream().Addr, a.modelName()}
	switch about {
	case aboutRoles, aboutCalls:
		parts = append(parts, a.req.dialect.String())
	case aboutItems:
		parts = append(parts, a.req.head.id.session)
	case aboutTools, aboutOrder, aboutFailures:
		format := "text"
		if a.req.wantsJSON() {
			format = "json"
		}
		parts = append(parts, a.req.dialect.String(), format, fmt.Sprint(len(a.req.parsed.Tools()) > 0))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return lessonKey(sum[:len(lessonKey{})])
}

type lessonKey [16]byte

// lesson is what refusals have shown about one key. Only the fields that belong to the key are set.
type lesson struct {
	form     view.Form
	noTools  bool
	portable bool
	noCalls  bool
	mend     view.Mend
	tokens   int  // of history that upstream takes at most
	failed   int  // corrective tries that did not help
	further  bool // the last of them met another refusal
	until    time.Time
}

const (
	// maxLessons bounds the table, which callers can fill. When it is full of valid lessons, it is cleared.
	maxLessons = 4096
	// lessonFor is how long a lesson is valid: models and upstreams change.
	lessonFor = time.Hour
)

// lessons is the table of what refusals have shown. It is safe for concurrent use.
type lessons struct {
	mu    sync.Mutex
	table map[lessonKey]lesson
	any   atomic.Bool // something was ever learnt
}

// none reports whether the table was never written to. Then requests need not compute keys.
func (l *lessons) none() bool { return !l.any.Load() }

// get returns a lesson, the zero value if there is none or it has expired.
func (l *lessons) get(key lessonKey, now time.Time) lesson {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.table[key]; ok && now.Before(known.until) {
		return known
	}
	return lesson{}
}

func (l *lessons) set(key lessonKey, v lesson, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(key, v, now)
}

// once reports whether this is the first call for the key within lessonFor.
func (l *lessons) once(key lessonKey, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.table[key].until) {
		return false
	}
	l.put(key, lesson{}, now)
	return true
}

// put writes a lesson. The caller holds mu.
func (l *lessons) put(key lessonKey, v lesson, now time.Time) {
	if _, known := l.table[key]; !known && len(l.table) >= maxLessons {
		for k, old := range l.table {
			if !now.Before(old.until) {
				delete(l.table, k)
			}
		}
		if len(l.table) >= maxLessons {
			clear(l.table)
		}
	}
	if l.table == nil {
		l.table = make(map[lessonKey]lesson)
	}
	l.any.Store(true)
	v.until = now.Add(lessonFor)
	l.table[key] = v
}

func (l *lessons) forget(key lessonKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.table, key)
}
