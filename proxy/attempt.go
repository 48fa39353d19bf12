package proxy

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/valyala/fasthttp"

	"remora/memory/view"
	"remora/providers"
	"remora/providers/retry"
	"remora/wire"
	"remora/wire/breakpoint"
)

// attempt sends a request upstream: it chooses provider, model and shape, and tries again where that helps.
type attempt struct {
	s      *Server
	req    *request
	trace  *trace
	ending *ending
	turn   *turn // nil unless memory has a part in the request

	*routes              // the routes at the time when the request came
	portable func() bool // isPortable; a method value allocates, so it is made once
	provider *providers.Provider
	model    string // the model of a fallback, "" for the one that the client asks for

	out       outgoing
	corrected bool             // the one corrective try was made
	prepared  fasthttp.Request // target, Host and additional headers of the provider
	head      *[]byte          // the head that is sent, pooled; nil while the answer streams

	upstream providers.Exchange
	status   int    // of upstream's answer, 0 until there is one
	refusal  []byte // the body of an error answer that was read before it is passed on
	held     budget // for the parts of answers that are buffered
}

// outgoing is the body of a try.
type outgoing struct {
	body    []byte
	decoded bool        // it is sent without the client's Content-Encoding
	items   []wire.Item // the items of the view in it, nil for the client's own body
	shown   []int       // indices in items of the blocks that layers show in the user's role
	shape   view.Shape
}

func (a *attempt) reset() {
	a.turn, a.routes, a.provider, a.model = nil, nil, nil, ""
	a.out, a.corrected = outgoing{}, false
	a.status, a.refusal, a.held.taken = 0, nil, 0
}

// choose picks the provider for the model that the request names.
func (a *attempt) choose() error {
	model := ""
	switch {
	case !a.upstreams.NeedsModel():
	case a.req.parsed != nil:
		model = a.req.parsed.Model()
	default:
		model = deploymentOf(a.req.ctx.RequestURI())
	}
	if a.provider = a.upstreams.Pick(model); a.provider == nil {
		return &Error{
			Status: fasthttp.StatusNotFound, Code: codeNoProvider,
			Message: "no provider is configured for this model (providers.models)",
		}
	}
	return nil
}

// send sends the request and reads the head of the answer.
func (a *attempt) send(head *fasthttp.ResponseHeader) error {
	var plan retry.Plan
	if a.resilience != nil {
		plan = a.resilience.Plan(a.provider, a.portable)
	}
	first, err := plan.Begin()
	if err != nil {
		return err
	}
	a.selectUpstream(first)
	return a.try(head, plan, false)
}

// goOn sends the continuation of the view for the next round of an answer, to the same provider, and reads the head of what
// comes. It ignores an open circuit: the client has a part of the answer already.
func (a *attempt) goOn(head *fasthttp.ResponseHeader) error {
	a.upstream.Close()
	if a.ending.over() {
		return providers.ErrAborted
	}
	body, sent, err := a.bodyOf(a.out.shape)
	if err != nil {
		return fmt.Errorf("encode a view: %w", err)
	}
	a.out.items, a.out.shown = sent.Items, sent.Told
	a.out.body, a.out.decoded = a.addCacheHints(a.withModel(body)), len(a.req.head.encoded) > 0

	var plan retry.Plan
	if a.resilience != nil {
		plan = a.resilience.Stay(a.provider)
	}
	if _, err := plan.Begin(); err != nil {
		plan = retry.Plan{}
	}
	return a.try(head, plan, true)
}

// try calls upstream until there is an answer for the client. If upstream refuses the shape of the request, one corrective try
// follows. If a call fails and upstream cannot have served it, the plan decides whether it is repeated, or made elsewhere.
// With goesOn, the provider, the model and the shape stay.
func (a *attempt) try(head *fasthttp.ResponseHeader, plan retry.Plan, goesOn bool) error {
	var correcting *correction
	for {
		err := a.call(head, rewrite{body: len(a.out.body), remembered: a.turn != nil || a.req.stored.target != nil, decoded: a.out.decoded})
		switch {
		case correcting != nil:
			err = correcting.end(a, head, err)
			correcting = nil
		case err == nil && a.turn != nil && !goesOn:
			if correcting, err = a.correct(head); correcting != nil {
				continue
			}
		}
		if err == nil && head.StatusCode() == fasthttp.StatusSwitchingProtocols {
			err = fmt.Errorf("%w: it switches protocols unasked", providers.ErrMalformed)
		}

		next, again := plan.Next(retry.Outcome{Err: err, Header: head})
		if !again {
			return err
		}
		if err != nil {
			a.trace.failed(0, err)
		} else {
			a.trace.answered(a, head.StatusCode(), &wire.Reply{})
			if !goesOn { // else the client has the first round's status
				a.status = head.StatusCode()
			}
		}
		a.refusal = nil
		if err := a.upstream.Again(next.Delay); err != nil {
			return err
		}
		if !goesOn {
			a.selectUpstream(next)
		}
	}
}

