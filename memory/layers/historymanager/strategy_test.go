package historymanager

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-viper/mapstructure/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// turn returns a turn that counts tokens by length.
func turn() *layer.Turn {
	return &layer.Turn{
		Thread: "A", Resource: "ann", Now: start, Dialect: dialects.Chat, Count: mixed,
		CountItem: mixedItem, Note: func(string, any) {},
	}
}

func open(tb testing.TB, o Options) *Layer {
	tb.Helper()
	return layertest.Must(New(o))(tb)
}

func item(tb testing.TB, d wire.Dialect, v any) wire.Item {
	tb.Helper()
	raw := layertest.Must(json.Marshal(v))(tb)
	return layertest.Must(wire.ParseItem(d, raw))(tb)
}

func says(role wire.Role, text string) wire.Item { return wire.NewMessage(dialects.Chat, role, text) }

type m = map[string]any

// calling is a Chat message with calls, and what it costs.
func calling(tb testing.TB, arguments string, ids ...string) wire.Item {
	tb.Helper()
	var calls []m
	for _, id := range ids {
		calls = append(calls, m{"id": id, "type": "function", "function": m{"name": "f", "arguments": arguments}})
	}
	return item(tb, dialects.Chat, m{"role": "assistant", "content": nil, "tool_calls": calls})
}

