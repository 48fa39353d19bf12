package main

import (
	"fmt"
	"strings"

	"remora/wire"
)

// Targets of the recommended policy (issue 5).
const (
	mostCost    = 0.40 // of full history, a cached token costing a tenth
	leastCached = 0.85
)

// prices are what a cached token costs, as a share of one that is not.
var prices = [...]float64{0.1, 0.25, 0.5}

// report is what a run came to.
type report struct {
	sessions []*session
	results  []*result
	foreign  bool // the sessions are none that targets are for
}

func (r *report) find(policy string, d wire.Dialect) *result {
	for _, res := range r.results {
		if res.policy == policy && res.dialect == d {
			return res
		}
	}
	return nil
}

// share is part of whole, 0 of nothing.
func share[N int | float64](part, whole N) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (r *report) markdown() string {
	var b strings.Builder
	r.describe(&b)
	b.WriteString("| policy | dialect | requests | orphans | no user | tokens/request | cached % | by steps % | cost 0.1 | cost 0.25 | cost 0.5 | to sliding |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, res := range r.results {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %.0f | %.1f | %.1f |", res.policy, res.dialect, res.requests,
			res.orphans, res.userless, share(res.tokens, res.requests), 100*share(res.cached, res.tokens), 100*share(res.stepped, res.tokens))
		for _, p := range prices {
			b.WriteString(" " + relative(res, r.find(fullHistory, res.dialect), p) + " |")
		}
		b.WriteString(" " + relative(res, r.find(slidingWindow, res.dialect), prices[0]) + " |\n")
	}
	r.notes(&b)
	r.verdicts(&b)
	return b.String()
}

// describe says what was replayed.
func (r *report) describe(b *strings.Builder) {
	items, calls, users, asked, skipped := 0, 0, 0, 0, 0
	for _, s := range r.sessions {
		i, c, u := s.items()
		items, calls, users = items+i, calls+c, users+u
		asked += len(s.steps)
		skipped += s.skipped
	}
	fmt.Fprintf(b, "%d sessions, %d items, %d tool calls, %d user texts, %d requests of the client", len(r.sessions), items, calls, users, asked)
	if skipped > 0 {
		fmt.Fprintf(b, "; %d items of other kinds were left out", skipped)
	}
	b.WriteString(".\nTokens are o200k; instructions and tools are not in them. Cached is the prefix of items that is byte for byte\n" +
		"that of the session's request before, by steps what OpenAI's cache takes of it (at least 1024 tokens, steps of 128).\n" +
		"Costs are those of all requests, a cached token at 0.1, 0.25 or 0.5 of the price, against full history; the last column\n" +
		"is at 0.1 against the sliding window.\n\n")
}

func relative(res, base *result, price float64) string {
	if base == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", share(res.cost(price), base.cost(price)))
}

// notes tells what the table has no place for.
func (r *report) notes(b *strings.Builder) {
	b.WriteString("\n")
	for _, res := range r.results {
		if res.policy == fullHistory || res.policy == recommended {
			fmt.Fprintf(b, "%s, %s: %.0f tokens of instructions and tools a request, not counted above.\n", res.policy, res.dialect, share(res.heads, res.requests))
		}
		if res.notes > 0 {
			fmt.Fprintf(b, "%s, %s: %d calls of layers' tools, for which there are %d more requests.\n", res.policy, res.dialect, res.notes, res.requests-res.asked)
		}
		for _, n := range []struct {
			count int
			what  string
		}{
			{res.refused, "refused"},
			{res.degraded, "served without memory"},
			{res.changed, "answered with something else than what the model said"},
		} {
			if n.count > 0 {
				fmt.Fprintf(b, "%s, %s: %d requests %s.\n", res.policy, res.dialect, n.count, n.what)
			}
		}
		for _, p := range res.problems {
			fmt.Fprintf(b, "%s, %s: %s\n", res.policy, res.dialect, p)
		}
	}
}

// target is one that the recommended policy has, and how it fared.
type target struct {
	text string
	met  bool
}

func (r *report) targets(res *result) []target {
	cached := share(res.cached, res.tokens)
	all := []target{
		{fmt.Sprintf("orphans: %d, want 0", res.orphans), res.orphans == 0},
		{fmt.Sprintf("requests without a user message: %d, want 0", res.userless), res.userless == 0},
		{fmt.Sprintf("requests refused: %d, want 0", res.refused), res.refused == 0},
		{fmt.Sprintf("cached: %.1f %%, want at least %.0f %%", 100*cached, 100*leastCached), cached >= leastCached},
	}
	if full := r.find(fullHistory, res.dialect); full != nil {
		cost := share(res.cost(prices[0]), full.cost(prices[0]))
		all = append(all, target{fmt.Sprintf("cost at 0.1: %.3f of full history, want at most %.2f", cost, mostCost), cost <= mostCost})
	}
	return all
}

// verdicts judges the recommended policy. Its targets are for the generated sessions: what others come to depends on
// them, and is judged only where that was asked for.
func (r *report) verdicts(b *strings.Builder) {
	if r.foreign {
		return
	}
	for _, res := range r.results {
		if res.policy != recommended {
			continue
		}
		fmt.Fprintf(b, "\nTargets of %s, %s:\n", res.policy, res.dialect)
		for _, t := range r.targets(res) {
			fmt.Fprintf(b, "%s  %s\n", map[bool]string{true: "pass", false: "FAIL"}[t.met], t.text)
		}
	}
}

// missed are the targets that were not met.
func (r *report) missed() []string {
	var all []string
	for _, res := range r.results {
		if res.policy != recommended {
			continue
		}
		for _, t := range r.targets(res) {
			if !t.met {
				all = append(all, fmt.Sprintf("%s: %s", res.dialect, t.text))
			}
		}
	}
	return all
}
