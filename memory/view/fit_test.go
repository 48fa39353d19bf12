package view_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/view"
)

// A view of one system message, three layers and three items of history: an item costs 29 tokens, the second layer 127.
func measured() (system, layers, history []view.Candidate) {
	return costs(29), costs(29, 127, 29), costs(29, 29, 29)
}

func costs(list ...int) []view.Candidate {
	entries := make([]view.Candidate, len(list))
	for i, c := range list {
		entries[i].Cost = c
	}
	return entries
}

// kept and left are the indices of what Fit keeps, and of what it leaves out with why.
type kept struct {
	Layers, History []int
	Tokens          float64
}

type left struct{ Layers, History []view.Out }

func fit(system, layers, history []view.Candidate, p view.Policy) (k kept, l left) {
	layers, history = slices.Clone(layers), slices.Clone(history)
	spent := 0.0
	for _, c := range system {
		spent += float64(max(0, c.Cost))
	}
	k.Tokens = view.Fit(spent, layers, history, p, nil)
	k.Layers, l.Layers = split(layers)
	k.History, l.History = split(history)
	return k, l
}

func split(list []view.Candidate) (in []int, out []view.Out) {
	for i, c := range list {
		if c.Why == view.ReasonNone {
			in = append(in, i)
		} else {
			out = append(out, view.Out{Index: i, Why: c.Why})
		}
	}
	return in, out
}

// sent prints the kept entries, and why the others are left out.
func sent(kept kept, left left) string {
	words := []string{"s"}
	for _, i := range kept.Layers {
		words = append(words, fmt.Sprintf("L%d", i+1))
	}
	for _, i := range kept.History {
		words = append(words, fmt.Sprintf("h%d", i+1))
	}
	words = append(words, "|")
	for _, o := range left.Layers {
		words = append(words, fmt.Sprintf("L%d:%s", o.Index+1, o.Why))
	}
	for _, o := range left.History {
		words = append(words, fmt.Sprintf("h%d:%s", o.Index+1, o.Why))
	}
	return strings.Join(words, " ")
}

