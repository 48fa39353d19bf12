package main

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"

	"remora/memory/tokens"
	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// OpenAI's prompt cache stores prefixes of a minimum number of tokens, in steps.
const (
	cacheLeast = 1024
	cacheStep  = 128
)

// sums counts a policy's requests and tokens upstream.
type sums struct {
	requests int // calls of the upstream, including those after a layer's tools
	tokens   int // of instructions, tools and items
	cached   int // of those, tokens in the provider's prompt cache: of the prefix shared with the previous request
	heads    int // tokens of instructions and tools
	orphans  int // calls without result, and results without call
	userless int // requests without a user message
	notes    int // calls of layers' tools
	needs
}

func (s *sums) add(o *sums) {
	s.requests += o.requests
	s.tokens += o.tokens
	s.cached += o.cached
	s.heads += o.heads
	s.orphans += o.orphans
	s.userless += o.userless
	s.notes += o.notes
	s.needs.add(o.needs)
}

// cost returns the cost in tokens of full price. A cached token costs the share p; an uncached one also the surcharge of
// writing it into the cache.
func (s *sums) cost(p, surcharge float64) float64 {
	return (1+surcharge)*float64(s.tokens-s.cached) + p*float64(s.cached)
}

// ledger counts the requests and tokens of one session.
type ledger struct {
	sums
	led   bool      // the client's Chat messages begin with its instructions
	more  int       // tokens added to instructions and tools, see lab.head
	fixed [3][]byte // tools, instructions, system message of the previous request
	items [][]byte
}

// enter counts a request, and returns the usage that a provider would report. cold means that the session's prompt cache has
// expired.
func (l *ledger) enter(m *meter, req *wire.Request, cold bool) scripted.Usage {
	all := req.Items()
	l.requests++
	l.orphans += len(wiretest.Check(req.Dialect, all))
	if !hasUser(all) {
		l.userless++
	}

	fixed, items := l.split(req)
	head, same := l.more, l.items != nil && !cold
	for i, part := range fixed {
		head += m.text(part)
		same = same && bytes.Equal(part, l.fixed[i])
	}
	head = max(0, head)

	total, cached := head, 0
	if same {
		cached = head
	}
	for i, it := range items {
		n := m.item(it)
		total += n
		if same = same && i < len(l.items) && bytes.Equal(it.Raw, l.items[i]); same {
			cached += n
		}
	}
	l.remember(fixed, items)

	if cached = cached / cacheStep * cacheStep; cached < cacheLeast {
		cached = 0
	}
	l.tokens += total
	l.cached += cached
	l.heads += head
	return scripted.Usage{Prompt: total, Cached: cached}
}

// split separates instructions and tools from the rest of a request.
func (l *ledger) split(req *wire.Request) (fixed [3][]byte, items []wire.Item) {
	items = req.Items()
	fixed = [3][]byte{bytes.Clone(req.Member("tools")), bytes.Clone(req.Instructions())}
	if l.led && req.Dialect == dialects.Chat && len(items) > 0 {
		fixed[2], items = items[0].Raw, items[1:]
	}
	return fixed, items
}

// price sets the cost of a request's instructions and tools, in tokens, for this request and all with equal ones.
func (l *ledger) price(m *meter, req *wire.Request, tokens int) {
	fixed, _ := l.split(req)
	l.more = tokens
	for _, part := range fixed {
		l.more -= m.text(part)
	}
}

func (l *ledger) remember(fixed [3][]byte, items []wire.Item) {
	l.fixed = fixed
	l.items = make([][]byte, len(items))
	for i, it := range items {
		l.items[i] = it.Raw // part of the body, which is never modified
	}
}

func hasUser(items []wire.Item) bool {
	return slices.ContainsFunc(items, func(it wire.Item) bool { return it.Kind == wire.Message && it.Role == wire.User })
}

// meter counts tokens, and caches the count of each text.
type meter struct {
	counter *tokens.Counter
	counts  memo[int]
}

// memo caches what is made of texts, by their hash and size. It is safe for concurrent use.
type memo[V any] struct {
	seed  maphash.Seed
	known sync.Map // V by fingerprint
}

type fingerprint struct {
	hash uint64
	size int
}

func newMemo[V any]() memo[V] { return memo[V]{seed: maphash.MakeSeed()} }

func (m *memo[V]) get(raw []byte, compute func() V) V {
	key := fingerprint{maphash.Bytes(m.seed, raw), len(raw)}
	v, ok := m.known.Load(key)
	if !ok {
		v = compute()
		m.known.Store(key, v)
	}
	return v.(V) //nolint:forcetypeassert // it has no others
}

// newMeter returns a meter with exact counts. The caller must close it.
func newMeter() (*meter, error) {
	m := &meter{counter: tokens.New(tokens.Options{MemoCounts: -1}), counts: newMemo[int]()}
	if err := m.counter.Load(model); err != nil {
		m.counter.Close()
		return nil, err
	}
	return m, nil
}

func (m *meter) close() { m.counter.Close() }

func (m *meter) item(it wire.Item) int {
	return m.count(it.Raw, func() int { return m.counter.CountItem(model, it) })
}

func (m *meter) text(raw []byte) int {
	return m.count(raw, func() int { return m.counter.Count(model, string(raw)) })
}

func (m *meter) count(raw []byte, count func() int) int {
	if len(raw) == 0 {
		return 0
	}
	return m.counts.get(raw, count)
}