// labelled names items by the first word of their text, or by their kind.
func labelled(items []wire.Item) string {
	var words []string
	for _, it := range items {
		switch word, _, _ := strings.Cut(it.Text(), " "); {
		case it.HasCalls():
			words = append(words, "call")
		case it.Kind == wire.ToolResult:
			words = append(words, "tool")
		default:
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// project returns the items that a strategy chooses from a history, given the available tokens.
func project(tb testing.TB, strategy string, available, overhead int, history []wire.Item) []wire.Item {
	tb.Helper()
	const output = 1000
	l := open(tb, Options{Strategy: strategy, ContextWindowTokens: available + overhead + output, MaxOutputTokens: output})
	tu := turn()
	tu.Overhead = overhead
	return layertest.Must(l.ProjectHistory(tb.Context(), tu, nil, history))(tb)
}

// evaluated are messages of which the system one costs 9 tokens, users' 15 and assistants' 17.
func evaluated() (system wire.Item, messages []wire.Item) {
	for i := range 6 {
		role := []wire.Role{wire.User, wire.Assistant}[i%2]
		messages = append(messages, says(role, fmt.Sprintf("m%d %s", i, strings.Repeat("x", 37))))
	}
	return says(wire.System, "Be helpful"), messages
}

// pick returns the items that a strategy chooses when none has to stay.
func pick(strategy string, available int, system, history []wire.Item) []wire.Item {
	p := policy(strategy, available)
	entries := view.Candidates(history, p)
	for i := range entries {
		entries[i].Stays = false
		entries[i].Cost = mixedItem(history[i])
	}
	spent := sequenceTokens
	chosen := system
	for _, it := range system {
		spent += mixedItem(it)
	}
	view.Fit(float64(spent), nil, entries, p, nil)
	for i, it := range history {
		if entries[i].Why == view.ReasonNone {
			chosen = append(slices.Clip(chosen), it)
		}
	}
	return chosen
}

func TestStrategies(t *testing.T) {
	system, messages := evaluated()
	if n := mixedItems(append([]wire.Item{system}, messages...)); n != 108 {
		t.Fatalf("all cost %d, want 108", n)
	}
	for _, c := range []struct {
		available         int
		sliding, priority string // where nothing has to stay
		kept, keptOurs    string // as Remora sends them: the run of m4 stays, and the system message
	}{
		{120, "Be m0 m1 m2 m3 m4 m5", "Be m0 m1 m2 m3 m4 m5", "m0 m1 m2 m3 m4 m5", "m0 m1 m2 m3 m4 m5"},
		{100, "Be m1 m2 m3 m4 m5", "Be m0 m2 m3 m4 m5", "m1 m2 m3 m4 m5", "m0 m2 m3 m4 m5"},
		{60, "Be m4 m5", "Be m0 m2 m4", "m4 m5", "m2 m4 m5"},
		{40, "Be m5", "Be m4", "m4 m5", "m4 m5"},
		{30, "Be m5", "Be m4", "m4 m5", "m4 m5"},
		{20, "Be", "Be", "m4 m5", "m4 m5"},
		{10, "Be", "", "m4 m5", "m4 m5"},
	} {
		t.Run(fmt.Sprintf("%d tokens", c.available), func(t *testing.T) {
			if got := labelled(pick(SlidingWindow, c.available, []wire.Item{system}, messages)); got != c.sliding {
				t.Errorf("sliding window: %s, want %s", got, c.sliding)
			}
			if got := labelled(pick(PriorityBased, c.available, nil, append([]wire.Item{system}, messages...))); got != c.priority {
				t.Errorf("priority: %s, want %s", got, c.priority)
			}
			cost := mixedItem(system)
			for strategy, want := range map[string]string{SlidingWindow: c.kept, SlidingWindowWithSummary: c.kept, PriorityBased: c.keptOurs} {
				if got := labelled(project(t, strategy, c.available-cost, cost, messages)); got != want {
					t.Errorf("%s with the current run: %s, want %s", strategy, got, want)
				}
			}
		})
	}
	t.Run("a system message within the history is not protected", func(t *testing.T) {
		history := append([]wire.Item{messages[0], system}, messages[1:]...)
		if got := labelled(project(t, SlidingWindow, 60, 0, history)); got != "m3 m4 m5" {
			t.Error(got)
		}
	})
}

func TestPairsStayTogether(t *testing.T) {
	history := []wire.Item{
		says(wire.User, "u0 "+strings.Repeat("x", 37)), calling(t, `{"a":"0123456"}`, "c"),
		item(t, dialects.Chat, m{"role": "tool", "tool_call_id": "c", "content": strings.Repeat("r", 40)}),
		says(wire.Assistant, "a1 "+strings.Repeat("x", 37)), says(wire.User, "u2"),
	}
	if n := mixedItems(history); n < 65 || n > 71 {
		t.Fatalf("all cost %d, about 68 wanted", n)
	}
	for _, available := range []int{60, 50, 44, 40, 30} {
		for _, strategy := range []string{SlidingWindow, PriorityBased} {
			got := project(t, strategy, available, 0, history)
			if errs := wiretest.Check(dialects.Chat, got); errs != nil || !strings.HasSuffix(labelled(got), "u2") {
				t.Errorf("%s, %d: %s: %v", strategy, available, labelled(got), errs)
			}
		}
	}
	for _, strategy := range []string{SlidingWindow, PriorityBased} {
		if got := labelled(project(t, strategy, 1, 0, []wire.Item{history[0], history[3], history[0]})); got != "u0" {
			t.Errorf("%s: %q", strategy, got)
		}
	}
}

// TestAnyHistoryStaysValid: upstream accepts every choice, in both dialects, and it fits unless only the run stays.
func TestAnyHistoryStaysValid(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapid.SampledFrom([]wire.Dialect{dialects.Chat, dialects.Responses}).Draw(rt, "dialect")
		var history []wire.Item
		for i := range rapid.IntRange(1, 8).Draw(rt, "turns") {
			size := rapid.IntRange(0, 300)
			text := func(what string) string { return strings.Repeat("日x ", size.Draw(rt, what)) }
			history = append(history, wire.NewMessage(d, wire.User, text("user")))
			for j := range rapid.IntRange(0, 3).Draw(rt, "rounds of tools") {
				history = append(history, tools(t, d, fmt.Sprint(i, "-", j), rapid.IntRange(1, 3).Draw(rt, "calls"), text("result"))...)
			}
			history = append(history, wire.NewMessage(d, wire.Assistant, text("assistant")))
		}
		history = append(history, wire.NewMessage(d, wire.User, "last"))
		strategy := rapid.SampledFrom([]string{SlidingWindow, PriorityBased}).Draw(rt, "strategy")
		available := rapid.IntRange(1, 2000).Draw(rt, "available")
		got := project(t, strategy, available, 0, history)
		if errs := wiretest.Check(d, got); errs != nil {
			rt.Fatalf("%s: %v", labelled(got), errs)
		}
		if len(got) == 0 || got[len(got)-1].Text() != "last" {
			rt.Fatalf("the run is gone: %s", labelled(got))
		}
		if n := mixedItems(got); len(got) > 1 && n > available {
			rt.Fatalf("%d tokens of %d", n, available)
		}
		if len(got) < len(history) && mixedItems(history) <= available {
			rt.Fatal("what fits was left out")
		}
	})
}

// tools is one answer with calls, and their results.
func tools(tb testing.TB, d wire.Dialect, id string, n int, result string) []wire.Item {
	tb.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint(id, "_", i))
	}
	var items []wire.Item
	if d == dialects.Chat {
		items = append(items, calling(tb, "{}", ids...))
	} else {
		items = append(items, item(tb, d, m{"type": "reasoning", "id": "rs_" + id, "summary": []m{}}))
		for _, id := range ids {
			items = append(items, item(tb, d, m{"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}))
		}
	}
	for _, id := range ids {
		if d == dialects.Chat {
			items = append(items, item(tb, d, m{"role": "tool", "tool_call_id": id, "content": result}))
		} else {
			items = append(items, item(tb, d, m{"type": "function_call_output", "call_id": id, "output": result}))
		}
	}
	return items
}

func TestLittleIsCounted(t *testing.T) {
	var history []wire.Item
	for range 3000 {
		history = append(history, says(wire.User, "hello"), says(wire.Assistant, "hello"))
	}
	history = append(history, says(wire.User, strings.Repeat("x", 2<<20)), says(wire.Assistant, "hello"), says(wire.User, "last"))
	tu, counted := turn(), 0
	tu.CountItem = func(it wire.Item) int {
		if counted++; len(it.Raw) > 1<<20 {
			t.Error("a text that cannot fit was counted")
		}
		return mixedItem(it)
	}
	l := open(t, Options{ContextWindowTokens: 2000, MaxOutputTokens: 1000})
	got, err := l.ProjectHistory(t.Context(), tu, nil, history)
	if err != nil || labelled(got) != "hello last" || counted > 200 {
		t.Errorf("%s, %v; %d items counted", labelled(got), err, counted)
	}

	// What stays is not counted either if it cannot fit, and what stays uses up the budget of the rest.
	counted = 0
	for _, strategy := range []string{SlidingWindow, PriorityBased} {
		l := open(t, Options{Strategy: strategy, ContextWindowTokens: 2000, MaxOutputTokens: 1000})
		got, err := l.ProjectHistory(t.Context(), tu, nil, slices.Concat(history[:10], history[6000:6001]))
		if err != nil || len(got) != 1 || counted > 0 {
			t.Errorf("%s: %d items, %v; %d counted", strategy, len(got), err, counted)
		}
	}
}

// A compaction stands for all before it, so that it stays however far back it is, and is charged what it costs.
func TestCompactionStays(t *testing.T) {
	history := []wire.Item{item(t, dialects.Responses, m{"type": "compaction", "id": "c", "encrypted_content": "x"})}
	for i := range 9 {
		role := []wire.Role{wire.User, wire.Assistant}[i%2]
		history = append(history, wire.NewMessage(dialects.Responses, role, fmt.Sprintf("m%d %s", i, strings.Repeat("x", 37))))
	}
	for strategy, want := range map[string]string{SlidingWindow: " m6 m7 m8", PriorityBased: " m4 m6 m8"} {
		if got := labelled(project(t, strategy, 3+mixedItem(history[0])+2*15+17, 0, history)); got != want {
			t.Errorf("%s: %q, want %q", strategy, got, want)
		}
	}
}

func TestDiagnostics(t *testing.T) {
	_, messages := evaluated()
	for _, c := range []struct {
		strategy    string
		overhead    int
		utilization float64
		remaining   int
		leftOut     int
	}{
		{SlidingWindow, 10, 0.97, 3, 2},
		{SlidingWindowWithSummary, 10, 0.97, 3, 2},
		{PriorityBased, 10, 0.95, 5, 2},
		{SlidingWindow, 90, 1, 0, 4}, // only the run, which does not fit either
	} {
		tu, notes := turn(), m{}
		tu.Note = func(name string, v any) { notes[name] = v }
		tu.Overhead = c.overhead
		l := open(t, Options{Strategy: c.strategy, ContextWindowTokens: 100, MaxOutputTokens: 20})
		layertest.Must(l.ProjectHistory(t.Context(), tu, nil, messages))(t)
		want := m{"strategy": c.strategy, "utilization": c.utilization, "remaining": c.remaining, "left_out": c.leftOut}
		if diff := cmp.Diff(want, notes); diff != "" {
			t.Errorf("%s: %s", c.strategy, diff)
		}
	}
}

func TestOptions(t *testing.T) {
	l := open(t, Options{})
	have := []any{l.o.Strategy, l.o.EnableSummarization, l.o.EnableLongTermMemory, l.topK, l.o.MemoryTokenBudget, l.o.ContextWindowTokens, l.o.MaxOutputTokens}
	if diff := cmp.Diff([]any{SlidingWindow, false, false, 5, 2000, 128000, 16384}, have); diff != "" {
		t.Errorf("no field: %s", diff)
	}
	var o Options
	if err := mapstructure.Decode(m{"strategy": PriorityBased, "recall_top_k": 0}, &o); err != nil {
		t.Fatal(err)
	}
	if l := open(t, o); l.o.Strategy != PriorityBased || l.topK != 0 || l.o.MemoryTokenBudget != 2000 || l.summarises() {
		t.Errorf("some fields: %+v", l)
	}
	for hook, want := range map[string]bool{layer.HookEvicted: false, layer.HookTools: false, layer.HookProjectHistory: true} {
		if l.Has(hook) != want {
			t.Errorf("Has(%s) = %v", hook, !want)
		}
	}
	if !open(t, Options{Strategy: SlidingWindowWithSummary}).Has(layer.HookEvicted) {
		t.Error("sliding_window_with_summary implies summaries")
	}
	k := 51
	_, err := New(Options{
		Strategy: "x", ContextWindowTokens: -1, MaxOutputTokens: maxTokens + 1, RecallTopK: &k, MemoryTokenBudget: -1, RecallFrom: "x",
		MemoryTypes: []string{"fact", "x"}, MemoryMaxAge: -1, AgentID: "a\nb", MemoryTools: true,
	})
	var keys []string
	for line := range strings.Lines(fmt.Sprint(err)) {
		key, _, _ := strings.Cut(line, ":")
		keys = append(keys, key)
	}
	want := []string{
		"strategy", "recall_from", "context_window_tokens", "max_output_tokens", "memory_token_budget", "max_output_tokens", "recall_top_k",
		"memory_types[1]", "memory_max_age", "agent_id", "memory_tools",
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
}

// answers is a model that always says the same, or fails where that is nothing.
type answers string

func (a answers) Complete(context.Context, string, string, int) (string, error) {
	if a == "" {
		return "", context.DeadlineExceeded
	}
	return string(a), nil
}
