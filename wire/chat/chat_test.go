package chat_test

import (
	"testing"

	"remora/wire"
	"remora/wire/chat"
	"remora/wire/wiretest"
)

// TestItems: what an element is, however it is spelled.
func TestItems(t *testing.T) {
	t.Parallel()
	call := wiretest.Call
	f := func(raw string, want wire.Item) { t.Helper(); wiretest.Item(t, chat.Dialect, raw, want) }
	empty := []wire.Part{{Kind: wire.Message, Empty: true}}
	f(`{"role":"system","content":"x"}`, wire.Item{Kind: wire.Message, Role: wire.System})
	f(`{"role":"developer","content":""}`, wire.Item{Kind: wire.Message, Role: wire.Developer, Parts: empty})
	f(`{"role":"critic","content":[]}`, wire.Item{Kind: wire.Message, Role: wire.RoleOther, Parts: empty})
	f(`{"r\u006fle":"us\u0065r","content":[{"type":"text","text":""},{"type":"image_url","image_url":{}}]}`, wire.Item{Kind: wire.Message, Role: wire.User})
	f(`{"role":"user","content":[{"type":"text","text":""},""]}`, wire.Item{Kind: wire.Message, Role: wire.User, Parts: empty})
	f(`{"role":"user","role":"assistant","content":null,"refusal":"no"}`, wire.Item{Kind: wire.Message, Role: wire.Assistant})
	f(`{"role":"assistant","audio":{"id":"a"}}`, wire.Item{Kind: wire.Message, Role: wire.Assistant})
	f(`{"role":"assistant","content":null,"images":[{}]}`, wire.Item{Kind: wire.Message, Role: wire.Assistant})
	f(`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":""}},{"id":"2","type":"custom","custom":{"name":"g"}}],"function_call":{"name":"h"}}`,
		wire.Item{Kind: wire.Message, Role: wire.Assistant, Parts: wiretest.Calls(call("1", "function", "f"), call("2", "function", "g"), call("", "function_legacy", "h"))})
	f(`{"tool_calls":[{"id":"1"}],"role":"assistant","content":"x"}`,
		wire.Item{Kind: wire.Message, Role: wire.Assistant, Parts: append([]wire.Part{{Kind: wire.Message}}, wiretest.Calls(call("1", "function", ""))...)})
	f(`{"role":"assistant","content":"","tool_calls":[]}`, wire.Item{Kind: wire.Message, Role: wire.Assistant, Parts: empty})
	f(`{"role":"assistant","content":"x","tool_calls":null,"function_call":null}`, wire.Item{Kind: wire.Message, Role: wire.Assistant})
	f(`{"role":"assistant","content":"x","tool_calls":[1]}`, wire.Item{Kind: wire.Other, Role: wire.Assistant})
	f(`{"role":"user","content":"x","tool_calls":[{"id":"1"}]}`, wire.Item{Kind: wire.Message, Role: wire.User})
	f(`{"role":"tool","tool_call_id":"1","content":"x"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: wiretest.Result("1", "function", "")})
	f(`{"role":"function","name":"h","content":"x"}`, wire.Item{Kind: wire.ToolResult, Role: wire.RoleTool, Parts: wiretest.Result("", "function_legacy", "h")})
	f(`"x"`, wire.Item{})
	f(`null`, wire.Item{})
}

// TestNullBesideACall: a call is the same one with a null for the kind that it is not.
func TestNullBesideACall(t *testing.T) {
	t.Parallel()
	for plain, null := range map[string]string{
		`"function":{"name":"f","arguments":"{}"}`: `"function":{"name":"f","arguments":"{}"},"custom":null`,
		`"custom":{"name":"f","input":"x"}`:        `"function":null,"custom":{"name":"f","arguments":null,"input":"x"}`,
	} {
		a := wiretest.Parse(t, chat.Dialect, `{"role":"assistant","tool_calls":[{"id":"a",`+plain+`}]}`)
		b := wiretest.Parse(t, chat.Dialect, `{"role":"assistant","tool_calls":[{"id":"a",`+null+`}]}`)
		if a.Input(0) != b.Input(0) || a.TakesText(0) != b.TakesText(0) || a.ContentHash() != b.ContentHash() {
			t.Errorf("%s: input %q and %q, text %v and %v", null, a.Input(0), b.Input(0), a.TakesText(0), b.TakesText(0))
		}
	}
}
