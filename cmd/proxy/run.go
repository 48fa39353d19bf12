package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"time"

	"remora/cache"
	"remora/memory"
	"remora/memory/budget"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/tokens"
	"remora/providers"
	"remora/providers/complete"
	"remora/proxy"
)

// run serves until ctx ends. It starts from the bottom up, so that nothing is ever called that is not there yet, and
// stops in reverse, each deferred line saying why it may stop only then.
func run(ctx context.Context, c Config, stderr io.Writer) (err error) {
	ballast := make([]byte, ballastBytes)
	defer runtime.KeepAlive(ballast)
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: c.Log.Level}))
	stop := func(what string, f func() error) {
		if e := f(); e != nil {
			err = errors.Join(err, fmt.Errorf("close %s: %w", what, e))
		}
	}

	store, err := cache.Open(c.Store.URL.Reveal(), cache.Options{Now: time.Now})
	if err != nil {
		return err
	}
	defer stop("store", store.Close) // last: memory writes to it to the end

	spool, err := openSpool(c.Store.Spool)
	if err != nil {
		return err
	}
	defer stop("spool", spool.Close) // after memory, which puts there what the store does not take

	upstreams, err := providers.NewSet(c.Providers)
	if err != nil {
		return err
	}
	minds, err := c.minds(upstreams, log)
	if err != nil {
		return err
	}
	defer minds.close()                                           // after memory, whose layers use it
	mem := memory.New(store, spool.queue(), c.memory(log, minds)) //nolint:contextcheck // ends by Close, not by a signal
	defer mem.Close()                                             // after the server, whose turns it commits

	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Server.Listen)
	if err != nil {
		return fmt.Errorf("open server.listen %s: %w", c.Server.Listen, err)
	}
	srv := proxy.New(c.Server, mem, upstreams, log, time.Now)
	ended := make(chan struct{})
	var broken error
	go func() {
		defer close(ended)
		broken = srv.Serve(ln)
	}()

	greet(stderr, ln.Addr(), c, upstreams)
	warnWithoutStore(ctx, store, log)
	select {
	case <-ended: // the listener broke; answers under way can still be finished
	case <-ctx.Done():
		log.Info("stopping", "grace", c.Server.ShutdownGrace.String())
	}
	// First of all: no new turns; those under way end, or are cut when the grace is over.
	if err := srv.Shutdown(context.WithoutCancel(ctx)); err != nil {
		log.Warn("stopped before all answers had ended", "error", err.Error())
	}
	<-ended
	return broken
}

// ballastBytes is memory that is never touched, and so never resident. Remora lives on a few megabytes, which the
// collector, whose pace follows the size of the heap, would go through hundreds of times a second: with it a sixth of
// the processor time of a loaded proxy is saved (go run ./bench), and a heap that is large of itself is collected as
// usual, which a larger GOGC would not do.
const ballastBytes = 32 << 20

// memory puts together what the sections store and memory say about memory.
func (c *Config) memory(log *slog.Logger, m *minds) memory.Options {
	return memory.Options{
		CommitWait:    c.Store.CommitWait,
		ReadWait:      c.Store.ReadWait,
		OpenDelay:     c.Store.OpenDelay,
		RetryDelay:    c.Store.RetryDelay,
		SessionTTL:    c.Store.SessionTTL,
		OnStoreError:  c.Memory.OnStoreError,
		Window:        c.Memory.layers.window,
		Layers:        m.layers,
		Summarize:     c.Memory.Policy.Overflow == budget.OverflowSummarize,
		OverflowModel: m.overflow,
		Log:           log,
		Now:           time.Now,
	}
}

// minds are the layers, and what they and summaries think with.
type minds struct {
	layers   *pipeline.Pipeline
	overflow pipeline.ModelSource // nil for none
	counter  *tokens.Counter
	client   *providers.Client
}

func (m *minds) close() {
	m.counter.Close()
	m.client.Close()
}

// minds opens the layers and connects them with their models.
func (c *Config) minds(upstreams *providers.Set, log *slog.Logger) (*minds, error) {
	m := &minds{counter: tokens.New(tokens.Options{}), client: providers.NewClient(c.Server.Upstream)}
	var list []pipeline.Layer
	for _, l := range c.Memory.layers.list {
		var err error
		if l.Model, err = m.model(upstreams, l.model); err != nil {
			m.close()
			return nil, fmt.Errorf("%s.model: %w", l.path, err)
		}
		list = append(list, l.Layer)
	}
	var err error
	if m.overflow, err = m.model(upstreams, c.Memory.Policy.OverflowModel); err != nil {
		m.close()
		return nil, fmt.Errorf("memory.policy.overflow_model: %w", err)
	}
	m.layers, err = pipeline.New(list, pipeline.Options{
		Policy: c.Memory.Policy.policy(), Count: m.counter.Count, CountItem: m.counter.CountItem, Log: log, Now: time.Now,
	})
	if err != nil {
		m.close()
		return nil, fmt.Errorf("memory.%w", err)
	}
	return m, nil
}

// model finds a model, nil where none is named.
func (m *minds) model(upstreams *providers.Set, o modelOptions) (pipeline.ModelSource, error) {
	if o.Model == "" {
		return nil, nil
	}
	source, err := complete.New(m.client, upstreams, complete.Options{Provider: o.Provider, Model: o.Model})
	if err != nil {
		return nil, err
	}
	return model{source}, nil
}

// model is a model behind a provider as layers ask it.
type model struct{ *complete.Source }

// Bind returns the model with the caller's credential.
func (m model) Bind(c pipeline.Credential) layer.Model { return m.Source.Bind(complete.Credential(c)) }

// optionalSpool is a spool, or none.
type optionalSpool struct{ *cache.Spool }

func openSpool(o spoolOptions) (optionalSpool, error) {
	if o.Dir == "" {
		return optionalSpool{}, nil
	}
	s, err := cache.OpenSpool(o.Dir, o.MaxBytes)
	if err != nil {
		return optionalSpool{}, fmt.Errorf("open store.spool.dir %s: %w", o.Dir, err)
	}
	return optionalSpool{s}, nil
}

// queue is what memory takes: an interface that is nil when there is no spool.
func (s optionalSpool) queue() memory.Spool {
	if s.Spool == nil {
		return nil
	}
	return s.Spool
}

// Close closes the spool, if there is one.
func (s optionalSpool) Close() error {
	if s.Spool == nil {
		return nil
	}
	return s.Spool.Close()
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

// warnWithoutStore tells early what else only the first request would: a proxy starts without its store, as it goes
// on without it later.
func warnWithoutStore(ctx context.Context, store cache.Store, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := store.Ping(ctx); err != nil {
		log.Warn("store does not answer; serving without memory until it does", "error", err.Error())
	}
}