func TestFit(t *testing.T) {
	inf := math.Inf(1)
	for _, test := range []struct {
		name   string
		policy view.Policy
		want   string
	}{
		{"1000", view.Policy{Budget: 1000}, "s L1 L2 L3 h1 h2 h3 |"},
		{"300", view.Policy{Budget: 300}, "s L1 L2 L3 h2 h3 | h1:budget"},
		{"200", view.Policy{Budget: 200}, "s L1 L2 | L3:budget h1:budget h2:budget h3:budget"},
		{"150, the large layer is skipped, a later one kept", view.Policy{Budget: 150}, "s L1 L3 h2 h3 | L2:budget h1:budget"},
		{"100", view.Policy{Budget: 100}, "s L1 L3 | L2:budget h1:budget h2:budget h3:budget"},
		{"40", view.Policy{Budget: 40}, "s | L1:budget L2:budget L3:budget h1:budget h2:budget h3:budget"},
		{"0", view.Policy{}, "s | L1:budget L2:budget L3:budget h1:budget h2:budget h3:budget"},
		{"reserve", view.Policy{Budget: 5000, Reserve: 4700}, "s L1 L2 L3 h2 h3 | h1:budget"},
		{"reserve over budget", view.Policy{Budget: 10, Reserve: 20}, "s | L1:budget L2:budget L3:budget h1:budget h2:budget h3:budget"},
		{"no number", view.Policy{Budget: inf, Reserve: inf}, "s | L1:budget L2:budget L3:budget h1:budget h2:budget h3:budget"},
		{"no limit", view.Policy{Budget: inf}, "s L1 L2 L3 h1 h2 h3 |"},
		{"fits to the token", view.Policy{Budget: 301}, "s L1 L2 L3 h1 h2 h3 |"},
		{"one token less", view.Policy{Budget: 300.5}, "s L1 L2 L3 h2 h3 | h1:budget"},
		{"window", view.Policy{Budget: 5000, Window: 2, Overflow: view.OverflowSlidingWindow}, "s L1 L2 L3 h2 h3 | h1:policy"},
		{"window, by priority", view.Policy{Budget: 5000, Window: 2, Overflow: view.OverflowPriority}, "s L1 L2 L3 h2 h3 | h1:policy"},
		{"window, truncate", view.Policy{Budget: 5000, Window: 2, Overflow: view.OverflowTruncate}, "s L1 L2 L3 h2 h3 | h1:policy"},
		{"window unset", view.Policy{Budget: 5000, Overflow: view.OverflowSlidingWindow}, "s L1 L2 L3 h1 h2 h3 |"},
		{"window over history", view.Policy{Budget: 5000, Window: 9}, "s L1 L2 L3 h1 h2 h3 |"},
		{"window, then budget", view.Policy{Budget: 260, Window: 2, Overflow: view.OverflowSlidingWindow}, "s L1 L2 L3 h3 | h1:budget h2:budget"},
		{"what is to be summarised", view.Policy{Budget: 300, Window: 2, Overflow: view.OverflowSummarize}, "s L1 L2 L3 h2 h3 | h1:policy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			system, layers, history := measured()
			if got := sent(fit(system, layers, history, test.policy)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// history reads entries of 10 tokens: a letter is a group, "." none, with "!" after an entry it stays with its group.
func history(notation string) []view.Candidate {
	var out []view.Candidate
	for _, r := range notation {
		switch r {
		case '!':
			out[len(out)-1].Stays = true
		case '.':
			out = append(out, view.Candidate{Cost: 10})
		default:
			out = append(out, view.Candidate{Cost: 10, Group: int(r)})
		}
	}
	return whole(out)
}

// whole sets Stays for what is in a group with an entry that stays.
func whole(list []view.Candidate) []view.Candidate {
	out := slices.Clone(list)
	for i := range out {
		out[i].Stays = slices.ContainsFunc(list, func(c view.Candidate) bool {
			return c.Stays && (c == list[i] || c.Group != 0 && c.Group == list[i].Group)
		})
	}
	return out
}

// Calls and results go together, and the current run is never dropped.
func TestFitKeepsRoundsAndGroups(t *testing.T) {
	for _, test := range []struct {
		name, history string
		budget        float64
		layers        []view.Candidate
		window        int
		want          string
		tokens        float64
	}{
		{"a result without its call goes too", ".aa.", 20, nil, 0, "s h4 | h1:budget h2:budget h3:group", 10},
		{"and what it frees is not filled", "..aa.", 21, costs(1), 0, "s L1 h5 | h1:budget h2:budget h3:budget h4:group", 11},
		{"pairs that fit stay", ".aa.", 30, nil, 0, "s h2 h3 h4 | h1:budget", 30},
		{"two results of one message", "aaa.", 30, nil, 0, "s h4 | h1:budget h2:group h3:group", 10},
		{"entries between the halves stay", "a.a.", 30, nil, 0, "s h2 h4 | h1:budget h3:group", 20},
		{"a window divides no group either", "aa.", 1000, nil, 2, "s h3 | h1:policy h2:group", 10},
		{"the run is larger than the budget", "..!.!.!", 5, nil, 0, "s h2 h3 h4 | h1:budget", 30},
		{"older history does not overtake it", "..!.!", 29, nil, 0, "s h2 h3 | h1:budget", 20},
		{"history before it, as it fits", "...!.!", 30, nil, 0, "s h2 h3 h4 | h1:budget", 30},
		{"layers do not crowd it out", "..!.!", 25, costs(5, 6, 0), 0, "s L1 L3 h2 h3 | L2:budget h1:budget", 25},
		{"a window smaller than it", "..!.!.!", 1000, nil, 2, "s h2 h3 h4 | h1:policy", 30},
		{"its partner before it stays", "a...!a!", 20, nil, 0, "s h1 h4 h5 | h2:budget h3:budget", 30},
		{"a pinned entry far back", ".!...!", 30, nil, 0, "s h1 h3 h4 | h2:budget", 30},
		{"no history", "", 30, costs(40), 0, "s | L1:budget", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			kept, left := fit(costs(0), test.layers, history(test.history), view.Policy{Budget: test.budget, Window: test.window})
			if got := sent(kept, left); got != test.want || kept.Tokens != test.tokens {
				t.Errorf("got  %s, %v tokens\nwant %s, %v tokens", got, kept.Tokens, test.want, test.tokens)
			}
		})
	}
}

func TestFitCountsAbsurdCosts(t *testing.T) {
	kept, left := fit(costs(math.MaxInt, math.MaxInt), costs(-5), costs(math.MaxInt, -1), view.Policy{Budget: 100})
	if got := sent(kept, left); got != "s | L1:budget h1:budget h2:budget" || kept.Tokens != 2*float64(math.MaxInt) {
		t.Error(got, kept.Tokens)
	}
	kept, _ = fit(nil, costs(-5), costs(-1), view.Policy{})
	if kept.Tokens != 0 || len(kept.Layers) != 1 || len(kept.History) != 1 {
		t.Error(kept)
	}
}

// entries draws a history; its run begins at some index, as in a request.
func entries() *rapid.Generator[[]view.Candidate] {
	return rapid.Custom(func(t *rapid.T) []view.Candidate {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) view.Candidate {
			return view.Candidate{Cost: rapid.IntRange(0, 50).Draw(t, "cost"), Group: rapid.IntRange(0, 6).Draw(t, "group")}
		}), 0, 20).Draw(t, "list")
		from := rapid.IntRange(0, len(list)).Draw(t, "run")
		for i := range list[from:] {
			list[from+i].Stays = true
		}
		return whole(list)
	})
}