// call sends the request once and reads the head of the answer.
func (a *attempt) call(head *fasthttp.ResponseHeader, rw rewrite) error {
	if err := a.prepare(rw); err != nil {
		return err
	}
	// Every line of this head has to be upstream's. Reading clears what it held before; after a Reset, fasthttp would add a
	// Date.
	head.DisableNormalizing()
	head.SetNoDefaultContentType(true)
	return a.s.client.Send(&a.upstream, a.provider.Upstream(), *a.head, a.out.body, head)
}

// prepare builds the head of the upstream request.
func (a *attempt) prepare(rw rewrite) error {
	in, out := &a.req.ctx.Request.Header, &a.prepared
	out.Reset()
	out.Header.DisableNormalizing()
	out.Header.SetNoDefaultContentType(true)
	out.Header.SetMethodBytes(in.Method())
	out.Header.SetRequestURIBytes(in.RequestURI())
	if a.req.stored.target != nil {
		out.Header.SetRequestURIBytes(a.req.stored.target)
	}
	if err := a.provider.Prepare(out); err != nil {
		return err
	}
	if rw.ownCredential = a.bringsCredential(&out.Header); rw.ownCredential {
		// The caller's own credential is not for this provider.
		out.Header.SetRequestURIBytes(withoutCredentials(bytes.Clone(out.Header.RequestURI())))
	}

	a.trace.sending(a)
	if a.head == nil {
		a.head, _ = a.s.heads.Get().(*[]byte)
	}
	*a.head = a.req.head.appendHead((*a.head)[:0], &out.Header, rw)
	return nil
}

// bringsCredential reports whether the provider's headers have a credential.
func (a *attempt) bringsCredential(h *fasthttp.RequestHeader) bool {
	for name := range h.All() {
		if a.s.names.lookup(name).role == roleCredential {
			return true
		}
	}
	return false
}

// forget frees the memory of what was sent, as an answer may stream for long.
func (a *attempt) forget() {
	a.out.body = nil
	if a.head != nil {
		a.s.heads.Put(a.head)
		a.head = nil
	}
}

// readAll reads the rest of an answer that is not streamed. With errLarge and errNoRoom it returns what it has read so far.
func (a *attempt) readAll() ([]byte, error) {
	body := []byte{}
	for {
		p, err := a.upstream.Next()
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if body = append(body, p...); len(body) > foldLimit {
			return body, errLarge
		}
		if !a.held.hold(len(p)) {
			return body, errNoRoom
		}
	}
}

// isPortable reports whether another provider could serve the request. It reads all of the body.
func (a *attempt) isPortable() bool {
	body := a.req.body.bytes
	if a.req.parsed != nil {
		body = a.req.body.plain
	}
	return retry.Portable(a.req.ctx.Method(), a.req.ctx.RequestURI(), body)
}

// selectUpstream sets the provider and the model of a try, and builds its body.
func (a *attempt) selectUpstream(to retry.Attempt) {
	if to.Provider != nil {
		a.provider = to.Provider
	}
	a.model = to.Model

	if a.turn != nil {
		a.encode(a.shapeNow())
	} else {
		a.out.body, a.out.decoded = a.req.body.bytes, false
		if a.req.previous != "" {
			a.out.body, a.out.decoded = a.req.withPrevious(a.req.body.plain), len(a.req.head.encoded) > 0
		}
	}
	a.adaptBody()
}

