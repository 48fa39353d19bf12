package memory_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
)

// chooser notes what history it was given, and leaves out the messages of one text.
type chooser struct {
	t     *testing.T
	drop  string
	given *[]string
}

func (c chooser) ProjectHistory(_ context.Context, _ *layer.Turn, _ layer.State, history []wire.Item) ([]wire.Item, error) {
	*c.given = append(*c.given, told(c.t, history))
	var kept []wire.Item
	for _, it := range history {
		if it.Text() != c.drop {
			kept = append(kept, it)
		}
	}
	return kept, nil
}

// TestWindowHasASlot: the window cuts what layers of lower slots leave, and those after it choose of what it leaves, whether
// the history is sent or stored. Without a slot it is behind all.
func TestWindowHasASlot(t *testing.T) {
	const history = "u:1 a:1 u:2 a:2 u:3 a:3 u:4"
	for _, c := range []struct {
		name        string
		slot        int
		early, late string // what the layers are given
		view, next  string // of a request that resends its history, and of one that sends the next message alone
		windowed    int
	}{
		{"without", 0, history, "u:2 a:2 u:3 a:3 u:4", "u:2 a:2 u:4", "a:2 u:4 a:4 u:5", 4},
		{"between them", 275, history, "a:2 u:3 a:3 u:4", "a:2 u:4", "u:4 a:4 u:5", 5},
		{"before both", 50, "a:2 u:3 a:3 u:4", "a:2 u:3 a:3 u:4", "a:2 u:4", "u:4 a:4 u:5", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			var early, late []string
			o := memory.Options{Shape: memory.Shape{
				Layers: layersOf(t,
					pipeline.Layer{ID: "early", Kind: "test", Slot: 100, Scope: layer.Thread, Impl: chooser{t, "1", &early}},
					pipeline.Layer{ID: "late", Kind: "test", Slot: 500, Scope: layer.Thread, Impl: chooser{t, "3", &late}}),
				Window: &view.Window{MaxItems: 4, EvictBatch: 1, InFlight: view.InFlightKeep, Slot: c.slot},
			}}
			l := newLab(t, o)
			turn := l.begin(memory.Call{}, history)
			if got := told(t, turn.View); got != c.view {
				t.Errorf("view %q, want %q", got, c.view)
			}
			if d := cmp.Diff([]string{c.early, c.late}, []string{early[0], late[0]}); d != "" {
				t.Errorf("the layers are given (-want +got):\n%s", d)
			}
			if s := turn.Summary; s.Windowed != c.windowed || s.Items != 7 {
				t.Errorf("%d of %d items are left out, want %d of 7", s.Windowed, s.Items, c.windowed)
			}
			turn.Commit(answer(t, "a:4"))
			l.wantTranscript(history+" a:4", 8)

			turn = l.begin(memory.Call{History: memory.HistoryServer}, "u:5")
			if got := told(t, turn.View); got != c.next || turn.Summary.Items != 9 {
				t.Errorf("view %q of %d items, want %q of 9", got, turn.Summary.Items, c.next)
			}
		})
	}
}
