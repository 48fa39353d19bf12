package proxy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"remora/providers"
	"remora/proxy/limit"
	"remora/proxy/listener"
	"remora/secret"
	"remora/telemetry"
	"remora/wire"
)

// Options configure a Server: the section "server" of the configuration.
type Options struct {
	// Listen is the address that main opens for Serve.
	Listen string `mapstructure:"listen"`
	// AdminListen is the address of the server for operators (health, metrics), "" for none; AdminToken is its bearer token.
	AdminListen string        `mapstructure:"admin_listen"`
	AdminToken  secret.String `mapstructure:"admin_token"`
	// MaxBody is the largest request body that is held, as it arrives. A larger one gets 413 if it has to be read here, and else goes
	// upstream as it arrives. A compressed body that unpacks to more is forwarded without memory, or refused with 400 if layers
	// judge all answers.
	MaxBody Size `mapstructure:"max_body"`
	// MaxHeader is the largest request head, target included; a larger one gets 431. Each connection keeps a
	// buffer of this size.
	MaxHeader Size `mapstructure:"max_header"`
	// MaxConnections is how many client connections are served at once; more get 503.
	MaxConnections int `mapstructure:"max_connections"`
	// ReadTimeout is the time for a request's head, and again for every 64 KiB of its body.
	ReadTimeout time.Duration `mapstructure:"read_timeout"`
	// IdleTimeout is how long a client connection may be unused, and how long both ends of a tunnel may be silent.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`
	// WriteTimeout is how long a client may take to accept one piece of an answer.
	WriteTimeout time.Duration `mapstructure:"write_timeout"`
	// ShutdownDelay is how long the server goes on serving, not ready, before Shutdown is called.
	ShutdownDelay time.Duration `mapstructure:"shutdown_delay"`
	// ShutdownGrace is how long answers under way may go on after a shutdown has begun.
	ShutdownGrace time.Duration `mapstructure:"shutdown_grace"`
	// TLSCert and TLSKey are PEM files; both empty means plain HTTP.
	TLSCert string `mapstructure:"tls_cert"`
	TLSKey  string `mapstructure:"tls_key"`
	// Upstream configures the connections to upstreams.
	Upstream providers.ClientOptions `mapstructure:"upstream"`
	// Session is the section "session", which stands beside "server".
	Session SessionOptions `mapstructure:"-"`
	// KeepAlive is after how long a silent event stream gets a comment, so that load balancers do not close it; 0 means
	// never.
	KeepAlive time.Duration `mapstructure:"keep_alive"`
	// Limits are the rate limits, nil for none. The caller of New closes them.
	Limits *limit.Limiter `mapstructure:"-"`
	// Telemetry observes every request, nil for none.
	Telemetry *telemetry.Telemetry `mapstructure:"-"`
}

// SessionOptions name the headers and fields that identify a session and its resource: the section "session" of the
// configuration. Names of headers are matched without regard to case, earlier ones win, headers win over fields.
type SessionOptions struct {
	// Headers and Fields name the session; a field is a member of the body such as "metadata.session_id".
	Headers []string `mapstructure:"headers"`
	Fields  []string `mapstructure:"fields"`
	// ResourceHeaders and ResourceFields name the resource.
	ResourceHeaders []string `mapstructure:"resource_headers"`
	ResourceFields  []string `mapstructure:"resource_fields"`
	// CredentialHeaders hold the keys that together name the tenant.
	CredentialHeaders []string `mapstructure:"credential_headers"`
	// Tenancy is "credential" (each credential has its own memory) or "single" (all callers share one).
	Tenancy string `mapstructure:"tenancy"`
	// Key makes tenant names unguessable from credentials. Changing it makes stored sessions unreachable.
	Key secret.String `mapstructure:"key"`
	// History is the default of X-History: "auto", "client" or "server".
	History string `mapstructure:"history"`
}

// Values of SessionOptions.Tenancy.
const (
	TenancyCredential = "credential"
	TenancySingle     = "single"
)

// LoadCertificate returns when the certificate of TLSCert expires, the zero time without one, or why its files cannot be used.
func (o *Options) LoadCertificate() (expiry time.Time, err error) {
	if o.TLSCert == "" {
		return time.Time{}, nil
	}
	c := listener.NewCertificate(o.TLSCert, o.TLSKey)
	_, err = c.Load()
	return c.Expiry(), err
}

// minMaxBody is the least that server.max_body may be: fewer bytes are a forgotten unit.
const minMaxBody = 1 << 10

