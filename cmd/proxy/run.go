package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"remora/memory"
	"remora/providers"
	"remora/providers/resilience"
	"remora/proxy"
	"remora/proxy/limit"
	"remora/telemetry"
)

// run serves until ctx ends. It starts from the bottom up, so that nothing is ever called that is not there yet, and
// stops in reverse. What comes on hangup while it starts makes it reload as soon as it serves.
func run(ctx context.Context, from origin, c Config, hangup <-chan os.Signal, stderr io.Writer) (err error) {
	defer runtime.KeepAlive(tuneCollector())
	log := slog.New(telemetry.LogHandler(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: c.Log.Level})))
	l := &live{origin: from, c: c, log: log}
	defer func() { err = errors.Join(err, l.close()) }()
	if l.doors, err = openDoors(ctx, c); err != nil {
		return err
	}
	l.onClose(l.doors.close)
	upstreams, err := l.open(ctx)
	if err != nil {
		return err
	}
	ln := l.doors.clients
	ended := make(chan struct{})
	var broken error
	go func() {
		defer close(ended)
		broken = l.server.Serve(ln)
	}()
	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	watching := l.watch(watched, hangup)
	greet(stderr, ln.Addr(), c, upstreams)
	select {
	case <-ended: // the listener broke; answers under way can still be finished
	case <-ctx.Done():
		log.Info("stopping", "grace", c.Server.ShutdownGrace.String())
	}
	unwatch()
	l.office.stopping.Store(true)
	wait(c.Server.ShutdownDelay, ended)
	// First of all: no new turns; those under way end, or are cut when the grace is over.
	if err := l.server.Shutdown(context.WithoutCancel(ctx)); err != nil {
		log.Warn("stopped before all answers had ended", "error", err.Error())
	}
	<-ended
	<-watching
	return broken
}

// wait returns after a delay, or when the listener has ended.
func wait(delay time.Duration, ended <-chan struct{}) {
	if delay <= 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ended:
	}
}

// open makes all parts, each on top of the one before.
func (l *live) open(ctx context.Context) (upstreams *providers.Set, err error) {
	c := l.c
	if err := l.measure(ctx); err != nil { // first, as all else is measured
		return nil, err
	}
	kept, err := openStorage(ctx, c.Store, l.log)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, kept.close) // after memory, which writes to it to the end
	kept.measure(l.measured)
	l.office = openOffice(l.doors.operators, c, kept, l.measured, l.log)
	l.onClose(l.office.close)
	if upstreams, l.policy, err = c.routes(nil, l.log); err != nil {
		return nil, err
	}
	if l.minds, err = c.minds(upstreams, l.log, l.measured, nil); err != nil {
		return nil, err
	}
	l.onClose(func() { l.minds.close() }) // those of then; after memory, whose layers use it
	l.memory = memory.New(kept, kept.queue, c.memory(l.log, l.minds))
	l.office.memory.Store(l.memory)
	l.onClose(l.memory.Close)        // after the server, whose turns it commits
	l.limits = kept.limits(c, l.log) //nolint:contextcheck // ends by Close, not by a signal
	l.onClose(l.limits.Close)
	o := c.Server
	o.Telemetry, o.Limits = l.measured, l.limits
	l.server = proxy.New(o, l.memory, upstreams, l.log, time.Now)
	l.server.Route(upstreams, l.policy)
	if _, err := l.server.ReloadCertificate(); err != nil { // before anybody is told where it listens
		return nil, err
	}
	return upstreams, nil
}

// onClose notes how to end a part that cannot fail to.
func (l *live) onClose(f func()) {
	l.closers = append(l.closers, func() error { f(); return nil })
}

// close ends the parts, the last first.
func (l *live) close() error {
	var errs []error
	for _, f := range slices.Backward(l.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// routes opens the providers, and what is done when they fail. before is what they take the place of, nil at the start.
func (c *Config) routes(before *resilience.Policy, log *slog.Logger) (*providers.Set, *resilience.Policy, error) {
	set, err := providers.NewSet(c.upstreams())
	if err != nil {
		return nil, nil, err
	}
	policy, err := resilience.New(resilience.Config{
		Set: set, Entries: c.Providers, Previous: before, Now: time.Now, Rand: rand.Float64,
		OnCircuit: func(provider string, open bool) {
			log.Warn("circuit of a provider has changed", "provider", provider, "open", open)
		},
	})
	return set, policy, err
}

// origin is where the configuration came from, to read it again.
type origin struct {
	file    string
	environ []string
	flags   []setting
}

func (o origin) load() (Config, error) { return load(o.file, o.environ, o.flags) }

// live is a running proxy. Layers, policy, providers and limits change when the configuration is read again; all else
// needs a restart.
type live struct {
	origin
	closers  []func() error // of the parts, in the order in which they were opened
	doors    doors
	office   *office
	c        Config
	minds    *minds
	memory   *memory.Memory
	server   *proxy.Server
	limits   *limit.Limiter
	policy   *resilience.Policy
	log      *slog.Logger
	measured *telemetry.Telemetry
	read     [sha256.Size]byte // the file, when the configuration was read
	seen     [sha256.Size]byte // the file, when it was looked at last
	unread   int               // how often in a row the file could not be read
	badCert  string            // what is wrong with the certificate that was not taken over
}

// lookEvery is how often the file is looked at. Reading it, instead of being told of changes, also sees those of a link
// that leads to it, which is how Kubernetes replaces one.
const lookEvery = 2 * time.Second

// missingLooks is how often in a row the file has to be missing before that is told: who replaces a file may remove it
// first.
const missingLooks = 2

// watch reads the configuration again on each hangup, and when its file has changed, until ctx ends. Then the channel that
// it returns is closed.
func (l *live) watch(ctx context.Context, hangup <-chan os.Signal) <-chan struct{} {
	l.settled()
	l.read = l.seen
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				l.settled()
				l.renew()
				l.reload(ctx)
			case <-tick.C:
				l.renew()
				if l.settled() && l.seen != l.read {
					l.reload(ctx)
				}
			}
		}
	}()
	return done
}

