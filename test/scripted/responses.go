package scripted

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"remora/test/scripted/script"
)

type responsesRequest struct {
	Model              string         `json:"model"`
	Input              raw            `json:"input"`
	Instructions       raw            `json:"instructions"`
	PreviousResponseID *string        `json:"previous_response_id"`
	Conversation       raw            `json:"conversation"`
	Prompt             raw            `json:"prompt"`
	Store              *bool          `json:"store"`
	Stream             bool           `json:"stream"`
	StreamOptions      *streamOptions `json:"stream_options"`
	Include            []string       `json:"include"`
	Tools              raw            `json:"tools"`
	ToolChoice         raw            `json:"tool_choice"`
	ParallelToolCalls  raw            `json:"parallel_tool_calls"`
	MaxOutputTokens    raw            `json:"max_output_tokens"`
	Metadata           raw            `json:"metadata"`
	Reasoning          raw            `json:"reasoning"`
	Temperature        raw            `json:"temperature"`
	TopP               raw            `json:"top_p"`
	Truncation         raw            `json:"truncation"`
	Text               raw            `json:"text"`
	User               raw            `json:"user"`
}

func (r *responsesRequest) stores() bool { return r.Store == nil || *r.Store }

func (r *responsesRequest) previous() string {
	if r.PreviousResponseID == nil {
		return ""
	}
	return *r.PreviousResponseID
}

// conversationID returns the id in conversation, which is a string or an object; "" if there is none.
func (r *responsesRequest) conversationID() string {
	var id string
	if json.Unmarshal(r.Conversation, &id) == nil {
		return id
	}
	var o struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(r.Conversation, &o)
	return o.ID
}

// item is an element of input or output, with the members that checks and the script need.
type item struct {
	raw       raw
	Type      string  `json:"type"`
	Role      string  `json:"role"`
	ID        string  `json:"id"`
	CallID    *string `json:"call_id"`
	Name      string  `json:"name"`
	Execution string  `json:"execution"`

	ApprovalRequestID string  `json:"approval_request_id"`
	Content           raw     `json:"content"`
	Output            raw     `json:"output"`
	Summary           raw     `json:"summary"`
	EncryptedContent  *string `json:"encrypted_content"`
	// input is the element's index in this request's input, -1 for stored items.
	input int
}

func (it *item) callID() string {
	if it.CallID == nil {
		return ""
	}
	return *it.CallID
}

// isModel reports whether the model made the item.
func (it *item) isModel() bool {
	switch it.Type {
	case "message":
		return it.Role == "assistant"
	case "reasoning":
		return true
	}
	return slices.Contains(pairedCalls, it.Type) || slices.Contains(hostedCalls, it.Type)
}

// parseItem parses one element. An element with a role but without a type is a message.
func parseItem(element raw, index int) (item, bool) {
	it := item{raw: element, input: index}
	// A member of an unexpected type is ignored, not an error.
	var mismatch *json.UnmarshalTypeError
	if err := json.Unmarshal(element, &it); err != nil && (!errors.As(err, &mismatch) || mismatch.Field == "") {
		return it, false
	}
	if it.Type == "" && it.Role != "" {
		it.Type = "message"
	}
	return it, true
}

// parseInput parses input, which is a string or a list.
func parseInput(input raw) ([]item, *apiError) {
	var text string
	if json.Unmarshal(input, &text) == nil {
		if text == "" {
			return nil, nil
		}
		it, _ := parseItem(obj("role", "user", "content", text), 0)
		return []item{it}, nil
	}
	var elements []raw
	if json.Unmarshal(input, &elements) != nil {
		return nil, badRequest("Invalid type for 'input': expected one of an array of objects or a string.", "input", "invalid_type")
	}
	items := make([]item, 0, len(elements))
	for i, e := range elements {
		it, ok := parseItem(e, i)
		if !ok {
			param := "input[" + strconv.Itoa(i) + "]"
			return nil, badRequest("Invalid type for '"+param+"': expected an object.", param, "invalid_type")
		}
		items = append(items, it)
	}
	return items, nil
}

// serveResponses answers POST responses.
func serveResponses(k *sink, body []byte) error {
	s := k.s
	var req responsesRequest
	if e := decode(body, &req); e != nil {
		return k.fail(e)
	}
	k.kind = s.kindFor(req.Model, k.f)
	input, e := parseInput(orElse(req.Input, `""`))
	if e == nil {
		e = checkParameters(&req, input)
	}
	if e != nil {
		return k.fail(e)
	}
	m := s.memory.Load()
	context, done, e := m.context(&req)
	if e != nil {
		return k.fail(e)
	}
	defer done()

	history, e := m.resolve(&req, append(context, input...))
	d := responsesDemand(&req, history, body)
	if e == nil {
		e = cmp.Or(k.kind.check(d), checkImages(input), checkResponses(&req, history, s.organization, m), checkCaching(body))
	}
	if e != nil {
		return k.fail(e)
	}

	p := d.prompt()
	if s.looksBack(p) {
		p.Seen = responsesSeen(&req, history)
	}
	a := s.answer(p, k.f)
	id := s.ids.of("responses "+req.previous()+" "+req.conversationID(), req.Model, req.Input)
	k.id = id
	k.kind.nameCalls(a.Calls, id)
	out := &responsesAnswer{
		k: k, req: &req, id: id, round: p.Round, answer: a, usage: usageOf(historySize(history), a),
	}
	out.build()
	status := cmp.Or(a.Ending, "completed")
	whole := out.object(status, out.output, out.usageObject())

	// An answer can be referenced once it has ended successfully.
	keep := func() {
		if status != script.Failed {
			m.keep(&req, id.response(), whole, input, out.items())
		}
		done() // a client with the last event may continue at once
	}
	if req.Stream {
		return out.stream(status, whole, keep)
	}
	keep()
	return k.json(http.StatusOK, whole)
}

