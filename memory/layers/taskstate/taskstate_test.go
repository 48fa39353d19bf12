package taskstate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/taskstate"
	"remora/wire"
	"remora/wire/dialects"
)

func open(t *testing.T, o taskstate.Options) *taskstate.Layer {
	t.Helper()
	return layertest.Must(taskstate.New(o))(t)
}

// at is a turn n seconds after the epoch.
func at(n int) *layer.Turn {
	return &layer.Turn{Count: layertest.Quarter, Now: time.Unix(int64(n), 0).UTC()}
}

// marks is a state with n checkpoints.
func marks(t *testing.T, n int) layer.State {
	t.Helper()
	var s layer.State
	for i := range n {
		s = layertest.Must(open(t, taskstate.Options{}).Store(t.Context(), at(i), s, &layer.Response{}))(t)
	}
	return s
}

type decoded struct {
	Checkpoints []struct{ Timestamp, Depth int64 }
	Files       []string
	Data        map[string]any
}

func decode(t *testing.T, s layer.State) decoded {
	t.Helper()
	var d decoded
	if err := json.Unmarshal(s, &d); err != nil {
		t.Fatalf("state %s: %v", s, err)
	}
	return d
}

// run calls a tool; the result is empty if it was refused.
func run(t *testing.T, name string, s layer.State, arguments string) (layer.State, string) {
	t.Helper()
	for _, tool := range open(t, taskstate.Options{}).Tools() {
		if tool.Name == name {
			result, next, err := tool.Run(t.Context(), at(0), s, []byte(arguments))
			if err != nil {
				return next, ""
			}
			return next, result
		}
	}
	t.Fatalf("no tool %s", name)
	return nil, ""
}

func TestSuite(t *testing.T) {
	full := `{"checkpoints":[{"timestamp":1,"depth":0},{"timestamp":2,"depth":1}],"files":["a.go","日本.md"],` +
		`"data":{"k":{"a":[1,"</zz>"]},"__outcome":"success"}}`
	for _, mode := range []string{"merge", "execution"} {
		layertest.Run(t, func() any { return open(t, taskstate.Options{ReturnMode: mode}) },
			layertest.States(layer.State(full)),
			layertest.Overruns(func(budget int) bool { return budget == 0 })) // without a share nothing is dropped
	}
}

func TestStore(t *testing.T) {
	got := decode(t, marks(t, 60))
	if len(got.Checkpoints) != 50 || got.Checkpoints[0].Timestamp != 10_000 || got.Checkpoints[49].Timestamp != 59_000 {
		t.Errorf("%d checkpoints, %+v, want those of seconds 10 to 59", len(got.Checkpoints), got.Checkpoints)
	}
}

