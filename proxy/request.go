package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/proxy/limit"
	"remora/wire"
)

// request is the client's request: its head, its identity and session, and its body.
type request struct {
	s       *Server
	ctx     *fasthttp.RequestCtx
	*routes // at the time when it came
	trace   trace
	ending  ending
	head    head
	body    body

	owner    string        // see tenant; "" until it was asked for
	tenants  knownTenant   // the one of the request before
	dialect  wire.Dialect  // 0 where nothing is remembered
	remember bool          // unless the request says otherwise
	unasked  bool          // any web page could have sent the request
	streams  bool          // the client asks for a stream; known once the body is released
	parsed   *wire.Request // the body; nil unless it was parsed

	turn   *turn        // nil unless memory has a part in the request
	stored storedAnswer // that the path names
	late   struct {     // that waits for the answer which the path names
		turn    *memory.Late // nil for none
		dialect wire.Dialect // of the answer
	}
	previous string // in place of the client's previous_response_id, "" for that itself

	status string // of X-Memory where a session was named but there is no turn
	reason string // of that, where it is bypass, or of a turn that does not keep the answer
	wrong  string // with the body, if it cannot be read
}

// storedAnswer is an answer that upstream stores and that the path of a request names. If it was made of several rounds, the
// client knows it by the id of the first, and upstream's last one has all of it.
type storedAnswer struct {
	provider string // that gave it, "" where that is not known

	id     string // as the client knows it
	last   string // as upstream knows the answer that it ended with
	target []byte // of the request to upstream; nil where that is the client's
}

// reset keeps the memory of headers. The body must have been released.
func (r *request) reset() {
	r.head.reset()
	*r = request{s: r.s, trace: trace{telemetry: r.trace.telemetry}, head: r.head, tenants: r.tenants}
}

// identify reads the request's head.
func (r *request) identify() error {
	h := &r.ctx.Request.Header
	r.head.read(r.s.names, h)
	r.body.open(r.s, r.ctx, r.head.length)
	if string(h.Method()) != fasthttp.MethodGet {
		r.head.upgrade = nil // an ordinary request, whatever it would like to become
	}
	if r.head.broken {
		e := badRequest("the name of a header has a space in it", nil)
		e.Headers = [][2]string{{fasthttp.HeaderConnection, "close"}} // another server may see another end of such a head
		return e
	}

	r.unasked = bytes.EqualFold(h.Method(), []byte(fasthttp.MethodPost)) && r.head.unasked(h.ContentType())
	if r.unasked && slices.ContainsFunc(r.upstreams.All(), (*providers.Provider).HasKey) {
		return errUnasked()
	}

	// Methods are case-sensitive, but some servers accept "post", so compare without case.
	if !bytes.EqualFold(h.Method(), []byte(fasthttp.MethodPost)) {
		return nil
	}
	d, unclear := dialectOf(h.RequestURI())
	if unclear && r.s.memory.Guards() {
		return badRequest("the rules of this gateway judge answers of /v1/chat/completions and /v1/responses, and this path may lead to others of the kind: use one of these", nil)
	}

	if !d.Known() {
		if _, named := keptAnswer(h.Method(), h.RequestURI()); named {
			return nil // like GET and DELETE, it is about an answer and brings nothing to remember
		}
	}

	r.dialect = d
	r.remember = true
	switch {
	case !d.Known():
		r.bypass("conversations on this path are not remembered")
	case r.head.id.off && r.head.id.session != "":
		r.remember, r.status = false, statusOff
	}
	return nil
}

// tenant is the owner of the request's sessions.
func (r *request) tenant() string {
	if r.owner == "" {
		r.owner = r.tenants.of(&r.s.o.Session, &r.head.id)
	}
	return r.owner
}

// admit checks the limits.
func (r *request) admit() (err error) {
	if !r.s.room.For(r.ctx.Conn()) {
		drainBody(r.ctx, r.s.now())
		r.body.arrived = true
		return errCrowded(r.s.o.MaxConnections)
	}
	if r.s.limits == nil {
		return nil
	}
	if r.s.o.Session.Tenancy == TenancyCredential && r.s.limits.CountsTenants() && r.head.id.doubtful() {
		return errTwoCredentials()
	}
	r.body.ticket, err = r.s.limits.Enter(r.limitNames)
	return err
}

