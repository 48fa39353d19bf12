package view

import (
	"fmt"
	"strings"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// Items is items, for the tests outside of the package.
var Items = items

// items builds a history from a notation: uN, aN, sN and dN are messages of the user, the assistant, the system and a developer, whose
// number only tells them apart, fcN and foN are call N and its result.
func items(t wiretest.TB, d wire.Dialect, notation string) []wire.Item {
	t.Helper()
	var out []wire.Item
	for word := range strings.FieldsSeq(notation) {
		raw := respItem(word)
		if d == dialects.Chat {
			raw = chatItem(word)
		}
		out = append(out, wiretest.Parse(t, d, raw))
	}
	return out
}

// respItems are the items of Responses by how their word begins; the rest of it stands for #.
var respItems = [][2]string{
	{"fc", `{"type":"function_call","call_id":"c#","name":"f","arguments":"{}"}`},
	{"fo", `{"type":"function_call_output","call_id":"c#","output":"ok"}`},
	{"cc", `{"type":"custom_tool_call","call_id":"c#","name":"f","input":""}`},
	{"co", `{"type":"custom_tool_call_output","call_id":"c#","output":"ok"}`},
	{"lc", `{"type":"local_shell_call","call_id":"c#","action":{}}`},
	{"mq", `{"type":"mcp_approval_request","id":"mcpr_#"}`},
	{"mr", `{"type":"mcp_approval_response","approval_request_id":"mcpr_#"}`},
	{"po", `{"type":"program_output","call_id":"c#"}`},
	{"p", `{"type":"program","call_id":"c#"}`},
	{"r", `{"type":"reasoning","id":"rs_#","summary":[]}`},
	{"o", `{"type":"function_call_output","output":"no call id"}`},
	{"w", `{"type":"web_search_call","id":"ws"}`},
	{"k", `{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`},
}

func respItem(word string) string {
	for _, it := range respItems {
		if id, ok := strings.CutPrefix(word, it[0]); ok {
			return strings.ReplaceAll(it[1], "#", id)
		}
	}
	return messageItem(word)
}

var roles = map[byte]string{'u': "user", 'a': "assistant", 's': "system", 'd': "developer"}

func messageItem(word string) string {
	return fmt.Sprintf(`{"role":%q,"content":%q}`, roles[word[0]], word)
}

// chatItem also knows [x,y] for an assistant message without text that makes calls x and y, a1[x,y] with text, and legacy calls.
func chatItem(word string) string {
	if id, ok := strings.CutPrefix(word, "fo"); ok {
		return fmt.Sprintf(`{"role":"tool","tool_call_id":"c%s","content":"ok"}`, id)
	}
	switch word {
	case "legacy":
		return `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`
	case "function":
		return `{"role":"function","name":"f","content":"ok"}`
	}
	text, calls, ok := strings.Cut(strings.TrimSuffix(word, "]"), "[")
	if strings.HasPrefix(word, "fc") {
		text, calls, ok = "", word[2:], true
	}
	if !ok {
		return messageItem(word)
	}
	content := "null"
	if text != "" {
		content = fmt.Sprintf("%q", text)
	}
	var list []string
	for id := range strings.SplitSeq(calls, ",") {
		list = append(list, fmt.Sprintf(`{"id":"c%s","type":"function","function":{"name":"f","arguments":"{}"}}`, id))
	}
	return fmt.Sprintf(`{"role":"assistant","content":%s,"tool_calls":[%s]}`, content, strings.Join(list, ","))
}

// notation is the inverse of items.
func notation(all []wire.Item) string {
	var words []string
	for _, it := range all {
		switch first := it.Parts[0]; {
		case it.Kind == wire.ToolCall:
			words = append(words, "f"+first.Call.ID)
		case it.HasCalls():
			var ids []string
			for _, c := range it.Calls() {
				ids = append(ids, strings.TrimPrefix(c.ID, "c"))
			}
			text := ""
			if it.HasContent() {
				text = it.Text()
			}
			words = append(words, text+"["+strings.Join(ids, ",")+"]")
		case it.Kind == wire.ToolResult:
			words = append(words, "fo"+strings.TrimPrefix(first.Call.ID, "c"))
		case it.Kind == wire.Other && first.Answerable() && first.Call.Family == wire.FamilyProgram:
			words = append(words, "p"+strings.TrimPrefix(first.Call.ID, "c"))
		case it.Kind == wire.Other && first.Answerable():
			words = append(words, "mq"+strings.TrimPrefix(first.Call.ID, "mcpr_"))
		case first.Call.Family == wire.FamilyProgram:
			words = append(words, "po"+strings.TrimPrefix(first.Call.ID, "c"))
		case first.Call.ID != "" && it.Kind == wire.Other:
			words = append(words, "mr"+strings.TrimPrefix(first.Call.ID, "mcpr_"))
		case it.Kind == wire.Compaction:
			words = append(words, "k")
		case it.Kind == wire.Reasoning:
			words = append(words, "r"+strings.TrimPrefix(it.ID, "rs_"))
		default:
			words = append(words, it.Text())
		}
	}
	return strings.Join(words, " ")
}