// Validate returns all problems, joined, each under its path in the configuration.
func (o *Options) Validate() error {
	var problems []error
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.MaxBody < minMaxBody || o.MaxBody > math.MaxInt32 {
		report("server.max_body: must be from 1KiB to 2GiB, is %s", o.MaxBody)
	}
	if o.MaxHeader < 4<<10 || o.MaxHeader > 1<<20 {
		report("server.max_header: must be from 4KiB to 1MiB, is %s", o.MaxHeader)
	}
	if o.MaxConnections < 1 {
		report("server.max_connections: must be at least 1, is %d", o.MaxConnections)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"read_timeout", o.ReadTimeout},
		{"idle_timeout", o.IdleTimeout},
		{"write_timeout", o.WriteTimeout},
	} {
		// Without a limit a shutdown could wait endlessly for one client; a shorter one cuts off every request.
		if d.value < leastTimeout || d.value > mostTimeout {
			report("server.%s: must be from %s to %s, is %s", d.key, leastTimeout, mostTimeout, d.value)
		}
	}
	if o.KeepAlive != 0 && (o.KeepAlive < leastTimeout || o.KeepAlive > mostTimeout) {
		report("server.keep_alive: must be 0, for none, or from %s to %s, is %s", leastTimeout, mostTimeout, o.KeepAlive)
	}
	if o.ShutdownDelay < 0 || o.ShutdownDelay > mostTimeout {
		report("server.shutdown_delay: must be from 0 to %s, is %s", mostTimeout, o.ShutdownDelay)
	}
	if o.ShutdownGrace < 0 || o.ShutdownGrace > mostTimeout {
		report("server.shutdown_grace: must be from 0 to %s, is %s", mostTimeout, o.ShutdownGrace)
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		report("server.tls_cert: tls_cert and tls_key must be set together")
	}
	return errors.Join(append(problems, o.Upstream.Validate("server.upstream"), o.Session.Validate())...)
}

// What a configuration may make a connection wait.
const (
	leastTimeout = 10 * time.Millisecond
	mostTimeout  = 24 * time.Hour
)

// leastKey is the length of the shortest session.key. A shorter one could be guessed.
const leastKey = 16

// Validate returns all problems, joined, each under its path in the configuration.
func (o *SessionOptions) Validate() error {
	var problems []error
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, list := range []struct {
		key    string
		names  []string
		header bool
	}{
		{"headers", o.Headers, true},
		{"fields", o.Fields, false},
		{"resource_headers", o.ResourceHeaders, true},
		{"resource_fields", o.ResourceFields, false},
		{"credential_headers", o.CredentialHeaders, true},
	} {
		for i, name := range list.names {
			if known := slices.Concat(providers.CredentialHeaders(), gatewayKeys()); list.key == "credential_headers" && slices.Contains(known, strings.ToLower(name)) {
				continue
			}
			if text := nameProblem(name, list.header); text != "" {
				report("session.%s[%d]: %s, is %q", list.key, i, text, name)
			}
		}
	}
	if o.Tenancy == TenancyCredential && len(o.CredentialHeaders) == 0 {
		report("session.credential_headers: want at least one header, or session.tenancy: single")
	}
	if o.Tenancy != TenancyCredential && o.Tenancy != TenancySingle {
		report("session.tenancy: must be %q or %q, is %q", TenancyCredential, TenancySingle, o.Tenancy)
	}
	if n := len(o.Key.Reveal()); n > 0 && n < leastKey {
		report("session.key: want at least %d characters, since a shorter one can be guessed", leastKey)
	}
	if _, err := parseHistory(o.History); err != nil {
		report("session.history: %w", err)
	}
	return errors.Join(problems...)
}

// nameProblem returns why name can't be the name of a header or a field, "" if it can.
func nameProblem(name string, header bool) string {
	switch {
	case name == "" || len(name) > maxName || strings.ContainsAny(name, " \t\r\n:\""):
		return fmt.Sprintf("must be a name of 1 to %d characters, without spaces, colons and quotation marks", maxName)
	case header && !httpguts.ValidHeaderFieldName(name):
		return "must be the name of a header: letters, digits and any of !#$%&'*+-.^_`|~"
	case header && reservedHeader(name):
		return "has another meaning"
	case !header && (strings.Count(name, ".") > 1 || name[0] == '.' || name[len(name)-1] == '.'):
		return "must be a member of the body, or one of an object in it, such as metadata.user_id"
	}
	return ""
}

// maxName is the longest name of a header or field in the options: header names are matched by length first, in 64 bits.
const maxName = 63

// Size is a number of bytes.
type Size int64

// String is the text form with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		name  string
		shift int
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if s != 0 && s%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(s)>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// hints returns the names of which every body that names a session has at least one. Of a nested field that is the longer of
// both names, since it is rarer.
func (o *SessionOptions) hints() *wire.Names {
	names := []string{previousResponse, sessionField}
	for _, f := range o.Fields {
		name, nested, _ := strings.Cut(f, ".")
		if len(nested) > len(name) {
			name = nested
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return wire.NewNames(names...)
}
