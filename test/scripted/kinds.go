package scripted

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"remora/test/scripted/script"
)

// Kind is the server whose refusals the upstream copies, in addition to OpenAI's checks of a history.
type Kind string

// Kinds. The refusals have the texts of the real servers.
const (
	// KindOpenAI adds nothing: the default.
	KindOpenAI Kind = "openai"
	// KindQwen is vLLM with Qwen's chat template: at most one system message, which must be the first message.
	KindQwen Kind = "vllm_qwen"
	// KindGemma is vLLM with Gemma's template: no system message, and user and assistant must alternate.
	KindGemma Kind = "vllm_gemma"
	// KindMistral is vLLM with Mistral's template: user and assistant must alternate after an optional system message.
	KindMistral Kind = "vllm_mistral"
	// KindMistralAPI is Mistral's own API: ids of calls have nine letters and digits, no message of the user or of the system
	// follows a result, and messages have no role and no members of other servers.
	KindMistralAPI Kind = "mistral"
	// KindKimi requires reasoning_content on every assistant message with tool calls, unless thinking is disabled.
	KindKimi Kind = "kimi"
	// KindDeepSeek requires the same, with another error text, and does not know the role developer.
	KindDeepSeek Kind = "deepseek"
	// KindBedrock is Bedrock behind a gateway: no tool messages in a request without tools, and the user speaks first.
	KindBedrock Kind = "bedrock"
	// KindAnthropic is Anthropic behind a gateway: the same, and ids of calls have letters, digits, dashes and underscores.
	KindAnthropic Kind = "anthropic"
	// KindGemini is Google's compatible API: no null content, no tools with JSON output, a signature on the calls of the round,
	// no call at the beginning, and errors in an array.
	KindGemini Kind = "gemini"
	// KindGemmaHosted is Gemma at Google: neither tools nor system messages.
	KindGemmaHosted Kind = "google_gemma"
	// KindReasoner is DeepSeek's reasoner: no tools.
	KindReasoner Kind = "deepseek_reasoner"
	// KindLlamaCpp is llama.cpp without --jinja: 500 for requests with tools.
	KindLlamaCpp Kind = "llama_cpp"
	// KindLlamaGemma is llama.cpp with a template that has no role for results, and without a projector for images: 500 for all that
	// it refuses. User and assistant must alternate after an optional system message.
	KindLlamaGemma Kind = "llama_cpp_gemma"
	// KindStudioGemma is LM Studio with the same model: 400.
	KindStudioGemma Kind = "lm_studio_gemma"
	// KindOllama is Ollama with a model that does not support tools.
	KindOllama Kind = "ollama"
	// KindNoEndpoints is OpenRouter for a model without providers that support tools: 404.
	KindNoEndpoints Kind = "openrouter_no_tools"
	// KindGroq refuses tools with JSON output, and unknown roles and members of messages.
	KindGroq Kind = "groq"
	// KindTerse refuses tools without naming the reason.
	KindTerse Kind = "terse"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		KindOpenAI, KindQwen, KindGemma, KindMistral, KindMistralAPI, KindKimi, KindDeepSeek, KindBedrock, KindAnthropic, KindGemini,
		KindGemmaHosted, KindReasoner, KindLlamaCpp, KindLlamaGemma, KindStudioGemma, KindOllama, KindNoEndpoints, KindGroq, KindTerse,
	}
}

// thinks reports whether answers with tool calls always come with reasoning.
func (k Kind) thinks() bool { return k == KindKimi || k == KindDeepSeek }

// google reports whether errors have Google's shape.
func (k Kind) google() bool { return k == KindGemini || k == KindGemmaHosted }

// line is a message of any dialect, as in a chat template. Reasoning is none.
type line struct {
	index   int       // in messages or input; -1 for instructions
	role    string    // system, developer, user, assistant or tool
	calls   bool      // an assistant message with tool calls
	first   *chatCall // of the tool calls of a Chat message
	lacking bool      // calls without reasoning_content
	null    bool      // content is present and null
	empty   bool      // neither content nor calls
	ids     []string  // of its calls, or of the call that it answers
	content raw       // of a message, or the output of a call
	odd     string    // a member of other servers
}

