// Package providers is how the proxy reaches upstream APIs. A [Provider] rewrites target, Host and credential of a request for
// its upstream, a [Set] picks the provider by the model that a request names, and a [Client] sends requests over pooled
// HTTP/1.1 connections. Packages proxy and providers/complete call it.
//
// It never looks into a body. So a new API with OpenAI's paths is a row in [Kinds].
package providers

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// ErrTarget is returned by [Provider.Prepare] for a request target that no HTTP API has, such as the host:port form of
// CONNECT. Answer it with 400.
var ErrTarget = errors.New("unsupported request target")

// ErrTrace is returned by [Provider.Prepare] for TRACE if the provider has headers of its own: the answer would show them to
// the caller, credentials included (RFC 9110, 9.3.8). Answer it with 403.
var ErrTrace = errors.New("TRACE would show the gateway's own headers")

// Provider turns a client's request into one for its upstream: any API that has OpenAI's paths below a base URL and takes a
// bearer token. It is safe for concurrent use.
type Provider struct {
	name    string
	base    baseURL
	api     API
	bearer  []byte // Authorization value that replaces the caller's credential; nil passes the caller's on
	headers []Header
}

// Address is where an upstream listens.
type Address struct {
	// Addr is the host:port to dial, port always present.
	Addr string
	// ServerName is the host without port or brackets, for TLS.
	ServerName string
	// TLS: connect to Addr by TLS.
	TLS bool
}

// API describes how the API of a provider differs from that of others.
type API struct {
	Kind
	// Messages is from [Options]. JoinsSystem selects the form to begin with if it is auto.
	Messages string
	// PromptCacheKey and CacheControl are from [Options]: additions to requests of a session for the prompt cache.
	PromptCacheKey, CacheControl bool
}

// Open builds the provider that o describes. It returns the error of [Options.Validate] if o is invalid.
func Open(o Options) (*Provider, error) {
	if err := o.Validate("provider"); err != nil {
		return nil, err
	}
	k, err := kindOf(o.Kind)
	if err != nil {
		return nil, err
	}
	u, err := parseBaseURL(cmp.Or(o.BaseURL, k.BaseURL))
	if err != nil {
		return nil, fmt.Errorf("base_url: %w", err)
	}
	p := &Provider{
		name: o.NameOrKind(), base: u, headers: o.Headers,
		api: API{Kind: k, Messages: o.Messages, PromptCacheKey: o.PromptCacheKey, CacheControl: o.CacheControl},
	}
	if o.APIKey != "" {
		p.bearer = []byte("Bearer " + o.APIKey.Reveal())
	}
	return p, nil
}

// Name is the operator's name for this provider, unique in its Set.
func (p *Provider) Name() string { return p.name }

// HasKey reports whether a key of the provider's own replaces the caller's credential.
func (p *Provider) HasKey() bool { return p.bearer != nil }

// Address returns where the provider listens. It never changes.
func (p *Provider) Address() Address { return p.base.Address }

// Path is that of the base URL, without a slash at its end. "" is right for few servers, so a 404 there is worth a word to the
// operator.
func (p *Provider) Path() string { return p.base.path }

// API returns the description of the provider's API. It never changes.
func (p *Provider) API() *API { return &p.api }

// Prepare rewrites target, Host and credential of req in place and touches nothing else. The target's bytes after the
// rewritten prefix, the query included, stay as they are: no decoding, no path cleaning. The result is in req.Header only; do
// not call req.URI after it, since parsing would clean the path and take a path such as //host for an authority. A request
// that Prepare refuses, with [ErrTarget] or [ErrTrace], is unchanged.
func (p *Provider) Prepare(req *fasthttp.Request) error {
	h := &req.Header
	if (p.bearer != nil || len(p.headers) > 0) && bytes.EqualFold(h.Method(), []byte(fasthttp.MethodTrace)) {
		return ErrTrace
	}
	old := h.RequestURI()
	// The new target is built aside, because old points into the buffer that it is going to be written to.
	var scratch [256]byte
	target, err := appendTarget(scratch[:0], p.base.path, old)
	if err != nil {
		return err
	}
	// Also when nothing changed: this makes fasthttp forget an URI that it parsed earlier and would write instead.
	req.SetRequestURIBytes(target)
	req.UseHostHeader = true
	h.SetHost(p.base.host)
	if p.bearer != nil {
		for _, name := range CredentialHeaders() {
			dropHeader(h, name)
		}
		h.SetBytesV(fasthttp.HeaderAuthorization, p.bearer)
	}
	for i := range p.headers {
		dropHeader(h, p.headers[i].Name)
		h.Set(p.headers[i].Name, p.headers[i].Value.Reveal())
	}
	return nil
}