func historySize(history []item) int {
	n := 0
	for i := range history {
		n += len(history[i].raw)
	}
	return n
}

func checkParameters(req *responsesRequest, input []item) *apiError {
	switch {
	case req.PreviousResponseID != nil && !isNull(req.Conversation):
		return badRequest("Mutually exclusive parameters. Ensure you are only providing one of: "+
			"'previous_response_id' or 'conversation'.", "", "mutually_exclusive_parameters")
	case len(input) == 0 && req.PreviousResponseID == nil && isNull(req.Conversation) && isNull(req.Prompt):
		return badRequest(`One of "input" or "previous_response_id" or 'prompt' or 'conversation' must be provided.`,
			"input", "")
	case req.Model == "" && isNull(req.Prompt):
		return badRequest("Missing required parameter: 'model'.", "model", "missing_required_parameter")
	}
	return nil
}

func responsesSeen(req *responsesRequest, history []item) []string {
	var seen []string
	if !isNull(req.Instructions) {
		seen = append(seen, seenLine("instructions", contentText(req.Instructions)))
	}
	for i := range history {
		seen = append(seen, history[i].seen())
	}
	return seen
}

func (it *item) seen() string {
	switch {
	case it.Type == "message":
		return seenLine(it.Role, contentText(it.Content))
	case len(it.Output) > 0:
		return seenLine(it.Type, contentText(it.Output))
	case it.Type == "reasoning":
		return seenLine(it.Type, contentText(it.Summary))
	}
	return seenLine(it.Type, it.Name+" "+it.callID())
}

// serveStoredResponse answers GET and DELETE responses/ID and GET responses/ID/input_items.
func serveStoredResponse(k *sink, id, sub string) error {
	m := k.s.memory.Load()
	r, ok := m.responses.Find(id)
	if !ok {
		return k.fail(&apiError{status: http.StatusNotFound, message: "Response with id '" + id + "' not found."})
	}
	switch k.r.Method + " " + sub {
	case "GET ":
		return k.json(http.StatusOK, r.object)
	case "GET input_items":
		return k.json(http.StatusOK, itemList(k, r.input))
	case "DELETE ":
		m.responses.Drop(id)
		m.unindex(id, slices.Concat(r.input, r.output))
		return k.json(http.StatusOK, obj("id", id, "object", "response", "deleted", true))
	}
	return k.fail(methodNotAllowed())
}

func methodNotAllowed() *apiError {
	return &apiError{status: http.StatusMethodNotAllowed, message: "Not allowed to use this method on this endpoint."}
}

// itemList lists items, newest first unless order=asc is set. Items without id get one here.
func itemList(k *sink, items []item) raw {
	var (
		list []raw
		ids  []string
	)
	for i, it := range items {
		id, element := it.ID, it.raw
		if id == "" {
			id = k.s.ids.of("item", strconv.Itoa(i), it.raw).item("msg", i)
			head := obj("id", id)
			element = slices.Concat(head[:len(head)-1], raw(","), it.raw[1:])
		}
		list, ids = append(list, element), append(ids, id)
	}
	if k.r.URL.Query().Get("order") != "asc" {
		slices.Reverse(list)
		slices.Reverse(ids)
	}
	var first, last any = jnull(), jnull()
	if len(ids) > 0 {
		first, last = ids[0], ids[len(ids)-1]
	}
	return obj("object", "list", "data", arr(list...), "first_id", first, "last_id", last, "has_more", false)
}

// serveNewConversation answers POST conversations.
func serveNewConversation(k *sink, body []byte) error {
	var req struct {
		Items    raw `json:"items"`
		Metadata raw `json:"metadata"`
	}
	if len(body) > 0 {
		if e := decode(body, &req); e != nil {
			return k.fail(e)
		}
	}
	items, e := parseInput(orElse(req.Items, `[]`))
	if e != nil {
		return k.fail(e)
	}
	id := "conv_" + string(k.s.ids.of("conversations", "", body)[:48])
	m := k.s.memory.Load()
	m.conversations.Put(id, &storedConversation{items: items}, maxConversations)
	m.index(id, items, nil)
	return k.json(http.StatusOK, obj("id", id, "object", "conversation", "created_at", 1_750_000_000, "metadata", orElse(req.Metadata, "{}")))
}

// serveConversation answers DELETE conversations/ID and GET conversations/ID/items.
func serveConversation(k *sink, id, sub string) error {
	m := k.s.memory.Load()
	c, ok := m.conversations.Find(id)
	if !ok {
		return k.fail(noConversation(id))
	}
	m.mu.Lock()
	items := c.items
	m.mu.Unlock()
	switch k.r.Method + " " + sub {
	case "DELETE ":
		m.conversations.Drop(id)
		m.unindex(id, items)
		return k.json(http.StatusOK, obj("id", id, "object", "conversation.deleted", "deleted", true))
	case "GET items":
		return k.json(http.StatusOK, itemList(k, items))
	}
	return k.fail(methodNotAllowed())
}

func noConversation(id string) *apiError {
	return &apiError{status: http.StatusNotFound, message: "Conversation with id '" + id + "' not found."}
}
