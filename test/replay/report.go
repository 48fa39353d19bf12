package main

import (
	"fmt"
	"strings"
)

// Targets, for a head of 28,000 tokens.
const (
	mostCost        = 0.65 // of the clients' own cost, with a tenth for a cached token
	mostCostShipped = 0.90
	leastCached     = 0.88
	mostCut         = 0.02 // of the distinctive strings of answers
	mostCutShipped  = 0.015
)

// prices of a cached token, as a share of an uncached one.
var prices = [...]float64{0.1, 0.25, 0.5}

// report is the result of a run.
type report struct {
	sessions  []*session
	results   []*result
	head      int     // see lab
	surcharge float64 // see sums.cost
	idle      bool    // see lab
	foreign   bool    // the sessions have no targets
}

// share returns part/whole, 0 if whole is 0.
func share[N int | float64](part, whole N) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (r *report) markdown() string {
	var b strings.Builder
	r.describe(&b)
	b.WriteString("| policy | dialect | requests | orphans | no user | tokens/request | cached % | cost 0.1 | cost 0.25 | cost 0.5 |" +
		" needed but cut % | 40 back % | lines % |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, res := range r.results {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %.0f | %.1f |", res.policy, res.dialect, res.requests,
			res.orphans, res.userless, share(res.tokens, res.requests), 100*share(res.cached, res.tokens))
		for _, p := range prices {
			fmt.Fprintf(&b, " %.2f |", r.relative(res, p))
		}
		n := &res.needs
		fmt.Fprintf(&b, " %.1f | %.1f | %.1f |\n", 100*n.strings.share(), 100*n.old.share(), 100*n.lines.share())
	}
	r.notes(&b)
	r.verdicts(&b)
	return b.String()
}

// describe describes the replayed sessions.
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
	head := "as recorded"
	if r.head > 0 {
		head = fmt.Sprintf("priced at %d tokens", r.head)
	}
	fmt.Fprintf(b, ".\nTokens are o200k. Instructions and tools of the client are %s. Cached is what is byte for byte the beginning of\n"+
		"the session's request before, in steps of %d tokens from %d on", head, cacheStep, cacheLeast)
	if r.idle {
		b.WriteString("; nothing is, where a user's message comes")
	}
	b.WriteString(". Costs are those of all requests, a cached\n" +
		"token at 0.1, 0.25 or 0.5 of the price")
	if r.surcharge > 0 {
		fmt.Fprintf(b, " and any other at %.2f", 1+r.surcharge)
	}
	b.WriteString(", against what the clients would send by themselves. Needed but cut are\n" +
		"strings of answers that the client's history has and the prompt lacks; those last mentioned 40 or more items back; whole lines.\n\n")
	if len(r.results) > 0 {
		n := &r.results[0].needs
		fmt.Fprintf(b, "Answers repeat %d distinctive strings of the history, %d of them last mentioned 40 or more items back, and %d whole lines.\n\n", n.strings.all, n.old.all, n.lines.all)
	}
}

// relative returns the cost of a policy as a share of the clients' own cost.
func (r *report) relative(res *result, price float64) float64 {
	return share(res.cost(price, r.surcharge), res.own.cost(price, r.surcharge))
}

// notes prints the results that are not in the table.
func (r *report) notes(b *strings.Builder) {
	b.WriteString("\n")
	for _, res := range r.results {
		if res.policy == fullHistory || res.policy == recommended {
			fmt.Fprintf(b, "%s, %s: %.0f tokens of instructions and tools a request.\n", res.policy, res.dialect, share(res.heads, res.requests))
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

// target is a target of a policy, and its result.
type target struct {
	of, text string
	met      bool
}

// targets returns the targets of the results that have some.
func (r *report) targets() []target {
	var all []target
	for _, res := range r.results {
		if res.policy != recommended && res.policy != defaults {
			continue
		}
		add := func(met bool, format string, args ...any) {
			all = append(all, target{fmt.Sprintf("%s, %s", res.policy, res.dialect), fmt.Sprintf(format, args...), met})
		}
		cost, cached, cut := r.relative(res, prices[0]), share(res.cached, res.tokens), res.strings.share()
		most, mostLost := mostCost, mostCut
		if res.policy == defaults {
			most, mostLost = mostCostShipped, mostCutShipped
		}

		add(res.orphans == 0, "orphans: %d, want 0", res.orphans)
		add(res.userless == 0, "requests without a user message: %d, want 0", res.userless)
		add(res.refused == 0, "requests refused: %d, want 0", res.refused)
		add(cost <= most, "cost at 0.1: %.3f of what clients would pay, want at most %.2f", cost, most)
		add(cut <= mostLost, "needed but cut: %.2f %%, want at most %.1f %%", 100*cut, 100*mostLost)
		if res.policy == recommended {
			add(cached >= leastCached, "cached: %.1f %%, want at least %.0f %%", 100*cached, 100*leastCached)
		}
	}
	return all
}

// verdicts prints the results of the targets. They are for the generated sessions; for others they are only checked with -check.
func (r *report) verdicts(b *strings.Builder) {
	if r.foreign {
		return
	}
	of := ""
	for _, t := range r.targets() {
		if t.of != of {
			of = t.of
			fmt.Fprintf(b, "\nTargets of %s:\n", of)
		}
		fmt.Fprintf(b, "%s  %s\n", map[bool]string{true: "pass", false: "FAIL"}[t.met], t.text)
	}
}

// missed returns the targets that were not met.
func (r *report) missed() []string {
	var all []string
	for _, t := range r.targets() {
		if !t.met {
			all = append(all, t.of+": "+t.text)
		}
	}
	return all
}
