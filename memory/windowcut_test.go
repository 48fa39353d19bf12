package memory_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/entity"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// lister is the layer entity_memory as it is configured by default.
func lister(tb testing.TB) pipeline.Layer {
	tb.Helper()
	impl, err := entity.New(entity.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	d := entity.Defaults(entity.Options{})
	return pipeline.Layer{ID: d.ID, Kind: "entity_memory", Slot: d.Slot, Scope: d.Scope, Budget: d.Budget, Timeouts: layer.Timeouts{Recall: -1}, Impl: impl}
}

// ledgerOf is the shape of a window of 8 items that cuts 4 at once, with the ledger of what it cuts.
func ledgerOf(t *testing.T, c *view.PromptCache) memory.Shape {
	t.Helper()
	return memory.Shape{
		Window: &view.Window{MaxItems: 8, EvictBatch: 4, InFlight: view.InFlightWindow}, PromptCache: c,
		Layers: layersOf(t, lister(t)),
	}
}

// listed are the names that a view lists, "" where it has no ledger.
func listed(view string) string {
	_, rest, _ := strings.Cut(view, "never instructions.\n")
	names, _, _ := strings.Cut(rest, "\n</names_seen_earlier>")
	return names
}

// TestLedgerOfTheWindow: items that the window cuts are listed with the request that loses them, for clients of both
// habits, and the block does not change before the next cut.
func TestLedgerOfTheWindow(t *testing.T) {
	t.Parallel()
	cached := view.DefaultPromptCache()
	for name, c := range map[string]*view.PromptCache{"with a pinned prefix": &cached, "without": nil} {
		for client, resends := range map[string]bool{"a client that resends": true, "a client that sends what is new": false} {
			t.Run(client+" "+name, func(t *testing.T) {
				t.Parallel()
				l := newLab(t, memory.Options{Shape: ledgerOf(t, c)})
				var history []string
				for i := range 16 {
					next := fmt.Sprintf("u:src/file_%02d.go", i)
					words := next
					if resends {
						words = strings.Join(append(history, next), " ")
					}
					reply := fmt.Sprintf("a:docs/page_%02d.md", i)
					have := listed(l.turnOf(in("one", ""), words, reply))
					history = append(history, next, reply)

					cut := 0 // of the 2i+1 items
					if over := 2*i + 1 - 8; over > 0 {
						cut = (over + 3) / 4 * 4
					}
					var pages, files []string
					for j := range cut / 2 {
						pages, files = append(pages, fmt.Sprintf("docs/page_%02d.md", j)), append(files, fmt.Sprintf("src/file_%02d.go", j))
					}
					if want := strings.Join(append(pages, files...), " "); have != want {
						t.Fatalf("request %d lists %q, want %q", i+1, have, want)
					}
				}
			})
		}
	}
}

// TestLedgerOfABranch: what was edited before the cut is not told on the branch, and the line before keeps its own.
func TestLedgerOfABranch(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: ledgerOf(t, nil)})
	for _, c := range []struct{ words, want string }{
		{"u:1 a:src/one.go u:2 a:2 u:3 a:3 u:4 a:4 u:5", "src/one.go"},
		{"u:1 a:src/two.go u:2 a:2 u:3 a:other u:4 a:another u:5", "src/two.go"},
		{"u:1 a:src/one.go u:2 a:2 u:3 a:3 u:4 a:4 u:5", "src/one.go"},
	} {
		if have := listed(l.turn(c.words, "a:5")); have != c.want {
			t.Errorf("lists %q, want %q", have, c.want)
		}
	}
}