func TestTools(t *testing.T) {
	s, said := run(t, "setTaskData", nil, `{"key":"k","value":{"n":1.50}}`)
	if said == "" || !strings.Contains(string(s), `"data":{"k":{"n":1.50}}`) {
		t.Fatalf("setTaskData: %q, state %s", said, s)
	}
	for _, bad := range []string{
		`{"key":"__outcome","value":1}`, `{"key":" __outcome ","value":1}`, `{"key":"","value":1}`, `{"key":"a\nb","value":1}`, `{"key":"k"}`, `[]`, ``,
		`{"key":"k","value":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
		`{"key":"k","value":"` + strings.Repeat("x", 300<<10) + `"}`,
	} {
		if next, said := run(t, "setTaskData", s, bad); said != "" || string(next) != string(s) {
			t.Errorf("setTaskData %.40s gave %q and changed the state: %v", bad, said, string(next) != string(s))
		}
	}
	s, _ = run(t, "recordArtifact", s, `{"path":"a.go"}`)
	again, said := run(t, "recordArtifact", s, `{"path":"a.go"}`)
	if string(again) != string(s) || said == "" {
		t.Errorf("a second record of a file changed the state to %s (%q)", again, said)
	}
	s, _ = run(t, "recordArtifact", s, `{"path":"b.go"}`)
	if diff := cmp.Diff([]string{"a.go", "b.go"}, decode(t, s).Files); diff != "" {
		t.Errorf("files -want +got:\n%s", diff)
	}
	for i := range 80 {
		s, _ = run(t, "recordArtifact", s, fmt.Sprintf(`{"path":"%d%s"}`, i, strings.Repeat("x", 1000)))
	}
	if n := len(decode(t, s).Files); n < 50 || n > 70 || len(s) > 128<<10 {
		t.Errorf("%d files and %d bytes kept", n, len(s))
	}
}

func TestRecall(t *testing.T) {
	recall := func(s layer.State, budget int) string {
		got := layertest.Must(open(t, taskstate.Options{}).Recall(t.Context(), at(0), s, budget))(t)
		return strings.Join(got.Messages, "|")
	}
	empty := "<task_state>\n{\n  \"checkpoints\": [],\n  \"files\": [],\n  \"data\": {}\n}\n</task_state>"
	if diff := cmp.Diff(empty, recall(nil, 1000)); diff != "" {
		t.Errorf("nothing kept: -want +got:\n%s", diff)
	}
	s := marks(t, 50)
	whole := recall(s, 0)
	for _, c := range []struct{ budget, want int }{{0, 50}, {10000, 50}, {800, 25}, {700, 25}, {200, 6}, {100, 3}} {
		text := recall(s, c.budget)
		if n := strings.Count(text, "timestamp"); n != c.want || !strings.HasSuffix(text, "\n</task_state>") {
			t.Errorf("budget %d: %d checkpoints, want %d (all: %d tokens)", c.budget, n, c.want, layertest.Quarter(whole))
		}
		if c.want < 50 && !strings.Contains(text, "1970-01-01T00:00:49Z") {
			t.Errorf("budget %d: the newest checkpoint is gone", c.budget)
		}
	}
	if text := recall(s, 10); !strings.HasSuffix(text, "...\n</task_state>") || layertest.Quarter(text) > 10 {
		t.Errorf("budget 10: %q", text)
	}
}

// shown returns what the model is shown of a state, as it is stored.
func shown(t *testing.T, s layer.State) string {
	t.Helper()
	var members struct {
		Checkpoints json.RawMessage `json:"checkpoints"`
		Files       json.RawMessage `json:"files"`
		Data        json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(s, &members); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	out := layertest.Must(json.Marshal(members))(t)
	return string(out)
}

func TestReturn(t *testing.T) {
	parent := layer.State(`{"checkpoints":[{"timestamp":1,"depth":0}],"files":["a","b"],"data":{"x":1,"y":1}}`)
	child := layer.State(`{"checkpoints":[{"timestamp":2,"depth":1}],"files":["b","c"],"data":{"y":2,"z":2}}`)
	for mode, want := range map[string]string{
		"merge": `{"checkpoints":[{"timestamp":1,"depth":0},{"timestamp":2,"depth":1}],"files":["a","b","c"],"data":{"x":1,"y":2,"z":2}}`,
		"execution": `{"checkpoints":[{"timestamp":1,"depth":0},{"timestamp":2,"depth":1}],"files":["a","b","c"],` +
			`"data":{"e7":{"y":2,"z":2},"x":1,"y":1}}`,
	} {
		got := layertest.Must(open(t, taskstate.Options{ReturnMode: mode}).Return(t.Context(), at(0), parent, child, layer.Outcome{Execution: "e7"}))(t)
		if diff := cmp.Diff(want, shown(t, got)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", mode, diff)
		}
	}
	full := marks(t, 50)
	got, err := open(t, taskstate.Options{}).Return(t.Context(), at(0), full, full, layer.Outcome{})
	if n := len(decode(t, got).Checkpoints); err != nil || n != 50 {
		t.Errorf("two times 50 checkpoints became %d (%v), want the newest 50", n, err)
	}
}

// The end of a child's task is marked at its checkpoint, and does not end the parent's. A child of a parent whose task has ended
// begins one.
func TestChildEndsItsOwnTask(t *testing.T) {
	l := open(t, taskstate.Options{})
	child := layer.State(`{"checkpoints":[{"timestamp":2,"depth":1},{"timestamp":3,"depth":1}],"data":{"z":2,"__outcome":"failure"}}`)
	parent, err := l.Return(t.Context(), at(0), nil, child, layer.Outcome{Result: layer.Failure})
	want := `{"checkpoints":[{"timestamp":2,"depth":1},{"timestamp":3,"depth":1,"outcome":"failure"}],"files":[],"data":{"z":2}}`
	if got := shown(t, parent); err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	next, err := l.Spawn(t.Context(), at(0), child)
	if got := shown(t, next); err != nil || strings.Contains(got, "__outcome") {
		t.Errorf("a child begins with %s, %v", got, err)
	}
}

// family is a parent and its children. Each step is one of: "spawn x", "drop x", "mark x" (an answer, one second later), "set x k v",
// "return x".
type family struct {
	t      *testing.T
	l      *taskstate.Layer
	second int
	states map[string]layer.State // that of the parent is ""
}

func (f *family) play(script string) {
	f.t.Helper()
	for step := range strings.SplitSeq(script, ",") {
		word := append(strings.Fields(step), "") // the parent has no name
		verb, who := word[0], word[1]
		var err error
		switch verb {
		case "drop":
			delete(f.states, who)
		case "spawn":
			f.states[who], err = f.l.Spawn(f.t.Context(), at(0), f.states[""])
		case "mark":
			f.second++
			f.states[who], err = f.l.Store(f.t.Context(), at(f.second), f.states[who], &layer.Response{})
		case "set":
			if len(word) < 5 {
				word, who = append([]string{"", ""}, word[1:]...), ""
			}
			f.states[who], _ = run(f.t, "setTaskData", f.states[who], fmt.Sprintf(`{"key":%q,"value":%q}`, word[2], word[3]))
		case "return":
			f.states[""], err = f.l.Return(f.t.Context(), at(0), f.states[""], f.states[who], layer.Outcome{Thread: who, Execution: who})
		}
		if err != nil {
			f.t.Fatalf("%s: %v", step, err)
		}
	}
}

// TestReturnCountsOnce: a child gives what it has reached once, however often it is completed.
func TestReturnCountsOnce(t *testing.T) {
	for _, c := range []struct{ name, script, checkpoints, data string }{
		{"twice", "mark, spawn x, mark x, mark x, return x, return x", "1 2 3", ""},
		{"on its own, twice", "mark x, return x, return x", "1", ""},
		{"goes on", "mark, spawn x, mark x, return x, mark, mark x, return x, return x", "1 2 3 4", ""},
		{"two children", "mark, spawn x, spawn y, mark x, mark y, return y, return x, return y, return x", "1 3 2", ""},
		{"spawned anew after it was deleted", "mark, spawn x, mark x, return x, spawn x, mark x, return x, return x", "1 2 3", ""},
		{"anew, and nobody spawned it", "mark x, mark x, return x, mark, drop x, mark x, return x", "1 2 3 4", ""},
		{"data twice", "spawn x, mark x, set x k a, return x, set k b, return x", "1", "k=b"},
		{"data that is new", "spawn x, mark x, set x k a, set x l a, return x, set k b, set x l b, return x", "1", "k=b l=b"},
		{"data set back", "spawn x, mark x, set x k a, return x, set x k b, return x, set x k a, return x", "1", "k=a"},
		{"data that it was spawned with", "set k a, set l a, spawn x, set k b, set x l b, mark x, return x, return x", "1", "k=b l=b"},
		{"data that it was spawned with, set back", "set k a, spawn x, mark x, set x k b, return x, set x k a, return x", "1", "k=a"},
		{"data of one that was spawned anew", "mark, spawn x, mark x, set x k a, return x, set k b, spawn x, mark x, set x k a, return x", "1 2 3", "k=a"},
	} {
		f := &family{t: t, l: open(t, taskstate.Options{}), states: map[string]layer.State{}}
		f.play(c.script)
		got := decode(t, layer.State(shown(t, f.states[""])))
		var marked, data []string
		for _, m := range got.Checkpoints {
			marked = append(marked, strconv.FormatInt(m.Timestamp/1000, 10))
		}
		for _, k := range slices.Sorted(maps.Keys(got.Data)) {
			data = append(data, fmt.Sprintf("%s=%v", k, got.Data[k]))
		}
		if m, d := strings.Join(marked, " "), strings.Join(data, " "); m != c.checkpoints || d != c.data {
			t.Errorf("%s: checkpoints %q, data %q; want %q and %q", c.name, m, d, c.checkpoints, c.data)
		}
	}
}

// TestReturnOfManyCounts: marks over the limit are not returned again, and the records of children are bounded.
func TestReturnOfManyCounts(t *testing.T) {
	f := &family{t: t, l: open(t, taskstate.Options{}), states: map[string]layer.State{}}
	f.play("spawn x," + strings.Repeat("mark x,", 60) + "return x" + strings.Repeat(", mark", 20))
	before := shown(t, f.states[""])
	f.play("return x")
	if diff := cmp.Diff(before, shown(t, f.states[""])); diff != "" {
		t.Errorf("a second return, -before +after:\n%s", diff)
	}
	for i := range 200 {
		f.play(fmt.Sprintf("mark c%d, set c%d k v, return c%d", i, i, i))
	}
	kept, err := f.l.Init(t.Context(), at(0), f.states[""])
	if n := len(f.states[""]); err != nil || kept == nil || n > 16<<10 {
		t.Errorf("a state of %d bytes: %v", n, err)
	}
}

func TestComplete(t *testing.T) {
	l := open(t, taskstate.Options{})
	for _, result := range []layer.Result{layer.Success, layer.Failure} {
		s, err := l.Complete(t.Context(), at(1), nil, layer.Outcome{Result: result})
		if got := decode(t, s); err != nil || got.Data["__outcome"] != string(result) || len(got.Checkpoints) != 0 {
			t.Errorf("%s: state %s, error %v", result, s, err)
		}
		s, err = l.Complete(t.Context(), at(1), marks(t, 2), layer.Outcome{Result: result})
		want := fmt.Sprintf(`"checkpoints":[{"timestamp":0,"depth":0},{"timestamp":1000,"depth":0,"outcome":%q}]`, result)
		if err != nil || !strings.Contains(string(s), want) {
			t.Errorf("%s: state %s, error %v, want %s", result, s, err, want)
		}
	}
}

// The end of a run is marked at its checkpoint. The task goes on until the model, or the completion endpoint, ends it.
func TestRunsEndNoTask(t *testing.T) {
	l := open(t, taskstate.Options{})
	s, err := l.Store(t.Context(), at(1), nil, &layer.Response{Done: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range []layer.Result{layer.Answered, layer.Denied} {
		s, err = l.Complete(t.Context(), at(1), s, layer.Outcome{Result: result})
		if want := fmt.Sprintf(`{"checkpoints":[{"timestamp":%d,"depth":0,"outcome":%q}],"files":[],"data":{}}`, at(1).Now.UnixMilli(), result); err != nil || string(s) != want {
			t.Errorf("got %s, %v, want %s", s, err, want)
		}
	}
	for arguments, want := range map[string]layer.Result{`{}`: layer.Success, `{"success":true}`: layer.Success, `{"success":false}`: layer.Failure} {
		var said layer.Result
		turn := *at(2)
		turn.Complete = func(r layer.Result) { said = r }
		_, next, err := l.Tools()[2].Run(t.Context(), &turn, s, []byte(arguments))
		if got := decode(t, next); err != nil || got.Data["__outcome"] != string(want) || said != want {
			t.Errorf("%s: %v, %s, %v", arguments, said, next, err)
		}
	}
}

// The outcome of a task is gone when the user goes on, and not before.
func TestOutcomeUntilTheUserGoesOn(t *testing.T) {
	l := open(t, taskstate.Options{})
	s, _ := run(t, "setTaskData", nil, `{"key":"k","value":1}`)
	s = layertest.Must(l.Complete(t.Context(), at(1), s, layer.Outcome{Result: layer.Success}))(t)
	result := wire.NewToolResult(wire.Call{ID: "c", Family: "function"}, dialects.Chat, "ok")
	if got, err := l.AppendItems(t.Context(), at(2), s, []wire.Item{result}); err != nil || got.State != nil {
		t.Errorf("a result changed the state to %s, %v", got.State, err)
	}
	got, err := l.AppendItems(t.Context(), at(2), s, []wire.Item{wire.NewMessage(dialects.Chat, wire.User, "And now?")})
	if want := `{"checkpoints":[],"files":[],"data":{"k":1}}`; err != nil || string(got.State) != want || len(got.Items) != 1 {
		t.Errorf("have %s, %v, want %s", got.State, err, want)
	}
	if again, err := l.AppendItems(t.Context(), at(3), got.State, []wire.Item{wire.NewMessage(dialects.Chat, wire.User, "__outcome")}); err != nil || again.State != nil {
		t.Errorf("nothing to clear: %s, %v", again.State, err)
	}
}

func TestBadOptions(t *testing.T) {
	if _, err := taskstate.New(taskstate.Options{ReturnMode: "x"}); err == nil || !strings.HasPrefix(err.Error(), "return_mode: ") {
		t.Errorf("error %v, want one that names return_mode", err)
	}
}

// FuzzTools: after any calls on any stored bytes, the state can be read again.
func FuzzTools(f *testing.F) {
	f.Add([]byte(`{"checkpoints":[],"files":["a"],"data":{"k":[1]}}`), []byte(`{"key":"k","value":null,"path":"b"}`))
	f.Add([]byte(`{"data":{"k":[[[[`), []byte(`{"key":"\u0000","value":"x"}`))
	l := layertest.Must(taskstate.New(taskstate.Options{}))(f)
	f.Fuzz(func(t *testing.T, stored, arguments []byte) {
		s := layertest.Must(l.Init(t.Context(), at(0), stored))(t)
		for _, tool := range l.Tools() {
			_, next, err := tool.Run(t.Context(), at(0), s, arguments)
			if err != nil && string(next) != string(s) {
				t.Fatalf("%s refused, yet the state became %q", tool.Name, next)
			}
			again, initErr := l.Init(t.Context(), at(0), next)
			if initErr != nil || string(again) != string(next) {
				t.Fatalf("state %q reads as %q, %v", next, again, initErr)
			}
		}
	})
}
