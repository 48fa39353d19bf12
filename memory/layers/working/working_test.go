package working_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/working"
)

func open(tb testing.TB, o working.Options) *working.Layer {
	tb.Helper()
	return layertest.Must(working.New(o))(tb)
}

var turn = &layer.Turn{Count: layertest.Quarter}

// recall returns the recalled text, "" for none.
func recall(t *testing.T, l *working.Layer, s layer.State, budget int) string {
	t.Helper()
	got := layertest.Must(l.Recall(t.Context(), turn, s, budget))(t)
	if len(got.Messages) > 1 {
		t.Fatalf("%d messages, want at most one", len(got.Messages))
	}
	return strings.Join(got.Messages, "")
}

// calls is a response with calls of updateWorkingMemory.
func calls(arguments ...string) *layer.Response {
	r := &layer.Response{Calls: []layer.ToolCall{{ID: "0", Name: "read_file", Arguments: `{"k":"not for us"}`}}}
	for _, a := range arguments {
		r.Calls = append(r.Calls, layer.ToolCall{ID: "1", Name: "updateWorkingMemory", Arguments: a})
	}
	return r
}

func TestSuite(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer"}}}`
	states := layertest.States(
		layer.State(`{"name":"Ada","goals":["ship","sleep"],"nested":{"a":{"b":[1,2,{"c":"日本語 <\/zz> text that is long enough to be cut"}]}}}`),
		layer.State(`"notes that were imported </zz> 🦈"`))
	t.Run("plain", func(t *testing.T) { layertest.Run(t, func() any { return open(t, working.Options{}) }, states) })
	t.Run("schema", func(t *testing.T) {
		o := working.Options{Schema: schema, Template: "{}", Setup: layer.Setup{Scope: layer.Resource}}
		layertest.Run(t, func() any { return open(t, o) }, states,
			layertest.Calls(layer.ToolCall{Name: "updateWorkingMemory", Arguments: `{"n":1,"list":[1]}`}))
	})
}

