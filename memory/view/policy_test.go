package view_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// What is left for history is the budget less all other parts of a view, and the reserve. Fit gives history as
// much, and not a token more.
func TestHistoryBudget(t *testing.T) {
	p := view.Policy{Budget: 150000, Reserve: 8192, Overflow: view.OverflowFIFO}
	if got := p.HistoryBudget(1200 + 300 + 1500 + 400 + 100); got != 138308 {
		t.Errorf("got %v, want 138308", got)
	}
	system, injected := costs(1200), costs(300, 1500, 400)
	for _, c := range []struct{ oldest, want int }{{8, 3}, {9, 2}} {
		list := costs(c.oldest, 138300, 100)
		list[2].Stays = true
		kept, _ := fit(system, injected, list, p)
		if len(kept.History) != c.want || len(kept.Layers) != 3 {
			t.Errorf("of %d and 138300 tokens %v are kept, want %d", c.oldest, kept.History, c.want)
		}
	}
	if got := (view.Policy{Budget: 100, Reserve: 200}).HistoryBudget(30); got != -30 {
		t.Errorf("got %v, want -30", got)
	}
}

// prune fits the history in notation, at the same cost for each item, and returns the kept items in notation.
func prune(t wiretest.TB, d wire.Dialect, notation string, each int, p view.Policy) string {
	t.Helper()
	words := strings.Fields(notation)
	entries := view.Candidates(view.Items(t, d, notation), p)
	for i := range entries {
		entries[i].Cost = each
	}
	kept, _ := fit(nil, nil, entries, p)
	var out []string
	for _, i := range kept.History {
		out = append(out, words[i])
	}
	return strings.Join(out, " ")
}

