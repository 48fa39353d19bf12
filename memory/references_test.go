package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/historymanager"
	"remora/memory/pipeline"
	"remora/memory/tokens"
	"remora/memory/view"
	"remora/wire"
)

// Items of a conversation.
func userItem(n int) string { return fmt.Sprintf(`{"role":"user","content":"question %d"}`, n) }

func callItem(n int) string {
	return fmt.Sprintf(`{"type":"function_call","id":"fc_%d","call_id":"c%d","name":"f","arguments":"{}"}`, n, n)
}

func resultItem(n int) string {
	return fmt.Sprintf(`{"type":"function_call_output","call_id":"c%d","output":"result %d"}`, n, n)
}

func answerItem(n int, text string) string {
	return fmt.Sprintf(`{"type":"message","id":"msg_%d","role":"assistant","content":[{"type":"output_text","text":%q}]}`, n, text)
}

func refItem(id string) string { return fmt.Sprintf(`{"type":"item_reference","id":%q}`, id) }

// resend plays a conversation in the notation "u1 fc1 fo1 a1 u2 ...", whose client resends all of it, what the model has said
// as it came or by reference, like the AI SDK. It returns the last view in that notation. Every answer has the text.
func (l *lab) resend(words, text string, byReference bool) string {
	l.t.Helper()
	var sent, out []string
	var view []wire.Item
	say := func() {
		view, _ = l.respond("["+strings.Join(sent, ",")+"]", "", "["+strings.Join(out, ",")+"]")
		for _, it := range out {
			if byReference {
				it = refItem(wire.Text(wire.Member([]byte(it), "id")))
			}
			sent = append(sent, it)
		}
		out = nil
	}
	names := make(map[string]string)
	for word := range strings.FieldsSeq(words) {
		kind, n := strings.TrimRight(word, "0123456789"), 0
		if _, err := fmt.Sscan(strings.TrimPrefix(word, kind), &n); err != nil {
			l.t.Fatal(err)
		}
		switch kind {
		case "fc":
			out = append(out, callItem(n))
			names[callItem(n)], names[refItem(fmt.Sprint("fc_", n))] = word, word
			continue
		case "a":
			out = append(out, answerItem(n, text))
			names[answerItem(n, text)], names[refItem(fmt.Sprint("msg_", n))] = word, word
			continue
		}
		if len(out) > 0 {
			say()
		}
		it := resultItem(n)
		if kind == "u" {
			it = userItem(n)
		}
		names[it] = word
		sent = append(sent, it)
	}
	say()
	var got []string
	for _, it := range view {
		if word := names[string(it.Raw)]; word != "" { // none for blocks
			got = append(got, word)
		}
	}
	return strings.Join(got, " ")
}

// TestBudgetKeepsReferencesWithTheirResults: a call that the client refers to stays with its result, under any policy, as one
// that it sends would.
func TestBudgetKeepsReferencesWithTheirResults(t *testing.T) {
	const all = "u1 fc1 fo1 a1 u2 fc2 fc3 fo2 fo3 a2 u3 a3 u4"
	for _, c := range []struct {
		policy view.Policy
		want   string
	}{
		{view.Policy{Overflow: view.OverflowSlidingWindow, Window: 6, Budget: 1000}, "a2 u3 a3 u4"},
		{view.Policy{Overflow: view.OverflowTruncate, Budget: 60}, "a2 u3 a3 u4"},
		{view.Policy{Overflow: view.OverflowFIFO, Budget: 60}, "a2 u3 a3 u4"},
		{view.Policy{Overflow: view.OverflowTurns, Turns: 2, Budget: 60}, "a2 u3 a3 u4"},
		{view.Policy{Overflow: view.OverflowPriority, Budget: 70}, "u1 u2 fc3 fo3 u3 a3 u4"},
		{view.Policy{Overflow: view.OverflowPriority, Budget: 90}, "u1 u2 fc2 fc3 fo2 fo3 u3 a3 u4"},
		{view.Policy{Overflow: view.OverflowSummarize, Budget: 80}, "fc3 fo3 a2 u3 a3 u4"},
	} {
		t.Run(fmt.Sprint(c.policy.Overflow, c.policy.Budget), func(t *testing.T) {
			p, err := pipeline.New(nil, pipeline.Options{
				Policy: c.policy, Count: func(_, text string) int { return len(text) / 16 }, CountItem: func(string, wire.Item) int { return 10 },
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, byReference := range []bool{false, true} {
				l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p, Summarize: c.policy.Overflow == view.OverflowSummarize}})
				if got := l.resend(all, "yes", byReference); got != c.want {
					t.Errorf("by reference %t: sent %s, want %s", byReference, got, c.want)
				}
			}
		})
	}
}

