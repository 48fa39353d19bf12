// Package models looks up the context length of a model, in the configuration, then in the provider's own list. Memory uses it
// to keep views within the model's context. Providers are asked for their lists in the background, with the operator's
// credential or none, and never with a caller's.
package models

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"remora/providers"
)

// Model is an entry of the list models.known in the configuration.
type Model struct {
	// Name is the model's name, or a pattern in which * stands for any run of bytes, as in a provider's models.
	Name string `mapstructure:"name"`
	// Provider limits the entry to the models of one provider. Empty is any.
	Provider string `mapstructure:"provider"`
	// ContextLength is how many tokens the model accepts, prompt and answer together.
	ContextLength int `mapstructure:"context_length"`
}

// Options configure a Catalog.
type Options struct {
	// Models override the providers' lists: exact names before patterns, else the first that matches.
	Models []Model `mapstructure:"known"`
	// Refresh is how often a provider is asked for its list of models, an hour or more, and only while its models are
	// used. 0 is never.
	Refresh time.Duration `mapstructure:"refresh"`
}

// Limits of a catalog.
const (
	minRefresh = time.Hour
	maxEntries = 1000 // of the configuration

	askLimit   = 15 * time.Second // that a provider may take
	firstRetry = time.Minute      // after a list that could not be had; doubled each time, up to Refresh
)

// Validate returns all problems, each under its key. names are the names of the providers.
func (o Options) Validate(names []string) []error {
	var errs []error
	report := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Refresh != 0 && o.Refresh < minRefresh {
		report("refresh: want 0 (never) or at least %s, have %s", minRefresh, o.Refresh)
	}
	if len(o.Models) > maxEntries {
		report("known: want at most %d entries, have %d", maxEntries, len(o.Models))
	}
	for i, m := range o.Models {
		if m.Name == "" || len(m.Name) > maxName {
			report("known[%d].name: want 1 to %d bytes, have %d", i, maxName, len(m.Name))
		}
		if m.Provider != "" && !slices.Contains(names, m.Provider) {
			report("known[%d].provider: want one of %s, have %q", i, strings.Join(names, ", "), m.Provider)
		}
		if m.ContextLength < 1 || m.ContextLength > maxContext {
			report("known[%d].context_length: want 1 to %d, have %d", i, maxContext, m.ContextLength)
		}
	}
	return errs
}

// Catalog answers from memory. It is safe for concurrent use.
type Catalog struct {
	o      Options
	client *providers.Client
	log    *slog.Logger
	now    func() time.Time

	lists map[string]*modelList // by provider
	life  context.Context       //nolint:containedctx // of the questions in the background
	close context.CancelFunc
	mu    sync.Mutex // held while a question begins, so that none does after Close
	work  sync.WaitGroup
}

// modelList caches one provider's list of models.
type modelList struct {
	provider *providers.Provider

	mu      sync.Mutex
	lengths map[string]int // by model, never changed in place
	next    time.Time      // when it may be asked again
	asking  bool
	failed  int // times in a row
}

// New makes a catalog of the models of a set of providers. log gets one line for each list that could not be read, now is the
// clock. Call Close to stop it.
func New(client *providers.Client, set *providers.Set, o Options, log *slog.Logger, now func() time.Time) *Catalog {
	c := &Catalog{o: o, client: client, log: log, now: now, lists: make(map[string]*modelList)}
	for _, p := range set.All() {
		c.lists[p.Name()] = &modelList{provider: p}
	}
	c.life, c.close = context.WithCancel(context.Background())
	return c
}

// TakeOver keeps what before knows of providers at the same address, so that a reload of the configuration does not switch off
// windows by a share of the context until the lists are there again. It must be called before the first use of c.
func (c *Catalog) TakeOver(before *Catalog) {
	if c.o.Refresh == 0 {
		return // nothing would correct it
	}
	for name, s := range c.lists {
		old := before.lists[name]
		if old == nil || !sameServer(old.provider, s.provider) {
			continue
		}
		old.mu.Lock()
		s.lengths = old.lengths
		old.mu.Unlock()
	}
}

