package responses_test

import (
	"testing"

	"remora/wire"
	"remora/wire/responses"
	"remora/wire/wiretest"
)

// TestItems: what an element is, however it is spelled.
func TestItems(t *testing.T) {
	t.Parallel()
	call := wiretest.Call
	f := func(raw string, want wire.Item) { t.Helper(); wiretest.Item(t, responses.Dialect, raw, want) }
	f(`{"role":"user","content":"x"}`, wire.Item{Kind: wire.Message, Role: wire.User})
	f(`{"role":"user","content":""}`, wire.Item{Kind: wire.Message, Role: wire.User, Parts: []wire.Part{{Kind: wire.Message, Empty: true}}})
	f(`{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, wire.Item{Kind: wire.Message, Role: wire.Assistant, ID: "msg_1"})
	f(`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}`, wire.Item{Kind: wire.ToolCall, ID: "fc_1", Parts: wiretest.Calls(call("c", "function", "f"))})
	f(`{"type":"function_call_output","call_id":"c","output":"x"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: wiretest.Result("c", "function", "")})
	f(`{"type":"function_call_output","output":"x"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: wiretest.Result("", "function", "")})
	f(`{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}`, wire.Item{Kind: wire.ToolCall, Parts: wiretest.Calls(call("c", "custom_tool", "f"))})
	f(`{"type":"local_shell_call","id":"l","call_id":"c","action":{}}`, wire.Item{Kind: wire.ToolCall, ID: "l", Parts: wiretest.Calls(call("c", "local_shell", ""))})
	f(`{"type":"local_shell_call_output","id":"c","output":"x"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, ID: "c", Parts: wiretest.Result("c", "local_shell", "")})
	f(`{"type":"shell_call_output","call_id":"c","output":[]}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: wiretest.Result("c", "shell", "")})
	f(`{"type":"apply_patch_call","call_id":"c"}`, wire.Item{Kind: wire.ToolCall, Parts: wiretest.Calls(call("c", "apply_patch", ""))})
	f(`{"type":"computer_call","call_id":"c"}`, wire.Item{Kind: wire.ToolCall, Parts: wiretest.Calls(call("c", "computer", ""))})
	f(`{"type":"tool_search_call","call_id":"c","execution":"client"}`, wire.Item{Kind: wire.ToolCall, Parts: wiretest.Calls(call("c", "tool_search", ""))})
	f(`{"type":"tool_search_output","call_id":"c"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: wiretest.Result("c", "tool_search", "")})
	f(`{"type":"tool_search_call","call_id":"c","execution":"server"}`, wire.Item{})
	f(`{"type":"tool_search_output","call_id":null,"execution":"server"}`, wire.Item{})
	f(`{"type":"reasoning","id":"rs","summary":[]}`, wire.Item{Kind: wire.Reasoning, ID: "rs"})
	f(`{"type":"item_reference","id":"x"}`, wire.Item{Kind: wire.Reference, ID: "x"})
	f(`{"id":"x"}`, wire.Item{Kind: wire.Reference, ID: "x"})
	f(`{"type":null,"id":"x"}`, wire.Item{Kind: wire.Reference, ID: "x"})
	f(`{"type":"compaction","encrypted_content":"e"}`, wire.Item{Kind: wire.Compaction})
	f(`{"type":"mcp_approval_request","id":"m","name":"f"}`, wire.Item{ID: "m", Parts: []wire.Part{{Call: call("m", wire.FamilyApproval, "f")}}})
	f(`{"type":"mcp_approval_response","id":"x","approval_request_id":"m"}`, wire.Item{ID: "x", Parts: wiretest.Result("m", "mcp_approval", "")})
	f(`{"type":"program","id":"p","call_id":"c"}`, wire.Item{ID: "p", Parts: []wire.Part{{Call: call("c", "program", "")}}})
	f(`{"type":"program_output","id":"p","call_id":"c","result":"x"}`, wire.Item{ID: "p", Parts: wiretest.Result("c", "program", "")})
	// Without an id they pair with nothing.
	f(`{"type":"mcp_approval_request","name":"f"}`, wire.Item{Parts: []wire.Part{{Call: call("", wire.FamilyApproval, "f")}}})
	f(`{"type":"program_output","result":"x"}`, wire.Item{})
	for _, typ := range []string{"web_search_call", "mcp_call", "image_generation_call", "code_interpreter_call", "future_call", "future_call_output"} {
		f(`{"type":"`+typ+`","call_id":"c"}`, wire.Item{})
	}
}
