package main

import (
	"bytes"
	"hash/maphash"
	"sync"

	"remora/memory/tokens"
	"remora/providers/scripted"
	"remora/wire"
)

// OpenAI's prompt cache takes prefixes of at least so many tokens, in steps.
const (
	cacheLeast = 1024
	cacheStep  = 128
)

// sums are what a policy sent upstream.
type sums struct {
	requests int // calls of the upstream, those after a layer's tools included
	tokens   int // of items; instructions and tools are apart
	cached   int // of those, in the byte-identical prefix of items shared with the request before
	stepped  int // the same by OpenAI's least length and steps
	heads    int // tokens of instructions and tools
	orphans  int // calls and results without their partner
	userless int // requests without a user message
	notes    int // calls of layers' tools
}

func (s *sums) add(o *sums) {
	s.requests += o.requests
	s.tokens += o.tokens
	s.cached += o.cached
	s.stepped += o.stepped
	s.heads += o.heads
	s.orphans += o.orphans
	s.userless += o.userless
	s.notes += o.notes
}

// cost is in tokens of full price, a cached token costing the share p.
func (s *sums) cost(p float64) float64 {
	return float64(s.tokens-s.cached) + p*float64(s.cached)
}

// ledger keeps account of one session.
type ledger struct {
	sums
	led   bool      // the client's Chat messages begin with its instructions
	fixed [3][]byte // tools, instructions, leading system message of the request before
	items [][]byte
}

// enter takes a request down and returns what a provider would report of it.
func (l *ledger) enter(m *meter, req *wire.Request) scripted.Usage {
	items := req.Items()
	l.requests++
	l.orphans += len(wire.Check(req.Dialect, items))
	if !hasUser(items) {
		l.userless++
	}
	fixed := [3][]byte{bytes.Clone(req.Member("tools")), bytes.Clone(req.Instructions())}
	if l.led && req.Dialect == wire.Chat && len(items) > 0 {
		fixed[2], items = items[0].Raw, items[1:]
	}
	head := 0
	same := l.items != nil
	for i, part := range fixed {
		head += m.text(part)
		same = same && bytes.Equal(part, l.fixed[i])
	}
	total, cached := 0, 0
	for i, it := range items {
		n := m.item(it)
		total += n
		if same = same && i < len(l.items) && bytes.Equal(it.Raw, l.items[i]); same {
			cached += n
		}
	}
	l.remember(fixed, items)
	l.tokens += total
	l.cached += cached
	l.heads += head
	whole := 0 // with its head, as the provider counts
	if cached > 0 {
		whole = (head + cached) / cacheStep * cacheStep
	}
	if whole < cacheLeast {
		whole = 0
	}
	l.stepped += max(0, whole-head)
	return scripted.Usage{Prompt: head + total, Cached: whole}
}

func (l *ledger) remember(fixed [3][]byte, items []wire.Item) {
	l.fixed = fixed
	l.items = make([][]byte, len(items))
	for i, it := range items {
		l.items[i] = it.Raw // of the body, which nobody changes
	}
}

func hasUser(items []wire.Item) bool {
	for _, it := range items {
		if it.Kind == wire.Message && it.Role == wire.User {
			return true
		}
	}
	return false
}

// meter counts tokens, of each text once.
type meter struct {
	counter *tokens.Counter
	seed    maphash.Seed
	mu      sync.Mutex
	known   map[fingerprint]int
}

type fingerprint struct {
	hash uint64
	size int
}

// newMeter returns a meter whose counts are exact from the first on. It must be closed.
func newMeter() (*meter, error) {
	m := &meter{counter: tokens.New(tokens.Options{MemoCounts: -1}), seed: maphash.MakeSeed(), known: make(map[fingerprint]int)}
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
	key := fingerprint{maphash.Bytes(m.seed, raw), len(raw)}
	m.mu.Lock()
	n, ok := m.known[key]
	m.mu.Unlock()
	if ok {
		return n
	}
	n = count()
	m.mu.Lock()
	m.known[key] = n
	m.mu.Unlock()
	return n
}