func (l *line) isSystem() bool { return l.role == "system" || l.role == "developer" }

// demand is the part of a request that a kind checks, and that answers depend on.
type demand struct {
	path  string
	model string
	lines []line
	tools bool // the request defines tools
	json  bool // the request asks for JSON output
	think bool // thinking is not disabled
	body  []byte
}

func chatDemand(req *chatRequest, messages []chatMessage, body []byte) *demand {
	d := &demand{path: "chat/completions", model: req.Model, tools: len(req.Tools) > 0, body: body}
	d.readSettings()
	for i := range messages {
		m := &messages[i]
		role := m.Role
		if role == "function" {
			role = "tool"
		}
		l := line{index: i, role: role, content: m.Content, odd: m.odd(), calls: len(m.calls()) > 0 || !isNull(m.FunctionCall), null: string(m.Content) == "null"}
		l.lacking = l.calls && (isNull(m.Reasoning) || string(m.Reasoning) == `""`)
		l.empty = len(m.Content) == 0 && !l.calls
		if calls := m.calls(); len(calls) > 0 {
			l.first = &calls[0]
		}
		for _, c := range m.calls() {
			l.ids = append(l.ids, c.ID)
		}
		if m.ToolCallID != nil {
			l.ids = append(l.ids, *m.ToolCallID)
		}
		d.lines = append(d.lines, l)
	}
	return d
}

func responsesDemand(req *responsesRequest, history []item, body []byte) *demand {
	d := &demand{path: "responses", model: req.Model, body: body}
	d.readSettings()
	var tools []raw
	_ = json.Unmarshal(req.Tools, &tools)
	d.tools = len(tools) > 0
	if !isNull(req.Instructions) {
		d.lines = append(d.lines, line{index: -1, role: "system", content: req.Instructions})
	}
	for i := range history {
		it := &history[i]
		l := line{index: i, content: it.Content}
		switch {
		case it.Type == "message" && it.Role == "developer":
			l.role = "system" // servers behind templates translate it
		case it.Type == "message":
			l.role = it.Role
		case it.isModel() && it.Type != "reasoning":
			l.role, l.calls = "assistant", true
		case len(it.Output) > 0:
			l.role, l.content = "tool", it.Output
		default:
			continue
		}
		if l.role == "tool" || l.calls && it.callID() != "" {
			l.ids = []string{it.callID()}
		}
		d.lines = append(d.lines, l)
	}
	return d
}

// readSettings reads the members that only kinds use.
func (d *demand) readSettings() {
	var s struct {
		ResponseFormat struct {
			Type string `json:"type"`
		} `json:"response_format"`
		Text struct {
			Format struct {
				Type string `json:"type"`
			} `json:"format"`
		} `json:"text"`
		Thinking struct {
			Type string `json:"type"`
		} `json:"thinking"`
	}
	_ = json.Unmarshal(d.body, &s) // other checks report wrong types
	format := s.ResponseFormat.Type + s.Text.Format.Type
	d.json, d.think = strings.HasPrefix(format, "json"), s.Thinking.Type != "disabled"
}

// check returns the error with which servers of this kind refuse a request, nil for none.
func (k Kind) check(d *demand) *apiError {
	switch k {
	case KindQwen:
		return d.checkQwen()
	case KindGemma:
		return d.checkGemma()
	case KindMistral:
		return d.checkTurns(1, "After the optional system message, conversation roles must alternate user and assistant roles "+
			"except for tool calls and results.")
	case KindLlamaGemma, KindStudioGemma:
		return k.checkLocal(d)
	case KindMistralAPI:
		return cmp.Or(d.checkMistral(), d.checkShortIDs())
	case KindKimi, KindDeepSeek:
		return k.checkThinking(d)
	case KindBedrock:
		if first := d.first(); first != nil && first.role != "user" {
			return badHistory("A conversation must start with a user message. Try again with a conversation that starts with a user message.", "", "")
		}
		return d.checkToolless("Bedrock")
	case KindAnthropic:
		return cmp.Or(d.checkIDs(), d.checkToolless("Anthropic"))
	case KindGemini:
		return d.checkGemini()
	default:
		return k.checkTools(d)
	}
}