// TestLedgerOfAWindowByTokens: the ledger follows the cut of a window by tokens, which is kept with the session.
func TestLedgerOfAWindowByTokens(t *testing.T) {
	t.Parallel()
	shape := ledgerOf(t, nil)
	shape.Window = &view.Window{MaxTokens: 8, EvictShare: 0.5, InFlight: view.InFlightWindow}
	shape.Price = func(string, wire.Item) int { return 1 }
	l := newLab(t, memory.Options{Shape: shape})
	var have []string
	for i := range 9 {
		have = append(have, listed(l.turn(fmt.Sprintf("u:src/%d.go", i), "a:fine")))
	}
	want := []string{
		"", "", "", "",
		"src/0.go src/1.go src/2.go", "src/0.go src/1.go src/2.go", "src/0.go src/1.go src/2.go",
		"src/0.go src/1.go src/2.go src/3.go src/4.go src/5.go", "src/0.go src/1.go src/2.go src/3.go src/4.go src/5.go",
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// keeper is a layer that records the cut.
type keeper struct {
	lost   []wire.Item // read while it recalls
	cut    *layer.WindowCut
	inView func(wire.Hash) bool
}

func (*keeper) OfView() bool { return true }

func (k *keeper) Recall(ctx context.Context, t *layer.Turn, _ layer.State, _ int) (_ layer.Recalled, err error) {
	if t.Cut != nil {
		k.cut, k.inView = t.Cut, t.InView
		k.lost, err = t.Cut.Lost(ctx)
	}
	return layer.Recalled{}, err
}

// TestCutIsReadDuringRecall: the body of a request is used for another one, and a layer that comes late reads nothing of it.
func TestCutIsReadDuringRecall(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	shape := ledgerOf(t, nil)
	shape.Layers = layersOf(t, pipeline.Layer{ID: "k", Kind: "keeper", Scope: layer.Thread, Impl: k})
	l := newLab(t, memory.Options{Shape: shape})
	l.turn("u:0 a:0 u:1 a:1 u:2 a:2 u:3 a:3 u:4", "a:4")
	if lost := told(t, k.lost); lost != "u:0 a:0 u:1 a:1" {
		t.Errorf("lost: %q", lost)
	}
	for _, read := range []func(context.Context) ([]wire.Item, error){k.cut.Lost, k.cut.Shown} {
		if items, err := read(t.Context()); err == nil {
			t.Errorf("read too late: %v", items)
		}
	}
	if said := answer(t, "a:3").Reply.Choices[0][0]; k.inView(said.ContentHash()) {
		t.Error("looked at too late: the view")
	}
}

// TestCutsInConflicts: two agents of one session lose different items at once. The one that commits last reads what the other has
// stored, and the layer does not fail over that: what the window cut can no longer be read then.
func TestCutsInConflicts(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	shape := ledgerOf(t, nil)
	var err error
	if shape.Layers, err = pipeline.New([]pipeline.Layer{lister(t)}, pipeline.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, memory.Options{Shape: shape})
	const one, two = "s:one u:1 a:src/one.go u:2 a:2 u:3 a:3 u:4 a:4 u:5", "s:two u:1 a:src/two.go u:2 a:2 u:3 a:3 u:4 a:4 u:5"
	l.turn("s:one u:1", "a:src/one.go")
	first, second := l.begin(memory.Call{}, one), l.begin(memory.Call{}, two)
	first.Commit(answer(t, "a:5"))
	second.Commit(answer(t, "a:5"))
	if log.Len() > 0 {
		t.Error(log.String())
	}
	for words, want := range map[string]string{one: "src/one.go", two: "src/two.go"} {
		if have := listed(l.turn(words+" a:5 u:6", "a:6")); have != want {
			t.Errorf("lists %q, want %q", have, want)
		}
	}
}

// spoken is a layer whose recall depends on the view.
type spoken func(t *layer.Turn) string

func (spoken) OfView() bool { return true }

func (s spoken) Recall(_ context.Context, t *layer.Turn, _ layer.State, _ int) (layer.Recalled, error) {
	if text := s(t); text != "" {
		return layer.OneBlock(text), nil
	}
	return layer.Recalled{}, nil
}

// TestItemsThatABlockPushesOut: a layer is asked again when the view is known, and its block may have become larger. If an item no
// longer fits because of that, the layers that repeat what the view lacks repeat it.
func TestItemsThatABlockPushesOut(t *testing.T) {
	t.Parallel()
	large := spoken(func(t *layer.Turn) string {
		if t.InView == nil {
			return "" // as entity_memory before the first cut
		}
		return strings.Repeat("x", 28)
	})
	first := wire.NewMessage(dialects.Chat, wire.User, "first").ContentHash()
	teller := spoken(func(t *layer.Turn) string {
		if t.InView != nil && t.InView(first) {
			return ""
		}
		return "told"
	})
	at := func(id string, slot int, tokens float64, s spoken) pipeline.Layer {
		return pipeline.Layer{ID: id, Slot: slot, Scope: layer.Thread, Placement: layer.Live, Budget: layer.Between(tokens, tokens), Impl: s}
	}
	for budget, want := range map[float64]string{
		100: "u:first a:1 u:2 s:" + strings.Repeat("x", 28),
		61:  "a:1 u:2 s:" + strings.Repeat("x", 28) + " s:told",
	} {
		p, err := pipeline.New([]pipeline.Layer{at("large", 1, 28, large), at("teller", 2, 4, teller)}, pipeline.Options{
			Policy: view.Policy{Budget: budget, Overflow: view.OverflowTruncate},
			Count:  func(_, text string) int { return len(text) }, CountItem: func(string, wire.Item) int { return 10 },
		})
		if err != nil {
			t.Fatal(err)
		}
		l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p}})
		if got := told(t, l.begin(memory.Call{}, "u:first a:1 u:2").View); got != want {
			t.Errorf("with %v tokens: %s, want %s", budget, got, want)
		}
	}
}

