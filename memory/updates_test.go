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
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// announcer recalls the given text.
type announcer struct{ text string }

func (a *announcer) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	return layer.Recalled{Messages: []string{a.text}}, nil
}

// spelledIn is the JSON of words in a dialect. In Responses each call is an item of its own.
func spelledIn(d wire.Dialect, words string) []string {
	var items []string
	for w := range strings.FieldsSeq(words) {
		if calls, ok := strings.CutPrefix(w, "c:"); ok && d == dialects.Responses {
			for call := range strings.SplitSeq(calls, ",") {
				items = append(items, spell(d, "c:"+call))
			}
			continue
		}
		items = append(items, spell(d, w))
	}
	return items
}

// beginIn is begin in a dialect.
func (l *lab) beginIn(d wire.Dialect, words string) *memory.Turn {
	l.t.Helper()
	list := map[wire.Dialect]string{dialects.Chat: "messages", dialects.Responses: "input"}[d]
	req, err := wire.Parse(d, fmt.Appendf(nil, `{"model":"m",%q:[%s]}`, list, strings.Join(spelledIn(d, words), ",")))
	if err != nil {
		l.t.Fatal(err)
	}
	turn, err := l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req})
	if err != nil {
		l.t.Fatal(err)
	}
	return turn
}

// answerIn is answer in a dialect.
func answerIn(t *testing.T, d wire.Dialect, words string) memory.Answer {
	t.Helper()
	a := memory.Answer{HTTPStatus: 200, Reply: wire.Reply{Complete: true, ID: "resp_1", Choices: [][]wire.Item{nil}}}
	for _, raw := range spelledIn(d, words) {
		it := wiretest.Parse(t, d, raw)
		a.Reply.Choices[0] = append(a.Reply.Choices[0], it)
	}
	return a
}

// TestUpdatesInViews: when layers' blocks change in the middle of runs, for clients of both dialects and habits, a view has at most
// one update per layer. As long as no block changes, each view of a run begins with the one before, byte for byte. No
// update comes between a call and its result, and the record shows the view as it was sent.
func TestUpdatesInViews(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapid.SampledFrom([]wire.Dialect{dialects.Chat, dialects.Responses}).Draw(rt, "dialect")
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
				turn := l.beginIn(d, words)
				sent := raws(turn.View)

				for _, tag := range []string{"<a>", "<b>"} {
					updates := slices.DeleteFunc(slices.Clone(sent), func(raw string) bool {
						return !strings.Contains(raw, "memory_update") || !strings.Contains(raw, tag)
					})
					if len(updates) > 1 {
						rt.Fatalf("%d updates of %s: %q", len(updates), tag, updates)
					}
				}
				if v := wiretest.Check(d, turn.View); len(v) > 0 {
					rt.Fatalf("upstream refuses %s: %v", toldIn(t, d, turn.View), v)
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
				turn.Commit(answerIn(t, d, reply))
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
	for d, items := range map[wire.Dialect]int{dialects.Chat: 7, dialects.Responses: 8} {
		testUpdateBesideCalls(t, d, items)
	}
}

func testUpdateBesideCalls(t *testing.T, d wire.Dialect, items int) {
	t.Helper()
	a := &announcer{"<a>0</a>"}
	config := view.DefaultPromptCache()
	config.DeltaBudgetFraction = 1
	l := newLab(t, memory.Options{Shape: memory.Shape{PromptCache: &config, Layers: layersOf(t,
		pipeline.Layer{ID: "a", Scope: layer.Thread, Placement: layer.Anchored, Impl: a},
	)}})
	l.beginIn(d, "s:be u:1").Commit(answerIn(t, d, "a:1"))
	a.text = "<a>1</a>"
	l.beginIn(d, "s:be u:1 a:1 u:2 u:3").Commit(answerIn(t, d, "a:3"))
	turn := l.beginIn(d, "s:be u:1 c:x,y r:x r:y")
	got := raws(turn.View)
	if last := got[len(got)-1]; !strings.Contains(last, "memory_update") || len(got) != items {
		t.Errorf("%v: the update does not stand behind the results: %q", d, got)
	}
	turn.Commit(answerIn(t, d, "a:4"))
}
