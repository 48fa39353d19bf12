package scripted_test

import (
	"fmt"
	"strings"
	"testing"

	"remora/test/scripted"
)

const (
	user      = `{"role":"user","content":"hi"}`
	callsAB   = `{"role":"assistant","content":null,"tool_calls":[{"id":"A","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"B","type":"function","function":{"name":"g","arguments":"{}"}}]}`
	answersA  = `{"role":"tool","tool_call_id":"A","content":"a"}`
	answersB  = `{"role":"tool","tool_call_id":"B","content":"b"}`
	precedes  = `Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.` //nolint:misspell // what the API says
	noAnswer  = `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: `
	emptyList = `empty array. Expected an array with minimum length 1, but got an empty array instead.`
)

func wantError(t *testing.T, status int, body, message, param, code string) {
	t.Helper()
	orNull := func(s string) string {
		if s == "" {
			return "null"
		}
		return fmt.Sprintf("%q", s)
	}
	want := fmt.Sprintf(`{"error":{"message":%q,"type":"invalid_request_error","param":%s,"code":%s}}`,
		message, orNull(param), orNull(code))
	if status != 400 {
		t.Errorf("status %d", status)
	}
	if got := compact(t, body); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestChatHistoryFaults(t *testing.T) {
	u := start(t, scripted.Options{})
	faults := 0
	f := func(messages []string, message, param, code string) {
		t.Helper()
		status, body := u.call("POST", "/v1/chat/completions", `{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`)
		wantError(t, status, body, message, param, code)
		faults++
		if got := u.Faults(); len(got) != faults || !strings.HasSuffix(got[len(got)-1], message) {
			t.Errorf("faults: %q", got)
		}
	}

	// Results without a call.
	f([]string{user, answersA}, precedes, "messages.[1].role", "")
	f([]string{answersA}, precedes, "messages.[0].role", "")
	f([]string{user, callsAB, answersA, answersB, user, answersB}, precedes, "messages.[5].role", "")
	f([]string{user, callsAB, answersA, `{"role":"tool","tool_call_id":"X","content":"a"}`},
		"Invalid parameter: 'tool_call_id' of 'X' not found in 'tool_calls' of previous message.", "messages.[3].tool_call_id", "")
	f([]string{user, callsAB, answersA, answersA},
		"Duplicate value for 'tool_call_id' of 'A' in message[3]", "messages.[3].tool_call_id", "")
	f([]string{user, `{"role":"tool","content":"a"}`},
		"Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.", "messages.[1].tool_call_id", "")

	// Calls without a result.
	f([]string{user, callsAB}, noAnswer+"A, B", "messages", "")
	f([]string{user, callsAB, answersB}, noAnswer+"A", "messages", "")
	f([]string{user, callsAB, answersA, user, answersB}, noAnswer+"B", "messages.[3].role", "")
	f([]string{user, callsAB, user}, noAnswer+"A, B", "messages.[2].role", "")
	f([]string{user, strings.ReplaceAll(callsAB, `"B"`, `"A"`), answersA},
		"Duplicate value for 'tool_call_id' of 'A' in message[1]", "messages.[1].tool_call_id", "")

	// Shapes.
	f([]string{user, `{"role":"assistant","content":"x","tool_calls":[]}`},
		"Invalid 'messages[1].tool_calls': "+emptyList, "messages[1].tool_calls", "empty_array")
	f([]string{user, `{"role":"assistant","content":null}`},
		"Invalid value for 'content': expected a string, got null.", "messages.[1].content", "")
	f([]string{`{"role":"user"}`}, "Invalid value for 'content': expected a string, got null.", "messages.[0].content", "")
	f([]string{user, callsAB, answersA, `{"role":"tool","tool_call_id":"B","content":null}`},
		"Invalid value for 'content': expected a string, got null.", "messages.[3].content", "")
	f(nil, "Invalid 'messages': "+emptyList, "messages", "empty_array")
	f([]string{`{"role":"robot","content":"x"}`}, "Invalid value: 'robot'. Supported values are: 'system', 'assistant', "+
		"'user', 'function', 'tool', and 'developer'.", "messages[0].role", "invalid_value")
	// A null content is reported last of all.
	f([]string{`{"role":"user","content":null}`, answersA}, precedes, "messages.[1].role", "")
}

func TestChatHistoriesThatAreFine(t *testing.T) {
	u := start(t, scripted.Options{})
	f := func(messages ...string) {
		t.Helper()
		status, body := u.call("POST", "/v1/chat/completions", `{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`)
		if status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}
	f(user, callsAB, answersB, answersA)
	f(user, callsAB, answersA, answersB, callsAB, answersA, answersB) // ids may occur again in a later round
	f(user, `{"role":"assistant","content":null,"refusal":"no"}`, user)
	f(user, `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`,
		`{"role":"function","name":"f","content":"x"}`)
	f(`{"role":"developer","content":"d"}`, user)
	if got := u.Faults(); len(got) > 0 {
		t.Errorf("faults: %q", got)
	}
}

func TestChatParameters(t *testing.T) {
	u := start(t, scripted.Options{})
	f := func(body, message, param, code string) {
		t.Helper()
		status, got := u.call("POST", "/v1/chat/completions", body)
		wantError(t, status, got, message, param, code)
	}
	f(`{"model":"m"}`, "Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
	f(`{"messages":[`+user+`]}`, "you must provide a model parameter", "", "")
	f(`{"model":"m","stream_options":{"include_usage":true},"messages":[`+user+`]}`,
		"The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", "")
	status, body := u.call("POST", "/v1/chat/completions", `{"model":`)
	if status != 400 || !strings.Contains(body, "We could not parse the JSON body of your request.") {
		t.Errorf("%d %s", status, body)
	}
	if got := u.Faults(); len(got) > 0 {
		t.Errorf("a bad parameter is no faulty history: %q", got)
	}
}

const (
	rUser   = `{"role":"user","content":"hi"}`
	rCall   = `{"type":"function_call","call_id":"A","name":"f","arguments":"{}"}`
	rOutput = `{"type":"function_call_output","call_id":"A","output":"x"}`
)

// turn requests a stored answer of reasoning and one call, and returns the ids.
func turn(t *testing.T, u *upstream) (response, reasoning, call, callID string) {
	t.Helper()
	_, body := u.call("POST", "/v1/responses", `{"model":"m","input":"REASON r ;; CALL f {}"}`)
	s := func(path ...any) string { v, _ := at(t, body, path...).(string); return v }
	return s("id"), s("output", 0, "id"), s("output", 1, "id"), s("output", 1, "call_id")
}

func TestResponsesHistoryFaults(t *testing.T) {
	u := start(t, scripted.Options{})
	_, rs, fc, callID := turn(t, u)
	output := `{"type":"function_call_output","call_id":"` + callID + `","output":"x"}`
	ref := func(id string) string { return `{"type":"item_reference","id":"` + id + `"}` }
	f := func(input, message, param, code string) {
		t.Helper()
		status, body := u.call("POST", "/v1/responses", `{"model":"m","input":[`+input+`]}`)
		wantError(t, status, body, message, param, code)
		if got := u.Faults(); len(got) == 0 || !strings.HasSuffix(got[len(got)-1], message) {
			t.Errorf("faults: %q", got)
		}
	}

	// Pairs.
	noCall := func(label string) string { return "No tool call found for " + label + " output with call_id A." }
	f(rUser+","+rOutput, noCall("function call"), "input", "")
	f(rOutput+","+rCall, noCall("function call"), "input", "")
	f(rCall+","+rOutput+","+rOutput, noCall("function call"), "input", "")
	f(rCall+`,`+rOutput+`,{"type":"custom_tool_call_output","call_id":"A","output":"x"}`, noCall("custom tool call"), "input", "")
	f(rCall+`,{"type":"custom_tool_call_output","call_id":"A","output":"x"}`, noCall("custom tool call"), "input", "")
	f(rUser+","+rCall, "No tool output found for function call A.", "input", "")
	f(`{"type":"custom_tool_call","call_id":"A","name":"f","input":""}`, "No tool output found for custom tool call A.", "input", "")
	f(`{"type":"apply_patch_call","call_id":"A"}`, "No tool output found for apply patch call A.", "input", "")
	f(`{"type":"local_shell_call","call_id":"A"}`, "No tool output found for local shell call A.", "input", "")
	f(`{"type":"tool_search_call","call_id":"A","execution":"client"}`, "No tool output found for tool search call A.", "input", "")

	// Reasoning.
	alone := "Item '" + rs + "' of type 'reasoning' was provided without its required following item."
	f(ref(rs), alone, "input", "")
	f(ref(rs)+","+rUser, alone, "input", "")
	f(ref(rs)+`,{"type":"function_call","id":"fc_other","call_id":"A","name":"f","arguments":"{}"},`+rOutput, alone, "input", "")
	f(ref(fc)+","+output, "Item '"+fc+"' of type 'function_call' was provided without its required 'reasoning' item: '"+rs+"'.", "input", "")

	// Ids.
	f(`{"type":"function_call","id":"X","call_id":"A","name":"f","arguments":"{}"},`+rOutput,
		"Invalid 'input[0].id': 'X'. Expected an ID that begins with 'fc'.", "input[0].id", "invalid_value")
	f(`{"type":"message","id":"msg:1","role":"assistant","content":"x"}`, "Invalid 'input[0].id': 'msg:1'. Expected an ID that "+
		"contains letters, numbers, underscores, or dashes, but this value contained additional characters.", "input[0].id", "invalid_value")
	f(`{"type":"message","id":"msg_`+strings.Repeat("a", 61)+`","role":"assistant","content":"x"}`, "Invalid 'input[0].id': "+
		"string too long. Expected a string with maximum length 64, but got a string with length 65 instead.", "input[0].id", "string_above_max_length")
	f(strings.Repeat(`{"type":"message","id":"msg_1","role":"assistant","content":"x"},`, 2)+rUser,
		"Duplicate item found with id msg_1. Remove duplicate items from your input and try again.", "input", "")

	// Contents.
	f(`{"type":"message","role":"assistant","content":[{"type":"input_text","text":"x"}]}`,
		"Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.", "input[0].content[0]", "invalid_value")
	f(rUser+`,{"role":"user","content":[{"type":"text","text":"x"}]}`,
		"Invalid value: 'text'. Supported values are: 'input_text', 'input_image', and 'input_file'.", "input[1].content[0]", "invalid_value")
	f(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAAforgedxyz1"},`+rCall+","+rOutput,
		"The encrypted content gAAA...xyz1 could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
		"", "invalid_encrypted_content")
}

func TestResponsesReferences(t *testing.T) {
	u := start(t, scripted.Options{})
	resp, rs, fc, callID := turn(t, u)
	output := `{"type":"function_call_output","call_id":"` + callID + `","output":"x"}`
	f := func(wantStatus int, body, message string) {
		t.Helper()
		status, got := u.call("POST", "/v1/responses", body)
		if status != wantStatus || wantStatus != 200 && at(t, got, "error", "message") != message {
			t.Errorf("%d %s\nwant %d %s", status, got, wantStatus, message)
		}
	}
	refs := `{"type":"item_reference","id":"` + rs + `"},{"type":"item_reference","id":"` + fc + `"}`
	hint := " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."

	f(200, `{"model":"m","input":[`+rUser+`,`+refs+`,`+output+`]}`, "")
	f(200, `{"model":"m","previous_response_id":"`+resp+`","input":[`+output+`]}`, "")
	// As sent by the AI SDK: reasoning by reference, the whole call without its id.
	f(200, `{"model":"m","input":[`+rUser+`,{"type":"item_reference","id":"`+rs+`"},{"type":"function_call","call_id":"`+callID+
		`","name":"f","arguments":"{}"},`+output+`]}`, "")
	f(404, `{"model":"m","store":false,"input":[`+rUser+`,`+refs+`,`+output+`]}`, "Item with id '"+rs+"' not found."+hint)
	f(404, `{"model":"m","store":false,"input":[{"type":"reasoning","id":"`+rs+`","summary":[]},`+rCall+`,`+rOutput+`]}`,
		"Item with id '"+rs+"' not found."+hint)
	f(404, `{"model":"m","input":[{"type":"item_reference","id":"msg_nope"}]}`, "Item with id 'msg_nope' not found.")
	f(400, `{"model":"m","previous_response_id":"resp_nope","input":[`+rUser+`]}`, "Previous response with id 'resp_nope' not found.")
	f(400, `{"model":"m","previous_response_id":"`+resp+`","input":[`+rUser+`]}`, "No tool output found for function call "+callID+".")
	f(400, `{"model":"m","previous_response_id":"x","conversation":"y","input":"z"}`, "Mutually exclusive parameters. Ensure you "+
		"are only providing one of: 'previous_response_id' or 'conversation'.")
	for _, input := range []string{`""`, `[]`, `null`} {
		f(400, `{"model":"m","input":`+input+`}`, `One of "input" or "previous_response_id" or 'prompt' or 'conversation' must be provided.`)
	}

	// A response that was not stored, or was deleted, is unknown.
	_, body := u.call("POST", "/v1/responses", `{"model":"m","store":false,"input":"x"}`)
	unstored, _ := at(t, body, "id").(string)
	f(400, `{"model":"m","previous_response_id":"`+unstored+`","input":"y"}`, "Previous response with id '"+unstored+"' not found.")
	if status, _ := u.call("GET", "/v1/responses/"+resp, ""); status != 200 {
		t.Errorf("GET: %d", status)
	}
	if _, list := u.call("GET", "/v1/responses/"+resp+"/input_items", ""); at(t, list, "data", 0, "role") != "user" {
		t.Errorf("input_items: %s", list)
	}
	if status, _ := u.call("DELETE", "/v1/responses/"+resp, ""); status != 200 {
		t.Errorf("DELETE: %d", status)
	}
	if status, _ := u.call("GET", "/v1/responses/"+resp, ""); status != 404 {
		t.Errorf("GET after DELETE: %d", status)
	}
	f(404, `{"model":"m","input":[`+rUser+`,`+refs+`,`+output+`]}`, "Item with id '"+rs+"' not found.")
}

func TestResponsesHistoriesThatAreFine(t *testing.T) {
	u := start(t, scripted.Options{})
	f := func(input string) {
		t.Helper()
		if status, body := u.call("POST", "/v1/responses", `{"model":"m","store":false,"input":[`+input+`]}`); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}
	f(rCall + "," + rUser + "," + rOutput)                                        // not adjacent
	f(rUser + `,{"type":"function_call_output","output":"an automation's word"}`) // no call_id at all
	f(`{"type":"local_shell_call","id":"lsh_1","call_id":"A"},` + rOutput)        // Codex
	f(`{"type":"local_shell_call","call_id":"A"},{"type":"local_shell_call_output","id":"A","output":"x"}`)
	f(`{"type":"tool_search_call","call_id":"A","execution":"server"},{"type":"tool_search_output","call_id":"A","execution":"server"}`)
	f(`{"type":"web_search_call","id":"ws_1"},` + rUser)             // carries its own result
	f(`{"type":"something_new","id":"sn_1","call_id":7.5},` + rUser) // opaque
	f(`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"},{"type":"refusal","refusal":"y"}]},` + rUser)

	// Encrypted reasoning is accepted unchanged, without a store.
	_, body := u.call("POST", "/v1/responses",
		`{"model":"m","store":false,"include":["reasoning.encrypted_content"],"input":"REASON r ;; CALL f {}"}`)
	rs, fc := at(t, body, "output", 0).(map[string]any), at(t, body, "output", 1).(map[string]any)
	f(fmt.Sprintf(`%s,{"type":"reasoning","id":%q,"summary":[],"encrypted_content":%q},{"type":"function_call","id":%q,`+
		`"call_id":%q,"name":"f","arguments":"{}"},{"type":"function_call_output","call_id":%q,"output":"x"}`,
		rUser, rs["id"], rs["encrypted_content"], fc["id"], fc["call_id"], fc["call_id"]))
	if got := u.Faults(); len(got) > 0 {
		t.Errorf("faults: %q", got)
	}
}

func TestConversations(t *testing.T) {
	u := start(t, scripted.Options{})
	_, body := u.call("POST", "/v1/conversations", `{"items":[{"role":"user","content":"first"}]}`)
	id, _ := at(t, body, "id").(string)
	say := func() (int, string) {
		return u.call("POST", "/v1/responses", `{"model":"m","conversation":{"id":"`+id+`"},"input":"SEE"}`)
	}
	if _, got := say(); at(t, got, "output", 0, "content", 0, "text") != "user: first\nuser: SEE" {
		t.Errorf("first turn: %s", got)
	}
	if _, got := say(); !strings.Contains(at(t, got, "output", 0, "content", 0, "text").(string), "assistant: user: first") {
		t.Errorf("second turn: %s", got)
	}
	if _, list := u.call("GET", "/v1/conversations/"+id+"/items?order=asc", ""); len(at(t, list, "data").([]any)) != 5 {
		t.Errorf("items: %s", list)
	}

	// A concurrent second turn.
	resp, err := u.do("POST", "/v1/responses", `{"model":"m","stream":true,"conversation":"`+id+`","input":"x"}`, "X-Script", "stall-after=3")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	u.await(func(r scripted.Recorded) bool { return r.Events == 3 && r.End == scripted.Open })
	status, got := say()
	wantError(t, status, got, "Another process is currently operating on this conversation. Please retry in a few seconds.",
		"conversation", "conversation_locked")
	u.Release()
	u.await(func(r scripted.Recorded) bool {
		return strings.Contains(string(r.Body), `"x"`) && r.End == scripted.Served
	})
	if status, got = say(); status != 200 {
		t.Errorf("after the running turn: %d %s", status, got)
	}
	if status, _ = u.call("POST", "/v1/responses", `{"model":"m","conversation":"conv_nope","input":"x"}`); status != 404 {
		t.Errorf("unknown conversation: %d", status)
	}
}

// TestCachingLimits: four breakpoints are accepted. Five are refused, as are one on a blank text and a key of 65 characters.
func TestCachingLimits(t *testing.T) {
	u := start(t, scripted.Options{})
	const part = `{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}`
	message := func(parts ...string) string { return `{"role":"user","content":[` + strings.Join(parts, ",") + `]}` }
	f := func(path, rest, want, param, code string) {
		t.Helper()
		body := `{"model":"m",` + rest + `}`
		status, answer := u.call("POST", path, body)
		if want == "" && status != 200 {
			t.Errorf("%s: %s", body, answer)
		}
		if want != "" {
			wantError(t, status, answer, want, param, code)
		}
	}
	const chat, responses = "/v1/chat/completions", "/v1/responses"
	tool := `"tools":[{"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral"}}],`
	f(chat, `"messages":[`+message(part, part)+`,`+message(part, part)+`]`, "", "", "")
	f(chat, tool+`"messages":[`+message(part, part)+`,`+message(part, part)+`]`,
		"A maximum of 4 blocks with cache_control may be provided. Found 5.", "", "")
	f(chat, `"messages":[`+user+`,`+message(`{"type":"text","text":" ","cache_control":{"type":"ephemeral"}}`)+`]`,
		"messages.1.content.0.text: cache_control cannot be set for empty text blocks", "", "")
	long := strings.Repeat("k", 65)
	for path, rest := range map[string]string{chat: `"messages":[` + user + `]`, responses: `"input":"hi"`} {
		f(path, rest+`,"prompt_cache_key":"`+long[1:]+`"`, "", "", "")
		f(path, rest+`,"prompt_cache_key":"`+long+`"`, "Invalid 'prompt_cache_key': string too long. "+
			"Expected a string with maximum length 64, but got a string with length 65 instead.", "prompt_cache_key", "string_above_max_length")
	}
}
