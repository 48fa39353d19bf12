package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// TestFit: what docs/semantics.md#what-fits says of a view. h3 is the current run, which stays in any case.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		name           string
		budget, window int
		want           string
	}{
		{"all", 1000, 0, "s L1 L2 L3 h1 h2 h3"},
		{"300", 300, 0, "s L1 L2 L3 h2 h3"},
		{"200, the run stays and L2 gives way", 200, 0, "s L1 L3 h1 h2 h3"},
		{"150, L2 does not fit, L3 does", 150, 0, "s L1 L3 h2 h3"},
		{"100", 100, 0, "s L1 h3"},
		{"40", 40, 0, "s h3"},
		{"nothing", 1, 0, "s h3"},
		{"the last two", 5000, 2, "s L1 L2 L3 h2 h3"},
		{"more than there are", 5000, 9, "s L1 L2 L3 h1 h2 h3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{
				Policy:    view.Policy{Budget: float64(c.budget), Window: c.window},
				CountItem: func(string, wire.Item) int { return 29 },
			}
			block := func(id string, tokens int) view.Block {
				return view.Block{Layer: id, Texts: []string{"x"}, Tokens: tokens - 4}
			}
			history := []wire.Item{
				wire.NewMessage(dialects.Chat, wire.Assistant, "h1"), wire.NewMessage(dialects.Chat, wire.Assistant, "h2"),
				wire.NewMessage(dialects.Chat, wire.Assistant, "h3"),
			}
			blocks := []view.Block{block("L1", 29), block("L2", 127), block("L3", 29)}
			f := start(t, o).Fit(Prompt{System: []wire.Item{wire.NewMessage(dialects.Chat, wire.System, "s")}}, blocks, history)
			got := strings.Join(strings.Fields("s "+names(f.Blocks)+" "+texts(staying(history, f))), " ")
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if len(f.Blocks)+len(f.Dropped) != 3 || len(staying(history, f))+len(f.Left) != 3 {
				t.Errorf("%d blocks and %d dropped, %d items and %d left", len(f.Blocks), len(f.Dropped), len(staying(history, f)), len(f.Left))
			}
		})
	}
}

// TestFitCountsInstructions: those of a Responses request take room like a system message.
func TestFitCountsInstructions(t *testing.T) {
	history := []wire.Item{
		wire.NewMessage(dialects.Responses, wire.User, "h1"), wire.NewMessage(dialects.Responses, wire.Assistant, "h2"),
		wire.NewMessage(dialects.Responses, wire.User, "h3"),
	}
	o := Options{
		Policy:    view.Policy{Budget: 100},
		Count:     func(_, text string) int { return len(text) },
		CountItem: func(string, wire.Item) int { return 30 },
	}
	instructions := []byte(`"` + strings.Repeat("a", 30) + `\n"`)
	f := start(t, o).Fit(Prompt{Instructions: instructions}, nil, history)
	if got := texts(staying(history, f)); got != "h2 h3" || f.SystemTokens != 31 {
		t.Errorf("%q stay, %d tokens of the prompt; want h2 h3, 31", got, f.SystemTokens)
	}
	f = start(t, o).Fit(Prompt{}, nil, history)
	if got := texts(staying(history, f)); got != "h1 h2 h3" {
		t.Errorf("without instructions %q stay", got)
	}
}

// staying returns the items of a history that fit.
func staying(history []wire.Item, f Fitted) (kept []wire.Item) {
	for i, it := range history {
		if !slices.ContainsFunc(f.Left, func(out view.Out) bool { return out.Index == i }) {
			kept = append(kept, it)
		}
	}
	return kept
}

func parse(t wiretest.TB, raw string) wire.Item {
	return wiretest.Parse(t, dialects.Chat, raw)
}