func TestPruners(t *testing.T) {
	const fifo, turns = view.OverflowFIFO, view.OverflowTurns
	const five, six = "u1 a1 u2 a2 u3 a3 u4 a4 u5 a5", "u1 a1 u2 a2 u3 a3 u4 a4 u5 a5 u6 a6"
	type policy = view.Policy
	for _, test := range []struct {
		name     string
		dialect  wire.Dialect
		notation string
		each     int
		policy   policy
		want     string
	}{
		{"70", dialects.Chat, "u1 a1 u2 a2 u3", 14, policy{Budget: 70, Overflow: fifo}, "u1 a1 u2 a2 u3"},
		{"69", dialects.Chat, "u1 a1 u2 a2 u3", 14, policy{Budget: 69, Overflow: fifo}, "u2 a2 u3"},
		{"45", dialects.Chat, "u1 a1 u2 a2 u3", 14, policy{Budget: 45, Overflow: fifo}, "u2 a2 u3"},
		{"42", dialects.Responses, "u1 a1 u2 a2 u3", 14, policy{Budget: 42, Overflow: fifo}, "u2 a2 u3"},
		{"41", dialects.Chat, "u1 a1 u2 a2 u3", 14, policy{Budget: 41, Overflow: fifo}, "u3"},
		{"30", dialects.Responses, "u1 a1 u2 a2 u3", 14, policy{Budget: 30, Overflow: fifo}, "u3"},
		{"10", dialects.Chat, "u1 a1 u2 a2 u3", 14, policy{Budget: 10, Overflow: fifo}, "u3"},

		{"the newest turns stay, over the budget", dialects.Chat, six, 14, policy{Budget: 10, Overflow: fifo, MinTurns: 3}, "u4 a4 u5 a5 u6 a6"},
		{"and what is asked now", dialects.Responses, six + " u7", 14, policy{Budget: 10, Overflow: fifo, MinTurns: 3}, "u4 a4 u5 a5 u6 a6 u7"},
		{"with tool items", dialects.Chat, "u1 a1 u2 [1,2] fo1 fo2 a2 u3 a3 u4 [3]", 1, policy{Budget: 1, MinTurns: 2}, "u2 [1,2] fo1 fo2 a2 u3 a3 u4 [3]"},
		{"a turn without reply is none", dialects.Chat, "u1 a1 u2 [1] fo1 u3 a3 u4", 1, policy{Budget: 1, Overflow: turns, MinTurns: 2}, "u1 a1 u3 a3 u4"},
		{"whatever the window", dialects.Chat, six, 1, policy{Budget: 100, Window: 2, MinTurns: 2}, "u5 a5 u6 a6"},
		{"fewer turns than must stay", dialects.Chat, "u1 a1 u2 a2 u3", 14, policy{Budget: 10, Overflow: fifo, MinTurns: 3}, "u1 a1 u2 a2 u3"},
		{"by priority", dialects.Responses, "u1 r1 fc1 fo1 a1 u2 a2 u3", 14, policy{Budget: 10, Overflow: view.OverflowPriority, MinTurns: 9}, "u1 r1 fc1 fo1 a1 u2 a2 u3"},

		{"results that the model has not seen", dialects.Chat, "u1 a1 u2 [1,2] fo1 fo2 u3", 1, policy{Budget: 1}, "[1,2] fo1 fo2 u3"},
		{"results that it has seen", dialects.Responses, "u1 a1 u2 fc1 fo1 a2 u3", 1, policy{Budget: 1}, "u3"},
		{"one too many", dialects.Chat, "u1 a1 u2 [1,2] fo1 fo2 a2 u3", 1, policy{Budget: 7, Overflow: fifo}, "u2 [1,2] fo1 fo2 a2 u3"},
		{"calls with their results", dialects.Chat, "u1 a1 u2 [1,2] fo1 fo2 a2 u3", 1, policy{Budget: 5, Overflow: fifo}, "a2 u3"},
		{"later calls by themselves", dialects.Chat, "u1 [1] fo1 [2] fo2 a1 u2", 1, policy{Budget: 6, Overflow: fifo}, "[2] fo2 a1 u2"},
		{"Responses, one answer of several calls", dialects.Responses, "u1 fc1 fc2 fo1 fo2 a1 u2", 1, policy{Budget: 6, Overflow: fifo}, "a1 u2"},
		{"Responses, text before a call", dialects.Responses, "u1 a1 u2 a2 fc1 fo1 a3 u3", 1, policy{Budget: 5, Overflow: fifo}, "a3 u3"},
		{"two answers are two", dialects.Responses, "u1 a1 a2 u2", 1, policy{Budget: 3, Overflow: fifo}, "a2 u2"},
		{"a question without answer", dialects.Chat, "u1 u2 a2 u3", 1, policy{Budget: 3, Overflow: fifo}, "u2 a2 u3"},
		{"a late result holds nothing up", dialects.Responses, "fc1 u1 a1 fo1 u2 a2 u3", 1, policy{Budget: 5, Overflow: fifo}, "u1 a1 u2 a2 u3"},
		{"a window divides nothing either", dialects.Chat, "u1 a1 u2 a2 u3", 1, policy{Budget: 100, Window: 4, Overflow: fifo}, "u2 a2 u3"},
		{"a window divides nothing either", dialects.Chat, "u1 a1 u2 a2 u3", 1, policy{Budget: 100, Window: 2, Overflow: fifo}, "u3"},

		{"the last two turns", dialects.Chat, five, 1, policy{Budget: 9, Overflow: turns, Turns: 2}, "u4 a4 u5 a5"},
		{"with tool items", dialects.Responses, "u1 a1 u2 a2 u3 r3 fc1 fc2 fo1 fo2 a3 u4 a4 u5 a5", 1, policy{Budget: 14, Overflow: turns, Turns: 3}, "u3 r3 fc1 fc2 fo1 fo2 a3 u4 a4 u5 a5"},
		{"and what is asked now", dialects.Chat, five + " u6 [1] fo1", 1, policy{Budget: 9, Overflow: turns, Turns: 2}, "u4 a4 u5 a5 u6 [1] fo1"},
		{"of these, what fits", dialects.Chat, five + " u6", 1, policy{Budget: 4, Overflow: turns, Turns: 2}, "a4 u5 a5 u6"},
		{"two messages, one turn", dialects.Responses, "u1 a1 u2 u3 a3 u4 u5", 1, policy{Budget: 6, Overflow: turns, Turns: 1}, "u2 u3 a3 u4 u5"},
		{"fewer than there may be", dialects.Chat, "a0 u1 a1 u2", 1, policy{Budget: 3, Overflow: turns, Turns: 9}, "u1 a1 u2"},
		{"a group over the edge goes", dialects.Responses, "u1 fc1 a1 u2 fo1 a2", 1, policy{Budget: 5, Overflow: turns, Turns: 1}, "fc1 u2 fo1 a2"},
		{"an image is a reply", dialects.Responses, "u1 a1 u2 w u3", 1, policy{Budget: 4, Overflow: turns, Turns: 1}, "u2 w u3"},
		{"a compaction stays", dialects.Responses, "k u1 a1 u2 a2 u3", 1, policy{Budget: 5, Overflow: turns, Turns: 1}, "k u2 a2 u3"},

		{"turns", dialects.Chat, five, 1, policy{Budget: 10, Overflow: turns, Turns: 2}, five},
		{"a window comes first", dialects.Chat, five, 1, policy{Budget: 6, Overflow: turns, Turns: 2, Window: 6}, "u3 a3 u4 a4 u5 a5"},
		{"priority", dialects.Chat, five, 1, policy{Budget: 10, Overflow: view.OverflowPriority}, five},
		{"by priority the run stays, pairs stay together", dialects.Chat, "u1 [1] fo1 a1 u2 [2]", 10, policy{Budget: 40, Overflow: view.OverflowPriority}, "u1 a1 u2 [2]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := prune(t, test.dialect, test.notation, test.each, test.policy); got != test.want {
				t.Errorf("%s: got %s, want %s", test.notation, got, test.want)
			}
		})
	}
}