// TestReferencesCostWhatTheyName: upstream reads the item after a reference, so that all limits count it.
func TestReferencesCostWhatTheyName(t *testing.T) {
	const all = "u1 a1 u2 a2 u3 a3 u4 a4 u5"
	text := strings.Repeat("many words of an answer, ", 200) // 1,200 tokens
	count := tokens.New()
	manager, err := historymanager.New(historymanager.Options{ContextWindowTokens: 3000, MaxOutputTokens: 1000})
	if err != nil {
		t.Fatal(err)
	}
	d := historymanager.Defaults(historymanager.Options{})

	for _, c := range []struct {
		name   string
		policy view.Policy
		window *view.Window
		layers []pipeline.Layer
	}{
		{name: "budget", policy: view.Policy{Overflow: view.OverflowTruncate, Budget: 2000}},
		{name: "window", window: &view.Window{MaxTokens: 2000, InFlight: view.InFlightWindow}},
		{name: "history_manager", layers: []pipeline.Layer{{
			ID: "h", Kind: "history_manager", Slot: d.Slot, Scope: d.Scope, Placement: d.Placement, Impl: manager,
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := pipeline.New(c.layers, pipeline.Options{Policy: c.policy, Count: count.Count, CountItem: count.CountItem})
			if err != nil {
				t.Fatal(err)
			}
			for _, byReference := range []bool{false, true} {
				l := newLab(t, memory.Options{Shape: memory.Shape{
					Layers: p, Window: c.window, Price: count.CountItem,
				}})
				if got, want := l.resend(all, text, byReference), "u4 a4 u5"; got != want {
					t.Errorf("by reference %t: sent %s, want %s", byReference, got, want)
				}
			}
		})
	}
}

// evicted is a layer that records the items that views leave out.
type evicted struct{ items []wire.Item }

func (e *evicted) Evicted(_ context.Context, _ *layer.Turn, s layer.State, items []wire.Item) (layer.State, error) {
	e.items = append(e.items, items...)
	return s, nil
}

// TestLayersReadWhatReferencesName: what a view leaves out is summarised, evicted and listed with the text of the answer, also if the
// client sent a reference to it.
func TestLayersReadWhatReferencesName(t *testing.T) {
	const all, answer = "u1 fc1 fo1 a1 u2 a2 u3 a3 u4 a4 u5", "the answer in the transcript"
	read := make(map[bool]string)
	for _, byReference := range []bool{false, true} {
		model, gone, cut := &narrator{}, &evicted{}, &keeper{}
		p, err := pipeline.New([]pipeline.Layer{
			{ID: "e", Kind: "test", Scope: layer.Thread, Impl: gone}, {ID: "k", Kind: "test", Scope: layer.Thread, Impl: cut},
		}, pipeline.Options{
			Policy: view.Policy{Budget: 60, Overflow: view.OverflowSummarize},
			Count:  func(_, text string) int { return len(text) / 16 }, CountItem: func(string, wire.Item) int { return 10 },
		})
		if err != nil {
			t.Fatal(err)
		}
		l := newLab(t, memory.Options{Shape: memory.Shape{
			Layers: p, Summarize: true, OverflowModel: model.Bind, Window: &view.Window{MaxItems: 8, EvictBatch: 2},
		}})
		l.resend(all, answer, byReference)
		for _, items := range [][]wire.Item{gone.items, cut.lost} {
			if len(items) == 0 {
				t.Error("nothing was left out")
			}
			for _, it := range items {
				read[byReference] += it.Text() + "\n"
			}
		}
		read[byReference] += strings.Join(model.asked, "\n")
	}
	if diff := cmp.Diff(read[false], read[true]); diff != "" || !strings.Contains(read[true], answer) {
		t.Errorf("in full, and by reference:\n%s", diff)
	}
}