// encode builds the body of the view in a shape. If that is the client's own body, it is sent as it came, compression
// included. If the view can't be encoded, the client's body is sent and X-Memory says "degraded".
func (a *attempt) encode(s view.Shape) {
	a.out.body, a.out.decoded, a.out.shape = a.req.body.bytes, false, s
	b, sent, err := a.bodyOf(s)
	if err != nil {
		a.s.log.Error("encode a view; the request goes as it came", "turn", a.turn.id, "error", err.Error())
		a.turn.degrade(len(a.req.parsed.Items()))
		return
	}
	a.out.items, a.out.shown = sent.Items, sent.Told
	if !sameBody(b, a.req.body.plain) {
		a.out.body, a.out.decoded = b, len(a.req.head.encoded) > 0
	}
}

// bodyOf returns the client's body with the items of the view in a shape.
func (a *attempt) bodyOf(s view.Shape) (body []byte, sent view.Sent, err error) {
	sent, a.turn.summary = a.turn.sent(s)
	tools := a.turn.tools
	if s.NoTools || a.turn.judge != nil && a.turn.judge.LastRound() {
		tools = nil
	}
	body, err = a.req.parsed.With(sent.Items, tools...)
	if err == nil && sent.Instructions != nil {
		body = wire.ReplaceMember(body, "instructions", sent.Instructions)
	}
	return a.req.withPrevious(body), sent, err
}

// adaptBody puts the try's model and the provider's cache hints into the body. A compressed body stays as it is if there is
// nothing to put in.
func (a *attempt) adaptBody() {
	body, packed := a.out.body, len(a.req.head.encoded) > 0 && !a.out.decoded
	if packed {
		if a.req.parsed == nil {
			return // it was not read: the model stays
		}
		body = a.req.body.plain
	}
	out := a.addCacheHints(a.withModel(body))
	if packed && sameBody(out, body) {
		return
	}
	a.out.body, a.out.decoded = out, a.out.decoded || packed
}

// withModel returns a body with the model of the try. A body that can't name a model is returned as it is.
func (a *attempt) withModel(body []byte) []byte {
	if a.model == "" {
		return body
	}
	other, err := retry.WithModel(body, a.model)
	if err != nil {
		return body
	}
	return other
}

// modelName returns the model that upstream is asked for, "" if only parsing the whole body would show it.
func (a *attempt) modelName() string {
	switch {
	case a.model != "":
		return a.model
	case a.req.parsed != nil:
		return a.req.parsed.Model()
	default:
		return cmp.Or(wire.Text(wire.Glance(a.req.body.bytes, "model")), deploymentOf(a.req.ctx.RequestURI()))
	}
}

// addCacheHints adds prompt_cache_key and cache breakpoints to the body of a session's request, where the provider is
// configured to get them. Both are off by default; nothing else changes a body outside of its items and tools.
func (a *attempt) addCacheHints(body []byte) []byte {
	up := a.provider.Upstream()
	if a.turn == nil || a.turn.unkept || !up.PromptCacheKey && !up.CacheControl {
		return body
	}
	if up.CacheControl && a.req.dialect.Rules().Breakpoints {
		if r := a.reparse(body); r != nil {
			body = breakpoint.Cache(r, a.out.shown...)
		}
	}
	if up.PromptCacheKey {
		if r := a.reparse(body); r != nil {
			key := cacheKey(&a.s.o.Session, a.req.tenant(), a.req.head.id.session)
			if keyed, err := r.WithMember("prompt_cache_key", wire.AppendString(nil, key)); err == nil {
				body = keyed
			}
		}
	}
	return body
}

// reparse parses a body that was made from the client's. It returns nil for one that can't be read.
func (a *attempt) reparse(body []byte) *wire.Request {
	if sameBody(body, a.req.parsed.Body) {
		return a.req.parsed
	}
	r, err := wire.Parse(a.req.dialect, body)
	if err != nil {
		return nil
	}
	return r
}

// cacheKey returns the prompt_cache_key of a session, 32 characters. It is the same on all replicas with the same session.key,
// and neither tenant nor session can be read from it.
func cacheKey(o *SessionOptions, tenant, session string) string {
	mac := hmac.New(sha256.New, []byte(o.Key.Reveal()))
	for _, part := range [...]string{"prompt_cache_key", tenant, session} {
		// With the lengths, no two pairs are written alike, and none is written like a credential in Tenant.
		_, _ = fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(mac.Sum(sum[:0])[:16])
}
