package responses_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
	"remora/wire/responses"
)

// TestItems: what an element is, however it is spelled.
func TestItems(t *testing.T) {
	t.Parallel()
	call := func(id, family, name string) wire.Call { return wire.Call{ID: id, Family: family, Name: name} }
	calls := func(all ...wire.Call) (parts []wire.Part) {
		for _, c := range all {
			parts = append(parts, wire.Part{Kind: wire.ToolCall, Call: c})
		}
		return parts
	}
	result := func(id, family, name string) []wire.Part {
		return []wire.Part{{Kind: wire.ToolResult, Call: call(id, family, name)}}
	}
	// A want without Parts has one of its own kind.
	f := func(raw string, want wire.Item) {
		t.Helper()
		got, err := wire.ParseItem(responses.Dialect, []byte(" "+raw+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if want.Parts == nil {
			want.Parts = []wire.Part{{Kind: want.Kind}}
		}
		want.Dialect, want.Raw = responses.Dialect, []byte(raw)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s\n%s", raw, d)
		}
	}
	f(`{"role":"user","content":"x"}`, wire.Item{Kind: wire.Message, Role: wire.User})
	f(`{"role":"user","content":""}`, wire.Item{Kind: wire.Message, Role: wire.User, Parts: []wire.Part{{Kind: wire.Message, Empty: true}}})
	f(`{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, wire.Item{Kind: wire.Message, Role: wire.Assistant, ID: "msg_1"})
	f(`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}`, wire.Item{Kind: wire.ToolCall, ID: "fc_1", Parts: calls(call("c", "function", "f"))})
	f(`{"type":"function_call_output","call_id":"c","output":"x"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: result("c", "function", "")})
	f(`{"type":"function_call_output","output":"x"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: result("", "function", "")})
	f(`{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}`, wire.Item{Kind: wire.ToolCall, Parts: calls(call("c", "custom_tool", "f"))})
	f(`{"type":"local_shell_call","id":"l","call_id":"c","action":{}}`, wire.Item{Kind: wire.ToolCall, ID: "l", Parts: calls(call("c", "local_shell", ""))})
	f(`{"type":"local_shell_call_output","id":"c","output":"x"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, ID: "c", Parts: result("c", "local_shell", "")})
	f(`{"type":"shell_call_output","call_id":"c","output":[]}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: result("c", "shell", "")})
	f(`{"type":"apply_patch_call","call_id":"c"}`, wire.Item{Kind: wire.ToolCall, Parts: calls(call("c", "apply_patch", ""))})
	f(`{"type":"computer_call","call_id":"c"}`, wire.Item{Kind: wire.ToolCall, Parts: calls(call("c", "computer", ""))})
	f(`{"type":"tool_search_call","call_id":"c","execution":"client"}`, wire.Item{Kind: wire.ToolCall, Parts: calls(call("c", "tool_search", ""))})
	f(`{"type":"tool_search_output","call_id":"c"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: result("c", "tool_search", "")})
	f(`{"type":"tool_search_call","call_id":"c","execution":"server"}`, wire.Item{})
	f(`{"type":"tool_search_output","call_id":null,"execution":"server"}`, wire.Item{})
	f(`{"type":"reasoning","id":"rs","summary":[]}`, wire.Item{Kind: wire.Reasoning, ID: "rs"})
	f(`{"type":"item_reference","id":"x"}`, wire.Item{Kind: wire.Reference, ID: "x"})
	f(`{"id":"x"}`, wire.Item{Kind: wire.Reference, ID: "x"})
	f(`{"type":null,"id":"x"}`, wire.Item{Kind: wire.Reference, ID: "x"})
	f(`{"type":"compaction","encrypted_content":"e"}`, wire.Item{Kind: wire.Compaction})
	f(`{"type":"mcp_approval_request","id":"m","name":"f"}`, wire.Item{ID: "m", Parts: []wire.Part{{Call: call("m", "mcp_approval", "")}}})
	f(`{"type":"mcp_approval_response","id":"x","approval_request_id":"m"}`, wire.Item{ID: "x", Parts: result("m", "mcp_approval", "")})
	f(`{"type":"program","id":"p","call_id":"c"}`, wire.Item{ID: "p", Parts: []wire.Part{{Call: call("c", "program", "")}}})
	f(`{"type":"program_output","id":"p","call_id":"c","result":"x"}`, wire.Item{ID: "p", Parts: result("c", "program", "")})
	// Without an id they pair with nothing.
	f(`{"type":"mcp_approval_request","name":"f"}`, wire.Item{})
	f(`{"type":"program_output","result":"x"}`, wire.Item{})
	for _, typ := range []string{"web_search_call", "mcp_call", "image_generation_call", "code_interpreter_call", "future_call", "future_call_output"} {
		f(`{"type":"`+typ+`","call_id":"c"}`, wire.Item{})
	}
}
