package memory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// witness has every hook, and notes in which order they are called and with what.
type witness struct {
	mu       sync.Mutex
	name     string
	called   []string
	appended []string // texts of the items that the append hook got
	fails    error    // of Store
}

func (w *witness) note(hook string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called = append(w.called, hook)
}

func (w *witness) Init(_ context.Context, _ *layer.Turn, s layer.State) (layer.State, error) {
	w.note("init")
	return s, nil
}

func (w *witness) AppendItems(_ context.Context, _ *layer.Turn, s layer.State, items []wire.Item) (layer.Appended, error) {
	w.note("on_item_append")
	for _, it := range items {
		w.appended = append(w.appended, it.Text())
	}
	return layer.Appended{Items: items, State: s}, nil
}

func (w *witness) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	w.note("recall")
	return layer.Recalled{Messages: []string{"block of " + w.name}}, nil
}

func (w *witness) ProjectHistory(_ context.Context, _ *layer.Turn, _ layer.State, h []wire.Item) ([]wire.Item, error) {
	w.note("project_history")
	return h, nil
}

func (w *witness) ReviewResponse(context.Context, *layer.Turn, layer.State, *layer.Response) (layer.Verdict, error) {
	w.note("after_model_call")
	return layer.Verdict{}, nil
}

func (w *witness) Store(_ context.Context, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
	w.note("store")
	return s, w.fails
}

func (w *witness) Complete(_ context.Context, _ *layer.Turn, s layer.State, _ layer.Outcome) (layer.State, error) {
	w.note("on_complete")
	return s, nil
}

func (w *witness) Dispose(context.Context, *layer.Turn, layer.State) error {
	w.note("dispose")
	return nil
}

func at(slot int, w *witness) pipeline.Layer {
	return pipeline.Layer{ID: w.name, Kind: "test", Slot: slot, Scope: layer.Thread, Impl: w}
}

// TestHookOrder: hooks run in the order of a turn, and an append hook never sees what the model said.
func TestHookOrder(t *testing.T) {
	t.Parallel()
	w := &witness{name: "w"}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, at(1, w))}})
	c := in("one", "")
	turn := l.begin(c, "u:hello")
	w.note("call")
	last := answer(t, "a:hi")
	turn.Review(t.Context(), last.Reply)
	turn.Commit(last)
	want := []string{"init", "on_item_append", "recall", "project_history", "call", "after_model_call", "store", "on_complete"}
	if diff := cmp.Diff(want, w.called); diff != "" {
		t.Errorf("hooks of a turn (-want +got)\n%s", diff)
	}
	l.turnOf(c, "u:hello a:hi u:again", "a:ok")
	if diff := cmp.Diff([]string{"hello", "again"}, w.appended); diff != "" {
		t.Errorf("the append hook got (-want +got)\n%s", diff)
	}
	w.called = nil
	if err := l.m.Delete(t.Context(), c.Scope); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"init", "dispose"}, w.called); diff != "" {
		t.Errorf("hooks of a deleted session (-want +got)\n%s", diff)
	}
}

// TestViewOrder: first the system prompt, then layers by slot and, within one, as they were configured, then the history.
// Blocks are developer messages, which Chat clients that write none get as system ones.
func TestViewOrder(t *testing.T) {
	t.Parallel()
	var list []pipeline.Layer
	for _, l := range []struct {
		slot int
		name string
	}{{200, "f"}, {90, "b"}, {105, "e"}, {80, "a"}, {100, "c"}, {350, "g"}, {100, "d"}} {
		list = append(list, at(l.slot, &witness{name: l.name}))
	}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, list...)}})
	view := l.turnOf(in("one", ""), "s:be u:hello", "a:hi")
	blocks := "s:block of a s:block of b s:block of c s:block of d s:block of e s:block of f s:block of g"
	if want := "s:be " + blocks + " u:hello"; view != want {
		t.Errorf("view\n%s, want\n%s", view, want)
	}
	view = l.turnOf(in("two", ""), "d:be u:hello", "a:hi")
	if want := "d:be " + strings.ReplaceAll(blocks, "s:", "d:") + " u:hello"; view != want {
		t.Errorf("view\n%s, want\n%s", view, want)
	}
	req := wiretest.Request(t, dialects.Responses, `{"model":"m","input":"hello"}`)
	c := in("three", "")
	c.Request = req
	turn, err := l.m.Begin(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	turn.Commit(memory.Answer{HTTPStatus: 200})
	if it := turn.View[0]; it.Role != wire.Developer || it.Text() != "block of a" {
		t.Errorf("the first item of a Responses view is %s", it.Raw)
	}
}

