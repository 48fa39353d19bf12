package pipeline

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/wire"
)

// forgetful keeps what fell out of views as its state.
type forgetful struct{ fault error }

func (f forgetful) Evicted(_ ctx, t *layer.Turn, s layer.State, items []wire.Item) (layer.State, error) {
	t.Note("evicted", len(items))
	next := append(slices.Clip(s), "1"...)
	clear(items) // its own
	return next, f.fault
}

// TestEvict: layers without a model get what was evicted at once, those with one later, and an empty list reaches none.
func TestEvict(t *testing.T) {
	slow := at("c", 3, forgetful{})
	slow.Model = model{}.Bind
	r := start(t, Options{}, at("a", 1, forgetful{}), at("b", 2, forgetful{errors.New("secret words")}), slow, at("d", 4, says("x")))
	items := []wire.Item{user("x"), user("y")}
	if !r.Settles(items) || r.Settles(nil) {
		t.Error("a slow layer wants what is evicted")
	}
	r.Evict(t.Context(), nil)
	if r.Changes() != nil {
		t.Error("layers were told of nothing")
	}
	r.Evict(t.Context(), items)
	cell := func(id string) Cell { return Cell{id, layer.Thread, "s"} }
	want := []Change{{cell("a"), layer.State("1")}, {cell("b"), layer.State("1")}}
	if diff := cmp.Diff(want, r.Changes()); diff != "" {
		t.Errorf("what is kept, in spite of an error too: %s", diff)
	}
	r.Settle(t.Context(), nil, items)()
	if diff := cmp.Diff(append(want, Change{cell("c"), layer.State("1")}), r.Changes()); diff != "" {
		t.Error(diff)
	}
	if texts(items) != "x y" {
		t.Error("a layer changed what it was given")
	}
	reports := r.Report()
	if b := reports[1]; b.Failed != layer.HookEvicted || b.Class != ClassError || reports[0].Failed != "" {
		t.Errorf("%+v", reports)
	}
	if diff := cmp.Diff(map[string]any{"evicted": 2}, reports[2].Notes); diff != "" {
		t.Error(diff)
	}
	if start(t, Options{}, at("d", 4, says("x"))).Settles(items) {
		t.Error("somebody wants to know who has no such hook")
	}
}

func TestNotes(t *testing.T) {
	r := start(t, Options{}, at("a", 1, says("x")))
	note := r.layers[0].turn.Note
	note("text", "a")
	note("text", "b")
	note("number", 0.5)
	for _, odd := range []any{math.NaN(), math.Inf(1), string(make([]byte, longestNote+1)), []int{1}, nil} {
		note("odd", odd)
	}
	note(string(make([]byte, longestNote+1)), true)
	if diff := cmp.Diff(map[string]any{"text": "b", "number": 0.5}, r.Report()[0].Notes); diff != "" {
		t.Error(diff)
	}
	for i := range 2 * maxNotes {
		note(string(rune('a'+i)), i)
	}
	note("text", "c")
	if notes := r.Report()[0].Notes; len(notes) != maxNotes || notes["text"] != "c" {
		t.Errorf("%d notes: %v", len(notes), notes)
	}
}

// projector takes down what it knows of the view.
type projector struct{ overhead, cost *int }

func (p projector) ProjectHistory(_ ctx, t *layer.Turn, _ layer.State, history []wire.Item) ([]wire.Item, error) {
	*p.overhead, *p.cost = t.Overhead, t.CountItem(history[0])
	return history, nil
}

func TestProjectorsKnowTheView(t *testing.T) {
	var overhead, cost int
	o := Options{
		Count:     func(model, _ string) int { return len(model) },
		CountItem: func(model string, _ wire.Item) int { return 10 * len(model) },
	}
	r := start(t, o, at("a", 1, says("x", "y")), at("b", 2, projector{&overhead, &cost}))
	r.Recall(t.Context(), 100)
	r.Project(t.Context(), []wire.Item{user("x")}, func() int { return 100 }, 0, math.MaxInt)
	n := len(r.turn.Model)
	if overhead != 100+2*n+2*4 || cost != 10*n {
		t.Errorf("overhead %d, cost %d", overhead, cost)
	}
}