// Whatever chooses history, system entries stay, and of what layers say the same.
func TestPrunersLeaveTheRestAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policies(t)
		system, layers := costs(5, 20), costs(rapid.SliceOfN(rapid.IntRange(0, 40), 0, 5).Draw(t, "layers")...)
		all := view.Items(t, dialects.Chat, conversation(dialects.Chat).Draw(t, "conversation"))
		entries := priced(t, all, p)
		kept, _ := fit(system, layers, entries, p)
		spent := 25.0
		for _, i := range kept.History {
			spent += float64(entries[i].Cost)
		}
		for _, i := range kept.Layers {
			spent += float64(layers[i].Cost)
		}
		if kept.Tokens != spent {
			t.Errorf("%v tokens, system and what is kept are %v", kept.Tokens, spent)
		}
		p.Overflow = view.OverflowTruncate
		want, _ := fit(system, layers, priced(t, all, p, entries...), p)
		if diff := cmp.Diff(want.Layers, kept.Layers); diff != "" && sameRound(entries, view.Candidates(all, p)) {
			t.Errorf("(-truncate +pruned):\n%s", diff)
		}
	})
}

// sameRound reports whether the same entries stay in any case, with what upstream wants beside them.
func sameRound(a, b []view.Candidate) bool {
	for i := range a {
		if a[i].Stays != b[i].Stays {
			return false
		}
	}
	return true
}

func policies(t *rapid.T) view.Policy {
	return view.Policy{
		Budget: float64(rapid.IntRange(0, 400).Draw(t, "budget")),
		Overflow: rapid.SampledFrom([]string{
			view.OverflowTruncate, view.OverflowFIFO, view.OverflowTurns, view.OverflowPriority,
		}).Draw(t, "overflow"),
		Window:   rapid.SampledFrom([]int{0, 0, 3, 12}).Draw(t, "window"),
		Turns:    rapid.IntRange(1, 4).Draw(t, "turns"),
		MinTurns: rapid.IntRange(0, 2).Draw(t, "least"),
	}
}

// priced draws costs for a history, or copies them from others.
func priced(t *rapid.T, all []wire.Item, p view.Policy, like ...view.Candidate) []view.Candidate {
	entries := view.Candidates(all, p)
	for i := range entries {
		if like != nil {
			entries[i].Cost = like[i].Cost
		} else {
			entries[i].Cost = rapid.IntRange(0, 30).Draw(t, "cost")
		}
	}
	return entries
}

