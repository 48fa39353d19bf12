package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"remora"
	"remora/address"
	"remora/admin"
	"remora/cache"
	"remora/cache/encrypted"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/view"
	"remora/providers"
	"remora/providers/models"
	"remora/providers/retry"
	"remora/proxy"
	"remora/proxy/limit"
	"remora/secret"
	"remora/telemetry"
)

// Config is the configuration, as config.yaml documents it. Sections that configure one package are that package's Options.
type Config struct {
	Server    proxy.Options        `mapstructure:"server"`
	Session   proxy.SessionOptions `mapstructure:"session"`
	Store     storeOptions         `mapstructure:"store"`
	Providers []retry.Entry        `mapstructure:"providers"`
	Models    models.Options       `mapstructure:"models"`
	Limits    limit.Options        `mapstructure:"limits"`
	Memory    memoryOptions        `mapstructure:"memory"`
	Log       logOptions           `mapstructure:"log"`
	Telemetry telemetry.Options    `mapstructure:"telemetry"`

	goLimit int64 // of sources
	from    files
}

// load reads the configuration. Its error is of type [problems].
func (s sources) load() (Config, error) {
	c := Config{goLimit: s.goLimit}
	from, found := s.into(&c, remora.Config, func(found *problems) {
		c.Server.Session = c.Session
		c.Memory.layers = decodeLayers(c.Memory.Layers, found)
		found.addErrors("",
			checkAddr("server.listen", c.Server.Listen),
			checkAdminAddr(c.Server.AdminListen, c.Server.Listen),
			c.Store.validate(),
			providers.Validate(c.upstreams()),
			retry.Validate(c.Providers),
			c.Limits.Validate("limits", int64(c.Server.MaxBody)),
			c.Server.Validate(),
			c.Memory.layers.check(c.upstreams()),
			c.Telemetry.Validate(),
			c.Memory.checkIndex(),
			c.Memory.layers.checkSummaries(c.Memory.Policy.Overflow),
			oneOf("memory.on_store_error", c.Memory.OnStoreError, memory.OnStoreErrorOpen, memory.OnStoreErrorClosed),
		)
		found.addErrors("models", c.Models.Validate(c.providerNames())...)
		found.addErrors("memory.policy", c.Memory.Policy.validate(c.upstreams())...)
		found.addErrors("memory.prompt_cache", c.Memory.PromptCache.Validate()...)
	})
	c.from = from
	return c, found.err()
}

func (c *Config) providerNames() []string {
	var names []string
	for _, p := range c.upstreams() {
		names = append(names, p.NameOrKind())
	}
	return names
}

// upstreams returns the providers' options, without retries and fallbacks.
func (c *Config) upstreams() []providers.Options {
	list := make([]providers.Options, len(c.Providers))
	for i := range list {
		list[i] = c.Providers[i].Provider
	}
	return list
}

// limits returns the configured limits. The default of body_bytes depends on the machine.
func (c *Config) limits() limit.Options {
	o := c.Limits
	if share := limit.MemoryShare(c.goLimit); o.Global.BodyBytes == 0 && share > 0 {
		o.Global.BodyBytes = max(share, int64(c.Server.MaxBody))
	}
	return o
}

// admin returns the options of the operators' server.
func (c *Config) admin(ready func() error, log *slog.Logger) admin.Options {
	return admin.Options{Listen: c.Server.AdminListen, Token: c.Server.AdminToken.Reveal(), Ready: ready, Log: log}
}

// memory returns memory's options, from the sections store and memory.
func (c *Config) memory(log *slog.Logger, m *modelSet) memory.Options {
	return memory.Options{
		CommitWait:   c.Store.CommitWait,
		ReadWait:     c.Store.ReadWait,
		OpenDelay:    c.Store.OpenDelay,
		RetryDelay:   c.Store.RetryDelay,
		SessionTTL:   c.Store.SessionTTL,
		Shared:       stores.Shared(c.Store.URL.Reveal()),
		OnStoreError: c.Memory.OnStoreError,
		IndexBytes:   c.indexBytes(),
		Shape:        c.shape(m),
		Lost:         m.lost,
		Log:          log,
		Now:          time.Now,
	}
}

// indexBytes returns the configured memory of all indexes. The default depends on the machine, as that of body_bytes does; 0 is
// that of package memory.
func (c *Config) indexBytes() int {
	share := limit.MemoryShare(c.goLimit)
	if c.Memory.IndexBytes > 0 || share == 0 {
		return c.Memory.IndexBytes
	}
	return int(min(max(share, minIndexBytes), maxDefaultIndexBytes))
}

// shape returns those of memory's options that a reload can change.
func (c *Config) shape(m *modelSet) memory.Shape {
	s := memory.Shape{
		Window:        c.Memory.layers.window,
		Layers:        m.layers,
		Summarize:     c.Memory.Policy.Overflow == view.OverflowSummarize,
		OverflowModel: m.overflow,
		Embeddings:    m.embeds,
		ToolResult:    c.Memory.Policy.ToolResult,
		Context:       m.context,
		Price:         m.counter.CountItem,
	}
	if c.Memory.PromptCache.Enabled {
		s.PromptCache = &c.Memory.PromptCache.PromptCache
	}
	return s
}

