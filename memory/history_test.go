package memory_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/historymanager"
	"remora/memory/pipeline"
	"remora/wire"
)

// repeater is a model that summarises by repeating every fact that it is given.
type repeater struct{ calls int }

func (r *repeater) Bind(pipeline.Credential) layer.Model { return r }

func (r *repeater) Complete(_ context.Context, _, user string, _ int) (string, error) {
	r.calls++
	return strings.Join(facts(user), " "), nil
}

// facts returns the facts of a text, each once.
func facts(text string) []string {
	all := regexp.MustCompile(`fact[0-9]+`).FindAllString(text, -1)
	slices.Sort(all)
	return slices.Compact(all)
}

// managed are options with the history manager, under which a view has room for so many items of ten tokens each.
func managed(t *testing.T, items int, o historymanager.Options, model pipeline.ModelSource) memory.Options {
	t.Helper()
	o.EnableSummarization, o.MaxOutputTokens = true, 1
	o.ContextWindowTokens = 10*items + 5
	h, err := historymanager.New(o)
	if err != nil {
		t.Fatal(err)
	}
	d := historymanager.Defaults(o)
	p, err := pipeline.New([]pipeline.Layer{{ID: "h", Kind: "history_manager", Slot: d.Slot, Scope: d.Scope, Placement: d.Placement, Impl: h, Model: model}}, pipeline.Options{
		Count:     func(_, text string) int { return len(text) / 16 },
		CountItem: func(string, wire.Item) int { return 10 },
	})
	if err != nil {
		t.Fatal(err)
	}
	return memory.Options{Shape: memory.Shape{Layers: p}, CommitWait: time.Minute, ReadWait: time.Minute}
}

// TestHistoryManagerKeepsFacts: over a long session the history manager keeps as many facts as overflow: summarize, also between
// two calls of its model, and asks it no more often. It learns after an answer what the view before it left out: that is
// missing in one view, and in the next one it is told.
func TestHistoryManagerKeepsFacts(t *testing.T) {
	const turns, room = 120, 60
	play := func(name string, o memory.Options) (kept int) {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, o)
			system, before := "s:be ", ""
			for i := range turns + 1 {
				view := l.turn(fmt.Sprintf("%su:fact%d", system, i), fmt.Sprintf("a:noted%d", i))
				if kept = len(facts(before + " " + view)); kept != i+1 {
					t.Errorf("%s: %d facts in turn %d", name, kept, i+1)
				}
				if n := len(facts(view)); n < i-2 {
					t.Errorf("%s: %d facts in the view of turn %d", name, n, i+1)
				}
				system, before = "", view
				synctest.Wait() // the summary is made after the answer
			}
		})
		return kept
	}
	overflow, manager, longTerm := &repeater{}, &repeater{}, &repeater{}
	want := play("overflow: summarize", summarizing(t, room, overflow.Bind, nil))
	for _, c := range []struct {
		name  string
		o     historymanager.Options
		model *repeater
	}{
		{"history_manager", historymanager.Options{}, manager},
		{"history_manager with long-term memory", historymanager.Options{EnableLongTermMemory: true}, longTerm},
	} {
		got := play(c.name, managed(t, room, c.o, c.model.Bind))
		t.Logf("%s: %d facts in %d calls, overflow %d in %d", c.name, got, c.model.calls, want, overflow.calls)
		if got < want || c.model.calls > overflow.calls || c.model.calls == 0 {
			t.Errorf("%s: %d facts in %d calls, overflow: summarize %d in %d", c.name, got, c.model.calls, want, overflow.calls)
		}
	}
	if want != turns+1 {
		t.Errorf("overflow: summarize has %d facts of %d", want, turns+1)
	}

	// Without a model, more facts stay than excerpts of what fell out last have.
	kept := excerpted(t, turns, room)
	t.Logf("excerpts: %d facts", kept)
	if kept < turns*3/4 {
		t.Errorf("excerpts: %d facts of %d", kept, turns)
	}
}

// excerpted returns the number of facts in the view at the end of a session whose summary is made of excerpts.
func excerpted(t *testing.T, turns, room int) (kept int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, managed(t, room, historymanager.Options{}, nil))
		system := "s:be "
		for i := range turns {
			kept = len(facts(l.turn(fmt.Sprintf("%su:fact%d", system, i), fmt.Sprintf("a:noted%d", i))))
			system = ""
		}
	})
	return kept
}

// complete ends the work of a session.
func (l *lab) complete(s memory.Scope, success bool) {
	l.t.Helper()
	if err := l.m.Complete(context.Background(), s, success); err != nil {
		l.t.Fatal(err)
	}
}

// TestEndedSessionIsRemembered: what a session said is summarised and remembered once when its work ends, also if nothing
// ever fell out of its views; the end of a run is none, and later sessions of the resource are told.
func TestEndedSessionIsRemembered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(l *lab)
		fail bool
	}{
		{"by the completion endpoint", func(l *lab) { l.complete(in("one", "ada").Scope, true) }, false},
		{"given up", func(l *lab) { l.complete(in("one", "ada").Scope, false) }, true},
		{"by the model", func(l *lab) { l.calls(in("one", "ada"), "u:finish", "w_done", `{"success":""}`) }, false},
	} {
		for _, with := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, model %t", c.name, with), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					model := &repeater{}
					var source pipeline.ModelSource
					if with {
						source = model.Bind
					}
					o := managed(t, 1000, historymanager.Options{EnableLongTermMemory: true}, source)
					told := make(chan string, 16)
					h, err := historymanager.New(historymanager.Options{EnableSummarization: true, EnableLongTermMemory: true})
					if err != nil {
						t.Fatal(err)
					}
					o.Layers = layersOf(t,
						pipeline.Layer{ID: "w", Kind: "test", Scope: layer.Thread, Impl: worker{told}},
						pipeline.Layer{ID: "h", Kind: "history_manager", Slot: 300, Scope: layer.Resource, Placement: layer.AutoLive, Impl: h, Model: source},
					)
					l := newLab(t, o)
					l.turnOf(in("one", "ada"), "s:be u:fact7", "a:noted")
					l.turnOf(in("one", "ada"), "u:fact8", "a:noted")
					synctest.Wait()
					if view := l.turnOf(in("two", "ada"), "u:fact7-or-fact8", "a:none"); strings.Contains(view, "conversation_memory") || model.calls > 0 {
						t.Fatalf("before the end: %d calls, %s", model.calls, view)
					}
					for range 2 {
						c.end(l)
						synctest.Wait()
					}
					view := l.turnOf(in("three", "ada"), "u:fact7-or-fact8", "a:both")
					if n := strings.Count(view, "- [summary] "); n != 1 || strings.Count(view, "fact7") != 2 || strings.Count(view, "fact8") != 2 {
						t.Errorf("after the end: %s", view)
					}
					// A second end by the model summarises the message that asked for it.
					if most := 2; with && (model.calls == 0 || model.calls > most) || c.fail && model.calls > 1 {
						t.Errorf("the model was asked %d times", model.calls)
					}
					if other := l.turnOf(in("four", "bob"), "u:fact7", "a:no"); strings.Contains(other, "conversation_memory") {
						t.Errorf("another resource: %s", other)
					}
				})
			})
		}
	}
}