// Every policy, in both dialects: the result is valid upstream, the run is whole, the budget is held unless only the
// fixed part is left, a history that fits is unchanged, and the choice is the same each time.
func TestPrunersHoldForAnyHistory(t *testing.T) {
	for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
		t.Run(d.String(), rapid.MakeCheck(func(t *rapid.T) {
			p := policies(t)
			notation := conversation(d).Draw(t, "conversation")
			if rapid.Bool().Draw(t, "asked") {
				notation += " u"
			}
			all := view.Items(t, d, notation)
			entries := priced(t, all, p)
			if diff := cmp.Diff(whole(entries), entries, cmpopts.IgnoreUnexported(view.Candidate{})); diff != "" {
				t.Errorf("%s: a group does not stay with one of its entries (-want +got):\n%s", notation, diff)
			}
			for i, e := range entries[:view.Firm(all, p)] {
				behind := slices.ContainsFunc(entries[i+1:], func(o view.Candidate) bool { return o.Stays && o.Group == e.Group })
				if e.Stays && (e.Group == 0 || !behind) {
					t.Errorf("%s: item %d stays by itself before the firm part", notation, i)
				}
			}
			if len(all) > 0 && !entries[view.Firm(all, p)].Stays {
				t.Errorf("%s: the firm part begins with an item that can go", notation)
			}
			kept, left := fit(nil, nil, entries, p)
			again, _ := fit(nil, nil, entries, p)
			if diff := cmp.Diff(kept, again); diff != "" {
				t.Errorf("chosen once more (-first +second):\n%s", diff)
			}
			var sent []wire.Item
			must, total := 0.0, 0.0
			for i, e := range entries {
				total += float64(e.Cost)
				in := slices.Contains(kept.History, i)
				if in {
					sent = append(sent, all[i])
				}
				if e.Stays {
					must += float64(e.Cost)
				}
				if !in && i >= strings.Count(notation[:strings.LastIndexByte(notation, 'u')], " ") {
					t.Errorf("item %d of the run is dropped", i)
				}
			}
			if errs := wiretest.Check(d, sent); errs != nil {
				t.Errorf("%s: kept %v: %v", notation, kept.History, errs)
			}
			if kept.Tokens > max(p.Budget, must) {
				t.Errorf("%v tokens are sent, of which %v must be", kept.Tokens, must)
			}
			if total <= p.Budget && p.Window == 0 && left.History != nil {
				t.Errorf("all fits and %v are left out", left.History)
			}
			if p.Overflow == view.OverflowFIFO && p.Window == 0 {
				if diff := cmp.Diff(oldestOut(entries, p.Budget), kept.History); diff != "" {
					t.Errorf("%s (-want +got):\n%s", notation, diff)
				}
			}
		}))
	}
}

// Fit counts only some items, and chooses as if all were counted.
func TestCountingChangesNoChoice(t *testing.T) {
	for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
		t.Run(d.String(), rapid.MakeCheck(func(t *rapid.T) {
			p := policies(t)
			notation := conversation(d).Draw(t, "conversation")
			all := view.Items(t, d, notation)
			entries := priced(t, all, p)
			costs := make(map[*byte]int)
			for i, it := range all {
				costs[&it.Raw[0]] = entries[i].Cost
			}
			system := rapid.IntRange(0, 100).Draw(t, "system")
			want, _ := fit([]view.Candidate{{Cost: system}}, nil, entries, p)

			counted := 0
			for i := range entries {
				entries[i].Cost = -1
			}
			view.Fit(float64(system), nil, entries, p, func(it wire.Item) int { counted++; return costs[&it.Raw[0]] })
			got, _ := split(entries)
			if diff := cmp.Diff(want.History, got); diff != "" {
				t.Errorf("%s (-all counted +as needed):\n%s", notation, diff)
			}
			if float64(system) > p.Budget && counted > 0 {
				t.Errorf("nothing can fit, and %d are counted", counted)
			}
		}))
	}
}

// A group that fits stays, also if a result inside it belongs to an older one that does not.
func TestGroupsAroundALargeResult(t *testing.T) {
	all := view.Items(t, dialects.Responses, "u1 fc1 u2 a2 fo1 a3 u3")
	p := view.Policy{Budget: 60, Overflow: view.OverflowFIFO}
	entries := view.Candidates(all, p)
	view.Fit(0, nil, entries, p, func(it wire.Item) int {
		if it.Kind == wire.ToolResult {
			return 1000
		}
		return 10
	})
	if got, _ := split(entries); !slices.Equal(got, []int{2, 3, 5, 6}) {
		t.Errorf("kept %v, want u2 a2 a3 u3", got)
	}
}

// oldestOut is the rule of [view.OverflowFIFO] read aloud: while all that is left is too much, the oldest unit that can go goes.
func oldestOut(entries []view.Candidate, limit float64) []int {
	var stay []int
	total := 0.0
	for i, e := range entries {
		stay, total = append(stay, i), total+float64(e.Cost)
	}
	for total > limit {
		k := slices.IndexFunc(stay, func(i int) bool { return !entries[i].Stays })
		if k < 0 {
			break
		}
		oldest := stay[k]
		stay = slices.DeleteFunc(stay, func(i int) bool {
			goes := i == oldest || entries[i].Group != 0 && entries[i].Group == entries[oldest].Group
			if goes {
				total -= float64(entries[i].Cost)
			}
			return goes
		})
	}
	return stay
}

