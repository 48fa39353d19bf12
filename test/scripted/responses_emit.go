package scripted

import (
	"cmp"
	"slices"

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
			o.streamSummary(i, it.ID)
		case "message":
			add(o.message(it.ID, "in_progress", raw("[]")))
			o.streamMessage(i, it.ID)
		case "function_call", "custom_tool_call":
			add(o.call(calls, it.ID, "in_progress", ""))
			o.streamCall(i, it, o.answer.Calls[calls].Arguments)
			calls++
		default:
			add(it.raw)
		}
		o.send("response.output_item.done", "output_index", i, "item", it.raw)
	}
}

// part is a part of an item that is sent in deltas.
type part struct {
	where       []any  // members with the place of the deltas
	added, done string // events around the deltas; empty for none
	deltas      string // events "<deltas>.delta" and "<deltas>.done"
	member      string // of the last event
	text        string
	empty, full raw
	logprobs    bool
}

func (o *responsesAnswer) streamPart(p part) {
	send := func(name string, kv ...any) { o.send(name, append(slices.Clone(p.where), kv...)...) }
	if p.added != "" {
		send(p.added, "part", p.empty)
	}
	var logprobs any
	if p.logprobs {
		logprobs = raw("[]")
	}
	for _, piece := range textPieces(p.text, o.k.f.piece) {
		var obfuscation any
		if wantsObfuscation(o.req.StreamOptions) {
			obfuscation = o.id.obfuscation(o.seq)
		}
		send(p.deltas+".delta", "delta", piece, "logprobs", logprobs, "obfuscation", obfuscation)
	}
	send(p.deltas+".done", p.member, p.text, "logprobs", logprobs)
	if p.done != "" {
		send(p.done, "part", p.full)
	}
}

func (o *responsesAnswer) streamSummary(index int, id string) {
	o.streamPart(part{
		where: []any{"item_id", id, "output_index", index, "summary_index", 0},
		added: "response.reasoning_summary_part.added", done: "response.reasoning_summary_part.done",
		deltas: "response.reasoning_summary_text", member: "text", text: o.answer.Reasoning,
		empty: summaryPart(""), full: summaryPart(o.answer.Reasoning),
	})
}

func (o *responsesAnswer) streamMessage(index int, id string) {
	content := 0
	send := func(deltas, member, text string, whole func(text string) raw, logprobs bool) {
		o.streamPart(part{
			where: []any{"item_id", id, "output_index", index, "content_index", content},
			added: "response.content_part.added", done: "response.content_part.done",
			deltas: deltas, member: member, text: text, empty: whole(""), full: whole(text), logprobs: logprobs,
		})
		content++
	}
	if o.answer.Text != "" || o.answer.Refusal == "" {
		send("response.output_text", "text", o.answer.Text, textPart, true)
	}
	if o.answer.Refusal != "" {
		send("response.refusal", "refusal", o.answer.Refusal, refusalPart, false)
	}
}

func (o *responsesAnswer) streamCall(index int, it item, arguments string) {
	p := part{
		where:  []any{"item_id", it.ID, "output_index", index},
		deltas: "response.function_call_arguments", member: "arguments", text: arguments,
	}
	if it.Type == "custom_tool_call" {
		p.deltas, p.member = "response.custom_tool_call_input", "input"
	}
	o.streamPart(p)
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
		head = append(head, "status", "completed", "result", "aW1hZ2U=")
	case "mcp_list_tools":
		head = append(head, "server_label", "docs", "tools", raw("[]"))
	case "mcp_call":
		head = append(head, "server_label", "docs", "name", "find", "arguments", "{}", "output", "found")
	}
	return obj(head...)
}