// differs returns the changed keys that need a restart.
func (c *Config) differs(other Config) []string {
	keys := []string{}
	for _, s := range []struct {
		path     string
		old, now any
	}{
		{"server", c.Server, other.Server},
		{"session", c.Session, other.Session},
		{"store", c.Store, other.Store},
		{"log", c.Log, other.Log},
		{"telemetry", c.Telemetry, other.Telemetry},
		{"memory.on_store_error", c.Memory.OnStoreError, other.Memory.OnStoreError},
		{"memory.index_max_bytes", c.Memory.IndexBytes, other.Memory.IndexBytes},
	} {
		keys = append(keys, changedKeys(s.path, reflect.ValueOf(s.old), reflect.ValueOf(s.now))...)
	}
	return keys
}

// changedKeys returns the keys at or below path whose values differ between two values of one type.
func changedKeys(path string, old, now reflect.Value) []string {
	if schemaOf(old.Type()).fields == nil {
		if reflect.DeepEqual(old.Interface(), now.Interface()) {
			return nil
		}
		return []string{path}
	}
	var keys []string
	for f := range old.Type().Fields() {
		at := path
		switch name, flags, _ := strings.Cut(f.Tag.Get("mapstructure"), ","); {
		case flags == "squash":
		case name == "" || name == "-":
			continue // set by code
		default:
			at = joinPath(path, name)
		}
		keys = append(keys, changedKeys(at, old.FieldByIndex(f.Index), now.FieldByIndex(f.Index))...)
	}
	return keys
}

type storeOptions struct {
	// URL is a secret as a whole: a Redis URL may hold a password.
	URL        secret.String     `mapstructure:"url"`
	CommitWait time.Duration     `mapstructure:"commit_wait"`
	ReadWait   time.Duration     `mapstructure:"read_wait"`
	OpenDelay  time.Duration     `mapstructure:"open_delay"`
	RetryDelay time.Duration     `mapstructure:"retry_delay"`
	SessionTTL time.Duration     `mapstructure:"session_ttl"`
	TLS        cache.TLS         `mapstructure:"tls"`
	Spool      spoolOptions      `mapstructure:"spool"`
	Encryption encrypted.Options `mapstructure:"encryption"`
}

type spoolOptions struct {
	Dir      string `mapstructure:"dir"`
	MaxBytes int64  `mapstructure:"max_bytes"`
}

type memoryOptions struct {
	OnStoreError string        `mapstructure:"on_store_error"`
	AtomicRecall bool          `mapstructure:"atomic_recall"`
	IndexBytes   int           `mapstructure:"index_max_bytes"`
	Policy       policyOptions `mapstructure:"policy"`
	PromptCache  promptCache   `mapstructure:"prompt_cache"`
	Layers       []openEntry   `mapstructure:"layers"`

	layers layerConfig // Layers, decoded
}

const (
	// minIndexBytes fits a resource with a few thousand messages.
	minIndexBytes        = 16 << 20
	maxDefaultIndexBytes = 256 << 20
)

func (o *memoryOptions) checkIndex() error {
	if o.IndexBytes != 0 && o.IndexBytes < minIndexBytes {
		return fmt.Errorf("memory.index_max_bytes: want 16MiB or more, or 0, have %d", o.IndexBytes)
	}
	return nil
}

// promptCache configures the pinned prefix of views.
type promptCache struct {
	Enabled          bool `mapstructure:"enabled"`
	view.PromptCache `mapstructure:",squash"`
}

// policyOptions configure how a view is made to fit its token budget.
type policyOptions struct {
	TokenBudget     float64      `mapstructure:"token_budget"`
	ResponseReserve float64      `mapstructure:"response_reserve"`
	Overflow        string       `mapstructure:"overflow"`
	OverflowModel   modelOptions `mapstructure:"overflow_model"`
	WindowSize      int          `mapstructure:"window_size"`
	WindowTurns     int          `mapstructure:"window_turns"`
	MinHistoryTurns *int         `mapstructure:"min_history_turns"` // nil: the policy's default
	ToolResult      int          `mapstructure:"tool_result_max_tokens"`
}

func (o policyOptions) policy() view.Policy {
	p := view.Policy{
		Budget: o.TokenBudget, Reserve: o.ResponseReserve, Overflow: o.Overflow,
		Window: o.WindowSize, Turns: o.WindowTurns, MinTurns: view.DefaultMinTurns(o.Overflow), ToolResult: o.ToolResult,
	}
	if o.MinHistoryTurns != nil {
		p.MinTurns = *o.MinHistoryTurns
	}
	if p.Budget == 0 {
		p.Budget = math.Inf(1)
	}
	return p
}

// maxTokens is larger than the context of any model.
const maxTokens = 1e9

