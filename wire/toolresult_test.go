package wire_test

import (
	"testing"

	. "remora/wire"
	"remora/wire/wiretest"
)

// TestToolResult: each call's input can be read, and a result made for it answers it.
func TestToolResult(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, raw string, inputs []string, results ...string) {
		t.Helper()
		it, err := ParseItem(d, []byte(raw))
		if err != nil || len(it.Parts) != len(inputs) {
			t.Fatalf("%s: %d parts, %v", raw, len(it.Parts), err)
		}
		for i, call := range it.Calls() {
			if got := it.Input(i); got != inputs[i] {
				t.Errorf("%s: input %d is %q, want %q", raw, i, got, inputs[i])
			}
			made := NewToolResult(call, d, `x"`)
			if string(made.Raw) != results[i] || !strict(made.Raw) {
				t.Errorf("got %s, want %s", made.Raw, results[i])
			}
			if made.Kind != ToolResult || made.Dialect != d || !Matches(call, made.Answers()) {
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

// TestCallsAsText: the input of calls of any kind stands below the text of their message.
func TestCallsAsText(t *testing.T) {
	f := func(d Dialect, raw, want string) {
		t.Helper()
		it := wiretest.Parse(t, d, raw)
		if got := it.CallsAsText(); got.Kind != Message || got.Role != Assistant || got.HasCalls() || got.Text() != want {
			t.Errorf("%s\n got %s", raw, got.Raw)
		}
	}
	f(Chat, `{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}`, `{"a":1}`)
	f(Chat, `{"role":"assistant","content":"Both:","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},`+
		`{"id":"y","type":"custom","custom":{"name":"g","input":"plain"}}]}`, "Both:\n{\"a\":1}\nplain")
	f(Chat, `{"role":"assistant","content":[{"type":"text","text":"It is "},{"type":"text","text":"so:"}],"function_call":{"name":"f","arguments":"{}"}}`, "It is so:\n{}")
	f(Responses, `{"type":"function_call","id":"fc_1","call_id":"x","name":"f","arguments":"{\"a\":\"\u00e9\"}"}`, `{"a":"é"}`)
	f(Responses, `{"type":"custom_tool_call","id":"ct_1","call_id":"x","name":"g","input":"plain"}`, "plain")
}
