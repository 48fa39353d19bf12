package memory_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// announcer recalls the given text.
type announcer struct{ text string }

func (a *announcer) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	return layer.Recalled{Messages: []string{a.text}}, nil
}

// TestUpdatesInViews: when layers' blocks change in the middle of runs, for clients of both habits, a view has at most
// one update per layer. As long as no block changes, each view of a run begins with the one before, byte for byte. No
// update comes between a call and its result, and the record shows the view as it was sent.
func TestUpdatesInViews(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := &announcer{"<a>0</a>"}, &announcer{"<b>0</b>"}
		config := view.DefaultPromptCache()
		config.DeltaBudgetFraction = 1
		l := newLab(t, memory.Options{Shape: memory.Shape{PromptCache: &config, Layers: layersOf(t,
			pipeline.Layer{ID: "a", Scope: layer.Thread, Placement: layer.Anchored, Impl: a},
			pipeline.Layer{ID: "b", Scope: layer.Thread, Placement: rapid.SampledFrom([]layer.Placement{layer.Anchored, layer.Live}).Draw(rt, "placement of b"), Impl: b},
		)}})
		resends := rapid.Bool().Draw(rt, "resends")
		begin := "s:" + strings.Repeat("be-kind-", 200) + " "
		history, fresh, id := begin, begin, 0

		var before []string
		for run := range rapid.IntRange(1, 4).Draw(rt, "runs") {
			user := fmt.Sprintf("u:%d ", run)
			history, fresh = history+user, fresh+user
			calls := rapid.IntRange(0, 6).Draw(rt, "calls")
			for n := range calls + 1 {
				anew := rapid.IntRange(0, 2).Draw(rt, "says anew") == 0
				if anew {
					a.text = fmt.Sprintf("<a>%d</a>", rapid.IntRange(0, 3).Draw(rt, "said"))
					b.text = fmt.Sprintf("<b>%d</b>", rapid.IntRange(0, 3).Draw(rt, "said"))
				}
				words := fresh
				if resends {
					words = history
				}
				turn := l.begin(memory.Call{}, words)
				sent := raws(turn.View)

				for _, tag := range []string{"<a>", "<b>"} {
					updates := slices.DeleteFunc(slices.Clone(sent), func(raw string) bool {
						return !strings.Contains(raw, "memory_update") || !strings.Contains(raw, tag)
					})
					if len(updates) > 1 {
						rt.Fatalf("%d updates of %s: %q", len(updates), tag, updates)
					}
				}
				if v := wiretest.Check(dialects.Chat, turn.View); len(v) > 0 {
					rt.Fatalf("upstream refuses %s: %v", told(t, turn.View), v)
				}
				if !anew && n > 0 && (len(sent) < len(before) || !slices.Equal(before, sent[:len(before)])) {
					rt.Fatalf("nothing is new, but the view does not go on: %s", cmp.Diff(before, sent))
				}
				before = sent

				reply := fmt.Sprintf("a:%d ", run)
				results := ""
				if n < calls {
					reply, results = fmt.Sprintf("c:%d,%d ", id, id+1), fmt.Sprintf("r:%d ", id)+fmt.Sprintf("r:%d ", id+1)
					id += 2
				}
				turn.Commit(answer(t, reply))
				history, fresh = history+reply+results, begin+results
				shown, err := l.m.TurnView(t.Context(), scope, turn.ID)
				if err != nil {
					rt.Fatal(err)
				}
				if diff := cmp.Diff(sent, raws(shown)); diff != "" {
					rt.Fatalf("-sent +shown:\n%s", diff)
				}
			}
		}
	})
}

// TestUpdateBesideCalls: the client edits its history, so that the place of an update is between a call and its results.
func TestUpdateBesideCalls(t *testing.T) {
	a := &announcer{"<a>0</a>"}
	config := view.DefaultPromptCache()
	config.DeltaBudgetFraction = 1
	l := newLab(t, memory.Options{Shape: memory.Shape{PromptCache: &config, Layers: layersOf(t,
		pipeline.Layer{ID: "a", Scope: layer.Thread, Placement: layer.Anchored, Impl: a},
	)}})
	l.turn("s:be u:1", "a:1")
	a.text = "<a>1</a>"
	l.turn("s:be u:1 a:1 u:2 u:3", "a:3")
	turn := l.begin(memory.Call{}, "s:be u:1 c:x,y r:x r:y")
	got := raws(turn.View)
	if last := got[len(got)-1]; !strings.Contains(last, "memory_update") || len(got) != 7 {
		t.Errorf("the update does not stand behind the results: %q", got)
	}
	turn.Commit(answer(t, "a:4"))
}
