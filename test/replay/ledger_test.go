package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/tokens"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// TestLedger compares the cached tokens with counts made by hand: each word is one token.
func TestLedger(t *testing.T) {
	m := tokens.New()
	text := strings.Repeat(" word", 1200)
	tools := `"tools":[{"type":"function","name":"f"}],`
	user, answer := `{"role":"user","content":"`+text+`"}`, `{"role":"assistant","content":"`+text+`"}`
	cost := func(raw string) int {
		it := wiretest.Parse(t, dialects.Chat, raw)
		return m.CountItem(model, it)
	}
	u, a := cost(user), cost(answer)
	if u < 1200 || u > 1210 {
		t.Fatalf("a text of 1200 words costs %d", u)
	}
	for _, c := range []struct {
		name   string
		bodies []string // members and messages, a request each
		cached int      // items of the last request
		want   sums     // of all requests, without heads and cached
	}{
		{"grows", []string{tools + `"messages":[` + user + `]`, tools + `"messages":[` + user + `,` + answer + `]`}, u, sums{requests: 2, tokens: 2*u + a}},
		{"changes at the top", []string{`"messages":[` + user + `,` + answer + `]`, `"messages":[{"role":"user","content":"x"},` + answer + `]`}, 0, sums{requests: 2, tokens: u + 2*a + cost(`{"role":"user","content":"x"}`)}},
		{"changes in spelling", []string{`"messages":[` + user + `]`, `"messages":[` + strings.Replace(user, ":", ": ", 1) + `]`}, 0, sums{requests: 2, tokens: 2 * u}},
		{"other tools", []string{tools + `"messages":[` + user + `]`, `"messages":[` + user + `]`}, 0, sums{requests: 2, tokens: 2 * u}},
		{"no user", []string{`"messages":[` + answer + `]`}, 0, sums{requests: 1, tokens: a, userless: 1}},
		{"an orphan", []string{`"messages":[` + user + `,{"role":"tool","tool_call_id":"c","content":"x"}]`}, 0, sums{requests: 1, orphans: 1, tokens: u + cost(`{"role":"tool","tool_call_id":"c","content":"x"}`)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l ledger
			var cached int
			for _, body := range c.bodies {
				req := wiretest.Request(t, dialects.Chat, "{"+body+"}")
				cached = l.enter(m, req, false).Cached
			}
			if cached%cacheStep != 0 || cached > c.cached+20 || c.cached-cached >= cacheStep {
				t.Errorf("reports %d cached tokens of %d", cached, c.cached)
			}
			got := l.sums
			if got.cached != cached {
				t.Errorf("reports %d cached tokens, and counts %d", cached, got.cached)
			}
			got.tokens, got.heads, got.cached = got.tokens-got.heads, 0, 0
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(sums{}, needs{}, repeats{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLedgerLeavesInstructionsApart: the client's system message does not count as an item of the history; a layer's does.
func TestLedgerLeavesInstructionsApart(t *testing.T) {
	m := tokens.New()
	req := wiretest.Request(t, dialects.Chat, `{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"go"}]}`)
	led, bare := ledger{led: true}, ledger{}
	led.enter(m, req, false)
	bare.enter(m, req, false)
	if led.heads == 0 || bare.heads != 0 || len(led.items) != 1 || len(bare.items) != 2 {
		t.Errorf("%+v, %+v", led.sums, bare.sums)
	}
}
