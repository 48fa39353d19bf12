package proxy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"remora/memory/view"
	"remora/providers"
	"remora/providers/retry"
	"remora/wire"
	"remora/wire/breakpoint"
)

// outgoing is what a try sends, and where: the view in a shape that the provider takes, with its model and its cache hints.
type outgoing struct {
	req *request

	provider *providers.Provider
	model    string // the model of a fallback, "" for the one that the client asks for
	body     []byte
	decoded  bool        // it is sent without the client's Content-Encoding
	items    []wire.Item // the items of the view in it, nil for the client's own body
	shown    []int       // indices in items of the blocks that layers show in the user's role
	shape    view.Shape
}

func (o *outgoing) reset() { *o = outgoing{req: o.req} }

// to sets the provider and the model of a try, and builds its body.
func (o *outgoing) to(next retry.Attempt) {
	if next.Provider != nil {
		o.provider = next.Provider
	}
	o.model = next.Model

	if o.req.turn != nil {
		o.encode(o.shapeNow())
		return
	}
	o.body, o.decoded = o.req.body.bytes, false
	if o.req.previous != "" {
		o.body, o.decoded = o.req.withPrevious(o.req.body.plain), len(o.req.head.encoded) > 0
	}
	o.adaptBody()
}

// goOn builds the body with which the model goes on.
func (o *outgoing) goOn() error {
	if err := o.build(o.shape); err != nil {
		return fmt.Errorf("encode a view: %w", err)
	}
	return nil
}

// encode builds the body of the view in a shape. If the view can't be encoded, the client's body is sent and X-Memory says
// "degraded".
func (o *outgoing) encode(s view.Shape) {
	if err := o.build(s); err != nil {
		o.req.s.log.Error("encode a view; the request goes as it came", "turn", o.req.turn.ID, "error", err.Error())
		o.req.turn.reported = o.req.turn.shaper.RecordAsCame()
		o.body, o.decoded, o.shape = o.req.body.bytes, false, s
		o.adaptBody()
	}
}

// build builds the body of the view in a shape. If that is the client's own body, it is sent as it came, compression included.
func (o *outgoing) build(s view.Shape) error {
	o.body, o.items, o.shown = nil, nil, nil // those of the try before
	body, sent, err := o.bodyOf(s)
	if err != nil {
		return err
	}
	o.shape, o.items, o.shown = s, sent.Items, sent.UserBlocks
	o.req.turn.reported = o.req.turn.shaper.Record(s, sent)
	o.body, o.decoded = body, len(o.req.head.encoded) > 0
	if wire.SameBytes(body, o.req.body.plain) {
		o.body, o.decoded = o.req.body.bytes, false
	}
	o.adaptBody()
	return nil
}

// bodyOf returns the client's body with the items of the view in a shape.
func (o *outgoing) bodyOf(s view.Shape) (body []byte, sent view.Sent, err error) {
	sent = o.req.turn.shaper.Sent(s)
	tools := o.req.turn.Tools
	if s.NoTools || o.req.turn.judge.LastRound() {
		tools = nil
	}
	body, err = o.req.parsed.With(sent.Items, tools...)
	if err == nil && sent.Instructions != nil {
		body = wire.ReplaceMember(body, "instructions", sent.Instructions)
	}
	return o.req.withPrevious(body), sent, err
}

// adaptBody puts the try's model and the provider's cache hints into the body. A compressed body stays as it is if there is
// nothing to put in.
func (o *outgoing) adaptBody() {
	if o.req.body.streamed {
		return
	}
	body, packed := o.body, len(o.req.head.encoded) > 0 && !o.decoded
	if packed {
		if o.req.parsed == nil {
			return // it was not read: the model stays
		}
		body = o.req.body.plain
	}
	out := o.addCacheHints(o.withModel(body))
	if packed && wire.SameBytes(out, body) {
		return
	}
	o.body, o.decoded = out, o.decoded || packed
}

// withModel returns a body with the model of the try. A body that can't name a model is returned as it is.
func (o *outgoing) withModel(body []byte) []byte {
	if o.model == "" {
		return body
	}
	other, err := retry.WithModel(body, o.model)
	if err != nil {
		return body
	}
	return other
}

// modelName returns the model that upstream is asked for, "" if only parsing the whole body would show it.
func (o *outgoing) modelName() string {
	switch {
	case o.model != "":
		return o.model
	case o.req.parsed != nil:
		return o.req.parsed.Model()
	default:
		return cmp.Or(wire.Text(wire.Glance(o.req.body.bytes, "model")), deploymentOf(o.req.ctx.RequestURI()))
	}
}

// addCacheHints adds prompt_cache_key and cache breakpoints to the body of a session's request, where the provider is
// configured to get them. Both are off by default; nothing else changes a body outside of its items and tools.
func (o *outgoing) addCacheHints(body []byte) []byte {
	up := o.provider.API()
	if !o.req.turn.kept() || !up.PromptCacheKey && !up.CacheControl {
		return body
	}
	if up.CacheControl && o.req.dialect.Rules().Breakpoints {
		if r := o.reparse(body); r != nil {
			body = breakpoint.Cache(r, o.shown...)
		}
	}
	if up.PromptCacheKey {
		if r := o.reparse(body); r != nil {
			key := cacheKey(&o.req.s.o.Session, o.req.tenant(), o.req.head.id.session)
			if keyed, err := r.WithMember("prompt_cache_key", wire.AppendString(nil, key)); err == nil {
				body = keyed
			}
		}
	}
	return body
}

// reparse parses a body that was made from the client's. It returns nil for one that can't be read.
func (o *outgoing) reparse(body []byte) *wire.Request {
	if wire.SameBytes(body, o.req.parsed.Body) {
		return o.req.parsed
	}
	r, err := wire.Parse(o.req.dialect, body)
	if err != nil {
		return nil
	}
	return r
}

// cacheKey returns the prompt_cache_key of a session, 32 characters. It is the same on all replicas with the same session.key,
// and neither tenant nor session can be read from it.
func cacheKey(o *SessionOptions, tenant, session string) string {
	mac := o.newMAC()
	for _, part := range [...]string{"prompt_cache_key", tenant, session} {
		// With the lengths, no two pairs are written alike, and none is written like a credential in Tenant.
		_, _ = fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(mac.Sum(sum[:0])[:16])
}
