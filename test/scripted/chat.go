package scripted

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
)

// maxChoices is the API's limit of n.
const maxChoices = 128

type chatRequest struct {
	Model         string         `json:"model"`
	Messages      raw            `json:"messages"`
	N             *int           `json:"n"`
	Stream        bool           `json:"stream"`
	Store         bool           `json:"store"`
	StreamOptions *streamOptions `json:"stream_options"`
	Tools         []tool         `json:"tools"`
	Usage         struct {
		Include bool `json:"include"` // OpenRouter's form of include_usage
	} `json:"usage"`
}

type chatCall struct {
	ID     string `json:"id"`
	Custom struct {
		Name string `json:"name"`
	} `json:"custom"`
	Function struct {
		Name      string `json:"name"`
		Arguments raw    `json:"arguments"`
	} `json:"function"`
	Extra struct {
		Google struct {
			Signature string `json:"thought_signature"`
		} `json:"google"`
	} `json:"extra_content"`
}

func (c *chatCall) name() string { return c.Function.Name + c.Custom.Name }

type chatMessage struct {
	Role         string      `json:"role"`
	Content      raw         `json:"content"`
	Reasoning    raw         `json:"reasoning_content"`
	Details      raw         `json:"reasoning_details"`
	Refusal      raw         `json:"refusal"`
	Audio        raw         `json:"audio"`
	FunctionCall raw         `json:"function_call"`
	ToolCalls    *[]chatCall `json:"tool_calls"`
	ToolCallID   *string     `json:"tool_call_id"`
}

func (m *chatMessage) calls() []chatCall {
	if m.ToolCalls == nil {
		return nil
	}
	return *m.ToolCalls
}

// odd returns a member of a message that servers with a schema of their own refuse, empty for none.
func (m *chatMessage) odd() string {
	switch {
	case m.Role != "assistant":
	case !isNull(m.Reasoning):
		return "reasoning_content"
	case !isNull(m.Refusal):
		return "refusal"
	case !isNull(m.Details):
		return "reasoning_details"
	}
	return ""
}

// serveChat answers POST chat/completions.
func serveChat(k *sink, body []byte) error {
	s := k.s
	var req chatRequest
	if e := decode(body, &req); e != nil {
		return k.fail(e)
	}
	k.kind = s.kindFor(req.Model, k.f)
	messages, e := parseMessages(&req)
	d := chatDemand(&req, messages, body)
	if e == nil {
		e = cmp.Or(k.kind.check(d), checkChat(messages), s.organization.check("messages", req.Messages),
			checkChoice(body), checkCaching(body))
	}
	if e != nil {
		return k.fail(e)
	}

	p := d.prompt()
	if s.looksBack(p) {
		p.Seen = chatSeen(messages)
	}
	a := s.answer(p, k.f)
	if k.kind.thinks() && len(a.Calls) > 0 {
		a.Reasoning = cmp.Or(a.Reasoning, "A tool can tell.")
	}
	out := &chatAnswer{
		k: k, req: &req, round: p.Round,
		id: s.ids.of("chat", req.Model, req.Messages),
	}
	k.id = out.id
	k.kind.nameCalls(a.Calls, out.id)
	out.usage = usageOf(len(req.Messages), a)
	for i := range choices(&req) {
		c := a
		if i > 0 && c.Text != "" {
			c.Text += " (choice " + strconv.Itoa(i) + ")"
		}
		out.choices = append(out.choices, c)
	}

	if req.Store {
		s.memory.Load().chats.Put(out.id.chat(), out.completion(), maxResponses)
	}
	if req.Stream {
		return out.stream()
	}
	return k.json(http.StatusOK, out.completion())
}

func choices(req *chatRequest) int {
	if req.N == nil {
		return 1
	}
	return *req.N
}

