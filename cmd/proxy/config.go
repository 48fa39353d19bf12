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
	"strconv"
	"strings"
	"time"

	"remora"
	"remora/cache"
	"remora/cache/seal"
	"remora/memory"
	"remora/memory/anchor"
	"remora/memory/budget"
	"remora/providers"
	"remora/providers/catalog"
	"remora/providers/resilience"
	"remora/proxy"
	"remora/proxy/limit"
	"remora/telemetry"
)

// Config is config.yaml. Wherever a package has options for operators, they are that package's own struct.
type Config struct {
	Server    proxy.Options        `mapstructure:"server"`
	Session   proxy.SessionOptions `mapstructure:"session"`
	Store     storeOptions         `mapstructure:"store"`
	Providers []resilience.Entry   `mapstructure:"providers"`
	Models    catalog.Options      `mapstructure:"models"`
	Limits    limit.Options        `mapstructure:"limits"`
	Memory    memoryOptions        `mapstructure:"memory"`
	Log       logOptions           `mapstructure:"log"`
	Telemetry telemetry.Options    `mapstructure:"telemetry"`
}

type storeOptions struct {
	// URL is a secret as a whole: a Redis URL may hold a password.
	URL        providers.Secret `mapstructure:"url"`
	CommitWait time.Duration    `mapstructure:"commit_wait"`
	ReadWait   time.Duration    `mapstructure:"read_wait"`
	OpenDelay  time.Duration    `mapstructure:"open_delay"`
	RetryDelay time.Duration    `mapstructure:"retry_delay"`
	SessionTTL time.Duration    `mapstructure:"session_ttl"`
	Spool      spoolOptions     `mapstructure:"spool"`
	Encryption seal.Options     `mapstructure:"encryption"`
}

type spoolOptions struct {
	Dir      string `mapstructure:"dir"`
	MaxBytes int64  `mapstructure:"max_bytes"`
}

type memoryOptions struct {
	OnStoreError string        `mapstructure:"on_store_error"`
	AtomicRecall bool          `mapstructure:"atomic_recall"`
	Policy       policyOptions `mapstructure:"policy"`
	PromptCache  promptCache   `mapstructure:"prompt_cache"`
	Layers       []openEntry   `mapstructure:"layers"`

	layers layers // what Layers came out as
}

// promptCache says how the beginning of views is kept the same.
type promptCache struct {
	Enabled       bool `mapstructure:"enabled"`
	anchor.Config `mapstructure:",squash"`
}

func (o promptCache) validate() error {
	var errs []error
	for _, err := range o.Validate() {
		errs = append(errs, fmt.Errorf("memory.prompt_cache.%w", err))
	}
	return errors.Join(errs...)
}

// policyOptions say how a view is cut to size.
type policyOptions struct {
	TokenBudget     float64      `mapstructure:"token_budget"`
	ResponseReserve float64      `mapstructure:"response_reserve"`
	Overflow        string       `mapstructure:"overflow"`
	OverflowModel   modelOptions `mapstructure:"overflow_model"`
	WindowSize      int          `mapstructure:"window_size"`
	WindowTurns     int          `mapstructure:"window_turns"`
	MinHistoryTurns int          `mapstructure:"min_history_turns"`
	ToolResult      int          `mapstructure:"tool_result_max_tokens"`
}

func (o policyOptions) policy() budget.Policy {
	p := budget.Policy{
		Budget: o.TokenBudget, Reserve: o.ResponseReserve, Overflow: o.Overflow,
		Window: o.WindowSize, Turns: o.WindowTurns, MinTurns: o.MinHistoryTurns, ToolResult: o.ToolResult,
	}
	if p.Budget == 0 {
		p.Budget = math.Inf(1)
	}
	return p
}

func (o policyOptions) validate(upstreams []providers.Options) error {
	const key = "memory.policy.overflow_model"
	errs := []error{o.OverflowModel.check(key, upstreams)}
	if o.OverflowModel != (modelOptions{}) && o.Overflow != budget.OverflowSummarize {
		errs = append(errs, fmt.Errorf("%s: has no use unless overflow is %s", key, budget.OverflowSummarize))
	}
	for _, err := range o.policy().Validate() {
		errs = append(errs, fmt.Errorf("memory.policy.%w", err))
	}
	return errors.Join(errs...)
}

type logOptions struct {
	Level slog.Level `mapstructure:"level"`
}

func configSchema() *node { return schemaOf(reflect.TypeFor[Config]()) }