// The rules of docs/semantics.md#what-fits for any view, against a second reading of it that knows no accounts.
func TestFitHoldsForAnyView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		system := costs(rapid.SliceOfN(rapid.IntRange(0, 50), 0, 3).Draw(t, "system")...)
		layers := costs(rapid.SliceOfN(rapid.IntRange(0, 200), 0, 6).Draw(t, "layers")...)
		list := entries().Draw(t, "history")
		p := view.Policy{
			Budget:  float64(rapid.IntRange(0, 900).Draw(t, "budget")),
			Reserve: float64(rapid.IntRange(0, 100).Draw(t, "reserve")),
			Window:  rapid.IntRange(0, 25).Draw(t, "window"),
		}
		kept, left := fit(system, layers, list, p)

		everything := slices.Clone(kept.History)
		for _, o := range left.History {
			everything = append(everything, o.Index)
		}
		slices.Sort(everything)
		for i := range max(len(list), len(everything)) {
			if i >= len(everything) || everything[i] != i {
				t.Fatalf("kept and left are not the history: %v", everything)
			}
		}
		must := 0
		for i, e := range list {
			in := slices.Contains(kept.History, i)
			if e.Stays && !in {
				t.Errorf("entry %d does not stay", i)
			}
			for j, other := range list {
				if e.Group != 0 && e.Group == other.Group && in != slices.Contains(kept.History, j) {
					t.Errorf("entries %d and %d are parted", i, j)
				}
			}
			if e.Stays {
				must += e.Cost
			}
		}
		for _, e := range system {
			must += e.Cost
		}
		if kept.Tokens > max(0, p.Budget-p.Reserve, float64(must)) {
			t.Errorf("%v tokens are sent, of which %d must be", kept.Tokens, must)
		}
		if diff := cmp.Diff(reference(float64(must), layers, list, p), kept); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// reference tries every start of the history, the longest first.