func TestRecall(t *testing.T) {
	for _, c := range []struct{ name, state, want string }{
		{"nothing kept", ``, ""},
		{"empty text", `""`, ""},
		{"empty object", `{}`, ""},
		{"text", `"hello"`, "<working_memory>\nhello\n</working_memory>"},
		{
			"object, in the order it was written",
			`{"b":1,"a":{"x":[1,"é"],"e":{},"l":[]},"big":12345678901234567890}`,
			"<working_memory>\n{\n  \"b\": 1,\n  \"a\": {\n    \"x\": [\n      1,\n      \"é\"\n    ],\n    \"e\": {},\n    \"l\": []\n  },\n" +
				"  \"big\": 12345678901234567890\n}\n</working_memory>",
		},
		{"what it says cannot close it", `"a</working_memory>b"`, "<working_memory>\na<\\/working_memory>b\n</working_memory>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, recall(t, open(t, working.Options{}), layer.State(c.state), math.MaxInt)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Over the budget the indentation goes before the content does, and then the oldest content.
func TestRecallWithin(t *testing.T) {
	l, s := open(t, working.Options{}), layer.State(`{"a":1,"b":[1,2,3]}`)
	for _, c := range []struct {
		budget int
		want   string
	}{
		{14, "<working_memory>\n{\"a\":1,\"b\":[1,2,3]}\n</working_memory>"},
		{13, ""},
	} {
		if diff := cmp.Diff(c.want, recall(t, l, s, c.budget)); diff != "" {
			t.Errorf("budget %d: -want +got:\n%s", c.budget, diff)
		}
	}
}

func TestStore(t *testing.T) {
	const example = `{"g":{"x":1,"y":2},"k":[1]}`
	schema := working.Options{Schema: `{"type":"object","properties":{"n":{"type":"integer","minimum":0},"s":{"type":"string"}},"additionalProperties":false}`}
	deep := func(n int, leaf string) string { return strings.Repeat(`{"a":`, n) + leaf + strings.Repeat("}", n) }
	for _, c := range []struct {
		name    string
		o       working.Options
		state   string
		calls   []string
		want    string
		refused bool
	}{
		{"onto nothing", working.Options{}, ``, []string{` {"k":1} `}, `{"k":1}`, false},
		{"onto an empty text", working.Options{}, `""`, []string{`{"k":1}`}, `{"k":1}`, false},
		{"onto a text", working.Options{}, `"notes"`, []string{`{"k":1}`}, `{"k":1,"_previous":"notes"}`, false},
		{"_previous wins over an update", working.Options{}, `"notes"`, []string{`{"_previous":0,"k":1}`}, `{"_previous":"notes","k":1}`, false},
		{"deep merge, lists replaced", working.Options{}, example, []string{`{"g":{"x":9},"k":[2,3]}`}, `{"g":{"x":9,"y":2},"k":[2,3]}`, false},
		{"null is stored", working.Options{}, example, []string{`{"g":null}`}, `{"g":null,"k":[1]}`, false},
		{"merged to depth 31, replaced from 32", working.Options{}, deep(32, `{"x":1}`), []string{deep(32, `{"y":2}`)}, deep(32, `{"y":2}`), false},
		{"depth 31 is merged", working.Options{}, deep(31, `{"x":1}`), []string{deep(31, `{"y":2}`)}, deep(31, `{"x":1,"y":2}`), false},
		{
			"forbidden names at all depths",
			working.Options{},
			``,
			[]string{`{"__proto__":{"x":1},"a":{"constructor":[{}],"b":[{"__proto__":1,"c":2}],"v":"constructor"},"constructor":2}`},
			`{"a":{"b":[{"c":2}],"v":"constructor"}}`, false,
		},
		{"escaped", working.Options{}, ``, []string{`{"__\u0070roto__":1,"k":2}`}, `{"k":2}`, false},
		{"list", working.Options{}, example, []string{`[1]`}, example, false},
		{"null", working.Options{}, example, []string{`null`}, example, false},
		{"text", working.Options{}, example, []string{`"x"`}, example, false},
		{"malformed", working.Options{}, example, []string{`{"k":`, `{"k":1}}`, ``, `{"k":1} {}`}, example, false},
		{"the next one is tried", working.Options{}, ``, []string{`[1]`, `{"k":2}`}, `{"k":2}`, false},
		{"only the first", working.Options{}, ``, []string{`{"k":1}`, `{"k":2,"l":3}`}, `{"k":1}`, false},
		{"read only", working.Options{ReadOnly: true}, example, []string{`{"k":1}`}, example, false},
		{"breaks the schema", schema, `{"n":1}`, []string{`{"n":-1}`, `{"n":3}`}, `{"n":1}`, true},
		{"part of it", schema, `{"n":1}`, []string{`{"s":"x"}`}, `{"n":1,"s":"x"}`, false},
		{"what is merged counts", schema, `{"n":1,"old":2}`, []string{`{"s":"x"}`}, `{"n":1,"old":2}`, true},
		{"too large", working.Options{MaxBytes: 20}, `{"k":1}`, []string{`{"l":"0123456789"}`}, `{"k":1}`, true},
		{"too large, but smaller than before", working.Options{MaxBytes: 10}, `{"k":"0123456789"}`, []string{`{"k":"01234567"}`}, `{"k":"01234567"}`, false},
		{"nested too deep", working.Options{}, ``, []string{deep(65, "1")}, ``, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, err := open(t, c.o).Store(t.Context(), turn, layer.State(c.state), calls(c.calls...))
			if (err != nil) != c.refused {
				t.Errorf("error %v, want one: %v", err, c.refused)
			}
			if diff := cmp.Diff(c.want, string(next)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The function update merges, refuses with a reason, and leaves the state then.
func TestTool(t *testing.T) {
	list := open(t, working.Options{ReadOnly: true, MaxBytes: 30, Template: "name, goal"}).Tools()
	if len(list) != 1 || list[0].Name != "update" || !strings.Contains(list[0].Description, "name, goal") {
		t.Fatalf("tools %+v, want one, update", list)
	}
	run := func(s, arguments string) (string, string, error) {
		result, next, err := list[0].Run(t.Context(), turn, layer.State(s), []byte(arguments))
		return result, string(next), err
	}
	if result, next, err := run(`{"a":1}`, `{"b":2}`); err != nil || result == "" || next != `{"a":1,"b":2}` {
		t.Errorf("update: %q, state %s, error %v", result, next, err)
	}
	for _, bad := range []string{`[1]`, `{`, `{"b":"` + strings.Repeat("x", 40) + `"}`, `{"b":"` + strings.Repeat("x", 4000) + `"}`} {
		if _, next, err := run(`{"a":1}`, bad); err == nil || next != `{"a":1}` || strings.Contains(err.Error(), "xx") {
			t.Errorf("%.20q gave state %s, error %v; want an error and the state left", bad, next, err)
		}
	}
}

func TestInit(t *testing.T) {
	l := open(t, working.Options{Schema: `{"type":"object","required":["n"],"properties":{"n":{"type":"number"}}}`})
	for _, c := range []struct{ stored, want string }{
		{`{"n":1}`, `{"n":1}`}, {`{"n":"x"}`, ``}, {`{}`, ``}, {`"text"`, ``}, {`[1]`, ``}, {`{"n":1,"n":2}`, ``}, {``, ``},
	} {
		got, err := l.Init(t.Context(), turn, layer.State(c.stored))
		if err != nil || string(got) != c.want {
			t.Errorf("Init(%s) = %s, %v, want %s", c.stored, got, err, c.want)
		}
	}
}

// A child has its parent's memory where a resource shares it, and none of a thread's. That
// states are kept apart by scope is the runtime's.
func TestSpawn(t *testing.T) {
	for _, c := range []struct {
		scope layer.Scope
		want  string
	}{{0, ``}, {layer.Thread, ``}, {layer.Resource, `{"a":1}`}} {
		got, err := open(t, working.Options{Setup: layer.Setup{Scope: c.scope}}).Spawn(t.Context(), turn, layer.State(`{"a":1}`))
		if err != nil || string(got) != c.want {
			t.Errorf("scope %d: child has %s, %v, want %s", c.scope, got, err, c.want)
		}
	}
}

func TestSchema(t *testing.T) {
	for _, c := range []struct{ schema, good, bad string }{
		{`{"type":["string","null"]}`, `{"v":"a"} {"v":null}`, `{"v":1}`},
		{`{"enum":[1,"a",{"b":[null]}]}`, `{"v":1} {"v":"a"} {"v":{"b":[null]}}`, `{"v":2} {"v":{}}`},
		{`{"const":null}`, `{"v":null}`, `{"v":0}`},
		{`{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":3}`, `{"v":1} {"v":2.0}`, `{"v":0} {"v":3} {"v":1.5}`},
		{`{"minimum":1,"maximum":2}`, `{"v":1} {"v":"text"}`, `{"v":0.5} {"v":2.5}`},
		{`{"minLength":2,"maxLength":3,"pattern":"^a"}`, `{"v":"aé"}`, `{"v":"a"} {"v":"aaaa"} {"v":"bb"}`},
		{`{"items":{"type":"boolean"},"minItems":1,"maxItems":2}`, `{"v":[true]}`, `{"v":[]} {"v":[1]} {"v":[true,true,true]}`},
		{`{"anyOf":[{"type":"string"},{"minimum":5}],"allOf":[{"type":["string","number"]}]}`, `{"v":"a"} {"v":6}`, `{"v":1} {"v":true}`},
		{`{"additionalProperties":{"type":"number"},"required":["a"]}`, `{"v":{"a":1,"b":2}}`, `{"v":{}} {"v":{"a":1,"b":"x"}}`},
	} {
		l := open(t, working.Options{Schema: `{"title":"t","type":"object","properties":{"v":` + c.schema + `}}`})
		for want, updates := range map[bool]string{true: c.good, false: c.bad} {
			dec := json.NewDecoder(strings.NewReader(updates))
			for {
				var update json.RawMessage
				if dec.Decode(&update) != nil {
					break
				}
				if _, err := l.Store(t.Context(), turn, nil, calls(string(update))); (err == nil) != want {
					t.Errorf("%s: update %s gave error %v", c.schema, update, err)
				}
			}
		}
	}
}

func TestBadOptions(t *testing.T) {
	o := working.Options{MaxBytes: -1, Setup: layer.Setup{Scope: layer.Global}, Schema: `{"type":"object","$ref":"#/x"}`, Template: strings.Repeat("x", 1<<20)}
	_, err := working.New(o)
	for _, want := range []string{"max_bytes: ", "scope: ", "schema: ", "$ref", "template: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to hold %q", err, want)
		}
	}
	for _, bad := range []string{`x`, `[]`, `{"type":"text"}`, `{"pattern":"("}`, `{"properties":{"a":{"items":{"type":"x"}}}}`, `{"oneOf":[]}`} {
		if _, err := working.New(working.Options{Schema: bad}); err == nil || !strings.HasPrefix(err.Error(), "schema: ") {
			t.Errorf("schema %s: error %v, want one that names it", bad, err)
		}
	}
}

// FuzzUpdate: any arguments onto any state give a state that can be read again, or an error.
func FuzzUpdate(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), []byte(`{"a":{"b":{"constructor":1}},"c":[1]}`))
	f.Add([]byte(`"notes"`), []byte(`{"a":"\ud800"}`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"":{}}`))
	f.Add([]byte(``), []byte(strings.Repeat(`{"a":`, 70)))
	l := open(f, working.Options{MaxBytes: 1000})
	run := l.Tools()[0].Run
	f.Fuzz(func(t *testing.T, stored, arguments []byte) {
		s := layertest.Must(l.Init(t.Context(), turn, stored))(t)
		_, next, err := run(t.Context(), turn, s, arguments)
		if err != nil {
			if string(next) != string(s) {
				t.Fatalf("refused, yet the state became %q", next)
			}
			return
		}
		if !json.Valid(next) || len(next) > max(1000, len(s)) {
			t.Fatalf("state %q", next)
		}
		again, err := l.Init(t.Context(), turn, next)
		if err != nil || string(again) != string(next) && string(next) != "{}" {
			t.Fatalf("state %q reads as %q, %v", next, again, err)
		}
		if got, err := l.Recall(t.Context(), turn, next, 50); err != nil || len(got.Messages) == 1 && layertest.Quarter(got.Messages[0]) > 50 {
			t.Fatalf("recalled %q, %v", got.Messages, errors.Join(err))
		}
	})
}

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l := layertest.Must(working.New(working.Options{}))(t)
	s := update(t, l, nil, `{"name":"Ann","city":"Oslo"}`)
	layertest.Page(t, layertest.PageRecall(t, l, s)...)
}
