package memory_test

import (
	"context"
	"strings"
	"testing"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/wire"
)

// coach never likes what the model says.
type coach struct{}

func (coach) ReviewResponse(_ context.Context, _ *layer.Turn, _ layer.State, r *layer.Response) (layer.Verdict, error) {
	if r.Text == "" {
		return layer.Verdict{}, nil
	}
	return layer.Verdict{Action: layer.Guide, Guidance: "shorter"}, nil
}

// coached is a pipeline with a coach and a tool of a layer.
func coached(t *testing.T) memory.Options {
	t.Helper()
	return memory.Options{Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Thread),
		pipeline.Layer{ID: "coach", Kind: "test", Slot: 300, Scope: layer.Thread, Impl: coach{}})}}
}

// TestAdviceIsToldAsBlocksAre: many servers of Chat Completions know no developer messages.
func TestAdviceIsToldAsBlocksAre(t *testing.T) {
	t.Parallel()
	l := newLab(t, coached(t))
	for words, role := range map[string]string{"u:hi": "s", "s:be u:hi": "s", "d:be u:hi": "d"} {
		turn := l.begin(memory.Call{}, words)
		next := turn.Review(t.Context(), answer(t, "a:long").Reply)
		if view := told(t, next.View); !next.Discard || !strings.HasSuffix(view, "a:long "+role+":shorter") {
			t.Errorf("%s: the model is told %s", words, view)
		}
		turn.Commit(answer(t, "a:long"))
	}
}

// TestAdviceEndsWithTheRounds: advice is given three times, and never beyond the last answer that one request may take.
func TestAdviceEndsWithTheRounds(t *testing.T) {
	t.Parallel()
	l := newLab(t, coached(t))
	tool, err := wire.ParseItem(wire.Chat, []byte(`{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function",`+
		`"function":{"name":"working-memory_update","arguments":"{}"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	call := wire.Reply{Complete: true, Choices: [][]wire.Item{{tool}}}
	for calls, want := range map[int]int{0: 3, 4: 3, 6: 1, 7: 0} {
		turn := l.begin(memory.Call{}, "u:hi")
		for range calls {
			if next := turn.Review(t.Context(), call); next.View == nil {
				t.Fatalf("%d calls: the last is not answered", calls)
			}
		}
		advice := 0
		for turn.Review(t.Context(), answer(t, "a:long").Reply).View != nil {
			advice++
		}
		if advice != want {
			t.Errorf("behind %d calls advice is given %d times, want %d", calls, advice, want)
		}
		turn.Commit(answer(t, "a:long"))
	}
}