func (o policyOptions) validate(upstreams []providers.Options) []error {
	const key = "overflow_model"
	errs := append(o.policy().Validate(), o.OverflowModel.check(key, upstreams))
	if o.OverflowModel != (modelOptions{}) && o.Overflow != view.OverflowSummarize {
		errs = append(errs, fmt.Errorf("%s: has no use unless overflow is %s", key, view.OverflowSummarize))
	}
	for _, n := range []struct {
		key   string
		value float64
	}{{"token_budget", o.TokenBudget}, {"response_reserve", o.ResponseReserve}} {
		if n.value > maxTokens {
			errs = append(errs, fmt.Errorf("%s: want at most %d tokens, have %v", n.key, int(maxTokens), n.value))
		}
	}
	return errs
}

type logOptions struct {
	Level slog.Level `mapstructure:"level"`
}

const (
	// maxStoreWait is the largest configurable wait of a client for the store.
	maxStoreWait = 10 * time.Minute
	// minSessionTTL is the smallest store.session_ttl.
	minSessionTTL = time.Second
)

func (o storeOptions) validate() error {
	var errs []error
	if err := checkStoreURL(o.URL.Reveal(), o.TLS); err != nil {
		errs = append(errs, err)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"commit_wait", o.CommitWait},
		{"read_wait", o.ReadWait},
		{"open_delay", o.OpenDelay},
		{"retry_delay", o.RetryDelay},
	} {
		if d.value <= 0 || d.value > maxStoreWait {
			errs = append(errs, fmt.Errorf("store.%s: want more than 0 and at most %s, have %s", d.key, maxStoreWait, d.value))
		}
	}
	if o.SessionTTL != 0 && o.SessionTTL < minSessionTTL {
		errs = append(errs, fmt.Errorf("store.session_ttl: want 0 (for ever), or %s or more, have %s", minSessionTTL, o.SessionTTL))
	}
	errs = append(errs, o.Encryption.Validate())
	if o.Spool.Dir != "" && o.Spool.MaxBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("store.spool.max_bytes: want 1MiB or more, have %d", o.Spool.MaxBytes))
	}
	return errors.Join(errs...)
}

// checkStoreURL checks that a store could be opened, without opening it: a check must not create a file, nor fail because a
// running proxy has locked it.
func checkStoreURL(raw string, t cache.TLS) error {
	if stores.File(raw) != "" {
		if t != (cache.TLS{}) {
			return fmt.Errorf("store.url: %w", cache.ErrNoTLS)
		}
		return nil
	}
	store, err := stores.Open(raw, cache.Options{TLS: t})
	if err != nil {
		return storeProblem(err)
	}
	return store.Close()
}

// storeProblem prefixes an error of opening the store with the path of its key.
func storeProblem(err error) error {
	text := strings.TrimPrefix(err.Error(), "open store: ")
	if strings.HasPrefix(text, "store.tls") {
		return errors.New(text)
	}
	if rest, ok := strings.CutPrefix(text, "store.url "); ok {
		_, text, _ = strings.Cut(rest, ": ")
	}
	return errors.New("store.url: " + text)
}

// showStoreURL returns the URL without its password and its parameters, which may hold a password too.
func showStoreURL(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw // bolt:PATH or memory:
	}
	rest, _, _ = strings.Cut(rest, "?")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	return scheme + "://" + rest
}

// showUpstream returns a provider's name and host.
func showUpstream(p *providers.Provider) string {
	u := url.URL{Scheme: "http", Host: p.Address().Addr, Path: p.Path()}
	if p.Address().TLS {
		u.Scheme, u.Host = "https", strings.TrimSuffix(u.Host, ":443")
	}
	return p.Name() + " at " + u.String()
}

func checkAddr(key, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port != "0" && !address.IsPort(port) {
		return fmt.Errorf("%s: want host:port or :port, have %q", key, addr)
	}
	if !address.IsHost(host) {
		return fmt.Errorf("%s: want a name or an IP address before the port, have %q", key, addr)
	}
	return nil
}

// checkAdminAddr is checkAddr for server.admin_listen: it may be empty, and must differ from the clients' address.
func checkAdminAddr(addr, clients string) error {
	const key = "server.admin_listen"
	if addr == "" {
		return nil
	}
	if err := checkAddr(key, addr); err != nil {
		return err
	}
	if overlap(addr, clients) {
		return fmt.Errorf("%s: want another address than that of server.listen, have %q", key, addr)
	}
	return nil
}

// overlap reports whether two servers cannot have these addresses: one port, and the same host or all hosts. The system chooses
// another port for each 0.
func overlap(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	all := func(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
	return portA == portB && portA != "0" && (hostA == hostB || all(hostA) || all(hostB))
}

func oneOf(key, have string, allowed ...string) error {
	if slices.Contains(allowed, have) {
		return nil
	}
	return fmt.Errorf("%s: want one of %s, have %q", key, strings.Join(allowed, ", "), have)
}
