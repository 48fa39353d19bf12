package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/taskstate"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
)

// archivist keeps what fell out of views.
type archivist struct{}

func (archivist) Evicted(_ context.Context, _ *layer.Turn, s layer.State, items []wire.Item) (layer.State, error) {
	var all []string
	if len(s) > 0 {
		if err := json.Unmarshal(s, &all); err != nil {
			return nil, err
		}
	}
	for _, it := range items {
		all = append(all, it.Text())
	}
	return json.Marshal(all)
}

// keepers are options with session values. model is the model that summarises.
func keepers(t *testing.T, model *narrator) map[string]memory.Options {
	t.Helper()
	evicts := tokenWindow()
	evicts.Layers = layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: archivist{}})
	cut := tokenWindow()
	cut.Layers = layersOf(t, at(1, &witness{name: "w"}))
	return map[string]memory.Options{
		"told":    {Shape: evicts},
		"cut":     {Shape: cut},
		"summary": summarizing(t, 6, model.Bind, nil),
		"prefix":  parrots(t),
		"evictions by a window of items": {Shape: memory.Shape{
			Window: &view.Window{MaxItems: 3, EvictBatch: 2, InFlight: view.InFlightKeep}, Layers: evicts.Layers,
		}},
	}
}

// saga plays ten turns of one session, and returns what the model saw and the values stored at the end: summary, cut,
// evictions seen, and the state of that layer. meanwhile is called when a turn has begun, and again when it is
// committed.
func saga(t *testing.T, o memory.Options, meanwhile func(l *lab, store *sluggish, turn int, committed bool)) []string {
	t.Helper()
	var trace []string
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store := &sluggish{Store: mem}
		l := &lab{t: t, store: store, m: memory.New(store, &queue{}, o)}
		words := "u:hi a:" + strings.Repeat("long", 500) // beside which updates are small
		for i := range 10 {
			time.Sleep(time.Second) // longer than a store that failed is left alone
			words += fmt.Sprintf(" u:%d", i)
			turn := l.begin(memory.Call{}, words)
			trace = append(trace, told(t, turn.View))
			meanwhile(l, store, i, false)
			reply := fmt.Sprintf("a:%d", i)
			turn.Commit(answer(t, reply))
			words += " " + reply
			meanwhile(l, store, i, true)
		}
		synctest.Wait()
		l.m.Close()
		group := cache.Group{Owner: "tenant", Name: "s:session"}
		names := []string{"s", "c", "w", "la"}
		r, err := mem.Read(t.Context(), []cache.Query{{Group: group, Names: names}})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range r[0].Values {
			trace = append(trace, names[i]+" = "+string(v))
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
	return trace
}

// TestWhatASessionKeepsOutlivesAnOutage: a store that is away while an answer comes changes nothing of the views that
// follow, layers are told once of what falls out of them, and nothing is summarised twice.
func TestWhatASessionKeepsOutlivesAnOutage(t *testing.T) {
	for name := range keepers(t, nil) {
		t.Run(name, func(t *testing.T) {
			play := func(without ...int) []string {
				model := &narrator{}
				trace := saga(t, keepers(t, model)[name], func(_ *lab, store *sluggish, turn int, committed bool) {
					if slices.Contains(without, turn) {
						store.set(!committed, "")
					}
				})
				return append(trace, model.asked...)
			}
			want := play()
			for _, turn := range []int{0, 3, 6} {
				if diff := cmp.Diff(want, play(turn)); diff != "" {
					t.Errorf("an outage at turn %d is seen (-without +with)\n%s", turn, diff)
				}
			}
		})
	}
}

// TestLateReplayOverwritesNothing: the session values are those of its latest turn, even if an earlier one waits in the
// spool of another process.
func TestLateReplayOverwritesNothing(t *testing.T) {
	for name := range keepers(t, nil) {
		t.Run(name, func(t *testing.T) {
			play := func(late int) []string {
				model := &narrator{}
				var here, there *memory.Memory
				return saga(t, keepers(t, model)[name], func(l *lab, store *sluggish, turn int, committed bool) {
					switch {
					case turn == late && !committed:
						store.set(true, "")
						here, there = l.m, memory.New(store.Store, &queue{}, keepers(t, model)[name])
						l.m = there
					case turn == 9 && committed && here != nil:
						store.set(false, "")
						time.Sleep(time.Minute)
						l.m = here
						there.Close()
					}
				})
			}
			want, got := play(-1), play(4)
			if diff := cmp.Diff(want[9:13], got[9:13]); diff != "" {
				t.Errorf("(-in time +late)\n%s", diff)
			}
		})
	}
}

// TestSeenEvictionsAreNotKeptWithoutTheirLayers: a process that ends before the store is back loses what its layers learned of what
// fell out of a view, so that the next one tells them again.
func TestSeenEvictionsAreNotKeptWithoutTheirLayers(t *testing.T) {
	o := keepers(t, nil)["told"]
	play := func(restart bool) []string {
		disk := &queue{}
		return saga(t, o, func(l *lab, store *sluggish, turn int, committed bool) {
			switch {
			case turn == 0 && !committed:
				l.m.Close()
				l.m = memory.New(store, disk, o)
			case restart && turn == 3:
				store.set(!committed, "")
				if committed {
					store.set(true, "")
					l.m.Close()
					store.set(false, "")
					l.m = memory.New(store, disk, o)
				}
			}
		})
	}
	if diff := cmp.Diff(play(false), play(true)); diff != "" {
		t.Errorf("(-one process +two processes)\n%s", diff)
	}
}

// TestCompletionCountsOnce: a child session that is completed again has nothing new to give to its parent.
func TestCompletionCountsOnce(t *testing.T) {
	impl, err := taskstate.New(taskstate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, memory.Options{Shape: memory.Shape{
		Layers: layersOf(t, pipeline.Layer{ID: "task", Kind: "task_state", Scope: layer.Thread, Impl: impl}),
	}})
	child := in("child", "")
	child.Scope.Parent = "parent"
	marks := func() int {
		t.Helper()
		r, err := l.store.Read(t.Context(), []cache.Query{{Group: in("parent", "").Scope.Group(), Names: []string{"ltask"}}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(r[0].Values[0]), "timestamp")
	}
	l.turnOf(in("parent", ""), "u:hi", "a:hello")
	l.turnOf(child, "u:do", "c:x") // waits for a tool: not complete
	want := 1
	for _, end := range []struct {
		words string
		gains int
	}{{"", 1}, {"", 0}, {"r:x", 1}, {"", 0}} {
		if end.words != "" {
			l.turnOf(child, "u:do c:x "+end.words, "c:y")
		}
		if err := l.m.Complete(t.Context(), child.Scope, true); err != nil {
			t.Fatal(err)
		}
		if want += end.gains; marks() != want {
			t.Errorf("the parent has %d checkpoints, want %d", marks(), want)
		}
	}
}

// TestValuesAreReadAgainWhileLayersLearn: another process has written the session when a turn writes its input, which reads the
// session values again. Meanwhile the answer ends, and layers learn what has fallen out of the view. It is for the race detector.
func TestValuesAreReadAgainWhileLayersLearn(t *testing.T) {
	t.Parallel()
	o := patient(keepers(t, nil)["told"])
	o.OpenDelay = 100 * time.Millisecond
	other := newLab(t, o)
	at, may := make(chan struct{}), make(chan struct{}) // the input of a turn is about to be written
	store := &tapped{Store: other.store, onCommit: func(_ context.Context, b []cache.Batch) error {
		if slices.ContainsFunc(b[0].Puts, func(p cache.Put) bool {
			return strings.HasPrefix(p.Name, "t") && strings.Contains(string(p.Data), `"open":true`)
		}) {
			select {
			case at <- struct{}{}:
				<-may
			default: // it is tried again
			}
		}
		return nil
	}}
	l := &lab{t: t, store: store, m: memory.New(store, nil, o)}
	defer l.m.Close()

	words := "u:hi a:" + strings.Repeat("long", 500)
	for i := range 10 {
		words += fmt.Sprintf(" u:%d", i)
		turn := l.begin(memory.Call{}, words)
		other.turnOf(memory.Call{Side: "title"}, "u:title?", "a:title")
		turn.Forwarded()
		<-at
		may <- struct{}{}
		reply := fmt.Sprintf("a:%d", i)
		turn.Commit(answer(t, reply))
		words += " " + reply
	}
}
