package working_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/layer"
	"remora/memory/layers/working"
)

// update has the model call the layer's own tool.
func update(tb testing.TB, l *working.Layer, s layer.State, arguments string) layer.State {
	tb.Helper()
	_, next, err := l.Tools()[0].Run(tb.Context(), turn, s, []byte(arguments))
	if err != nil {
		tb.Fatal(err)
	}
	return next
}

// body returns the recalled part of the working memory.
func body(t *testing.T, l *working.Layer, s layer.State, budget int) string {
	t.Helper()
	text := recall(t, l, s, budget)
	return strings.TrimSuffix(strings.TrimPrefix(text, "<working_memory>\n"), "\n</working_memory>")
}

// TestNewestNotes: over its budget the model sees the notes that it made last, whole, and valid JSON.
func TestNewestNotes(t *testing.T) {
	l := open(t, working.Options{})
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		name, state string
		budget      int
		want        string
	}{
		{"members", `{"first":"` + long + `","second":"b","third":"c"}`, 25, `{"_omitted":1,"second":"b","third":"c"}`},
		{"two are missing", `{"first":"` + long + `","second":"` + long + `","third":"c"}`, 24, `{"_omitted":2,"third":"c"}`},
		{"inside of one", `{"a":1,"notes":{"old":"` + long + `","new":"n"}}`, 25, `{"_omitted":1,"notes":{"_omitted":1,"new":"n"}}`},
		{"a list", `{"log":["` + long + `","` + long + `","last"]}`, 22, `{"log":["(2 omitted)","last"]}`},
		{"a text that is too long", `{"a":1,"b":"` + strings.Repeat("y", 400) + `"}`, 23, `{"_omitted":1,"b":"` + strings.Repeat("y", 33) + `..."}`},
		{"no room", `{"a":1}`, 9, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, body(t, l, layer.State(c.state), c.budget)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRewrittenNotesAreNew: in a memory too large to be seen whole, a note that is written again is among the newest.
func TestRewrittenNotesAreNew(t *testing.T) {
	l := open(t, working.Options{})
	var s layer.State
	for i := range 40 {
		s = update(t, l, s, fmt.Sprintf(`{"note %d":%q}`, i, strings.Repeat("word ", 8)))
	}
	s = update(t, l, s, `{"note 3":"moved to Friday"}`)
	got := body(t, l, s, 100)
	if !json.Valid([]byte(got)) || !strings.Contains(got, "moved to Friday") || strings.Contains(got, "note 4\"") || !strings.Contains(got, "note 39") {
		t.Errorf("got %s", got)
	}
}

// TestWhatIsShown: the recalled text is valid JSON within any budget, and contains the latest note if that fits by
// itself.
func TestWhatIsShown(t *testing.T) {
	l := open(t, working.Options{})
	rapid.Check(t, func(rt *rapid.T) {
		var s layer.State
		last := ""
		for range rapid.IntRange(1, 30).Draw(rt, "updates") {
			value := rapid.SampledFrom([]string{`"short"`, `null`, `[1,2,3]`, `{"a":{"b":"deep"},"c":"` + strings.Repeat("z", 90) + `"}`, `"` + strings.Repeat("é", 70) + `"`}).Draw(rt, "value")
			last = fmt.Sprintf(`{"key %d":%s}`, rapid.IntRange(0, 20).Draw(rt, "key"), value)
			s = update(t, l, s, last)
		}
		budget := rapid.IntRange(0, 200).Draw(rt, "budget")
		got := body(t, l, s, budget)
		if got == "" {
			return
		}
		if n := turn.Count("<working_memory>\n" + got + "\n</working_memory>"); !json.Valid([]byte(got)) || n > budget {
			rt.Fatalf("%d tokens of %d: %s", n, budget, got)
		}
		alone := turn.Count(`<working_memory>`+"\n"+`{"_omitted":99,`+last[1:]+"\n</working_memory>") <= budget
		if want := last[1 : len(last)-1]; len(s) > 512 && alone && !strings.Contains(strings.NewReplacer("\n", "", "  ", "").Replace(strings.ReplaceAll(got, ": ", ":")), want) {
			rt.Fatalf("budget %d: %s is not in %s", budget, want, got)
		}
	})
}

func TestDelete(t *testing.T) {
	l := open(t, working.Options{})
	for _, c := range []struct{ name, state, arguments, want, refused string }{
		{"a key", `{"a":1,"b":2}`, `{"_delete":["a"]}`, `{"b":2}`, ""},
		{"a path", `{"a":{"x":1,"y":2}}`, `{"_delete":[["a","x"]]}`, `{"a":{"y":2}}`, ""},
		{"several, and the rest is merged", `{"a":1,"b":2,"c":{"d":3}}`, `{"_delete":["a",["c","d"]],"e":4}`, `{"b":2,"c":{},"e":4}`, ""},
		{"replaced instead of merged", `{"a":{"x":1}}`, `{"_delete":["a"],"a":{"y":2}}`, `{"a":{"y":2}}`, ""},
		{"what is not there", `{"a":1}`, `{"_delete":["b",["a","x"],["c","d"]]}`, `{"a":1}`, ""},
		{"everything", `{"a":1}`, `{"_delete":["a"]}`, `{}`, ""},
		{"nothing", `{"a":1}`, `{"_delete":[]}`, `{"a":1}`, ""},
		{"null stays", `{"a":1}`, `{"a":null}`, `{"a":null}`, ""},
		{"a text is kept", `"notes"`, `{"_delete":["a"],"k":1}`, `{"k":1,"_previous":"notes"}`, ""},
		{"no list", `{"a":1}`, `{"_delete":"a"}`, `{"a":1}`, "_delete: want a list"},
		{"an empty path", `{"a":1}`, `{"_delete":[[]]}`, `{"a":1}`, "_delete: want a list"},
		{"a number", `{"a":1}`, `{"_delete":[1]}`, `{"a":1}`, "_delete: want a list"},
		{"null", `{"a":1}`, `{"_delete":[null]}`, `{"a":1}`, "_delete: want a list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got, err := l.Tools()[0].Run(t.Context(), turn, layer.State(c.state), []byte(c.arguments))
			if string(got) != c.want || (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
			next, err := l.Store(t.Context(), turn, layer.State(c.state), calls(c.arguments))
			if string(next) != c.want || (err != nil) != (c.refused != "") {
				t.Errorf("by the client's tool: %s, %v", next, err)
			}
		})
	}
}