// template returns vLLM's error for an exception of a chat template.
func template(message string) *apiError {
	return refusal(http.StatusBadRequest, message, obj("error",
		obj("message", message, "type", "BadRequestError", "param", jnull(), "code", http.StatusBadRequest)))
}

// google returns an error of Google's compatible API.
func google(message string) *apiError {
	return refusal(http.StatusBadRequest, message, googleBody(http.StatusBadRequest, message))
}

func googleBody(status int, message string) raw {
	name := "INVALID_ARGUMENT"
	if status >= http.StatusInternalServerError {
		name = "INTERNAL"
	}
	return arr(obj("error", obj("code", status, "message", message, "status", name)))
}

func refusal(status int, message string, body raw) *apiError {
	return &apiError{status: status, message: message, history: true, own: body}
}

func (d *demand) checkQwen() *apiError {
	user := false
	for i, l := range d.lines {
		switch {
		case l.role == "developer":
			return template("Unexpected message role.")
		case l.role == "system" && i > 0:
			return template("System message must be at the beginning.")
		}
		user = user || l.role == "user"
	}
	if !user {
		return template("No user query found in messages.")
	}
	return nil
}

func (d *demand) checkGemma() *apiError {
	for _, l := range d.lines {
		if l.isSystem() {
			return template("System role not supported")
		}
	}
	return d.checkTurns(0, "Conversation roles must alternate user/assistant/user/assistant/...")
}

// checkTurns checks that user and assistant alternate, the user first, after at most the given number of system messages. Calls
// and results do not count.
func (d *demand) checkTurns(systems int, message string) *apiError {
	n := 0
	for i, l := range d.lines {
		switch {
		case l.role == "tool" || l.calls:
		case i < systems && l.isSystem():
		case l.role != "user" && l.role != "assistant", (l.role == "user") != (n%2 == 0):
			return template(message)
		default:
			n++
		}
	}
	return nil
}

// checkLocal refuses images, results of tools, and messages that do not alternate.
func (k Kind) checkLocal(d *demand) *apiError {
	switch {
	case !bytes.Contains(d.body, []byte(`"image_url"`)) && !bytes.Contains(d.body, []byte(`"input_image"`)):
	case k == KindLlamaGemma:
		return llamaCpp("image input is not supported - hint: if this is unexpected, you may need to provide the mmproj")
	default:
		return studio("Model does not support images. Please use a model that does.")
	}

	raised := ""
	if slices.ContainsFunc(d.lines, func(l line) bool { return l.role == "tool" }) {
		raised = "Only user and assistant roles are supported!"
	} else if d.checkTurns(1, "") != nil {
		raised = "Conversation roles must alternate user/assistant/user/assistant/..."
	}
	switch {
	case raised == "":
		return nil
	case k == KindLlamaGemma:
		return llamaCpp("\n------------\nWhile executing CallExpression at line 1, column 2 in source:\nError: Jinja Exception: " + raised)
	default:
		return studio(`Error rendering prompt with jinja template: "` + raised + `". This is usually an issue with the model's prompt template.`)
	}
}

func llamaCpp(message string) *apiError {
	return refusal(http.StatusInternalServerError, message, obj("error",
		obj("code", http.StatusInternalServerError, "message", message, "type", "server_error")))
}

func studio(message string) *apiError {
	return refusal(http.StatusBadRequest, message, obj("error", message))
}

// first is the first message after those of the system, nil if there is none.
func (d *demand) first() *line {
	for i := range d.lines {
		if l := &d.lines[i]; !l.isSystem() {
			return l
		}
	}
	return nil
}

