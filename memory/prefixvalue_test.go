package memory_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/filereference"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
)

// tokenWindow is a window by tokens where every item costs one.
func tokenWindow() memory.Shape {
	return memory.Shape{
		Window: &view.Window{MaxTokens: 4, EvictShare: 0.5, InFlight: view.InFlightKeep},
		Price:  func(string, wire.Item) int { return 1 },
	}
}

// TestTokenWindowWithoutSession: where layers only judge the answer, no cut is known, and the window is cut anew.
func TestTokenWindowWithoutSession(t *testing.T) {
	o := coached(t)
	layers := o.Layers
	o.Shape = tokenWindow()
	o.Layers = layers
	const long = "u:1 a:2 u:3 a:4 u:5 a:6 u:7"
	t.Run("side request", func(t *testing.T) {
		l := newLab(t, o)
		l.turn("s:be u:hi", "a:ho")
		turn := l.begin(memory.Call{Side: "title"}, long)
		if got := told(t, turn.View); got != long {
			t.Errorf("view %s", got)
		}
		turn.Commit(answer(t, "a:ok"))
	})
	t.Run("store down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mem, err := stores.Open("memory:", cache.Options{})
			if err != nil {
				t.Fatal(err)
			}
			l := &lab{t: t, store: &sluggish{Store: mem, down: true}}
			l.m = memory.New(l.store, nil, o)
			turn := l.begin(memory.Call{}, long)
			if got, want := told(t, turn.View), "a:6 u:7"; got != want || turn.Summary.Status != memory.StatusDegraded {
				t.Errorf("view %s, status %s, want %s", got, turn.Summary.Status, want)
			}
			turn.Commit(answer(t, "a:ok"))
			l.m.Close()
			if err := mem.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

// parrot recalls whose request it is and what it asks.
type parrot struct{}

func (parrot) Recall(_ context.Context, t *layer.Turn, _ layer.State, _ int) (layer.Recalled, error) {
	return layer.Recalled{Messages: []string{t.Resource + "-asks-" + t.Query}}, nil
}

// parrots are one in front of the history and one after it, with a pinned prefix.
func parrots(t *testing.T) memory.Options {
	t.Helper()
	c := view.DefaultPromptCache()
	c.DeltaBudgetFraction = 1
	return memory.Options{Shape: memory.Shape{PromptCache: &c, Layers: layersOf(t,
		pipeline.Layer{ID: "front", Kind: "test", Slot: 100, Scope: layer.Resource, Impl: parrot{}},
		pipeline.Layer{ID: "back", Kind: "test", Slot: 200, Scope: layer.Resource, Placement: layer.AutoLive, Impl: parrot{}})}}
}

// TestPrefixOfAnotherResource: what was pinned for one resource is not shown to another that shares the session.
func TestPrefixOfAnotherResource(t *testing.T) {
	l := newLab(t, parrots(t))
	begun := "u:hi a:" + strings.Repeat("long", 500) + " u:so" // beside which updates are small
	l.turnOf(in("one", "ada"), begun, "a:what")
	for _, words := range []string{begun + " c:x r:x", begun + " a:what u:now"} {
		if view := l.turnOf(in("one", "ben"), words, "a:ok"); strings.Contains(view, "ada-asks") {
			t.Errorf("ben's request has %s", view)
		}
	}
}

// TestRunOfAnEditedMessage: an edited question is another run, also where a client has one name for all its runs.
func TestRunOfAnEditedMessage(t *testing.T) {
	l := newLab(t, parrots(t))
	c := in("one", "ada")
	c.Scope.Execution = "run"
	begun := "u:hi a:" + strings.Repeat("long", 500)
	l.turnOf(c, begun+" u:tea", "a:green")
	for _, words := range []string{" u:coffee", " u:coffee c:x r:x", " u:coffee c:x r:x c:y r:y"} {
		if view := l.turnOf(c, begun+words, "a:black"); !strings.HasSuffix(view, words) && strings.Count(view, "asks-coffee") == 0 ||
			strings.Contains(view[strings.Index(view, begun):], "asks-tea") {
			t.Errorf("%s: view %s", words, view)
		}
	}
}

// TestPrefixEndsWithAPause: what a provider has forgotten need not be kept as it was. The pause is that since the session's last
// turn.
func TestPrefixEndsWithAPause(t *testing.T) {
	o, now := parrots(t), time.Unix(1_700_000_000, 0)
	o.Now = func() time.Time { return now }
	l := newLab(t, o)
	begun := "u:hi a:" + strings.Repeat("long", 500)
	l.turn(begun+" u:1", "a:1")
	for _, c := range []struct {
		pause time.Duration
		words string
		want  string
	}{{9 * time.Minute, " u:1 a:1 u:2", ""}, {10 * time.Minute, " u:1 a:1 u:2 a:ok u:3", "idle"}} {
		now = now.Add(c.pause)
		turn := l.begin(memory.Call{}, begun+c.words)
		turn.Commit(answer(t, "a:ok"))
		for _, record := range l.records() {
			if record.ID == turn.ID && record.View.PrefixReason != c.want {
				t.Errorf("after %s: a prefix version began because of %q, want %q", c.pause, record.View.PrefixReason, c.want)
			}
		}
	}
}

// TestPrefixOutlivesAPause: a client may ask for a cache that lasts a day.
func TestPrefixOutlivesAPause(t *testing.T) {
	o, now := parrots(t), time.Unix(1_700_000_000, 0)
	o.Now = func() time.Time { return now }
	l := newLab(t, o)
	long := strings.Repeat("long", 500)
	for _, c := range []struct {
		pause time.Duration
		want  string
	}{{0, "cold-start"}, {23 * time.Hour, ""}, {24 * time.Hour, "idle"}} {
		now = now.Add(c.pause)
		turn := l.beginBody(memory.Call{}, []byte(`{"model":"m","prompt_cache_retention":"24h","messages":[{"role":"user","content":"`+long+c.pause.String()+`"}]}`))
		turn.Commit(answer(t, "a:ok"))
		for _, record := range l.records() {
			if record.ID == turn.ID && record.View.PrefixReason != c.want {
				t.Errorf("after %s: a prefix version began because of %q, want %q", c.pause, record.View.PrefixReason, c.want)
			}
		}
	}
}

// TestWindowKeepsToWhatUpstreamTakes: a refusal has shown that the model takes less than the window's limit.
func TestWindowKeepsToWhatUpstreamTakes(t *testing.T) {
	l := newLab(t, memory.Options{Shape: tokenWindow()})
	l.turn("u:1", "a:2")
	l.turn("u:3", "a:4")
	if got, want := l.turnOf(memory.Call{MaxTokens: 2}, "u:5", "a:6"), "u:5"; got != want {
		t.Errorf("with 2 tokens at most: view %s, want %s", got, want)
	}
	if got, want := l.turn("u:7", "a:8"), "a:6 u:7"; got != want {
		t.Errorf("afterwards: view %s, want %s", got, want)
	}
}

// Asking for a model's context length may have its provider asked for a list of models: only a share needs it.
func TestContextIsAskedForAShareAlone(t *testing.T) {
	for _, share := range []float64{0, 0.5} {
		asked := 0
		shape := tokenWindow()
		shape.Window.MaxShare = share
		shape.Context = func(string) int { asked++; return 8 }
		newLab(t, memory.Options{Shape: shape}).turn("u:hi", "a:ho")
		if (asked > 0) != (share > 0) {
			t.Errorf("share %v: asked %d times", share, asked)
		}
	}
}

// recallCounter counts how often it is asked.
type recallCounter struct{ times *int }

func (c recallCounter) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	*c.times++
	return layer.Recalled{Messages: []string{"asked"}}, nil
}

// TestLiveLayersAreAskedOnceInARun: also where a layer leaves out what stands before the run.
func TestLiveLayersAreAskedOnceInARun(t *testing.T) {
	c := view.DefaultPromptCache()
	times := 0
	l := newLab(t, memory.Options{Shape: memory.Shape{PromptCache: &c, Layers: layersOf(t,
		pipeline.Layer{ID: "choice", Kind: "test", Slot: 100, Scope: layer.Thread, Impl: chooser{t, "2", new([]string)}},
		pipeline.Layer{ID: "back", Kind: "test", Slot: 200, Scope: layer.Thread, Placement: layer.AutoLive, Impl: recallCounter{&times}})}})
	history := "u:1 a:2 u:3"
	for _, words := range []string{"", " c:x r:x", " c:y r:y"} {
		history += words
		l.turn(history, "a:ok")
	}
	if times != 1 {
		t.Errorf("the layer was asked %d times", times)
	}
}

// rereader is a recallCounter that says how often it was asked. It wants to be asked again once there are results.
type rereader struct{ recallCounter }

func (r rereader) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	*r.times++
	return layer.Recalled{Messages: []string{fmt.Sprintf("<asked>%d</asked>", *r.times)}}, nil
}