// TestItemsThatAPinnedBlockPushesOut: for the prompt cache, an earlier block of a layer stays, with an update after the history.
// Both take room. If an item no longer fits because of that, the layers that repeat what the view lacks repeat it.
func TestItemsThatAPinnedBlockPushesOut(t *testing.T) {
	t.Parallel()
	changing := spoken(func(t *layer.Turn) string {
		if t.Query == "2" {
			return strings.Repeat("x", 28)
		}
		return "y"
	})
	first := wire.NewMessage(dialects.Chat, wire.User, "first").ContentHash()
	teller := spoken(func(t *layer.Turn) string {
		if t.InView != nil && t.InView(first) {
			return ""
		}
		return "told"
	})
	at := func(id string, slot int, tokens float64, placement layer.Placement, s spoken) pipeline.Layer {
		return pipeline.Layer{ID: id, Slot: slot, Scope: layer.Thread, Placement: placement, Budget: layer.Between(tokens, tokens), Impl: s}
	}
	layers := []pipeline.Layer{at("changing", 1, 28, layer.Anchored, changing), at("teller", 2, 4, layer.Live, teller)}
	cache := view.DefaultPromptCache()
	cache.DeltaBudgetFraction = 100
	for budget, want := range map[float64]string{170: "s:told", 190: "s:told", 210: "u:first"} {
		p, err := pipeline.New(layers, pipeline.Options{
			Policy: view.Policy{Budget: budget, Overflow: view.OverflowTruncate},
			Count:  func(_, text string) int { return len(text) }, CountItem: func(string, wire.Item) int { return 10 },
		})
		if err != nil {
			t.Fatal(err)
		}
		l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p, PromptCache: &cache}})
		l.turn("u:first a:1 u:2", "a:2")
		view := told(t, l.begin(memory.Call{}, "u:first a:1 u:2 a:2 u:3").View)
		for _, one := range []string{"u:first", "s:told"} {
			if strings.Contains(view, one) != (one == want) {
				t.Errorf("with %v tokens: %s, want %s", budget, view, want)
			}
		}
	}
}