// checkMistral wants the order, the roles and the members that Mistral has.
func (d *demand) checkMistral() *apiError {
	for i, l := range d.lines {
		switch {
		case l.role == "developer":
			return mistral(fmt.Sprintf("Input tag 'developer' found using 'role' does not match any of the expected tags: 'system', 'user', "+
				"'assistant', 'tool' at messages.%d", l.index), "union_tag_invalid")
		case l.odd != "":
			return mistral(fmt.Sprintf(`[{"type":"extra_forbidden","loc":["body","messages",%d,"%s","%s"],"msg":"Extra inputs are not permitted"}]`,
				l.index, l.role, l.odd), "invalid_request_error")
		case i > 0 && d.lines[i-1].role == "tool" && l.role != "tool" && l.role != "assistant":
			return mistral(fmt.Sprintf("Unexpected role '%s' after role 'tool'", l.role), "invalid_request_message_order")
		}
	}
	return nil
}

func mistral(message, kind string) *apiError {
	return refusal(http.StatusBadRequest, message, obj("object", "error", "message", message, "type", kind, "param", jnull(), "code", "3230"))
}

func (k Kind) checkThinking(d *demand) *apiError {
	if !d.think || d.path != "chat/completions" {
		return nil
	}
	for i, l := range d.lines {
		if l.role == "developer" && k == KindDeepSeek {
			return badHistory(fmt.Sprintf("Failed to deserialize the JSON body into the target type: messages[%d].role: unknown variant "+
				"`developer`, expected one of `system`, `user`, `assistant`, `tool` at line 1 column 99", i), "", "invalid_request_error")
		}
		switch {
		case !l.lacking:
		case k == KindKimi:
			message := fmt.Sprintf("thinking is enabled but reasoning_content is missing in assistant tool call message at index %d", l.index)
			return refusal(http.StatusBadRequest, message, obj("error", obj("message", message, "type", "invalid_request_error")))
		default:
			return badHistory("The reasoning_content in the thinking mode must be passed back to the API.", "", "invalid_request_error")
		}
	}
	return nil
}

// checkToolless refuses calls in a request without tools, like gateways in front of servers that require the definitions of
// tools.
func (d *demand) checkToolless(server string) *apiError {
	if d.tools || !slices.ContainsFunc(d.lines, func(l line) bool { return l.calls || l.role == "tool" }) {
		return nil
	}
	message := "litellm.UnsupportedParamsError: " + server + " doesn't support tool calling without `tools=` param specified. " +
		"Pass `tools=` param OR set `litellm.modify_params = True` // `litellm_settings::modify_params: True` to add dummy tool to the request."
	return refusal(http.StatusBadRequest, message, obj("error", obj("message", message, "type", "None", "param", "None", "code", "400")))
}

// checkShortIDs checks that ids of calls are in Mistral's format.
func (d *demand) checkShortIDs() *apiError {
	for _, l := range d.lines {
		for _, id := range l.ids {
			if len(id) == shortID && !strings.ContainsFunc(id, func(r rune) bool { return notInID(r) || r == '_' || r == '-' }) {
				continue
			}
			message := "Tool call id was " + id + " but must be a-z, A-Z, 0-9, with a length of 9."
			return refusal(http.StatusBadRequest, message, obj("object", "error", "message", message, "type", "invalid_function_call",
				"param", jnull(), "code", "3280"))
		}
	}
	return nil
}

// nameCalls sets the ids of calls for kinds with their own format.
func (k Kind) nameCalls(calls []script.Call, id identity) {
	for i := range calls {
		if k == KindMistralAPI && calls[i].ID == "" {
			calls[i].ID = string(id[i : i+shortID])
		}
	}
}

// shortID is the length of ids of calls at Mistral.
const shortID = 9

// checkIDs checks that ids of calls are in Anthropic's format.
func (d *demand) checkIDs() *apiError {
	for _, l := range d.lines {
		for j, id := range l.ids {
			if id == "" || strings.ContainsFunc(id, notInID) {
				return badHistory(fmt.Sprintf("messages.%d.content.%d.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", l.index, j), "", "")
			}
		}
	}
	return nil
}