// limitNames are the names for which limits count the request: each of its keys by itself, not all of them together as for sessions.
// Upstream checks only some of the keys, so that a caller could have a new name with every request.
func (r *request) limitNames() []string {
	keys := r.head.id.credentials(nil)
	if len(keys) == 1 {
		return []string{r.tenant()}
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = r.s.o.Session.Tenant(k)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// read takes the body: all of it, or the beginning of one that goes upstream as it arrives, since it is large and nothing here reads
// it. If it may have to be sent again, it is held as far as max_body.
func (r *request) read() error {
	if err := r.hold(); err != nil {
		return err
	}
	return r.body.ticket.Arrived()
}

// hold is read before the request counts in limits.global.concurrent.
func (r *request) hold() error {
	most, length := int(r.s.o.MaxBody), r.head.length
	held := min(most, maxPooled-1)
	if !r.head.chunked && length <= int64(held) || r.readsBody() {
		return r.body.hold(most, false)
	}
	switch {
	case r.resilience.Repeats() && length <= int64(most):
		held = most
	case length > 0:
		held = min(held, perRead-1) // no more of it makes it a small one
	}
	return r.body.hold(held, true)
}

// readsBody reports whether all of the body is needed here: for memory and rules, for an earlier answer that it names, or for the
// model that it asks for, which no form has.
func (r *request) readsBody() bool {
	if r.dialect.Known() || r.head.upgrade != nil || r.mayName() {
		return true
	}
	if _, named := keptAnswer(r.ctx.Method(), r.ctx.RequestURI()); named {
		return true
	}
	const form = "multipart/form-data"
	typ := r.ctx.Request.Header.ContentType()
	return r.upstreams.NeedsModel() && (len(typ) < len(form) || !bytes.EqualFold(typ[:len(form)], []byte(form)))
}

// parse parses the body if memory or the choice of a provider needs it. It fails if there is no room for an unpacked one.
func (r *request) parse() error {
	if r.body.streamed {
		return nil
	}
	guarded := r.guarded()
	follows := r.mayFollow()
	needed := r.remember || guarded || follows || r.upstreams.NeedsModel()
	if len(r.body.bytes) == 0 {
		r.bypass("the body is empty")
		return nil
	}
	if !needed || !guarded && !follows && r.namesNoSession() {
		r.bypass("")
		return nil
	}
	plain, err := r.decoded()
	if _, crowded := errors.AsType[*limit.Refusal](err); crowded {
		return err
	}
	if err != nil {
		r.unreadable("the body cannot be unpacked: its Content-Encoding is unknown or not that of its bytes, or it unpacks to more than is read")
		return nil //nolint:nilerr // it is forwarded as it came
	}
	if !startsObject(plain) {
		r.unreadable("the body is not a JSON object")
		return nil
	}

	parsed, err := wire.Parse(r.dialect, plain)
	if err != nil && r.dialect.Known() {
		// X-Memory says "bypass" only where a session is named, so look for one even in a body that memory cannot use.
		if other, err := wire.Parse(wire.Dialect{}, plain); err == nil {
			r.head.id.readFields(&r.s.o.Session, other)
		}
	}
	if err != nil {
		r.unreadable("the body cannot be read " + whereWrong(err))
		return nil
	}

	r.body.plain, r.parsed = plain, parsed
	parsed.Deployment = deploymentOf(r.ctx.RequestURI())
	if r.remember || guarded {
		if err := r.holdItems(); err != nil {
			return err
		}
	}
	if r.remember && (r.head.id.off || r.unasked) {
		r.head.id.readFields(&r.s.o.Session, parsed)
		r.bypass(unaskedReason)
	}
	return nil
}

// unaskedReason is the reason of a bypass where any web page could have sent the request.
const unaskedReason = "a web page sent it without Content-Type: application/json"

// decoded undoes the Content-Encoding of the body. What it unpacks to counts as the body does.
func (r *request) decoded() (plain []byte, err error) {
	var refused error
	plain, err = decode(r.head.encoded, r.body.bytes, min(int(r.s.o.MaxBody), max(minDecoded, maxRatio*len(r.body.bytes))), func(n int) bool {
		refused = r.body.ticket.Hold(int64(n))
		return refused == nil
	})
	return plain, cmp.Or(refused, err)
}

const (
	// freeItems is how many items and calls of a body are not counted: most bodies have fewer.
	freeItems = 1 << 10
	// itemBytes is about what a turn takes for an item or a call besides its bytes, until its answer is stored.
	itemBytes = 2 << 10
)

// holdItems counts what the turn takes for its items: a body of very short ones takes many times its size. It fails if there is no
// room now. Where there can never be, memory is off.
func (r *request) holdItems() error {
	n, counted := r.parsed.Len(), 0
	hold := func() error {
		more := max(n-freeItems-counted, 0)
		counted += more
		return r.body.ticket.Hold(int64(more) * itemBytes)
	}
	err := hold() // before they are read, which takes most of it
	if err == nil {
		for _, it := range r.parsed.Items() {
			n += max(len(it.Parts)-1, 0)
		}
		err = hold()
	}

	crowded, ok := errors.AsType[*limit.Refusal](err)
	if !ok || int64(counted)*itemBytes+int64(len(r.body.bytes)) <= crowded.Max {
		return err
	}
	r.unreadable("the body has more items than limits.global.body_bytes has room for")
	if r.guarded() {
		r.parsed = nil
	}
	return nil
}

// startsObject reports whether a body may be a JSON object, as all remembered bodies are, rather than a form or a file.
func startsObject(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == '{'
}

// whereWrong returns where a body is invalid and why, without quoting it.
func whereWrong(err error) string {
	if wrong, ok := errors.AsType[*wire.ParseError](err); ok {
		return fmt.Sprintf("at byte %d: %s", wrong.Offset, wrong.Reason)
	}
	return "as JSON"
}

// namesNoSession reports whether neither the headers nor the body name a session. It searches the body without parsing it.
func (r *request) namesNoSession() bool {
	known := r.head.id.session != "" || len(r.head.encoded) > 0 || r.upstreams.NeedsModel()
	return !known && !r.s.hints.In(r.body.bytes)
}

// Values of X-Memory for requests without a turn.
const (
	statusBypass = "bypass"
	statusOff    = "off"
)

// bypass turns memory off for this request, which is forwarded unchanged. Where it names a session, the answer and the log
// say why; the reason is one of our own sentences, fit for a quoted string.
func (r *request) bypass(reason string) {
	if r.remember && r.head.id.session != "" {
		r.status, r.reason = statusBypass, reason
		if r.head.id.off {
			r.status = statusOff
		} else {
			r.s.bypassed(reason)
		}
	}
	r.remember = false
}

// unreadable gives up on the body: memory passes it by, and rules that have to judge the answer refuse it. The reason never
// quotes the body.
func (r *request) unreadable(reason string) {
	r.wrong = reason
	r.bypass(reason)
}

// guarded reports whether rules have to judge the answer, whether or not it is remembered.
func (r *request) guarded() bool { return r.dialect.Known() && r.s.memory.Guards() }

// inBackground reports whether a request is to be answered in the background. Such an answer can't be judged, and tools of
// layers that it calls can't be run.
func (r *request) inBackground() bool {
	return r.parsed != nil && r.parsed.InBackground()
}

// wantsJSON reports whether the client asks for JSON output.
func (r *request) wantsJSON() bool {
	return strings.HasPrefix(r.parsed.Format(), "json")
}

// wantsOneChoice reports whether the client asks for one answer, as nearly all do.
func (r *request) wantsOneChoice() bool {
	n := r.parsed.Member("n")
	return len(n) == 0 || string(n) == "1" || string(n) == "null"
}

// asksForStream reports whether the client wants a stream, as far as a glance at the body tells.
func (r *request) asksForStream() bool {
	if r.parsed != nil {
		return string(r.parsed.Member("stream")) == "true"
	}
	return r.streams || string(wire.Glance(r.body.bytes, "stream")) == "true"
}

// known returns what memory knows about an answer of the caller's: nothing while the store is away, so that requests pass
// unchanged.
func (r *request) known(id string) memory.Response {
	if id == "" {
		return memory.Response{}
	}
	known, err := r.s.memory.Response(r.trace.Context(), r.tenant(), id)
	if err != nil {
		return memory.Response{}
	}
	return known
}

// mayFollow reports whether a body may name an earlier response although memory has no part in it, so that it must be parsed.
func (r *request) mayFollow() bool {
	if r.remember || string(r.ctx.Method()) != fasthttp.MethodPost {
		return false
	}
	if len(r.head.encoded) > 0 {
		return r.status == statusOff && r.dialect.Rules().Previous != ""
	}
	return r.mayName() && bytes.Contains(r.body.bytes, []byte(previousResponse))
}

// mayName reports whether the request is to an endpoint whose requests name the answer that they continue, or to one below it,
// such as responses/compact.
func (r *request) mayName() bool {
	d := r.dialect
	if !d.Known() {
		origin, _ := providers.OriginForm(r.ctx.RequestURI())
		path, _, _ := bytes.Cut(origin, []byte("?"))
		if at := bytes.LastIndexByte(path, '/'); at > 0 {
			d = endpoint(path[:at])
		}
	}
	return d.Rules().Previous != ""
}

// follow finds the answer that the request names: which provider has it, and by which id. The client names an answer of several
// rounds by the id of the first round, upstream has all of it under the id of the last.
func (r *request) follow() {
	var in answerPath
	named := false
	if !r.dialect.Known() { // the path of an endpoint itself names no answer
		in, named = keptAnswer(r.ctx.Method(), r.ctx.RequestURI())
	}
	if named {
		known := r.known(in.id)
		if r.stored.provider = known.Provider; isAnswerID(known.Last) {
			r.stored.id, r.stored.last = in.id, known.Last
			r.stored.target = slices.Concat(in.before, []byte(url.PathEscape(known.Last)), in.after)
		}
		if in.itself {
			r.late.turn, r.late.dialect = r.s.memory.Late(r.tenant(), in.id, known), in.dialect
		}
		return
	}
	if !r.remember && r.parsed != nil && r.mayName() {
		r.previous = r.known(r.parsed.Text(previousResponse)).Last
	}
}

// withPrevious is a body that names the end of the answer before it, or no answer if the view has its history.
func (r *request) withPrevious(body []byte) []byte {
	if r.turn != nil && r.turn.LeavesPrevious && body != nil {
		return wire.WithoutMember(body, previousResponse)
	}
	if r.previous == "" || body == nil {
		return body
	}
	return wire.ReplaceMember(body, previousResponse, wire.AppendString(nil, r.previous))
}
