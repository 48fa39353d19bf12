package wire_test

import (
	"strings"
	"testing"

	. "remora/wire"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, list string, want ...string) {
		t.Helper()
		r, err := Parse(d, []byte(`{"`+d.Rules().List+`":[`+list+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, err := range Check(d, r.Items()) {
			got = append(got, err.Error())
		}
		if d := diff(want, got); d != "" {
			t.Errorf("%s:\n%s", list, d)
		}
	}
	const (
		user  = `{"role":"user","content":"x"}`
		calls = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}]}`
		a, b  = `{"role":"tool","tool_call_id":"a","content":""}`, `{"role":"tool","tool_call_id":"b","content":""}`
		old   = `{"role":"assistant","content":null,"function_call":{"name":"f"}}`
		oldF  = `{"role":"function","name":"f","content":""}`
	)
	list := func(parts ...string) string { return strings.Join(parts, ",") }
	f(Chat, list(user, calls, b, a, user, calls, a, b, user))
	f(Chat, list(old, oldF, old, oldF))
	f(Chat, list(calls, a, user, b), `item 0: call "b" without result directly behind it`, `item 3: result without call "b" in the message before`)
	f(Chat, list(a, calls, a, a, b), `item 0: result without call "a" in the message before`, `item 3: second result for call "a"`)
	f(Chat, list(calls), `item 0: call "a" without result directly behind it`, `item 0: call "b" without result directly behind it`)
	f(Chat, list(old, user, oldF), `item 0: call "f" without result directly behind it`, `item 2: result without call "f" in the message before`)

	const (
		fc, fo = `{"type":"function_call","call_id":"a","name":"f"}`, `{"type":"function_call_output","call_id":"a","output":""}`
		cc, co = `{"type":"custom_tool_call","call_id":"a","name":"f"}`, `{"type":"custom_tool_call_output","call_id":"a","output":""}`
		shell  = `{"type":"local_shell_call","call_id":"a"}`
		noID   = `{"type":"function_call_output","output":""}`
		hosted = `{"type":"web_search_call","id":"ws"}`
	)
	f(Responses, list(fc, user, fo, hosted, noID))
	f(Responses, list(fc, cc, co, fo))
	f(Responses, list(shell, fo))
	f(Responses, list(shell, `{"type":"local_shell_call_output","id":"a","output":""}`))
	f(Responses, list(fc, co), `item 1: result without a custom_tool call "a" before it`, `item 0: function call "a" without result`)
	f(Responses, list(fo, fc), `item 0: result without a function call "a" before it`, `item 1: function call "a" without result`)
	f(Responses, list(fc, fo, fo), `item 2: second result for function call "a"`)
}

// TestToolResult: each call's input can be read, and a result made for it answers it.
func TestToolResult(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, raw string, inputs []string, results ...string) {
		t.Helper()
		it, err := ParseItem(d, []byte(raw))
		if err != nil || len(it.Calls) != len(inputs) {
			t.Fatalf("%s: %d calls, %v", raw, len(it.Calls), err)
		}
		for i, call := range it.Calls {
			if got := it.Input(i); got != inputs[i] {
				t.Errorf("%s: input %d is %q, want %q", raw, i, got, inputs[i])
			}
			made := NewToolResult(call, d, `x"`)
			if string(made.Raw) != results[i] || !strict(made.Raw) {
				t.Errorf("got %s, want %s", made.Raw, results[i])
			}
			if made.Kind != ToolResult || made.Dialect != d || !Matches(call, made.Answers) {
				t.Errorf("%s does not answer %v: %+v", made.Raw, call, made)
			}
		}
		if it.Input(-1) != "" || it.Input(len(inputs)) != "" {
			t.Error("input of a call that is none")
		}
	}
	f(Chat, `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":\"\u0041\"}"}},{"id":"b","type":"custom","custom":{"name":"g","input":"raw"}}],"function_call":{"name":"h","arguments":"{}"}}`,
		[]string{`{"x":"A"}`, "raw", "{}"}, `{"role":"tool","tool_call_id":"a","content":"x\""}`, `{"role":"tool","tool_call_id":"b","content":"x\""}`, `{"role":"function","name":"h","content":"x\""}`)
	f(Responses, `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`, []string{"{}"}, `{"type":"function_call_output","call_id":"a","output":"x\""}`)
	f(Responses, `{"type":"custom_tool_call","call_id":"a","name":"f","input":"raw"}`, []string{"raw"}, `{"type":"custom_tool_call_output","call_id":"a","output":"x\""}`)
	f(Responses, `{"type":"local_shell_call","id":"i","action":{"command":["ls"]}}`, []string{`{"command":["ls"]}`}, `{"type":"local_shell_call_output","id":"i","output":"x\""}`)
	f(Responses, `{"type":"shell_call","call_id":"a","action":{"commands":["ls"]}}`, []string{`{"commands":["ls"]}`}, `{"type":"shell_call_output","call_id":"a","output":[{"stdout":"","stderr":"x\"","outcome":{"type":"exit","exit_code":1}}]}`)
	f(Responses, `{"type":"tool_search_call","call_id":"a"}`, []string{""}, `{"type":"tool_search_output","call_id":"a","output":"x\""}`)
}