// settled looks at the file, and tells whether it is as it was at the look before: what somebody is just writing is not a
// configuration yet, though an empty file would be one. One that cannot be read is not.
func (l *live) settled() bool {
	if l.file == "" {
		return false
	}
	data, err := os.ReadFile(l.file)
	if err != nil {
		if l.unread++; l.unread == missingLooks {
			l.log.Error("the configuration's file cannot be read; the configuration stays", "error", err.Error())
		}
		return false
	}
	l.unread = 0
	before := l.seen
	l.seen = sha256.Sum256(data)
	return l.seen == before
}

// renew takes over a certificate that has been replaced. Until both of its files fit together the old one stays.
func (l *live) renew() {
	changed, err := l.server.ReloadCertificate()
	switch text := fmt.Sprint(err); {
	case err == nil && changed:
		l.log.Info("certificate reloaded")
		l.badCert = ""
	case err != nil && text != l.badCert:
		l.log.Error("certificate not reloaded; the old one stays", "error", text)
		l.badCert = text
	}
}

// reload replaces what can be replaced. A configuration that is wrong anywhere changes nothing.
func (l *live) reload(ctx context.Context) {
	l.read = l.seen
	c, err := l.load()
	if err == nil {
		err = l.apply(c)
	}
	if err != nil {
		l.log.Error("configuration not reloaded; the old one stays", "problems", strings.Split(err.Error(), "\n"))
		return
	}
	level, left := slog.LevelInfo, l.c.differs(c)
	if len(left) > 0 {
		level = slog.LevelWarn
	}
	l.log.Log(ctx, level, "configuration reloaded", "needs_restart", left)
}

func (l *live) apply(c Config) error {
	upstreams, policy, err := c.routes(l.policy, l.log)
	if err != nil {
		return err
	}
	m, err := c.minds(upstreams, l.log, l.measured, l.minds)
	if err != nil {
		return err
	}
	l.minds.catalog.Close()
	l.minds = m
	l.memory.Reshape(c.shape(m))
	l.policy = policy
	l.server.Route(upstreams, policy)
	l.limits.Configure(c.Limits)
	return nil
}

// differs names the keys of which only a restart takes over what is new.
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
	} {
		keys = append(keys, changedKeys(s.path, reflect.ValueOf(s.old), reflect.ValueOf(s.now))...)
	}
	return keys
}

// changedKeys names the keys at or below path that two values of one type differ in.
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

// ballastBytes is memory that is never touched, and so never resident. Remora lives on a few megabytes, which the
// collector, whose pace follows the size of the heap, would go through hundreds of times a second: with it a sixth of
// the processor time of a loaded proxy is saved (go run ./bench).
const ballastBytes = 96 << 20

// heapGrowth is how much a heap may grow before it is collected, in percent of what was in use with the ballast. A small
// one grows as far as with a third of the ballast and Go's 100; one of thousands of open streams is kept smaller (make streams).
const heapGrowth = 33

// tuneCollector makes the collector's pace that of a proxy, and returns what has to stay alive for it. GOGC and
// GOMEMLIMIT are the operator's: the one replaces heapGrowth, and the other does not count the ballast.
func tuneCollector() (ballast []byte) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64-ballastBytes {
		debug.SetMemoryLimit(limit + ballastBytes)
	}
	return make([]byte, ballastBytes)
}

// greet tells a person who started this by hand where it is and how to try it.
func greet(w io.Writer, addr net.Addr, c Config, upstreams *providers.Set) {
	var to []string
	for _, p := range upstreams.All() {
		to = append(to, showUpstream(p))
	}
	scheme := "http"
	if c.Server.TLSCert != "" {
		scheme = "https"
	}
	url := scheme + "://" + addr.String() + "/v1"
	// A console that is gone must not stop a server.
	_, _ = fmt.Fprintf(w, "remora listens on %s, forwards to %s, remembers in %s\n"+
		"try: curl %s/chat/completions -H \"Authorization: Bearer $OPENAI_API_KEY\" -H \"Content-Type: application/json\""+
		" -H \"X-Session-Id: first\" -d '{\"model\":\"gpt-5-mini\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n",
		url, strings.Join(to, ", "), showStoreURL(c.Store.URL.Reveal()), url)
}
