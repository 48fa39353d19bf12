// Package catalog knows how long the context of a model is, as far as the operator or the model's provider says so.
// Providers are asked for their list of models in the background, with the operator's own credential or with none, and
// never with a caller's.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// ContextLength is how many tokens the model takes, prompt and answer together.
	ContextLength int `mapstructure:"context_length"`
}

// Options configure a Catalog.
type Options struct {
	// Models say what is known of models, whatever a provider's list says: exact names before patterns, else the first.
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

// DefaultRefresh is the Refresh of a configuration that does not name it.
const DefaultRefresh = time.Hour

// Validate tells every value that cannot be used, by its key. names are those of the providers.
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

	shelves map[string]*shelf // by provider
	life    context.Context   //nolint:containedctx // of the questions in the background
	close   context.CancelFunc
	mu      sync.Mutex // guards closed, so that no question begins after Close
	closed  bool
	work    sync.WaitGroup
}

// shelf is what is known of one provider's models.
type shelf struct {
	provider providers.Provider

	mu      sync.Mutex
	lengths map[string]int // by model, never changed in place
	next    time.Time      // when it may be asked again
	asking  bool
	failed  int // times in a row
}

// New opens a catalog of the models of a set of providers. log gets one line per list that could not be had, now is the
// clock. Close must be called to stop it.
func New(client *providers.Client, set *providers.Set, o Options, log *slog.Logger, now func() time.Time) *Catalog {
	c := &Catalog{o: o, client: client, log: log, now: now, shelves: make(map[string]*shelf)}
	for _, p := range set.All() {
		c.shelves[p.Name()] = &shelf{provider: p}
	}
	c.life, c.close = context.WithCancel(context.Background())
	return c
}

// Close ends what is under way and waits for it.
func (c *Catalog) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.close()
	c.work.Wait()
}

// Context is how many tokens a model of a provider takes, 0 where nobody knows. It never waits: what it does not know
// yet it may know the next time.
func (c *Catalog) Context(provider, model string) int {
	if n := c.configured(provider, model); n > 0 {
		return n
	}
	s := c.shelves[provider]
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
	if base, _, variant := strings.Cut(model, ":"); variant && s.provider.Upstream().Kind == "openrouter" {
		return lengths[base]
	}
	return 0
}

// configured is what the operator says.
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

// Learn takes over what a list of models says that a client asked the provider for. It reads 8 MiB of it at most.
func (c *Catalog) Learn(provider string, list []byte) {
	s := c.shelves[provider]
	if s == nil || len(list) > maxList {
		return
	}
	if found, err := parse(list); err == nil {
		s.add(found)
	}
}

// look is what is known, and whether the provider should be asked now. If so, the caller has to.
func (s *shelf) look(now time.Time, refresh time.Duration) (lengths map[string]int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due = refresh > 0 && !s.asking && !now.Before(s.next)
	s.asking = s.asking || due
	return s.lengths, due
}

// add takes over what a list says. What it no longer names stays, as long as there is room: a caller's list may be
// shorter than the operator's.
func (s *shelf) add(found map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(found)
	for name, n := range s.lengths {
		if _, told := all[name]; !told && len(all) < maxModels {
			all[name] = n
		}
	}
	s.lengths = all
}

// done notes how a question ended.
func (s *shelf) done(now time.Time, refresh time.Duration, err error) {
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
func (c *Catalog) start(s *shelf) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
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

// ask gets the list of a provider's models.
func (c *Catalog) ask(p providers.Provider) (map[string]int, error) {
	head, err := question(p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.life, askLimit)
	defer cancel()
	var x providers.Exchange // not pooled: Abort may come late
	defer x.Close()
	stop := context.AfterFunc(ctx, x.Abort)
	defer stop()
	var resp fasthttp.ResponseHeader
	if err := c.client.Send(&x, p.Upstream(), head, nil, &resp); err != nil {
		return nil, err
	}
	if code := resp.StatusCode(); code != fasthttp.StatusOK {
		return nil, fmt.Errorf("it answers with status %d", code)
	}
	var list []byte
	for {
		piece, err := x.Next()
		if errors.Is(err, io.EOF) {
			return parse(list)
		}
		if err != nil {
			return nil, err
		}
		if len(list)+len(piece) > maxList {
			return nil, fmt.Errorf("%w: it has more than %d bytes", errList, maxList)
		}
		list = append(list, piece...)
	}
}

// question is the head of a request for a provider's models, with its own key or none. OpenAI tells nobody without one;
// OpenRouter's list is public, and most servers of one's own want no key.
func question(p providers.Provider) ([]byte, error) {
	var out fasthttp.Request
	h := &out.Header
	h.DisableNormalizing()
	h.SetMethod(fasthttp.MethodGet)
	h.SetRequestURI("/v1/models")
	if err := p.Prepare(&out); err != nil {
		return nil, err
	}
	if p.Upstream().Kind == "openai" && len(h.Peek(fasthttp.HeaderAuthorization)) == 0 {
		return nil, errNoKey
	}
	h.SetUserAgent("remora")
	h.Set(fasthttp.HeaderAcceptEncoding, "identity")
	return h.AppendBytes(nil), nil
}
