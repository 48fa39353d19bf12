package scripted_test

import (
	"strings"
	"testing"

	"remora/test/scripted"
)

const (
	kSystem    = `{"role":"system","content":"s"}`
	kDeveloper = `{"role":"developer","content":"s"}`
	kAnswer    = `{"role":"assistant","content":"a"}`
	kCall      = `{"role":"assistant","content":"","tool_calls":[{"id":"A","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	kThought   = `{"role":"assistant","content":"","reasoning_content":"r","tool_calls":[{"id":"A","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	kSigned    = `{"role":"assistant","content":"","tool_calls":[{"id":"A","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2NyaXB0ZWQgc2lnbmF0dXJl"}}}]}`
	kPicture   = `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`
	kTools     = `"tools":[{"type":"function","function":{"name":"f"}}]`
	kJSON      = `"response_format":{"type":"json_object"}`
)

func historyBody(extra string, messages ...string) string {
	if extra != "" {
		extra += ","
	}
	return `{"model":"m",` + extra + `"messages":[` + strings.Join(messages, ",") + `]}`
}

// TestKinds sends the smallest request that each kind refuses, and a similar one that it accepts.
func TestKinds(t *testing.T) {
	const (
		chat      = "/v1/chat/completions"
		responses = "/v1/responses"
		litellm   = " doesn't support tool calling without `tools=` param specified. Pass `tools=` param OR set " +
			"`litellm.modify_params = True` // `litellm_settings::modify_params: True` to add dummy tool to the request."
		turns = "After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results."
	)
	for _, c := range []struct {
		kind    scripted.Kind
		path    string
		bad     string
		status  int
		message string
		good    string
	}{
		{scripted.KindQwen, chat, historyBody("", kSystem, kSystem, user), 400, "System message must be at the beginning.", historyBody("", kSystem, user, user)},
		{scripted.KindQwen, chat, historyBody("", user, kSystem), 400, "System message must be at the beginning.", historyBody("", user)},
		{scripted.KindQwen, chat, historyBody("", kDeveloper, user), 400, "Unexpected message role.", historyBody("", kSystem, user, kCall, answersA)},
		{scripted.KindQwen, chat, historyBody("", kSystem), 400, "No user query found in messages.", historyBody("", kSystem, user)},
		{
			scripted.KindQwen, responses, `{"model":"m","instructions":"i","input":[{"role":"developer","content":"d"},` + rUser + `]}`, 400,
			"System message must be at the beginning.", `{"model":"m","input":[{"role":"developer","content":"d"},` + rUser + `]}`,
		},
		{scripted.KindGemma, chat, historyBody("", kSystem, user), 400, "System role not supported", historyBody("", user, kAnswer, user)},
		{scripted.KindGemma, chat, historyBody("", user, user), 400, "Conversation roles must alternate user/assistant/user/assistant/...", historyBody("", user)},
		{scripted.KindGemma, responses, `{"model":"m","instructions":"i","input":"x"}`, 400, "System role not supported", `{"model":"m","input":"x"}`},
		{scripted.KindMistral, chat, historyBody("", kSystem, user, user), 400, turns, historyBody("", kSystem, user, kCall, answersA, kAnswer, user)},
		{scripted.KindMistral, chat, historyBody("", kSystem, kSystem, user), 400, turns, historyBody("", user)},
		{scripted.KindMistral, chat, historyBody("", kSystem, kAnswer, user), 400, turns, historyBody("", kSystem, user)},
		{
			scripted.KindKimi, chat, historyBody("", user, kCall, answersA), 400,
			"thinking is enabled but reasoning_content is missing in assistant tool call message at index 1", historyBody("", user, kThought, answersA),
		},
		{
			scripted.KindDeepSeek, chat, historyBody("", user, kCall, answersA), 400,
			"The reasoning_content in the thinking mode must be passed back to the API.", historyBody(`"thinking":{"type":"disabled"}`, user, kCall, answersA),
		},
		{
			scripted.KindBedrock, chat, historyBody("", user, kCall, answersA), 400, "litellm.UnsupportedParamsError: Bedrock" + litellm,
			historyBody(kTools, user, kCall, answersA),
		},
		{
			scripted.KindAnthropic, responses, `{"model":"m","input":[` + rUser + `,` + rCall + `,` + rOutput + `]}`, 400,
			"litellm.UnsupportedParamsError: Anthropic" + litellm, `{"model":"m","input":[` + rUser + `]}`,
		},
		{
			scripted.KindGemini, chat, historyBody(kTools+","+kJSON, user), 400,
			"Function calling with a response mime type: 'application/json' is unsupported", historyBody(kTools, user),
		},
		{
			scripted.KindGemini, responses, `{"model":"m","tools":[{"type":"function","name":"f"}],"text":{"format":{"type":"json_schema"}},"input":"x"}`, 400,
			"Function calling with a response mime type: 'application/json' is unsupported", `{"model":"m","input":"x"}`,
		},
		{scripted.KindGemini, chat, historyBody("", user, `{"role":"assistant","content":null}`, user), 400, "Value is not a string: null", historyBody(kJSON, user)},
		{
			scripted.KindGemini, chat, historyBody("", user, `{"role":"assistant"}`, user), 400,
			"* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.\n", historyBody("", user, kSigned, answersA),
		},
		{
			scripted.KindGemini, chat, historyBody("", user, kCall, answersA), 400, "Function call is missing a thought_signature in functionCall parts. " +
				"This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, " +
				"function call `default_api:f` , position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
			historyBody("", user, kCall, answersA, kAnswer, user),
		},
		{scripted.KindGemmaHosted, chat, historyBody(kTools, user), 400, "Function calling is not enabled for models/m", historyBody("", user)},
		{scripted.KindGemmaHosted, chat, historyBody("", kSystem, user), 400, "Developer instruction is not enabled for models/m", historyBody("", user)},
		{scripted.KindReasoner, chat, historyBody(kTools, user), 400, "m does not support Function Calling", historyBody("", user)},
		{scripted.KindLlamaCpp, chat, historyBody(kTools, user), 500, "tools param requires --jinja flag", historyBody("", kSystem, user)},
		{
			scripted.KindLlamaGemma, chat, historyBody("", kSystem, user, kCall, answersA), 500, "\n------------\nWhile executing CallExpression at line 1, " +
				"column 2 in source:\nError: Jinja Exception: Only user and assistant roles are supported!", historyBody("", kSystem, user, kAnswer, user),
		},
		{
			scripted.KindLlamaGemma, chat, historyBody("", kPicture), 500,
			"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj", historyBody(kTools, user),
		},
		{scripted.KindStudioGemma, chat, historyBody("", user, user), 400, "", historyBody("", user)},
		{scripted.KindStudioGemma, chat, historyBody("", kPicture), 400, "", historyBody("", user)},
		{scripted.KindOllama, chat, historyBody(kTools, user), 400, "registry.ollama.ai/library/m does not support tools", historyBody("", user)},
		{scripted.KindNoEndpoints, chat, historyBody(kTools, user), 404, "No endpoints found that support tool use. To learn more about provider routing, " +
			"visit: https://openrouter.ai/docs/guides/routing/provider-selection", historyBody("", user)},
		{scripted.KindGroq, chat, historyBody(kTools+","+kJSON, user), 400, "json mode cannot be combined with tool/function calling", historyBody(kTools, user)},
		{scripted.KindTerse, chat, historyBody(kTools, user), 400, "", historyBody("", user)},
		// OpenAI's checks apply to every kind.
		{
			scripted.KindOpenAI, chat, historyBody("", user, `{"role":"assistant","content":null}`), 400, "Invalid value for 'content': expected a string, got null.",
			historyBody(kTools+`,"tool_choice":"auto"`, user),
		},
		{
			scripted.KindOpenAI, chat, historyBody(`"tools":[]`, user), 400,
			"Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.", historyBody("", user),
		},
		{
			scripted.KindOpenAI, chat, historyBody(`"tool_choice":"auto"`, user), 400,
			"Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.", historyBody("", user),
		},
	} {
		u := start(t, scripted.Options{Kind: c.kind})
		status, got := u.call("POST", c.path, c.bad)
		if status != c.status {
			t.Errorf("%s: status %d for %s", c.kind, status, c.bad)
			continue
		}
		path := []any{"error", "message"}
		if c.kind == scripted.KindGemini || c.kind == scripted.KindGemmaHosted {
			path = append([]any{0}, path...)
		}
		if c.message != "" && at(t, got, path...) != c.message {
			t.Errorf("%s: %s\nwant %q", c.kind, got, c.message)
		}
		if status, got := u.call("POST", c.path, c.good); status != 200 {
			t.Errorf("%s: %d %s for %s", c.kind, status, got, c.good)
		}
	}
}

// TestKindsAnswer plays two rounds with each kind, and resends the answer unchanged.
func TestKindsAnswer(t *testing.T) {
	for _, kind := range scripted.Kinds() {
		if kind == scripted.KindLlamaGemma || kind == scripted.KindStudioGemma {
			continue // they take no results
		}
		u := start(t, scripted.Options{KindOf: func(string) scripted.Kind { return kind }})
		question := `{"role":"user","content":"CALL f {\"a\":1}"}`
		status, got := u.call("POST", "/v1/chat/completions", historyBody("", question))
		if status != 200 {
			t.Fatalf("%s: %d %s", kind, status, got)
		}
		_, message, _ := strings.Cut(compact(t, got), `"message":`)
		message, _, _ = strings.Cut(message, `,"logprobs"`)
		id, _ := at(t, got, "choices", 0, "message", "tool_calls", 0, "id").(string)
		extra := ""
		if kind == scripted.KindBedrock || kind == scripted.KindAnthropic {
			extra = kTools
		}
		status, got = u.call("POST", "/v1/chat/completions", historyBody(extra, question, message, `{"role":"tool","tool_call_id":"`+id+`","content":"r"}`))
		if status != 200 {
			t.Errorf("%s: %d %s", kind, status, got)
		}
	}
}

// TestKindByHeader: the header selects the kind for one request.
func TestKindByHeader(t *testing.T) {
	u := start(t, scripted.Options{})
	if err := u.Inject("kind=vllm_gemma", 1); err != nil {
		t.Fatal(err)
	}
	if status, body := u.call("POST", "/v1/chat/completions", historyBody("", kSystem, user)); status != 400 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := u.call("POST", "/v1/chat/completions", historyBody("", kSystem, user)); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if u.Inject("kind=nonsense", 1) == nil {
		t.Error("an unknown kind was accepted")
	}
}
