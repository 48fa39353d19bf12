package memory_test

import (
	"strings"
	"testing"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/observational"
	"remora/memory/pipeline"
	"remora/memory/view"
)

// TestStatementsOfTheViewAreNotTold: an observation is told where the item that it came from is not in the view: in other
// sessions, and in its own once a window has cut the item off. A tool loop and a client that resends change nothing.
func TestStatementsOfTheViewAreNotTold(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(history []string, next string) (memory.Call, []string){
		"a client that sends what is new": func(_ []string, next string) (memory.Call, []string) {
			return in("one", "ada"), []string{next}
		},
		"a client that resends": func(history []string, next string) (memory.Call, []string) {
			return in("one", "ada"), append(append([]string(nil), history...), next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			impl, err := observational.New(observational.Options{})
			if err != nil {
				t.Fatal(err)
			}
			l := newLab(t, memory.Options{Shape: memory.Shape{
				Window: &view.Window{MaxItems: 4, EvictBatch: 1},
				Layers: layersOf(t, pipeline.Layer{ID: "o", Kind: "observational_memory", Slot: 200, Scope: layer.Resource, Budget: observational.Defaults(observational.Options{}).Budget, Impl: impl}),
			}})
			const statement = "- user: 私の名前は健です。"

			var history []string
			told := func(word string) string {
				c, words := call(history, word)
				sent := l.turnOf(c, strings.Join(words, " "), "a:ok")
				history = append(history, word, "a:ok")
				return sent
			}
			for i, word := range []string{"u:私の名前は健です。", "u:two", "u:three", "u:four"} {
				want := i >= 2 // four items: the first message is cut off with the third
				if sent := told(word); strings.Contains(sent, statement) != want {
					t.Errorf("turn %d: told %v, want %v: %s", i+1, !want, want, sent)
				}
			}
			if sent := l.turnOf(in("two", "ada"), "u:hello", "a:ok"); !strings.Contains(sent, statement) {
				t.Errorf("another session was not told: %s", sent)
			}
			if sent := l.turnOf(in("two", "ada"), "u:私の名前は健です。", "a:ok"); strings.Contains(sent, statement) {
				t.Errorf("told beside the same words: %s", sent)
			}
		})
	}
}
