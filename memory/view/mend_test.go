package view_test

import (
	"slices"
	"strings"
	"testing"

	"remora/memory/view"
	"remora/wire"
	"remora/wire/chat"
	"remora/wire/responses"
	"remora/wire/wiretest"
)

// TestMend: ids are changed for calls and results alike, in every request alike, and only where a server could refuse them.
func TestMend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		mend view.Mend
		d    wire.Dialect
		in   []string
		want []string
	}{
		{"ids of Chat", view.CallIDs, chat.Dialect, []string{
			`{"role":"assistant","tool_calls":[{"id":"call_1","function":{"name":"f"}},{"id":"abcDEF123","function":{"name":"f"}}]}`,
			`{"role":"tool","tool_call_id":"abcDEF123"}`, `{"role":"tool","tool_call_id":"call_1"}`,
		}, []string{
			`{"role":"assistant","tool_calls":[{"id":"bU09E4FDZ","function":{"name":"f"}},{"id":"abcDEF123","function":{"name":"f"}}]}`,
			`{"role":"tool","tool_call_id":"abcDEF123"}`, `{"role":"tool","tool_call_id":"bU09E4FDZ"}`,
		}},
		{"odd ids alone", view.OddCallIDs, chat.Dialect, []string{
			`{"role":"assistant","tool_calls":[{"id":"call_1"},{"id":"a.b:c"},{"id":"` + strings.Repeat("x", 41) + `"}]}`, `{"role":"tool","tool_call_id":"a.b:c"}`,
		}, []string{
			`{"role":"assistant","tool_calls":[{"id":"call_1"},{"id":"7h7za7ZGR"},{"id":"OTXTmQgzU"}]}`, `{"role":"tool","tool_call_id":"7h7za7ZGR"}`,
		}},
		{"calls without ids, twice the same", view.CallIDs, chat.Dialect, []string{
			`{"role":"assistant","tool_calls":[{"function":{"name":"f"}},{"id":"","function":{"name":"f"}}]}`,
			`{"role":"tool"}`, `{"role":"tool","tool_call_id":""}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"f"}},{"id":"","function":{"name":"f"}}]}`,
			`{"role":"tool"}`, `{"role":"tool","tool_call_id":""}`,
		}, []string{
			`{"role":"assistant","tool_calls":[{"function":{"name":"f"},"id":"1"},{"id":"2","function":{"name":"f"}}]}`,
			`{"role":"tool","tool_call_id":"1"}`, `{"role":"tool","tool_call_id":"2"}`,
			`{"role":"assistant","tool_calls":[{"function":{"name":"f"},"id":"3"},{"id":"4","function":{"name":"f"}}]}`,
			`{"role":"tool","tool_call_id":"3"}`, `{"role":"tool","tool_call_id":"4"}`,
		}},
		{"ids of Responses", view.CallIDs, responses.Dialect, []string{
			`{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f"}`, `{"type":"function_call_output","call_id":"call_1","output":""}`,
			`{"type":"local_shell_call","id":"sh_1","action":{}}`, `{"type":"function_call_output","call_id":"sh_1","output":""}`,
		}, []string{
			`{"type":"function_call","id":"fc_1","call_id":"bU09E4FDZ","name":"f"}`, `{"type":"function_call_output","call_id":"bU09E4FDZ","output":""}`,
			`{"type":"local_shell_call","id":"sh_1","action":{}}`, `{"type":"function_call_output","call_id":"sh_1","output":""}`,
		}},
		{"calls that only upstream has", view.CallIDs, responses.Dialect, []string{
			`{"type":"function_call_output","call_id":"call_0","output":""}`, // of the continued answer
			`{"type":"item_reference","id":"fc_1"}`, `{"type":"function_call_output","call_id":"call_1","output":""}`,
		}, []string{
			`{"type":"function_call_output","call_id":"call_0","output":""}`,
			`{"type":"item_reference","id":"fc_1"}`, `{"type":"function_call_output","call_id":"call_1","output":""}`,
		}},
		{"thoughts", view.Reasoning, chat.Dialect, []string{
			`{"role":"user","content":"Hi"}`, `{"role":"assistant","content":"Hello"}`, `{"role":"assistant","reasoning_content":"","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}`,
			`{"role":"assistant","content":"a","reasoning_content":"b"}`, `{"role":"assistant","content":"a","reasoning":"c"}`,
		}, []string{
			`{"role":"user","content":"Hi"}`, `{"role":"assistant","content":"Hello","reasoning_content":"Hello"}`, `{"role":"assistant","reasoning_content":"f {}","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}`,
			`{"role":"assistant","content":"a","reasoning_content":"b"}`, `{"role":"assistant","content":"a","reasoning":"c","reasoning_content":"c"}`,
		}},
		{"names of tools", view.ToolNames, chat.Dialect, []string{
			`{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"functions.get weather"}},{"id":"2","custom":{"name":"é"}},{"id":"3","function":{ "name": "f-1_A" }}]}`,
			`{"role":"assistant","function_call":{"name":""}}`, `{"role":"function","name":"a.b","content":"x"}`, `{"role":"user","name":"a.b","content":"x"}`,
		}, []string{
			`{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"functions_get_weather"}},{"id":"2","custom":{"name":"_"}},{"id":"3","function":{ "name": "f-1_A" }}]}`,
			`{"role":"assistant","function_call":{"name":"_"}}`, `{"role":"function","name":"a_b","content":"x"}`, `{"role":"user","name":"a.b","content":"x"}`,
		}},
		{"names of tools in Responses", view.ToolNames, responses.Dialect, []string{
			`{"type":"function_call","call_id":"1","name":"` + strings.Repeat("x", 65) + `"}`, `{"type":"mcp_call","name":"a.b"}`,
		}, []string{
			`{"type":"function_call","call_id":"1","name":"` + strings.Repeat("x", 64) + `"}`, `{"type":"mcp_call","name":"a.b"}`,
		}},
		{"arguments", view.Arguments, chat.Dialect, []string{
			`{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\": "}},{"id":"2","function":{"name":"f","arguments":"{}"}}]}`,
		}, []string{
			`{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}},{"id":"2","function":{"name":"f","arguments":"{}"}}]}`,
		}},
		{"nothing said", view.EmptyText, chat.Dialect, []string{
			`{"role":"user","content":" \n"}`, `{"role":"user","content":[{"type":"text","text":""},{"type":"image_url","image_url":{"url":"x"}}]}`,
			`{"role":"user","content":[{"type":"text","text":""}]}`, `{"role":"user","content":[]}`, `{"role":"user","content":"a"}`,
			`{"role":"assistant","content":null}`, `{"role":"assistant","content":null,"refusal":"No."}`, `{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}`,
			`{"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"f"}}]}`, `{"role":"tool","tool_call_id":"1","content":""}`, `{"role":"user","content":""}`,
		}, []string{
			`{"role":"user","content":"(empty)"}`, `{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}`,
			`{"role":"user","content":"(empty)"}`, `{"role":"user","content":"(empty)"}`, `{"role":"user","content":"a"}`,
			`{"role":"assistant","content":"(empty)"}`, `{"role":"assistant","content":"No.","refusal":"No."}`, `{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}`,
			`{"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"f"}}]}`, `{"role":"tool","tool_call_id":"1","content":"(empty)"}`, `{"role":"user","content":""}`,
		}},
		{"sound says something", view.EmptyText, chat.Dialect, []string{
			`{"role":"assistant","content":null,"audio":{"id":"audio_1"}}`, `{"role":"assistant","content":null,"audio":null}`, `{"role":"user","content":"a"}`,
		}, []string{
			`{"role":"assistant","content":null,"audio":{"id":"audio_1"}}`, `{"role":"assistant","content":"(empty)","audio":null}`, `{"role":"user","content":"a"}`,
		}},
		{"empty lists of calls", view.EmptyCalls | view.EmptyText, chat.Dialect, []string{
			`{"role":"assistant","content":"a","tool_calls":[]}`, `{"role":"assistant","content":null,"tool_calls":[]}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}`, `{"role":"user","content":"a"}`,
		}, []string{
			`{"role":"assistant","content":"a"}`, `{"role":"assistant","content":"(empty)"}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}`, `{"role":"user","content":"a"}`,
		}},
		{"nothing returned", view.EmptyText, responses.Dialect, []string{
			`{"type":"reasoning","id":"rs","summary":[],"content":[]}`, `{"type":"function_call_output","call_id":"1","output":""}`, `{"type":"function_call_output","call_id":"2","output":[]}`,
		}, []string{
			`{"type":"reasoning","id":"rs","summary":[],"content":[]}`, `{"type":"function_call_output","call_id":"1","output":"(empty)"}`, `{"type":"function_call_output","call_id":"2","output":"(empty)"}`,
		}},
		{"null", view.NullContent, chat.Dialect, []string{
			`{"role":"assistant", "content": null, "tool_calls":[{"id":"1"}]}`, `{"role":"assistant","content":null,"refusal":"no"}`,
		}, []string{
			`{"role":"assistant", "tool_calls":[{"id":"1"}]}`, `{"role":"assistant","content":null,"refusal":"no"}`,
		}},
		{"signatures", view.Signatures, chat.Dialect, []string{
			`{"role":"assistant","tool_calls":[{"id":"1"},{"id":"2"}]}`, `{"role":"assistant","tool_calls":[{"id":"1","extra_content":{"google":{"thought_signature":"x"}}}]}`,
		}, []string{
			`{"role":"assistant","tool_calls":[{"id":"1","extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}}},{"id":"2"}]}`,
			`{"role":"assistant","tool_calls":[{"id":"1","extra_content":{"google":{"thought_signature":"x"}}}]}`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var items []wire.Item
			for _, raw := range c.in {
				items = append(items, wiretest.Parse(t, c.d, raw))
			}
			got := c.mend.Apply(items)
			names := make(map[string]string) // made ids are numbered where the input had none
			for i := range got {
				is := string(got[i].Raw)
				if c.name == "calls without ids, twice the same" {
					is = numbered(is, got[i], names)
				}
				if is != c.want[i] {
					t.Errorf("item %d is\n%s, want\n%s", i, is, c.want[i])
				}
			}
			again, err := view.ParseMend(c.mend.Names())
			if err != nil || again != c.mend {
				t.Errorf("names %q", c.mend.Names())
			}
		})
	}
}

func numbered(raw string, it wire.Item, names map[string]string) string {
	ids := []string{it.Answers().ID}
	for _, c := range it.Calls() {
		ids = append(ids, c.ID)
	}
	for _, id := range slices.DeleteFunc(ids, func(s string) bool { return s == "" }) {
		if names[id] == "" {
			names[id] = string(rune('1' + len(names)))
		}
		raw = strings.Replace(raw, id, names[id], 1)
	}
	return raw
}