// TestFitKeepsPairs: at any budget, calls and results go together and the run stays.
func TestFitKeepsPairs(t *testing.T) {
	var history []wire.Item
	for i := range 6 {
		history = append(history, user(fmt.Sprint("question ", i)),
			parse(t, fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}]}`, i)),
			parse(t, fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d","content":"result"}`, i)))
	}
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{Policy: view.Policy{
			Budget: float64(rapid.IntRange(1, 1000).Draw(rt, "budget")), Window: rapid.IntRange(0, 20).Draw(rt, "window"),
		}}
		p, err := New(nil, o)
		if err != nil {
			rt.Fatal(err)
		}
		r, _ := p.Begin(t.Context(), "tenant", turn(), nil, Credential{})
		f := r.Fit(Prompt{}, nil, history)
		kept := staying(history, f)
		if errs := wiretest.Check(dialects.Chat, kept); len(errs) > 0 {
			rt.Fatalf("calls without results, or results without calls: %v", errs)
		}
		if diff := cmp.Diff(texts(history[15:]), texts(kept[max(0, len(kept)-3):])); diff != "" {
			rt.Fatalf("the run has gone: %s", diff)
		}
		if f.HistoryTokens > max(int(o.Policy.Budget), 100) {
			rt.Fatalf("%d tokens of %v", f.HistoryTokens, o.Policy.Budget)
		}
	})
}

func TestFitCountsNoMoreThanFits(t *testing.T) {
	counted := 0
	o := Options{
		Policy:    view.Policy{Budget: 100},
		CountItem: func(string, wire.Item) int { counted++; return 10 },
	}
	history := make([]wire.Item, 10000)
	for i := range history {
		history[i] = user("x")
	}
	if f := start(t, o).Fit(Prompt{}, nil, history); len(staying(history, f)) != 10 || counted > 12 {
		t.Errorf("%d items kept, %d counted", len(staying(history, f)), counted)
	}
	o.CountItem = func(string, wire.Item) int { t.Error("counted"); return 0 }
	r := start(t, o)
	run := []wire.Item{user(strings.Repeat("x", 2<<20))}
	if f := r.Fit(Prompt{}, nil, run); len(staying(run, f)) != 1 {
		t.Error("the run has gone")
	}
}

// TestFitCountsNothingThatFitsAnyway: also with media, whose price does not depend on their size.
func TestFitCountsNothingThatFitsAnyway(t *testing.T) {
	image := parse(t, `{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}`)
	for _, c := range []struct {
		name    string
		budget  float64
		window  int
		blocks  []view.Block
		history []wire.Item
		counts  bool
	}{
		{"plenty of room", 10_000, 0, []view.Block{{Texts: []string{"x"}, Tokens: 5000}}, []wire.Item{user("a"), user("b")}, false},
		{"a block takes it", 10_000, 0, []view.Block{{Texts: []string{"x"}, Tokens: 9950}}, []wire.Item{user("a"), user("b")}, true},
		{"a window", 10_000, 2, nil, []wire.Item{user("a"), user("b")}, true},
		{"images", 5000, 0, nil, []wire.Item{image, image}, false},
		{"images that might be too much", 1500, 0, nil, []wire.Item{image, image}, true},
		{"long text", 100, 0, nil, []wire.Item{user(strings.Repeat("x", 90))}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			counted := false
			o := Options{
				Policy:    view.Policy{Budget: c.budget, Window: c.window},
				CountItem: func(string, wire.Item) int { counted = true; return 10 },
			}
			f := start(t, o).Fit(Prompt{System: []wire.Item{wire.NewMessage(dialects.Chat, wire.System, "s")}}, c.blocks, c.history)
			if len(staying(c.history, f)) != len(c.history) || len(f.Blocks) != len(c.blocks) || len(f.Left)+len(f.Dropped) != 0 {
				t.Errorf("%d items and %d blocks are left", len(staying(c.history, f)), len(f.Blocks))
			}
			if counted != c.counts {
				t.Errorf("counted: %v, want %v", counted, c.counts)
			}
		})
	}
}