func (r rereader) AppendItems(_ context.Context, _ *layer.Turn, _ layer.State, items []wire.Item) (layer.Appended, error) {
	results := slices.ContainsFunc(items, func(it wire.Item) bool { return it.Kind == wire.ToolResult })
	return layer.Appended{Items: items, Rerender: results}, nil
}

// TestRerenderWithinALoop: the model gets the new block of a layer that asks for another recall, and not the one from the beginning
// of the loop.
func TestRerenderWithinALoop(t *testing.T) {
	for _, placement := range []layer.Placement{layer.Live, layer.Anchored} {
		c := view.DefaultPromptCache()
		l := newLab(t, memory.Options{Shape: memory.Shape{PromptCache: &c, Layers: layersOf(t,
			pipeline.Layer{ID: "back", Kind: "test", Scope: layer.Thread, Placement: placement, Impl: rereader{recallCounter{new(int)}}})}})
		var sent []string
		for _, words := range []string{"u:1", "u:1 c:x r:x"} {
			turn := l.begin(memory.Call{}, words)
			sent = raws(turn.View)
			turn.Commit(answer(t, "c:x"))
		}
		shows := func(text string) int {
			return len(slices.DeleteFunc(slices.Clone(sent), func(raw string) bool { return !strings.Contains(raw, text) }))
		}
		if shows("asked>2") != 1 || placement == layer.Live && shows("asked>1") != 0 {
			t.Errorf("placement %d: %q", placement, sent)
		}
	}
}

// TestFileThatChangesInALoop: while the model calls tools, it reads a referenced file as it is now, where its block stands after the
// history too.
func TestFileThatChangesInALoop(t *testing.T) {
	t.Parallel()
	for _, placement := range []layer.Placement{layer.Anchored, layer.Live} {
		dir := t.TempDir()
		write := func(text string) {
			if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files, err := filereference.New(filereference.Options{BaseDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		config := view.DefaultPromptCache()
		l := newLab(t, memory.Options{Shape: memory.Shape{PromptCache: &config, Layers: layersOf(t,
			pipeline.Layer{ID: "f", Scope: layer.Thread, Placement: placement, Impl: files})}})
		write("as it was")
		l.turn("u:#a.md", "c:x")
		write("as it is now")
		if got := told(t, l.begin(memory.Call{}, "u:#a.md c:x r:x").View); !strings.Contains(got, "as it is now") || placement == layer.Live && strings.Contains(got, "as it was") {
			t.Errorf("placement %v: %s", placement, got)
		}
	}
}
