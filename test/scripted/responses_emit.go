package scripted

import (
	"cmp"
	"slices"
	"strings"

	"remora/test/scripted/script"
)

// responsesAnswer renders an answer as the Responses API does.
type responsesAnswer struct {
	k      *sink
	req    *responsesRequest
	id     identity
	round  int
	answer Answer
	usage  usage

	tools  []tool
	output []raw
	seq    int
}

// build builds the output items: reasoning, message, calls.
func (o *responsesAnswer) build() {
	_ = decode(o.req.Tools, &o.tools) // ignore tools that are no list
	a := o.answer
	o.think()
	for _, t := range a.Hosted {
		o.output = append(o.output, o.hosted(t))
		if a.Thinks {
			o.think()
		}
	}
	if a.Text != "" || a.Refusal != "" || len(a.Calls) == 0 {
		o.output = append(o.output, o.message(o.nextID("msg"), "completed", o.parts()))
	}
	for i := range a.Calls {
		o.output = append(o.output, o.call(i, o.nextCallID(i), "completed", a.Calls[i].Arguments))
	}
}

// think adds the reasoning, if there is any.
func (o *responsesAnswer) think() {
	if o.answer.Reasoning == "" {
		return
	}
	id := o.nextID("rs")
	var encrypted any
	if slices.Contains(o.req.Include, "reasoning.encrypted_content") {
		encrypted = o.k.s.organization.seal(id)
	}
	o.output = append(o.output, obj("id", id, "type", "reasoning", "encrypted_content", encrypted,
		"summary", arr(summaryPart(o.answer.Reasoning))))
}

func (o *responsesAnswer) nextID(prefix string) string { return o.id.item(prefix, len(o.output)) }

func (o *responsesAnswer) nextCallID(i int) string {
	if isCustom(o.tools, o.answer.Calls[i].Name) {
		return o.nextID("ctc")
	}
	return o.nextID("fc")
}

func summaryPart(text string) raw { return obj("type", "summary_text", "text", text) }

func textPart(text string) raw {
	return obj("type", "output_text", "annotations", raw("[]"), "logprobs", raw("[]"), "text", text)
}

func refusalPart(text string) raw { return obj("type", "refusal", "refusal", text) }

func (o *responsesAnswer) parts() raw {
	var parts []raw
	if o.answer.Text != "" || o.answer.Refusal == "" {
		parts = append(parts, textPart(o.answer.Text))
	}
	if o.answer.Refusal != "" {
		parts = append(parts, refusalPart(o.answer.Refusal))
	}
	return arr(parts...)
}

func (o *responsesAnswer) message(id, status string, content raw) raw {
	return obj("id", id, "type", "message", "status", status, "content", content, "role", "assistant")
}

func (o *responsesAnswer) call(i int, id, status, arguments string) raw {
	name := o.answer.Calls[i].Name
	callID := cmp.Or(o.answer.Calls[i].ID, o.id.call(o.round, 0, i))
	if isCustom(o.tools, name) {
		return obj("id", id, "type", "custom_tool_call", "status", status, "call_id", callID, "input", arguments, "name", name)
	}
	return obj("id", id, "type", "function_call", "status", status, "arguments", arguments, "call_id", callID, "name", name)
}

// items returns the output for the store.
func (o *responsesAnswer) items() []item {
	out := make([]item, 0, len(o.output))
	for _, element := range o.output {
		it, _ := parseItem(element, -1)
		out = append(out, it)
	}
	return out
}

func (o *responsesAnswer) usageObject() raw {
	return obj("input_tokens", o.usage.input, "input_tokens_details", obj("cached_tokens", o.usage.cached),
		"output_tokens", o.usage.output, "output_tokens_details", obj("reasoning_tokens", o.usage.reasoning),
		"total_tokens", o.usage.input+o.usage.output)
}

// object returns the response. Its usage is only known at the end.
func (o *responsesAnswer) object(status string, output []raw, usage raw) raw {
	r := o.req
	var conversation any
	if id := r.conversationID(); id != "" {
		conversation = obj("id", id)
	}
	var failure, reason any = jnull(), jnull()
	switch status {
	case script.Incomplete:
		reason = obj("reason", "max_output_tokens")
	case script.Failed:
		failure = obj("code", "server_error", "message", "The model produced an error.")
	}
	return obj(
		"id", o.id.response(), "object", "response", "created_at", o.id.created(), "status", status,
		"background", false, "conversation", conversation, "error", failure, "incomplete_details", reason,
		"instructions", orElse(r.Instructions, "null"), "max_output_tokens", orElse(r.MaxOutputTokens, "null"),
		"model", r.Model, "output", arr(output...), "parallel_tool_calls", orElse(r.ParallelToolCalls, "true"),
		"previous_response_id", orNull(r.previous()), "reasoning", orElse(r.Reasoning, `{"effort":null,"summary":null}`),
		"service_tier", "default", "store", r.stores(), "temperature", orElse(r.Temperature, "1.0"),
		"text", orElse(r.Text, `{"format":{"type":"text"}}`), "tool_choice", orElse(r.ToolChoice, `"auto"`),
		"tools", orElse(r.Tools, "[]"), "top_p", orElse(r.TopP, "1.0"), "truncation", orElse(r.Truncation, `"disabled"`),
		"usage", usage, "user", orElse(r.User, "null"), "metadata", orElse(r.Metadata, "{}"),
	)
}