func (d *demand) checkGemini() *apiError {
	if d.tools && d.json {
		return google("Function calling with a response mime type: 'application/json' is unsupported")
	}
	for _, l := range d.lines {
		switch {
		case l.null:
			return google("Value is not a string: null")
		case l.empty && d.path == "chat/completions":
			return google(fmt.Sprintf("* GenerateContentRequest.contents[%d].parts: contents.parts must not be empty.\n", l.index))
		}
	}
	if first := d.first(); first != nil && first.calls {
		return google("Please ensure that function call turn comes immediately after a user turn or after a function response turn.")
	}
	return d.checkSignatures()
}

// signature is the thought_signature of a call.
const signature = "c2NyaXB0ZWQgc2lnbmF0dXJl"

// unsigned is Google's documented signature for calls of other models.
const unsigned = "skip_thought_signature_validator"

// checkSignatures checks the thought_signature of the first call of each answer since the last user message.
func (d *demand) checkSignatures() *apiError {
	for _, l := range slices.Backward(d.lines) {
		if l.role == "user" {
			return nil
		}
		if l.first != nil && l.first.Extra.Google.Signature != signature && l.first.Extra.Google.Signature != unsigned {
			return google(fmt.Sprintf("Function call is missing a thought_signature in functionCall parts. This is required "+
				"for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, "+
				"function call `default_api:%s` , position %d. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures "+
				"for more details.", l.first.Function.Name, l.index+1))
		}
	}
	return nil
}

// checkTools refuses tools, for kinds without tools.
func (k Kind) checkTools(d *demand) *apiError {
	if k == KindGemmaHosted && slices.ContainsFunc(d.lines, func(l line) bool { return l.isSystem() }) {
		return google("Developer instruction is not enabled for models/" + d.model)
	}
	for _, l := range d.lines {
		switch {
		case k != KindGroq:
		case l.role == "developer":
			return badHistory(fmt.Sprintf("'messages.%d' : discriminator property 'role' has invalid value", l.index), "", "")
		case l.odd != "":
			return badHistory(fmt.Sprintf("'messages.%d' : for 'role:%s' the following must be satisfied[('messages.%d' : "+
				"property '%s' is unsupported)]", l.index, l.role, l.index, l.odd), "", "")
		}
	}
	if !d.tools {
		return nil
	}
	switch k {
	case KindGemmaHosted:
		return google("Function calling is not enabled for models/" + d.model)
	case KindReasoner:
		return badHistory(d.model+" does not support Function Calling", "", "invalid_request_error")
	case KindLlamaCpp:
		return llamaCpp("tools param requires --jinja flag")
	case KindOllama:
		e := badHistory("registry.ollama.ai/library/"+d.model+" does not support tools", "", "")
		e.kind = "api_error"
		return e
	case KindNoEndpoints:
		const message = "No endpoints found that support tool use. To learn more about provider routing, visit: " +
			"https://openrouter.ai/docs/guides/routing/provider-selection"
		return refusal(http.StatusNotFound, message, obj("error", obj("message", message, "code", http.StatusNotFound)))
	case KindGroq:
		if d.json {
			return badHistory("json mode cannot be combined with tool/function calling", "", "")
		}
	case KindTerse:
		return refusal(http.StatusBadRequest, "Bad Request", obj("detail", "Bad Request"))
	default:
	}
	return nil
}

// checkChoice is OpenAI's check: members that control tools need tools, and a list of tools must not be empty.
func checkChoice(body []byte) *apiError {
	if !bytes.Contains(body, []byte("tool")) {
		return nil
	}
	var req struct {
		Tools    *[]raw `json:"tools"`
		Choice   raw    `json:"tool_choice"`
		Parallel raw    `json:"parallel_tool_calls"`
	}
	_ = json.Unmarshal(body, &req)
	only := func(name string) *apiError {
		return badRequest("Invalid value for '"+name+"': '"+name+"' is only allowed when 'tools' are specified.", name, "")
	}
	switch {
	case req.Tools != nil && len(*req.Tools) == 0:
		return badRequest("Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
			"tools", "empty_array")
	case req.Tools != nil:
		return nil
	case !isNull(req.Choice):
		return only("tool_choice")
	case !isNull(req.Parallel):
		return only("parallel_tool_calls")
	}
	return nil
}
