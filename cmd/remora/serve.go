package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"remora/cache/bolt"
	"remora/cache/stores"
	"remora/memory"
	"remora/providers"
	"remora/providers/retry"
	"remora/proxy"
	"remora/proxy/limit"
	"remora/telemetry"
)

// serveFlags are the flags of `remora serve` and `remora check`.
type serveFlags struct {
	console
	config, listen, upstream string
	checks                   bool
}

// add defines the flags on a command.
func (s *serveFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.config, "config", "", "read `FILE` over the built-in defaults")
	cmd.Flags().StringVar(&s.listen, "listen", "", "serve on `ADDR` instead of server.listen")
	cmd.Flags().StringVar(&s.upstream, "upstream", "",
		"forward to the OpenAI-compatible server at `URL`, such as http://127.0.0.1:11434, instead of providers")
}

func newServeCommand(p console) *cobra.Command {
	s := &serveFlags{console: p}
	return s.command("serve", "Serve; what remora does without a subcommand")
}

func (s *serveFlags) command(use, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.add(cmd)
	return cmd
}

// run reads the configuration, and checks it or serves.
func (s *serveFlags) run(cmd *cobra.Command) error {
	// From here on, SIGHUP requests a reload. Before, it ends the process.
	hangup := make(chan os.Signal, 1)
	if !s.checks {
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
	}
	from := s.sources(cmd)
	c, err := from.load()
	if s.checks {
		return s.check(c, err)
	}
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // a log that nobody reads any more must not end a server
	return run(cmd.Context(), from, c, hangup, s.stderr)
}

// sources returns the sources of the configuration. It is called before the ballast raises GOMEMLIMIT.
func (s *serveFlags) sources(cmd *cobra.Command) sources {
	return sources{file: s.config, environ: s.environ, flags: s.settings(cmd), goLimit: debug.SetMemoryLimit(-1)}
}

// settings returns the configuration keys that flags set.
func (s *serveFlags) settings(cmd *cobra.Command) []setting {
	var set []setting
	if cmd.Flags().Changed("listen") {
		set = append(set, setting{path: "server.listen", origin: "--listen", value: s.listen})
	}
	if cmd.Flags().Changed("upstream") {
		set = append(set, setting{path: "providers", origin: "--upstream", value: []any{map[string]any{
			"name": "upstream", "kind": "compatible", "base_url": withVersion(s.upstream),
		}}})
	}
	return set
}

// withVersion adds the path /v1 to a URL without a path: many servers print their address that way.
func withVersion(raw string) string {
	if u, err := url.Parse(raw); err == nil && u.Host != "" && strings.Trim(u.Path, "/") == "" {
		return u.JoinPath("v1").String()
	}
	return raw
}

// run serves until ctx ends. It starts each part after the parts that it calls, and stops them in reverse order. A hangup
// during the start causes a reload once the proxy serves.
func run(ctx context.Context, from sources, c Config, hangup <-chan os.Signal, stderr io.Writer) (err error) {
	defer runtime.KeepAlive(tuneCollector())
	stdlog.SetOutput(io.Discard) // net/http writes there what a server answered; its callers get the errors anyway
	log := slog.New(telemetry.LogHandler(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: c.Log.Level})))
	l := &live{sources: from, c: c, log: log}
	defer func() { err = errors.Join(err, l.close()) }()
	upstreams, policy, err := openProviders(&c, nil, log)
	if err != nil {
		return err
	}
	if err := checkLoops(upstreams, c.Server.Listen, c.Server.AdminListen); err != nil {
		return err
	}
	l.policy = policy
	if l.listeners, err = openListeners(ctx, c); err != nil {
		return err
	}
	l.onClose(l.listeners.close)
	if err := l.open(ctx, upstreams); err != nil {
		return err
	}

	ln := l.listeners.clients
	ended := make(chan struct{})
	var broken error
	go func() {
		defer close(ended)
		broken = l.server.Serve(ln)
	}()

	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	watching := l.watch(watched, hangup)
	l.announce(stderr, upstreams)
	select {
	case <-ended: // the listener failed; requests in flight can still finish
	case <-ctx.Done():
	}

	l.admin.stopping.Store(true) // both before it is logged
	l.server.Drain()
	if ctx.Err() != nil {
		log.Info("stopping", "grace", c.Server.ShutdownGrace.String())
	}
	unwatch()
	select {
	case <-time.After(c.Server.ShutdownDelay):
	case <-ended:
	}

	// Requests in flight finish, or are aborted when the grace period ends.
	if err := l.server.Shutdown(context.WithoutCancel(ctx)); err != nil {
		log.Warn("stopped before all answers had ended", "error", err.Error())
	}
	<-ended
	<-watching
	return broken
}

// live is a running proxy. A reload replaces layers, policy, providers and limits; all other changes need a restart.
type live struct {
	sources                  // to read the configuration again
	closers   []func() error // in the order in which the parts were opened
	listeners listeners
	admin     *adminAPI
	c         Config
	models    *modelSet
	memory    *memory.Memory
	server    *proxy.Server
	limits    *limit.Limiter
	policy    *retry.Policy
	log       *slog.Logger
	measured  *telemetry.Telemetry

	// State of watch.
	loaded      files     // what the last configuration was read from, also one that failed
	polled      files     // the same at the last poll
	empty       bool      // the configuration in use is that of an empty file
	failedPolls int       // consecutive polls that could not read the file
	problem     string    // last logged error of reloading the configuration, "" after one that succeeded
	certProblem string    // last logged error of reloading the certificate, so that it is logged once
	expiry      time.Time // of the certificate that was last reported as expiring, so that it is logged once
}