// send sends the next event, with its type, number and members.
func (o *responsesAnswer) send(name string, kv ...any) {
	data := obj(append([]any{"type", name, "sequence_number", o.seq}, kv...)...)
	o.seq++
	o.k.event(name, data)
}

// stream sends the response as events. whole is the content of the terminal event. It calls keep before sending that.
func (o *responsesAnswer) stream(status string, whole raw, keep func()) error {
	o.k.stream(o.inline)
	begun := o.object("in_progress", nil, jnull())
	o.send("response.created", "response", begun)
	o.send("response.in_progress", "response", begun)
	o.streamItems()
	if o.k.err == nil && !o.k.f.noDone {
		keep()
		o.send("response."+status, "response", whole)
	}
	return o.k.end()
}

func (o *responsesAnswer) streamItems() {
	calls := 0
	for i, it := range o.items() {
		add := func(begun raw) { o.send("response.output_item.added", "output_index", i, "item", begun) }
		switch it.Type {
		case "reasoning":
			add(obj("id", it.ID, "type", "reasoning", "summary", raw("[]")))
			o.streamPart("response.reasoning_summary_part", "response.reasoning_summary_text", o.answer.Reasoning, summaryPart,
				"item_id", it.ID, "output_index", i, "summary_index", 0)
		case "message":
			add(o.message(it.ID, "in_progress", raw("[]")))
			o.streamMessage(i, it.ID)
		case "function_call", "custom_tool_call":
			add(o.call(calls, it.ID, "in_progress", ""))
			deltas := "response.function_call_arguments"
			if it.Type == "custom_tool_call" {
				deltas = "response.custom_tool_call_input"
			}
			o.streamText(deltas, o.answer.Calls[calls].Arguments, "item_id", it.ID, "output_index", i)
			calls++
		default:
			add(it.raw)
		}
		o.send("response.output_item.done", "output_index", i, "item", it.raw)
	}
}

func (o *responsesAnswer) streamMessage(index int, id string) {
	content := 0
	send := func(deltas, text string, whole func(text string) raw) {
		o.streamPart("response.content_part", deltas, text, whole, "item_id", id, "output_index", index, "content_index", content)
		content++
	}
	if o.answer.Text != "" || o.answer.Refusal == "" {
		send("response.output_text", o.answer.Text, textPart)
	}
	if o.answer.Refusal != "" {
		send("response.refusal", o.answer.Refusal, refusalPart)
	}
}

// streamPart sends a part of an item: its beginning, its text in deltas, and the whole. where are members with its place.
func (o *responsesAnswer) streamPart(part, deltas, text string, whole func(text string) raw, where ...any) {
	o.send(part+".added", slices.Concat(where, []any{"part", whole("")})...)
	o.streamText(deltas, text, where...)
	o.send(part+".done", slices.Concat(where, []any{"part", whole(text)})...)
}

// streamText sends a text in events "<deltas>.delta" and "<deltas>.done". The member with the whole text is named as the last
// word of deltas.
func (o *responsesAnswer) streamText(deltas, text string, where ...any) {
	var logprobs any
	if deltas == "response.output_text" {
		logprobs = raw("[]")
	}
	for _, piece := range textPieces(text, o.k.f.piece) {
		var obfuscation any
		if wantsObfuscation(o.req.StreamOptions) {
			obfuscation = o.id.obfuscation(o.seq)
		}
		o.send(deltas+".delta", slices.Concat(where, []any{"delta", piece, "logprobs", logprobs, "obfuscation", obfuscation})...)
	}
	member := deltas[strings.LastIndexAny(deltas, "._")+1:]
	o.send(deltas+".done", slices.Concat(where, []any{member, text, "logprobs", logprobs})...)
}

// inline returns the event of an error within the stream.
func (o *responsesAnswer) inline() []byte {
	e := serverError()
	return []byte("event: error\ndata: " + string(obj(
		"type", "error", "sequence_number", o.seq, "code", e.kind, "message", e.message, "param", jnull(),
	)) + "\n\n")
}

// hosted returns an item that the vendor generated and ran itself.
func (o *responsesAnswer) hosted(t string) raw {
	id := o.nextID(itemPrefix[t])
	n := len(o.output)
	head := []any{"id", id, "type", t}
	switch t {
	case "compaction":
		return obj(append(head, "encrypted_content", o.k.s.organization.seal(id))...)
	case "web_search_call":
		head = append(head, "status", "completed", "action", obj("type", "search", "query", "weather"))
	case "file_search_call":
		head = append(head, "status", "completed", "queries", raw(`["rules"]`), "results", arr(obj(
			"file_id", o.k.s.organization.own("file-", o.id, n), "filename", "rules.md", "score", raw("0.9"), "text", "Be kind.")))
	case "code_interpreter_call":
		head = append(head, "status", "completed", "code", "1+1", "container_id", o.k.s.organization.own("cntr_", o.id, n),
			"outputs", arr(obj("type", "logs", "logs", "2")))
	case "image_generation_call":
		head = append(head, "status", "completed", "action", "generate", "background", "opaque", "output_format", "png", "quality", "low",
			"result", "aW1hZ2U=", "revised_prompt", "A sunny day", "size", "1024x1024")
	case "mcp_list_tools":
		head = append(head, "server_label", "docs", "tools", raw("[]"))
	case "mcp_call":
		head = append(head, "server_label", "docs", "name", "find", "arguments", "{}", "output", "found")
	}
	return obj(head...)
}
