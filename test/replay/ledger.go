package main

import (
	"bytes"
	"slices"

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
func (l *ledger) enter(m *tokens.Counter, req *wire.Request, cold bool) scripted.Usage {
	all := req.Items()
	l.requests++
	l.orphans += len(wiretest.Check(req.Dialect, all))
	if !hasUser(all) {
		l.userless++
	}

	fixed, items := l.split(req)
	head, same := l.more, l.items != nil && !cold
	for i, part := range fixed {
		head += m.Count(model, string(part))
		same = same && bytes.Equal(part, l.fixed[i])
	}
	head = max(0, head)

	total, cached := head, 0
	if same {
		cached = head
	}
	for i, it := range items {
		n := m.CountItem(model, it)
		total += n
		if same = same && i < len(l.items) && bytes.Equal(it.Raw, l.items[i]); same {
			cached += n
		}
	}
	l.fixed, l.items = fixed, make([][]byte, len(items))
	for i, it := range items {
		l.items[i] = it.Raw // part of the body, which is never modified
	}

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
func (l *ledger) price(m *tokens.Counter, req *wire.Request, whole int) {
	fixed, _ := l.split(req)
	l.more = whole
	for _, part := range fixed {
		l.more -= m.Count(model, string(part))
	}
}

func hasUser(items []wire.Item) bool {
	return slices.ContainsFunc(items, func(it wire.Item) bool { return it.Role == wire.User })
}