func reference(must float64, layers, list []view.Candidate, p view.Policy) kept {
	free := max(0, p.Budget-p.Reserve)
	want := kept{Tokens: must}
	for i, e := range layers {
		if want.Tokens+float64(e.Cost) <= free {
			want.Layers, want.Tokens = append(want.Layers, i), want.Tokens+float64(e.Cost)
		}
	}
	start := 0
	if p.Window > 0 {
		start = max(0, len(list)-p.Window)
	}
	for ; start < len(list); start++ {
		tokens, some := want.Tokens, false
		for _, e := range list[start:] {
			if !e.Stays {
				tokens, some = tokens+float64(e.Cost), true
			}
		}
		if !some || tokens <= free {
			break
		}
	}
	for i, e := range list {
		whole := !slices.ContainsFunc(list[:start], func(o view.Candidate) bool { return o.Group != 0 && o.Group == e.Group })
		switch {
		case e.Stays:
			want.History = append(want.History, i)
		case i >= start && whole:
			want.History, want.Tokens = append(want.History, i), want.Tokens+float64(e.Cost)
		}
	}
	return want
}

func TestPolicyValidate(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	ok := view.Policy{Budget: 128000, Reserve: 4000, Overflow: view.OverflowSlidingWindow, Turns: 10}
	with := func(change func(*view.Policy)) view.Policy {
		p := ok
		change(&p)
		return p
	}
	for _, test := range []struct {
		name   string
		policy view.Policy
		want   []string
	}{
		{"plain", ok, nil},
		{"no limit", with(func(p *view.Policy) { p.Budget = inf }), nil},
		{"truncate", with(func(p *view.Policy) { p.Overflow, p.Reserve = view.OverflowTruncate, 0 }), nil},
		{"summarize", with(func(p *view.Policy) { p.Overflow = view.OverflowSummarize }), nil},
		{
			"reserve takes all", with(func(p *view.Policy) { p.Reserve = 128000 }),
			[]string{"response_reserve: want less than token_budget, which is 128000, have 128000"},
		},
		{"pruners", with(func(p *view.Policy) { p.Overflow, p.MinTurns, p.ToolResult = view.OverflowTurns, 3, 2000 }), nil},
		{"no turns, none wanted", with(func(p *view.Policy) { p.Turns = 0 }), nil},
		{"no turns", with(func(p *view.Policy) { p.Overflow, p.Turns = view.OverflowTurns, 0 }), []string{
			`window_turns: want 1 or more pairs with overflow "turns", have 0`,
		}},
		{"less than nothing", with(func(p *view.Policy) { p.Turns, p.MinTurns, p.ToolResult = -1, -2, -3 }), []string{
			"window_turns: want 1 or more pairs, have -1",
			"min_history_turns: want 0 or more pairs, have -2",
			"tool_result_max_tokens: want 0 (no limit) or at least 32 tokens, have -3",
		}},
		{"nothing", view.Policy{Reserve: -1, Window: -1}, []string{
			"token_budget: want 1 token or more, or 0 for no limit, have 0",
			"response_reserve: want 0 tokens or more, have -1",
			`overflow: want "truncate", "sliding_window", "summarize", "fifo", "turns" or "priority", have ""`,
			"window_size: want 0 (no limit) or more entries, have -1",
		}},
		{"no numbers", view.Policy{Budget: nan, Reserve: nan, Overflow: "truncate"}, []string{
			"token_budget: want 1 token or more, or 0 for no limit, have NaN", "response_reserve: want 0 tokens or more, have NaN",
		}},
		{
			"infinite reserve",
			view.Policy{Budget: inf, Reserve: inf, Overflow: "truncate"},
			[]string{"response_reserve: want 0 tokens or more, have +Inf"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, err := range test.policy.Validate() {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkFit(b *testing.B) {
	system, layers, list := costs(200), costs(300, 200, 500, 100, 80), make([]view.Candidate, 400)
	for i := range list {
		list[i] = view.Candidate{Cost: 150, Group: i / 2 % 2 * (i/2 + 1), Stays: i >= 390}
	}
	b.ReportAllocs()
	for b.Loop() {
		fit(system, layers, list, view.Policy{Budget: 40000, Reserve: 4000})
	}
}

func near(a, b float64) bool { return a == b || math.Abs(a-b) <= 1e-9 }
