package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// entry is one thing that was said: a text, a call or a result. Both dialects come out alike, and a Chat message with
// two calls is three entries, or two if it has no text: what the window counts. Reading it here anew, instead of with
// package wire, keeps the checks independent of what they check.
type entry struct {
	who    string // system, developer, user, assistant, call or result
	id     string // of a call or result: its call id
	text   string
	hidden bool // between the model and the proxy: the client never gets it
}

// element is an element of messages, input or output, as far as an entry depends on it.
type element struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`

	ToolCalls  []toolCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`

	Type      string          `json:"type"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// toolCall is a call as Chat spells it.
type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// entriesOf reads one element.
func entriesOf(raw []byte) ([]entry, error) {
	var e element
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("read item: %w", err)
	}
	switch {
	case e.Type == "function_call":
		return []entry{{who: "call", id: e.CallID, text: e.Name + e.Arguments}}, nil
	case e.Type == "function_call_output":
		return []entry{{who: "result", id: e.CallID, text: plainText(e.Output)}}, nil
	case e.Role == "tool":
		return []entry{{who: "result", id: e.ToolCallID, text: plainText(e.Content)}}, nil
	case e.Role == "":
		return nil, fmt.Errorf("read item: type %q is not part of the story", e.Type)
	}
	var all []entry
	if text := plainText(e.Content); text != "" {
		all = append(all, entry{who: e.Role, text: text})
	}
	for _, c := range e.ToolCalls {
		all = append(all, entry{who: "call", id: c.ID, text: c.Function.Name + c.Function.Arguments})
	}
	return all, nil
}

// entriesOfAll reads a list of elements.
func entriesOfAll(list []json.RawMessage) ([]entry, error) {
	var all []entry
	for _, raw := range list {
		es, err := entriesOf(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, es...)
	}
	return all, nil
}

// plainText is a string, or the texts of a list of parts.
func plainText(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// placesIn finds view in conversation, in order, and returns for each entry of conversation whether it is in the view;
// false if the view holds something that was not said, or in another order. It looks from the end, where what a window
// keeps stands.
func placesIn(conversation, view []entry) ([]bool, bool) {
	sent := make([]bool, len(conversation))
	at := len(conversation)
	for _, seen := range slices.Backward(view) {
		for at--; at >= 0 && conversation[at] != seen; at-- {
		}
		if at < 0 {
			return nil, false
		}
		sent[at] = true
	}
	return sent, true
}

// words returns the text of an entry; a call as name(values) or, if values are nested, unchanged.
func (e entry) words() string {
	name, arguments, ok := strings.Cut(e.text, "{")
	if e.who != "call" || !ok {
		return e.text
	}
	if strings.ContainsAny(arguments, "{[") {
		return name + " {" + arguments
	}
	var values []string
	dec := json.NewDecoder(strings.NewReader("{" + arguments))
	for i := 0; ; i++ { // the brace, then names and values in turn
		token, err := dec.Token()
		if _, brace := token.(json.Delim); err != nil || brace && i > 0 {
			return name + "(" + strings.Join(values, ", ") + ")"
		}
		if i > 0 && i%2 == 0 {
			values = append(values, fmt.Sprint(token))
		}
	}
}

// String is an entry in one line, for messages.
func (e entry) String() string {
	if e.hidden {
		return fmt.Sprintf("hidden %s %q", e.who, cut(e.words(), 60))
	}
	return fmt.Sprintf("%s %q", e.who, cut(e.words(), 60))
}