// open opens all parts, each after those that it uses.
func (l *live) open(ctx context.Context, upstreams *providers.Set) (err error) {
	c := l.c
	if err := l.measure(ctx); err != nil { // first: all other parts are measured
		return err
	}

	st, err := openStorage(c.Store, l.log) //nolint:contextcheck // what counts lost turns outlives the start
	if err != nil {
		return err
	}
	l.closers = append(l.closers, st.close) // closed after memory, which writes to it until its end
	if err := st.check(ctx); err != nil {
		return err
	}
	if stores.Shared(c.Store.URL.Reveal()) {
		l.onClose(watchEviction(ctx, l.log, st.evictionPolicies))
	}
	st.measure(l.measured)
	var socket net.Listener
	file, isBolt := st.raw.(*bolt.Store)
	if isBolt { // before memory and its spool create files
		socket = openLocalSocket(stores.File(c.Store.URL.Reveal()), l.log)
	}
	if socket != nil {
		l.onClose(func() { _ = socket.Close() }) // closed already if it was served
	}
	l.admin = openAdminAPI(l.listeners.operators, c, st, l.measured, l.log)
	l.onClose(l.admin.close)

	warnOfMistakes(&c, l.log)
	if l.models, err = openModels(&c, upstreams, l.log, l.measured, nil); err != nil {
		return err
	}
	l.onClose(func() { l.models.close() }) // l.models of that time: a reload replaces it. Memory's layers use it until then.
	m := c.memory(l.log, l.models)
	m.Place = l.listeners.place()
	l.memory = memory.New(st, st.queue, m)
	l.admin.memory.Store(l.memory)
	if st.queue != nil {
		l.measured.WatchSpool(l.memory.Spooled)
	}
	l.onClose(l.memory.Close) // closed after the server, whose turns it commits
	if socket != nil {
		l.onClose(serveLocalSocket(socket, file, l.memory, l.log))
	}

	l.limits = st.limits(c, l.log) //nolint:contextcheck // ends by Close, not by a signal
	l.onClose(l.limits.Close)
	o := c.Server
	o.Telemetry, o.Limits = l.measured, l.limits
	l.server = proxy.New(o, l.memory, upstreams, l.log, time.Now)
	l.server.Route(upstreams, l.policy)
	if _, err := l.server.ReloadCertificate(); err != nil {
		return err
	}
	l.warnOfExpiry()
	return nil
}

// onClose adds a function that close calls.
func (l *live) onClose(f func()) {
	l.closers = append(l.closers, func() error { f(); return nil })
}

// close closes the parts, the last opened one first.
func (l *live) close() error {
	var errs []error
	for _, f := range slices.Backward(l.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// openProviders opens the providers and their retry policy. before is the policy that it replaces, nil at the start.
func openProviders(c *Config, before *retry.Policy, log *slog.Logger) (*providers.Set, *retry.Policy, error) {
	set, err := providers.NewSet(c.upstreams())
	if err != nil {
		return nil, nil, err
	}
	policy, err := retry.New(retry.Config{
		Set: set, Entries: c.Providers, Previous: before, Now: time.Now, Rand: rand.Float64,
		OnCircuit: func(provider string, open bool) {
			log.Warn("circuit of a provider has changed", "provider", provider, "open", open)
		},
	})
	return set, policy, err
}

// warnOfMistakes logs the settings of a configuration in use that are probably mistakes.
func warnOfMistakes(c *Config, log *slog.Logger) {
	for _, w := range c.mistakes() {
		log.Warn("a setting is probably a mistake", "key", w.path, "problem", w.text)
	}
}

// measure starts telemetry. l.measured stays nil if all of it is off.
func (l *live) measure(ctx context.Context) error {
	o := l.c.Telemetry
	o.Version, o.Now = cmp.Or(release, version()), time.Now
	o.Metrics.Prometheus = o.Metrics.Prometheus && l.c.Server.AdminListen != ""
	t, shutdown, err := telemetry.Setup(ctx, o, l.log)
	if err != nil {
		return err
	}
	l.measured = t
	l.onClose(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWait)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			l.log.Warn("the last spans or metrics were not exported", "error", err.Error())
		}
	})
	return nil
}

// announce logs where the proxy listens. Users who start it by hand get that as text, with a request to try.
func (l *live) announce(stderr io.Writer, upstreams *providers.Set) {
	clients, operators := l.listeners.addresses()
	scheme := "http"
	if l.c.Server.TLSCert != "" {
		scheme = "https"
	}
	url := scheme + "://" + clients + "/v1"
	var to []string
	for _, p := range upstreams.All() {
		to = append(to, showUpstream(p))
	}
	store := showStoreURL(l.c.Store.URL.Reveal())

	if !isTerminal(stderr) { // collectors of logs want JSON only
		l.log.Info("started", "version", version(), "url", url, "admin_listen", operators, "providers", to, "store", store)
		return
	}
	_, _ = fmt.Fprintf(stderr, "remora listens on %s, forwards to %s, remembers in %s\n"+
		"try: curl %s/chat/completions -H \"Authorization: Bearer $OPENAI_API_KEY\" -H \"Content-Type: application/json\""+
		" -H \"X-Session-Id: first\" -d '{\"model\":\"gpt-5-mini\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n",
		url, strings.Join(to, ", "), store, url)
}

// flushWait bounds the export of the last spans and metrics when the proxy stops.
const flushWait = 5 * time.Second
