package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
)

// conversation is the content of a session, read from the client's traffic without the code under test.
type conversation struct {
	line   []string // the items of the conversation in order, as facts
	others []string // answers that it did not continue with: further choices, branches
	// straight: every request continued the line, so the transcript must be exactly that.
	straight bool
	failed   bool // an answer was an error or incomplete
}

// sessions returns the sessions of all exchanges.
func sessions(t *testing.T, all []exchange) map[string]*conversation {
	t.Helper()
	out := make(map[string]*conversation)
	for _, e := range all {
		session := e.req.header("X-Session-Id")
		if session == "" || !remembered(&e.req) {
			continue
		}
		c := out[session]
		if c == nil {
			c = &conversation{straight: true}
			out[session] = c
		}
		c.add(t, e)
	}
	return out
}

// remembered reports whether a request has a session and is to an endpoint with memory.
func remembered(r *message) bool {
	kind := strings.HasPrefix(r.start, "POST /v1/chat/completions ") || strings.HasPrefix(r.start, "POST /v1/responses ")
	return kind && r.header("X-Session-Id") != ""
}

// requestBody holds the members of a request's body with the conversation.
type requestBody struct {
	Messages           []json.RawMessage `json:"messages"`
	Input              json.RawMessage   `json:"input"`
	PreviousResponseID string            `json:"previous_response_id"`
	Conversation       json.RawMessage   `json:"conversation"`
}

func (r *requestBody) items(t *testing.T) []json.RawMessage {
	t.Helper()
	items := r.Messages
	if len(r.Input) > 0 {
		var text string
		if json.Unmarshal(r.Input, &text) == nil {
			return []json.RawMessage{encode(t, map[string]any{"role": "user", "content": text})}
		}
		decode(t, r.Input, &items)
	}
	for len(items) > 0 {
		var m struct{ Role string }
		if decode(t, items[0], &m); m.Role != "system" && m.Role != "developer" {
			break
		}
		items = items[1:]
	}
	return items
}

func (c *conversation) add(t *testing.T, e exchange) {
	t.Helper()
	var r requestBody
	decode(t, e.req.body, &r)
	var in []string
	for _, it := range r.items(t) {
		in = append(in, facts(t, it)...)
	}
	switch n := c.known(in); {
	case r.PreviousResponseID != "" || len(r.Conversation) > 0:
		c.line = append(c.line, in...)
	case n >= 0:
		c.line = append(c.line, in[n:]...)
	default:
		c.straight = false
		for _, f := range in {
			if !slices.Contains(c.line, f) && !isReasoning(f) {
				c.others = append(c.others, f)
			}
		}
	}
	// An SDK may close the connection once it has seen [DONE], before the end of the body.
	whole := e.resp.whole || bytes.Contains(e.resp.body, []byte("data: [DONE]"))
	if !strings.HasPrefix(e.resp.start, "HTTP/1.1 200") || !whole || e.resp.header("Content-Encoding") != "" {
		c.failed = true
		return
	}
	c.failed = c.failed || bytes.Contains(e.resp.body, []byte(`{"type":"error",`))
	for i, choice := range answer(t, e) {
		if i == 0 && c.straight {
			c.line = append(c.line, choice...)
		} else {
			c.others = append(c.others, choice...)
		}
	}
}

// known returns the number of a request's facts that are the line so far, without reasoning, which clients may drop when they
// resend; -1 if the request is no continuation.
func (c *conversation) known(in []string) int {
	at := 0
	for _, f := range c.line {
		if isReasoning(f) {
			continue
		}
		for at < len(in) && isReasoning(in[at]) {
			at++
		}
		if at >= len(in) || in[at] != f {
			return -1
		}
		at++
	}
	return at
}

func isReasoning(fact string) bool { return strings.HasPrefix(fact, "reasoning ") }

// answer returns the facts of each choice.
func answer(t *testing.T, e exchange) [][]string {
	t.Helper()
	isChat := strings.Contains(e.req.start, "/chat/")
	var events []json.RawMessage
	if strings.HasPrefix(e.resp.header("Content-Type"), "text/event-stream") {
		for line := range strings.SplitSeq(string(e.resp.body), "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" {
				events = append(events, json.RawMessage(data))
			}
		}
	}
	if isChat {
		return chatAnswer(t, e.resp.body, events)
	}
	var r struct{ Output []json.RawMessage }
	if len(events) == 0 {
		decode(t, e.resp.body, &r)
	}
	// The terminal event repeats these, and may be missing.
	for _, ev := range events {
		var done struct {
			Type string
			Item json.RawMessage
		}
		if decode(t, ev, &done); done.Type == "response.output_item.done" {
			r.Output = append(r.Output, done.Item)
		}
	}
	var out []string
	for _, it := range r.Output {
		out = append(out, facts(t, it)...)
	}
	return [][]string{out}
}