func sameServer(a, b *providers.Provider) bool {
	return a.API().Kind == b.API().Kind && a.Address() == b.Address() && a.Path() == b.Path()
}

// Close ends requests under way and waits for them.
func (c *Catalog) Close() {
	c.mu.Lock()
	c.close()
	c.mu.Unlock()
	c.work.Wait()
}

// Context returns the context length of a model of a provider in tokens, 0 if it is unknown. It never blocks: a length that is
// not known yet may be known at the next call.
func (c *Catalog) Context(provider, model string) int {
	if n := c.configured(provider, model); n > 0 {
		return n
	}
	s := c.lists[provider]
	if s == nil || model == "" {
		return 0
	}
	lengths, due := s.look(c.now(), c.o.Refresh)
	if due {
		c.start(s)
	}
	if n, ok := lengths[model]; ok {
		return n
	}
	// OpenRouter takes names with a variant that its list does not have, as in "openai/gpt-5:nitro".
	if base, _, variant := strings.Cut(model, ":"); variant && s.provider.API().Name == "openrouter" {
		return lengths[base]
	}
	return 0
}

// configured returns the length that the configuration has for a model.
func (c *Catalog) configured(provider, model string) int {
	var pattern int
	for _, m := range c.o.Models {
		if m.Provider != "" && m.Provider != provider {
			continue
		}
		if m.Name == model {
			return m.ContextLength
		}
		if pattern == 0 && providers.Matches(m.Name, model) {
			pattern = m.ContextLength
		}
	}
	return pattern
}

// look returns the known lengths, and whether the provider is due to be asked. If so, the caller has to ask it.
func (s *modelList) look(now time.Time, refresh time.Duration) (lengths map[string]int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due = refresh > 0 && !s.asking && !now.Before(s.next)
	s.asking = s.asking || due
	return s.lengths, due
}

// add merges a list that was read. Models that it does not name any more stay, as long as there is room: they may come back.
func (s *modelList) add(found map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(found)
	for name, n := range s.lengths {
		if _, known := all[name]; !known && len(all) < maxModels {
			all[name] = n
		}
	}
	s.lengths = all
}

// done records the result of a request.
func (s *modelList) done(now time.Time, refresh time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	wait := refresh
	if err != nil && !errors.Is(err, errNoKey) {
		wait = min(refresh, firstRetry<<min(s.failed, 10))
		s.failed++
	} else {
		s.failed = 0
	}
	s.next = now.Add(wait)
}

// start asks a provider in the background.
func (c *Catalog) start(s *modelList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return
	}
	c.work.Go(func() {
		found, err := c.ask(s.provider)
		if err != nil && c.life.Err() == nil && !errors.Is(err, errNoKey) {
			c.log.Info("a provider did not tell how long its models' contexts are", "provider", s.provider.Name(), "error", err.Error())
		}
		if err == nil {
			s.add(found)
		}
		s.done(c.now(), c.o.Refresh, err)
	})
}

var errNoKey = errors.New("it wants a key, and the provider has none of its own")

// ask gets the list of a provider's models, with the provider's key or none. OpenAI wants a key, OpenRouter's list is public,
// and most self-hosted servers want none.
func (c *Catalog) ask(p *providers.Provider) (map[string]int, error) {
	if p.API().Name == "openai" && !p.HasKey() {
		return nil, errNoKey
	}
	ctx, cancel := context.WithTimeout(c.life, askLimit)
	defer cancel()
	var req fasthttp.Request
	req.Header.DisableNormalizing()
	req.Header.SetMethod(fasthttp.MethodGet)
	req.Header.SetRequestURI("/v1/models")
	status, list, err := providers.Fetch(ctx, c.client, p, &req, maxList)
	switch {
	case status != fasthttp.StatusOK && status != 0:
		return nil, fmt.Errorf("it answers with status %d", status)
	case err != nil:
		return nil, err
	}
	return parse(list)
}