// load reads the configuration. Its error is [problems].
func load(file string, environ []string, flags []setting) (Config, error) {
	var c Config
	src := sources{defaults: remora.Config, file: file, environ: environ, flags: flags}
	found := src.into(&c, func(found *problems) {
		c.Server.Session = c.Session
		c.Memory.layers = decodeLayers(c.Memory.Layers, found)
		found.addErrors(errors.Join(
			checkAddr("server.listen", c.Server.Listen),
			checkAdminAddr(c.Server.AdminListen, c.Server.Listen),
			c.Store.validate(),
			providers.Validate(c.upstreams()),
			resilience.Validate(c.Providers),
			c.Limits.Validate("limits", int64(c.Server.MaxBody)),
			c.Server.Validate(),
			c.Memory.Policy.validate(c.upstreams()),
			c.Memory.PromptCache.validate(),
			c.checkModels(),
			c.Memory.layers.check(c.upstreams()),
			c.Telemetry.Validate(),
			oneOf("memory.on_store_error", c.Memory.OnStoreError, memory.OnStoreErrorOpen, memory.OnStoreErrorClosed),
		))
	})
	return c, found.err()
}

func (c *Config) checkModels() error {
	var names []string
	for _, p := range c.upstreams() {
		names = append(names, p.Name)
	}
	var errs []error
	for _, err := range c.Models.Validate(names) {
		errs = append(errs, fmt.Errorf("models.%w", err))
	}
	return errors.Join(errs...)
}

// upstreams are the providers, without what is done when they fail.
func (c *Config) upstreams() []providers.Options {
	list := make([]providers.Options, len(c.Providers))
	for i := range list {
		list[i] = c.Providers[i].Provider
	}
	return list
}

func (o storeOptions) validate() error {
	var errs []error
	if err := checkStoreURL(o.URL.Reveal()); err != nil {
		errs = append(errs, fmt.Errorf("store.url: %w", err))
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
		if d.value == 0 {
			errs = append(errs, fmt.Errorf("store.%s: want more than 0", d.key))
		}
	}
	errs = append(errs, o.Encryption.Validate())
	if o.Spool.Dir != "" && o.Spool.MaxBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("store.spool.max_bytes: want 1MiB or more, have %d", o.Spool.MaxBytes))
	}
	return errors.Join(errs...)
}

// checkStoreURL tells whether a store can be opened, as far as that can be told without touching one: a check must
// not create a file, nor find one locked by the proxy that it is meant for.
func checkStoreURL(raw string) error {
	if path, ok := strings.CutPrefix(raw, "bolt:"); ok && path != "" {
		return nil
	}
	store, err := cache.Open(raw, cache.Options{})
	if err != nil {
		return err
	}
	_, hosts, _ := strings.Cut(showStoreURL(raw), "://")
	hosts, _, _ = strings.Cut(hosts, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if _, port, err := net.SplitHostPort(host); err == nil && port != "" && !isPort(port) {
			return errors.Join(errors.New("want ports of at most 65535"), store.Close())
		}
	}
	return store.Close()
}

// showStoreURL is the URL for people, less the password and the parameters, which may hold another one.
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

// showUpstream names a provider and the host that it goes to.
func showUpstream(p providers.Provider) string {
	u := url.URL{Scheme: "http", Host: p.Upstream().Addr}
	if p.Upstream().TLS {
		u.Scheme, u.Host = "https", strings.TrimSuffix(u.Host, ":443")
	}
	return p.Name() + " at " + u.String()
}

func checkAddr(key, addr string) error {
	if _, port, err := net.SplitHostPort(addr); err != nil || !isPort(port) {
		return fmt.Errorf("%s: want host:port or :port, have %q", key, addr)
	}
	return nil
}

// checkAdminAddr is checkAddr for an address that may be left out, and that clients must have left free.
func checkAdminAddr(addr, clients string) error {
	const key = "server.admin_listen"
	if addr == "" {
		return nil
	}
	if err := checkAddr(key, addr); err != nil {
		return err
	}
	if _, port, _ := net.SplitHostPort(addr); addr == clients && port != "0" {
		return fmt.Errorf("%s: want another address than that of server.listen, have %q", key, addr)
	}
	return nil
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

func oneOf(key, have string, allowed ...string) error {
	if slices.Contains(allowed, have) {
		return nil
	}
	return fmt.Errorf("%s: want one of %s, have %q", key, strings.Join(allowed, ", "), have)
}
