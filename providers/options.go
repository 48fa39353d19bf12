package providers

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"remora/address"
	"remora/secret"
)

// Options describes one provider, an entry of the list "providers" in the configuration.
type Options struct {
	// Name is unique in the list and goes into logs and metrics. Empty means the kind's name.
	Name string `mapstructure:"name"`
	// Kind is one of [Kinds].
	Kind string `mapstructure:"kind"`
	// BaseURL is the base URL as for an SDK, version included: https://host/v1. Empty means the kind's own, if it has
	// one.
	BaseURL string `mapstructure:"base_url"`
	// APIKey replaces the caller's credential upstream. Empty passes the caller's on. References to the
	// environment or to files are resolved before they come here.
	APIKey secret.String `mapstructure:"api_key"`
	// Models are the models that go to this provider: exact names, or patterns in which * stands for any run of
	// bytes. Without any, the provider takes what no other one claims.
	Models []string `mapstructure:"models"`
	// Headers are set on every request to this provider, in place of the caller's of the same name.
	Headers []Header `mapstructure:"headers"`
	// Messages selects the message roles and the number of system messages that the provider's servers take: as_is,
	// one_system, alternate, no_system or auto, which learns it from refusals. Empty is auto.
	Messages string `mapstructure:"messages"`
	// PromptCacheKey gives requests of a session a prompt_cache_key where the client has sent none: a keyed hash of the
	// tenant and the session, by which a provider sends them to where their prompt is cached.
	PromptCacheKey bool `mapstructure:"prompt_cache_key"`
	// CacheControl puts breakpoints of Anthropic's kind into Chat Completions of a session, unless the client sets any
	// itself. It is for providers that cache only what they are told to, and changes how texts are spelled.
	CacheControl bool `mapstructure:"cache_control"`
}

// Header is a request header that an operator adds.
type Header struct {
	Name  string        `mapstructure:"name"`
	Value secret.String `mapstructure:"value"`
}

// NameOrKind returns the name by which the configuration refers to the provider.
func (o Options) NameOrKind() string { return cmp.Or(o.Name, o.Kind) }

// Validate reports every problem of o, joined, each under its configuration path: "providers[1].base_url: ...". The
// path of o itself is given by the caller.
func (o Options) Validate(path string) error {
	var problems []error
	report := func(key string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s.%s: %w", path, key, err))
		}
	}
	report("name", checkName(o.Name))
	k, err := kindOf(o.Kind)
	report("kind", err)
	if o.BaseURL != "" || err == nil && k.BaseURL == "" {
		_, err = parseBaseURL(o.BaseURL)
		report("base_url", err)
	}
	report("messages", checkMessages(o.Messages))
	report("api_key", checkAPIKey(o.APIKey))
	for i, m := range o.Models {
		if m == "" {
			report(fmt.Sprintf("models[%d]", i), errors.New("must not be empty"))
		}
	}
	for i, h := range o.Headers {
		report(fmt.Sprintf("headers[%d].name", i), checkHeaderName(h.Name))
		report(fmt.Sprintf("headers[%d].value", i), checkValue(h.Value))
	}
	return errors.Join(problems...)
}

// Validate reports every problem of a list of providers, under "providers[i]".
func Validate(list []Options) error {
	if len(list) == 0 {
		return errors.New("providers: must have at least one entry")
	}
	var problems []error
	seen := make(map[string]int, len(list))
	for i, o := range list {
		path := fmt.Sprintf("providers[%d]", i)
		if err := o.Validate(path); err != nil {
			problems = append(problems, err)
		}
		if first, dup := seen[o.NameOrKind()]; dup {
			problems = append(problems, fmt.Errorf("%s.name: %q is already the name of providers[%d]", path, o.NameOrKind(), first))
			continue
		}
		seen[o.NameOrKind()] = i
	}
	return errors.Join(problems...)
}

// checkName keeps names fit for a metric label and a log field.
func checkName(name string) error {
	if len(name) > 64 {
		return errors.New("must have at most 64 characters")
	}
	for _, r := range name {
		if r <= ' ' || r > '~' {
			return fmt.Errorf("must be printable ASCII without spaces, has %q", r)
		}
	}
	return nil
}

// MessagesAuto is the value of [Options.Messages] that begins with a form of the kind's and lets refusals teach another.
const MessagesAuto = "auto"

func checkMessages(m string) error {
	switch m {
	case "", MessagesAuto, "as_is", "one_system", "alternate", "no_system":
		return nil
	}
	return fmt.Errorf("must be auto, as_is, one_system, alternate or no_system, is %q", m)
}

// checkAPIKey is checkValue for a key, before which the proxy writes Bearer.
func checkAPIKey(key secret.String) error {
	const scheme = "bearer "
	if v := key.Reveal(); len(v) >= len(scheme) && strings.EqualFold(v[:len(scheme)], scheme) {
		return errors.New("must be the key alone, without the word Bearer")
	}
	return checkValue(key)
}

// checkValue looks for bytes that would end a header line. It never quotes the value.
func checkValue(v secret.String) error {
	for i, c := range []byte(v) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("must not hold control characters, has one at byte %d", i)
		}
	}
	if strings.TrimSpace(string(v)) != string(v) {
		return errors.New("must not begin or end with white space")
	}
	return nil
}

func checkHeaderName(name string) error {
	if name == "" || len(name) > 64 {
		return errors.New("must have 1 to 64 characters")
	}
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("must be the name of a header, is %q", name)
	}
	switch strings.ToLower(name) {
	case "host":
		return errors.New("is set from base_url")
	case "authorization", "x-api-key", "api-key":
		return errors.New("is set by api_key")
	case "accept-encoding", "content-encoding":
		return errors.New("must not be a header that says how bodies are encoded: the proxy reads them")
	case "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive",
		"proxy-authorization", "proxy-connection", "expect", "cookie":
		return errors.New("must not be a header that frames the message or belongs to one connection")
	}
	return nil
}

// baseURL is a base URL in the pieces that the request path needs.
type baseURL struct {
	Address
	host string // of the Host header: with the port only where it is not the scheme's own
	path string // without a slash at its end
}

// parseBaseURL accepts scheme, host, port and path; errors never repeat the URL, which may hold a password.
func parseBaseURL(raw string) (baseURL, error) {
	if raw == "" {
		return baseURL{}, errors.New("is required for this kind")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return baseURL{}, errors.New("must be an absolute http or https URL, such as http://127.0.0.1:11434/v1")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Hostname() == "" {
		return baseURL{}, errors.New("must be an absolute http or https URL, such as http://127.0.0.1:11434/v1")
	}
	if err := address.CheckURL(u); err != nil {
		return baseURL{}, err
	}
	if u.User != nil {
		return baseURL{}, errors.New("must not hold a credential, use api_key")
	}
	if u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#") {
		return baseURL{}, errors.New("must not have a query or a fragment")
	}
	b := baseURL{Address: Address{ServerName: u.Hostname(), TLS: u.Scheme == "https"}, host: u.Host}
	port, standard := u.Port(), "80"
	if b.TLS {
		standard = "443"
	}
	port = cmp.Or(port, standard)
	b.Addr = net.JoinHostPort(b.ServerName, port)
	if port == standard {
		b.host = strings.TrimSuffix(strings.TrimSuffix(u.Host, ":"+standard), ":")
	}
	b.path = strings.TrimRight(u.EscapedPath(), "/")
	return b, nil
}