func parseMessages(req *chatRequest) ([]chatMessage, *apiError) {
	if isNull(req.Messages) {
		return nil, badRequest("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
	}
	if req.Model == "" {
		return nil, badRequest("you must provide a model parameter", "", "")
	}
	if req.StreamOptions != nil && !req.Stream {
		return nil, badRequest("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", "")
	}
	if n := choices(req); n < 1 || n > maxChoices {
		return nil, badRequest("Invalid 'n': must be from 1 to 128.", "n", "invalid_value")
	}
	var messages []chatMessage
	if json.Unmarshal(req.Messages, &messages) != nil {
		return nil, badRequest("Invalid type for 'messages': expected an array of objects.", "messages", "invalid_type")
	}
	return messages, nil
}

func chatSeen(messages []chatMessage) []string {
	var seen []string
	for i := range messages {
		m := &messages[i]
		seen = append(seen, seenLine(m.Role, contentText(m.Content)))
		for j := range m.calls() {
			c := &m.calls()[j]
			seen = append(seen, seenLine("call", c.name()+" "+c.ID))
		}
	}
	return seen
}

// chatAnswer renders answers as Chat Completions.
type chatAnswer struct {
	k       *sink
	req     *chatRequest
	id      identity
	round   int
	choices []Answer
	usage   usage
}

func (o *chatAnswer) chatUsage() raw {
	u := o.usage
	return obj(
		"prompt_tokens", u.input, "completion_tokens", u.output, "total_tokens", u.input+u.output,
		"prompt_tokens_details", obj("cached_tokens", u.cached, "audio_tokens", 0),
		"completion_tokens_details", obj("reasoning_tokens", u.reasoning, "audio_tokens", 0,
			"accepted_prediction_tokens", 0, "rejected_prediction_tokens", 0),
	)
}

func finish(a Answer) string {
	if len(a.Calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

// signed returns the extra_content of a call, which Google adds to the first one of an answer.
func (o *chatAnswer) signed(call int) any {
	if o.k.kind != KindGemini || call > 0 {
		return nil
	}
	return obj("google", obj("thought_signature", signature))
}

// callHead returns the beginning of a call: the name of its member, the member with empty or whole arguments, and its id.
func (o *chatAnswer) callHead(choice, index int, c Call) (member string, value raw, id string) {
	id = cmp.Or(c.ID, o.id.call(o.round, choice, index))
	if isCustom(o.req.Tools, c.Name) {
		return "custom", obj("name", c.Name, "input", c.Arguments), id
	}
	return "function", obj("name", c.Name, "arguments", c.Arguments), id
}

func (o *chatAnswer) completion() []byte {
	var list []raw
	for i, a := range o.choices {
		var content, calls any = a.Text, nil
		if a.Text == "" && (len(a.Calls) > 0 || a.Refusal != "") {
			content = jnull()
			if o.k.kind.google() {
				content = nil
			}
		}
		if len(a.Calls) > 0 {
			var all []raw
			for j, c := range a.Calls {
				member, value, id := o.callHead(i, j, c)
				extra := o.signed(j)
				if a.Signed && j == 0 {
					extra = obj("google", obj("thought_signature", o.k.s.organization.own("sig_", o.id, i)))
				}
				all = append(all, obj("id", id, "type", member, member, value, "extra_content", extra))
			}
			calls = arr(all...)
		}
		if a.Sound {
			content = jnull()
		}
		var reasoning, details any
		if a.Reasoning != "" {
			reasoning = a.Reasoning
		}
		if a.Signed {
			details = o.signedDetails(i, a.Reasoning)
		}
		message := obj("role", "assistant", "content", content, "reasoning_content", reasoning, "reasoning_details", details,
			"audio", o.sound(i, a), "refusal", orNull(a.Refusal), "tool_calls", calls, "annotations", raw("[]"))
		list = append(list, obj("index", i, "message", message, "logprobs", jnull(), "finish_reason", finish(a)))
	}
	return obj(
		"id", o.id.chat(), "object", "chat.completion", "created", o.id.created(),
		"model", o.req.Model, "choices", arr(list...), "usage", o.chatUsage(),
		"service_tier", "default", "system_fingerprint", "fp_scripted",
	)
}

// stream sends the chunks of all choices in turn.
func (o *chatAnswer) stream() error {
	k := o.k
	k.stream(o.inline)
	lists := make([][]raw, len(o.choices))
	for i, a := range o.choices {
		lists[i] = o.deltas(i, a)
	}
	for left := true; left; {
		left = false
		for i, list := range lists {
			if len(list) == 0 {
				continue
			}
			k.event("", o.chunk(arr(list[0]), nil))
			lists[i], left = list[1:], true
		}
	}
	if o.wantsUsage() {
		k.event("", o.chunk(raw("[]"), o.chatUsage()))
	}
	if !k.f.noDone {
		k.event("", []byte("[DONE]"))
	}
	return k.end()
}

func (o *chatAnswer) wantsUsage() bool {
	return o.req.Usage.Include || o.req.StreamOptions != nil && o.req.StreamOptions.IncludeUsage
}

func (o *chatAnswer) chunk(choices raw, usage any) raw {
	if usage == nil && o.wantsUsage() {
		usage = jnull()
	}
	var obfuscation any
	if wantsObfuscation(o.req.StreamOptions) {
		obfuscation = o.id.obfuscation(o.k.events)
	}
	return obj(
		"id", o.id.chat(), "object", "chat.completion.chunk", "created", o.id.created(),
		"model", o.req.Model, "service_tier", "default", "system_fingerprint", "fp_scripted",
		"choices", choices, "usage", usage, "obfuscation", obfuscation,
	)
}

// deltas returns the objects of a choice in its chunks.
func (o *chatAnswer) deltas(index int, a Answer) []raw {
	var out []raw
	add := func(kv ...any) {
		out = append(out, obj("index", index, "delta", obj(kv...), "logprobs", jnull(), "finish_reason", jnull()))
	}
	var content any = ""
	if a.Text == "" && len(a.Calls) > 0 {
		content = jnull()
		if o.k.kind.google() {
			content = nil
		}
	}
	add("role", "assistant", "content", content, "refusal", jnull())
	for _, piece := range textPieces(a.Reasoning, o.k.f.piece) {
		add("reasoning_content", piece)
	}
	for _, piece := range textPieces(a.Text, o.k.f.piece) {
		add("content", piece)
	}
	for _, piece := range textPieces(a.Refusal, o.k.f.piece) {
		add("refusal", piece)
	}
	for _, delta := range o.callDeltas(index, a.Calls) {
		add("tool_calls", arr(delta))
	}
	return append(out, obj("index", index, "delta", obj(), "logprobs", jnull(), "finish_reason", finish(a)))
}

// callDeltas returns deltas that open every call with its id and name, and then the arguments of all calls, a piece of each in
// turn: parallel calls may be interleaved, which detects readers that expect one after the other.
func (o *chatAnswer) callDeltas(choice int, calls []Call) []raw {
	const piece = 12
	var (
		out     []raw
		members = make([]string, len(calls))
		args    = make([][]string, len(calls))
	)
	for i, c := range calls {
		member, value, id := o.callHead(choice, i, Call{Name: c.Name, ID: c.ID})
		out = append(out, obj("index", i, "id", id, "type", member, member, value, "extra_content", o.signed(i)))
		members[i], args[i] = member, textPieces(c.Arguments, piece)
	}
	for left := true; left; {
		left = false
		for i := range calls {
			if len(args[i]) == 0 {
				continue
			}
			key := "arguments"
			if members[i] == "custom" {
				key = "input"
			}
			out = append(out, obj("index", i, members[i], obj(key, args[i][0])))
			args[i], left = args[i][1:], true
		}
	}
	return out
}

// inline returns the event of an error within the stream.
func (o *chatAnswer) inline() []byte {
	return []byte("data: " + string(obj("error", serverError().object())) + "\n\n")
}

// sound returns the audio member of a Chat message, nil for none.
func (o *chatAnswer) sound(choice int, a Answer) any {
	if !a.Sound {
		return nil
	}
	return obj("id", o.k.s.organization.own("audio_", o.id, choice), "expires_at", 4_000_000_000, "data", "c291bmQ=", "transcript", a.Text)
}

// signedDetails returns the reasoning of a Chat message in the form of gateways, with the vendor's signature.
func (o *chatAnswer) signedDetails(choice int, text string) raw {
	return arr(obj("type", "reasoning.text", "text", text, "signature", o.k.s.organization.own("sig_", o.id, choice), "format", "anthropic-claude-v1", "index", 0))
}

// serveStoredChat serves the paths below chat/completions.
func serveStoredChat(k *sink, id string) error {
	chats := &k.s.memory.Load().chats
	completion, ok := chats.Find(id)
	if !ok {
		return k.fail(&apiError{status: http.StatusNotFound, message: "Chat completion with id '" + id + "' not found."})
	}
	if k.r.Method == http.MethodDelete {
		chats.Drop(id)
		return k.json(http.StatusOK, obj("id", id, "object", "chat.completion.deleted", "deleted", true))
	}
	return k.json(http.StatusOK, completion) // an update only changes the metadata
}