// TestFailedStoreIsTold: the answer is unaffected, and the operator reads which layer failed.
func TestFailedStoreIsTold(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p, err := pipeline.New([]pipeline.Layer{at(1, &witness{name: "broken", fails: errors.New("secret content")})},
		pipeline.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p}})
	if view := l.turnOf(in("one", ""), "u:hello", "a:hi"); view != "s:block of broken u:hello" {
		t.Errorf("view %s", view)
	}
	if text := log.String(); !strings.Contains(text, "layer=broken") || !strings.Contains(text, "hook=store") || strings.Contains(text, "secret") {
		t.Errorf("log: %s", text)
	}
}

// TestBlockWithoutRoomIsTold: a layer that the view has no room for is named, in X-Memory and in the turn's record.
func TestBlockWithoutRoomIsTold(t *testing.T) {
	t.Parallel()
	wide := &witness{name: strings.Repeat("w", 40)}
	p, err := pipeline.New([]pipeline.Layer{at(1, wide), at(2, &witness{name: "n"})}, pipeline.Options{Policy: view.Policy{Budget: 45}})
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p}})
	turn := l.begin(in("one", ""), "u:"+strings.Repeat("x", 60))
	turn.Commit(answer(t, "a:hi"))
	if got := strings.Join(turn.Summary.Skipped, " "); got != "n:no_room" || turn.Summary.Status != memory.StatusOK {
		t.Errorf("skipped %q, status %s", got, turn.Summary.Status)
	}
	record, err := l.m.TurnRecord(t.Context(), in("one", "").Scope, turn.ID)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Layers []struct {
			ID, Error     string
			Tokens, Items int
		}
		View struct{ Tokens struct{ Layers, Total int } }
	}
	if err := json.Unmarshal(record, &got); err != nil {
		t.Fatal(err)
	}
	if b, a := got.Layers[0], got.Layers[1]; a.Error != "no_room" || a.Tokens != 0 || b.Error != "" || b.Tokens != got.View.Tokens.Layers || b.Items != 1 {
		t.Errorf("the record says %s", record)
	}
}

// starved is a layer whose share of the tokens is too small for what it has to say.
type starved struct{ needs int }

func (s starved) Recall(_ context.Context, _ *layer.Turn, _ layer.State, budget int) (layer.Recalled, error) {
	if budget < s.needs {
		return layer.Recalled{NoRoom: true}, nil
	}
	return layer.Recalled{Messages: []string{"said"}}, nil
}

// TestStarvedLayerIsTold: a layer that has something to say and gets too few tokens for any of it is named, and one that has
// enough is not.
func TestStarvedLayerIsTold(t *testing.T) {
	t.Parallel()
	for needs, want := range map[int]string{1: "", 1 << 20: "n:no_room"} {
		p, err := pipeline.New([]pipeline.Layer{{ID: "n", Kind: "test", Slot: 1, Scope: layer.Thread, Budget: layer.AtMost(100), Impl: starved{needs}}}, pipeline.Options{Policy: view.Policy{Budget: 2000}})
		if err != nil {
			t.Fatal(err)
		}
		l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p}})
		turn := l.begin(in("one", ""), "u:hello")
		turn.Commit(answer(t, "a:hi"))
		if got := strings.Join(turn.Summary.Skipped, " "); got != want || turn.Summary.Status != memory.StatusOK {
			t.Errorf("needs %d: skipped %q, status %s", needs, got, turn.Summary.Status)
		}
		record, err := l.m.TurnRecord(t.Context(), in("one", "").Scope, turn.ID)
		if told := strings.Contains(string(record), `"error":"no_room"`); err != nil || told != (want != "") {
			t.Errorf("needs %d: the record says %s, %v", needs, record, err)
		}
	}
}

// TestFailedLayerDegradesTheTurn: a layer that fails before the call leaves a turn that says so, and is stored like any.
func TestFailedLayerDegradesTheTurn(t *testing.T) {
	t.Parallel()
	p, err := pipeline.New([]pipeline.Layer{{ID: "mute", Kind: "test", Slot: 1, Scope: layer.Thread, Impl: mute{}}, at(2, &witness{name: "n"})}, pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p}})
	turn := l.begin(in("one", ""), "u:hello")
	if s := turn.Summary; s.Status != memory.StatusDegraded || strings.Join(s.Skipped, " ") != "mute:recall" || s.Sent != 1 {
		t.Errorf("%+v", s)
	}
	turn.Commit(answer(t, "a:hi"))
	record, err := l.m.TurnRecord(t.Context(), in("one", "").Scope, turn.ID)
	if err != nil || strings.Contains(string(record), `"degraded"`) || !strings.Contains(string(record), `"recall: error"`) {
		t.Errorf("the record says %s, %v", record, err)
	}
	next := in("one", "")
	next.History = memory.HistoryServer
	again := l.begin(next, "u:more")
	l.wantView(told(t, again.View), "s:block of n u:hello a:hi u:more")
	again.Commit(answer(t, "a:yes"))
}

// mute is a layer whose recall fails.
type mute struct{}

func (mute) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	return layer.Recalled{}, errors.New("nothing comes to mind")
}
