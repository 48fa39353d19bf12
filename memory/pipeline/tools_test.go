package pipeline

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"remora/memory/layer"
	"remora/wire"
	"remora/wire/dialects"
)

const updateSchema = `{"type":"object","properties":{"key":{"type":"string","maxLength":5}},"required":["key"],"additionalProperties":false}`

func TestTools(t *testing.T) {
	run := func(f func(arguments string) (string, layer.State, error)) func(ctx, *layer.Turn, layer.State, []byte) (string, layer.State, error) {
		return func(_ ctx, _ *layer.Turn, _ layer.State, a []byte) (string, layer.State, error) { return f(string(a)) }
	}
	f := &fake{tools: []layer.Tool{
		{Name: "update", Description: "d", Parameters: []byte(updateSchema), Run: run(func(a string) (string, layer.State, error) {
			return "kept " + a, layer.State(a), nil
		})},
		{Name: "fail", Run: run(func(string) (string, layer.State, error) {
			return "", layer.State("1"), errors.New("no such file")
		})},
		{Name: "panic", Run: run(func(string) (string, layer.State, error) { panic("secret") })},
		{Name: "huge", Run: run(func(string) (string, layer.State, error) {
			return strings.Repeat("x", maxResult+1), nil, nil
		})},
		{Name: "hang", Run: run(func(string) (string, layer.State, error) { time.Sleep(time.Hour); return "late", nil, nil })},
		{Name: "no/slash", Run: run(func(a string) (string, layer.State, error) { return a, nil, nil })},
	}}
	l := at("working-memory", 100, f)
	for _, c := range []struct {
		name, tool, arguments, want string
		state                       string // after it, empty if it stays
	}{
		{"the name on the wire", "working-memory_update", `{"key":"v"}`, `kept {"key":"v"}`, `{"key":"v"}`},
		{"the name upstream", "working-memory/update", `{"key":"v"}`, `kept {"key":"v"}`, `{"key":"v"}`},
		{"no arguments", "working-memory_no_slash", " ", "{}", ""},
		{"missing", "working-memory_update", `{}`, "Error: invalid arguments: key: missing", ""},
		{"wrong type", "working-memory_update", `{"key":1}`, "Error: invalid arguments: key: want string", ""},
		{"too long", "working-memory_update", `{"key":"secret"}`, "Error: invalid arguments: key: wrong length", ""},
		{"unknown member", "working-memory_update", `{"key":"v","x":1}`, "Error: invalid arguments: x: not allowed", ""},
		{"no object", "working-memory_update", `[]`, "Error: invalid arguments: want object", ""},
		{"no JSON", "working-memory_update", `{"key`, "Error: invalid arguments: want one JSON value, each member of an object once", ""},
		{"two", "working-memory_update", `{"key":"v"} {}`, "Error: invalid arguments: want one JSON value, each member of an object once", ""},
		{"its own error", "working-memory_fail", `{}`, "Error: no such file", ""},
		{"a panic", "working-memory_panic", `{}`, "Error: the tool failed", ""},
		{"too much", "working-memory_huge", `{}`, "Error: the tool's answer cannot be used: want a result of at most 262144 bytes", ""},
		{"too long", "working-memory_hang", `{}`, "Error: the tool took too long", ""},
		{"its name alone", "update", `{"key":"v"}`, `kept {"key":"v"}`, `{"key":"v"}`},
		{"unknown", "updates", `{}`, "Error: unknown tool 'updates'", ""},
		{"the client's", "working-memory/mine", `{}`, "Error: unknown tool 'working-memory/mine'", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, Options{}, l)
				if got := r.RunTool(t.Context(), layer.ToolCall{Name: c.tool, Arguments: c.arguments}); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				var state string
				for _, ch := range r.Changes() {
					state = string(ch.State)
				}
				if state != c.state {
					t.Errorf("state %q, want %q", state, c.state)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestClientToolsWin(t *testing.T) {
	l := at("wm", 1, every(new([]string), "wm"))
	of := turn()
	r := begin(t, build(t, Options{}, l), of, nil)
	want := [][]byte{wire.FunctionTool(dialects.Chat, "wm_f", "", []byte(`{"type":"object","properties":{}}`))}
	if diff := cmp.Diff(want, r.Definitions(dialects.Chat)); diff != "" || !r.Owns("wm_f") || !r.Owns("wm/f") || r.Owns("g") {
		t.Errorf("definitions: %s", diff)
	}
	for _, name := range []string{"wm_f", "wm/f", "f", "functions.wm_f", "WM.F", "functions.f", " wm_f", "wm_f\n", "wm\u200b_f", "wm_f\x00", "wm_f<|channel|>json"} {
		if c := r.Named(layer.ToolCall{}, name); c.Name != "wm_f" || !c.OfLayer || !r.Owns(name) {
			t.Errorf("layers see %q as %+v", name, c)
		}
	}
	of.Tools = []string{"other", "wm_f"}
	r = begin(t, build(t, Options{}, l), of, nil)
	if r.Definitions(dialects.Chat) != nil || r.Owns("wm_f") || r.Owns("wm/f") || r.Named(layer.ToolCall{OfLayer: true}, "wm_f") != (layer.ToolCall{Name: "wm_f"}) {
		t.Error("the client's tool is taken for the layer's")
	}
	of.Tools = []string{"f"}
	if r = begin(t, build(t, Options{}, l), of, nil); r.Owns("f") || r.Owns("F") || !r.Owns("wm_f") {
		t.Error("the client's tool is taken for the layer's, which has another name")
	}
	of.Tools = nil
	if r = begin(t, build(t, Options{}, l, at("other", 2, every(new([]string), "other")), at("third", 3, every(new([]string), "third"))), of, nil); r.Owns("f") {
		t.Error("one of several tools of a name is taken")
	}
}

func TestMeant(t *testing.T) {
	of := turn()
	of.Tools = []string{"delete_file", "getUser", "get-user", "GETUSER"}
	r := begin(t, build(t, Options{}, at("wm", 1, every(new([]string), "wm"))), of, nil)
	for name, want := range map[string][]string{
		"delete_file": nil, "functions.delete_file": {"delete_file"}, "Delete-File": {"delete_file"}, " delete_file<|call|>": {"delete_file"},
		"delete_files": nil, "": nil, "<|call|>": nil, "getuser": {"getUser", "GETUSER"}, "getUser": nil, "Get_User": {"get-user"},
	} {
		if diff := cmp.Diff(want, r.Meant(name), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q: %s", name, diff)
		}
	}
}

func TestReview(t *testing.T) {
	guide := func(text string) layer.Verdict { return layer.Verdict{Action: layer.Guide, Guidance: text} }
	deny := layer.Verdict{Action: layer.Deny, Guidance: "never"}
	for _, c := range []struct {
		name string
		all  []layer.Verdict
		want layer.Verdict
	}{
		{"nobody", nil, layer.Verdict{}},
		{"allow", []layer.Verdict{{}, {Guidance: "ignored"}}, layer.Verdict{}},
		{"guide over allow", []layer.Verdict{{}, guide("a"), {}}, guide("a")},
		{"guidances joined, empty ones skipped", []layer.Verdict{guide("a"), guide(""), guide("b")}, guide("a\nb")},
		{"deny over guide", []layer.Verdict{guide("a"), deny, guide("b")}, deny},
		{"an empty guidance never erases another", []layer.Verdict{guide("a"), {Action: layer.Deny}}, layer.Verdict{Action: layer.Deny, Guidance: "a"}},
		{"an action of nobody's", []layer.Verdict{{Action: 9}}, layer.Verdict{Action: layer.Deny}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls, responses []Layer
			for i, v := range c.all {
				id := string(rune('a' + i))
				calls = append(calls, at(id, i, &fake{call: func(ctx, layer.State, layer.ToolCall) (layer.Verdict, error) { return v, nil }}))
				responses = append(responses, at(id, i, &fake{response: func(ctx, layer.State, *layer.Response) (layer.Verdict, error) { return v, nil }}))
			}
			r := start(t, Options{}, calls...)
			if diff := cmp.Diff(c.want, r.ReviewCall(t.Context(), layer.ToolCall{})); diff != "" || r.ReviewsCalls() != (c.all != nil) || r.HoldsResponse() {
				t.Errorf("calls: %s", diff)
			}
			r = start(t, Options{}, responses...)
			if diff := cmp.Diff(c.want, r.ReviewResponse(t.Context(), nil)); diff != "" || r.HoldsResponse() != (c.all != nil) || r.ReviewsCalls() {
				t.Errorf("responses: %s", diff)
			}
		})
	}
	failing := &fake{
		call:     func(ctx, layer.State, layer.ToolCall) (layer.Verdict, error) { return deny, errors.New("no") },
		response: func(ctx, layer.State, *layer.Response) (layer.Verdict, error) { panic("no") },
	}
	late := &fake{async: true, response: func(ctx, layer.State, *layer.Response) (layer.Verdict, error) {
		return layer.Verdict{Action: layer.Deny, State: layer.State("1")}, nil
	}}
	r := start(t, Options{}, at("a", 1, failing), at("b", 2, late))
	if v := r.ReviewCall(t.Context(), layer.ToolCall{}); v.Action != layer.Allow {
		t.Error("a failing reviewer decides")
	}
	if v := r.ReviewResponse(t.Context(), nil); v.Action != layer.Allow || len(r.Changes()) != 1 {
		t.Errorf("an asynchronous reviewer decides %v, with %d changes", v, len(r.Changes()))
	}
	if start(t, Options{}, at("b", 2, late)).HoldsResponse() {
		t.Error("an asynchronous reviewer holds answers back")
	}
}