// appendTarget appends to dst the upstream's form of a request target: paths below /v1 or /api/v1, and paths of clients
// whose base URL lacks /v1, go below base. Any other path keeps its place on the origin.
func appendTarget(dst []byte, base string, target []byte) ([]byte, error) {
	if string(target) == "*" {
		return append(dst, '*'), nil
	}
	path, ok := OriginForm(target)
	if !ok {
		return nil, ErrTarget
	}
	if rest, under := cutVersion(path); under || lacksVersion(path) {
		dst = append(dst, base...)
		path = rest
	}
	if len(dst) == 0 && (len(path) == 0 || path[0] != '/') {
		dst = append(dst, '/')
	}
	return append(dst, path...), nil
}

// OriginForm strips scheme and authority from an absolute-form target, which names this proxy, not the upstream. False
// means that the target is in another form. The result points into target.
func OriginForm(target []byte) ([]byte, bool) {
	if len(target) > 0 && target[0] == '/' {
		return target, true
	}
	scheme, rest, found := bytes.Cut(target, []byte("://"))
	if !found || !bytes.EqualFold(scheme, []byte("http")) && !bytes.EqualFold(scheme, []byte("https")) {
		return nil, false
	}
	if i := bytes.IndexAny(rest, "/?"); i >= 0 {
		return rest[i:], true
	}
	return nil, true
}

// cutVersion removes a leading /v1 or /api/v1 path, whole segments only.
func cutVersion(path []byte) ([]byte, bool) {
	for _, prefix := range [...]string{"/v1", "/api/v1"} {
		rest := path[min(len(prefix), len(path)):]
		if string(path[:len(path)-len(rest)]) == prefix && (len(rest) == 0 || rest[0] == '/' || rest[0] == '?') {
			return rest, true
		}
	}
	return path, false
}

// lacksVersion reports whether a path is one that OpenAI has below /v1, without that.
func lacksVersion(path []byte) bool {
	known := [...]string{"/chat/completions", "/responses", "/embeddings", "/models"}
	return slices.ContainsFunc(known[:], func(known string) bool {
		rest, ok := bytes.CutPrefix(path, []byte(known))
		return ok && (len(rest) == 0 || rest[0] == '/' || rest[0] == '?')
	})
}

// CredentialHeaders are the headers in which providers accept a caller's credential, the strongest first, in lower case.
func CredentialHeaders() []string {
	return []string{"authorization", "x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key"}
}

// CarriesCredential reports whether a header may carry a caller's credential.
func CarriesCredential(header string) bool {
	return slices.Contains(CredentialHeaders(), strings.ToLower(header))
}

// dropHeader removes a header in any spelling. With name normalizing off, as in a transparent proxy, fasthttp deletes
// one spelling only, and a caller's "AUTHORIZATION" would travel on beside the operator's.
func dropHeader(h *fasthttp.RequestHeader, name string) {
	for {
		var buf [64]byte
		key := findHeader(h, name, buf[:0])
		if key == nil {
			return
		}
		h.DelBytes(key)
	}
}

// findHeader appends to dst the first spelling of name that h has; nil if there is none. A copy, because deleting by
// a key that points into the header would read what it overwrites.
func findHeader(h *fasthttp.RequestHeader, name string, dst []byte) []byte {
	for k := range h.All() {
		if len(k) == len(name) && bytes.EqualFold(k, []byte(name)) {
			return append(dst, k...)
		}
	}
	return nil
}