// The choices without the rules that Remora adds: nothing is a run there, priority weighs the system message
// with the history, and three tokens are spent before anything else.
func TestPriorityTable(t *testing.T) {
	all := view.Items(t, dialects.Chat, "u a u a u a")
	for i := range all {
		role := []wire.Role{wire.User, wire.Assistant}[i%2]
		all[i] = message(t, role, strings.Repeat("x", 40))
	}
	system := message(t, wire.System, "Be helpful")
	costOf := map[wire.Role]int{wire.System: 9, wire.User: 15, wire.Assistant: 17}
	price := func(list []wire.Item, p view.Policy) []view.Candidate {
		entries := view.Candidates(list, p)
		for i := range entries {
			entries[i].Cost, entries[i].Stays = costOf[list[i].Role], false
		}
		return entries
	}
	for _, row := range []struct {
		available         float64
		sliding, priority string
	}{
		{120, "sys m0 m1 m2 m3 m4 m5", "sys m0 m1 m2 m3 m4 m5"},
		{100, "sys m1 m2 m3 m4 m5", "sys m0 m2 m3 m4 m5"},
		{60, "sys m4 m5", "sys m0 m2 m4"},
		{40, "sys m5", "sys m4"},
		{30, "sys m5", "sys m4"},
		{20, "sys", "sys"},
		{10, "sys", ""},
	} {
		p := view.Policy{Budget: row.available, Overflow: view.OverflowTruncate}
		kept, _ := fit(append(price([]wire.Item{system}, p), costs(3)...), nil, price(all, p), p)
		if got := "sys" + named(kept.History, 0); got != row.sliding {
			t.Errorf("%v: sliding window keeps %s, want %s", row.available, got, row.sliding)
		}
		p.Overflow = view.OverflowPriority
		list := append([]wire.Item{system}, all...)
		kept, _ = fit(costs(3), nil, price(list, p), p)
		if got := strings.TrimSpace(named(kept.History, 1)); got != row.priority {
			t.Errorf("%v: priority keeps %s, want %s", row.available, got, row.priority)
		}
	}
}

func message(t wiretest.TB, role wire.Role, text string) wire.Item {
	t.Helper()
	it := wiretest.Parse(t, dialects.Chat, fmt.Sprintf(`{"role":%q,"content":%q}`,
		map[wire.Role]string{wire.System: "system", wire.User: "user", wire.Assistant: "assistant"}[role], text))
	return it
}

// named spells indices of messages, of which the first ones are the system's.
func named(indices []int, first int) string {
	var b strings.Builder
	for _, i := range indices {
		if i < first {
			b.WriteString(" sys")
		} else {
			fmt.Fprintf(&b, " m%d", i-first)
		}
	}
	return b.String()
}

// No policy parts a call and its result.
func TestNoPolicyPartsPairs(t *testing.T) {
	for _, overflow := range []string{view.OverflowTruncate, view.OverflowPriority} {
		for limit, want := range map[float64]string{
			60: "[1] fo1 a1 u2", 50: "[1] fo1 a1 u2", 49: "a1 u2", 44: "a1 u2", 40: "a1 u2", 30: "a1 u2", 22: "u2",
		} {
			p := view.Policy{Budget: limit, Overflow: overflow}
			entries := view.Candidates(view.Items(t, dialects.Chat, "u1 [1] fo1 a1 u2"), p)
			for i, c := range []int{15, 12, 15, 17, 6} {
				entries[i].Cost = c
			}
			kept, _ := fit(nil, nil, entries, p)
			var got []string
			for _, i := range kept.History {
				got = append(got, strings.Fields("u1 [1] fo1 a1 u2")[i])
			}
			if overflow == view.OverflowPriority {
				want = map[float64]string{60: "u1 [1] fo1 u2", 50: "u1 [1] fo1 u2", 49: "u1 [1] fo1 u2", 44: "u1 a1 u2", 40: "u1 a1 u2", 30: "u1 u2", 22: "u1 u2"}[limit]
			}
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%s, %v: kept %s, want %s", overflow, limit, s, want)
			}
		}
	}
}

func TestScore(t *testing.T) {
	all := view.Items(t, dialects.Responses, "u1 a1 r1 fc1 fo1 w")
	want := []float64{100 + 50./6, 60 + 60./6, 80 + 120./6, 80 + 160./6, 50 + 200./6, 15}
	for i, it := range all {
		if got := view.Score(it, i, len(all)); !near(got, want[i]) {
			t.Errorf("item %d scores %v, want %v", i, got, want[i])
		}
	}
	if got := view.Score(message(t, wire.System, "x"), 0, 9); got != math.MaxFloat64 {
		t.Errorf("system scores %v", got)
	}
}