func chatAnswer(t *testing.T, body []byte, events []json.RawMessage) [][]string {
	t.Helper()
	type choice struct {
		Index   int
		Message map[string]any
		Delta   map[string]any
	}
	var whole struct{ Choices []choice }
	if len(events) == 0 {
		decode(t, body, &whole)
	}
	for _, e := range events {
		var chunk struct{ Choices []choice }
		decode(t, e, &chunk)
		for _, c := range chunk.Choices {
			for len(whole.Choices) <= c.Index {
				whole.Choices = append(whole.Choices, choice{Message: map[string]any{}})
			}
			merge(whole.Choices[c.Index].Message, c.Delta)
		}
	}
	var out [][]string
	for _, c := range whole.Choices {
		out = append(out, facts(t, encode(t, c.Message)))
	}
	return out
}

// merge adds a delta as documented by OpenAI: it appends texts, merges lists by index, and replaces other values.
func merge(into, delta map[string]any) {
	for k, v := range delta {
		switch v := v.(type) {
		case string:
			if old, ok := into[k].(string); ok && k != "role" && k != "id" && k != "type" {
				v = old + v
			}
			into[k] = v
		case map[string]any:
			old, ok := into[k].(map[string]any)
			if !ok {
				old = map[string]any{}
				into[k] = old
			}
			merge(old, v)
		case []any:
			list, _ := into[k].([]any)
			for _, e := range v {
				m := e.(map[string]any)
				i := int(m["index"].(float64))
				for len(list) <= i {
					list = append(list, map[string]any{})
				}
				merge(list[i].(map[string]any), m)
			}
			into[k] = list
		}
	}
}

// facts describes an item of either dialect, with one line for each text, call and result: an answer, its echo by any client
// and its stored copy have equal facts.
func facts(t *testing.T, raw json.RawMessage) []string {
	t.Helper()
	var it struct {
		Type, Role, Name, Arguments, Input, Refusal string
		Content, Output, Summary                    json.RawMessage
		ToolCallID                                  string `json:"tool_call_id"`
		CallID                                      string `json:"call_id"`
		ToolCalls                                   []struct {
			ID               string
			Function, Custom struct{ Name, Arguments, Input string }
		} `json:"tool_calls"`
	}
	decode(t, raw, &it)
	switch {
	case it.Type == "item_reference":
		return nil
	case it.Type == "reasoning":
		return []string{"reasoning " + textOf(t, it.Summary)}
	case strings.HasSuffix(it.Type, "_call"):
		return []string{fmt.Sprintf("call %s %s %s", it.CallID, it.Name, it.Arguments+it.Input)}
	case strings.HasSuffix(it.Type, "_call_output"):
		return []string{fmt.Sprintf("result %s %s", it.CallID, textOf(t, it.Output))}
	case it.Role == "tool": // Chat
		return []string{fmt.Sprintf("result %s %s", it.ToolCallID, textOf(t, it.Content))}
	}
	var out []string
	if text := textOf(t, it.Content) + it.Refusal; text != "" || len(it.ToolCalls) == 0 {
		out = append(out, it.Role+" "+text)
	}
	for _, c := range it.ToolCalls {
		out = append(out, fmt.Sprintf("call %s %s %s", c.ID, c.Function.Name+c.Custom.Name,
			c.Function.Arguments+c.Custom.Input))
	}
	return out
}

// textOf returns a string, or the texts of a list of parts; other parts unchanged.
func textOf(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []json.RawMessage
	decode(t, raw, &parts)
	var b strings.Builder
	for _, p := range parts {
		var part struct{ Text, Refusal string }
		if decode(t, p, &part); part.Text+part.Refusal == "" {
			b.Write(p)
		}
		b.WriteString(part.Text + part.Refusal)
	}
	return b.String()
}

func decode(t *testing.T, b []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("read %.200q: %v", b, err)
	}
}

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkTranscript compares a stored session with the client's conversation. A straight conversation must be stored exactly:
// every item once, in order, on the line of the head. Of one with branches or errors no item may be missing.
func checkTranscript(t *testing.T, c *conversation, items []memory.ExportedItem) {
	t.Helper()
	var head, all []string
	for _, it := range items {
		b := []byte(it.JSON)
		if it.Raw != nil {
			b = it.Raw
		}
		f := facts(t, b)
		if all = append(all, f...); it.OnHead {
			head = append(head, f...)
		}
	}
	if c.straight && !c.failed && len(c.others) == 0 {
		if diff := cmp.Diff(c.line, head); diff != "" {
			t.Errorf("the transcript is not the conversation (-said +stored):\n%s", diff)
		}
		if len(all) != len(head) {
			t.Errorf("the transcript has %d items beside the conversation: %q", len(all)-len(head), all)
		}
		return
	}
	said := slices.Concat(c.line, c.others)
	for _, f := range said {
		if !slices.Contains(all, f) {
			t.Errorf("the transcript lacks %q; it has %q", f, all)
		}
	}
	for _, f := range all {
		if !slices.Contains(said, f) && !c.failed {
			t.Errorf("the transcript has %q, which nobody said", f)
		}
	}
}

// members splits a JSON object into "name":value texts, in order, except for some names.
func members(t *testing.T, body []byte, without ...string) []string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(body))
	if _, err := dec.Token(); err != nil {
		t.Fatalf("read %.200q: %v", body, err)
	}
	var out []string
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Fatalf("read %.200q: %v", body, err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatalf("read %.200q: %v", body, err)
		}
		if !slices.Contains(without, name.(string)) {
			out = append(out, fmt.Sprintf("%q:%s", name, value))
		}
	}
	return out
}
