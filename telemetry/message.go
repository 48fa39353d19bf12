package telemetry

import (
	"encoding/json"
	"slices"
)

const (
	// maxContent bounds the text of a span's input, and again of its output, in bytes. The newest messages are recorded.
	maxContent = 64 << 10
	// maxPart bounds the text of one part, in bytes.
	maxPart = 16 << 10
)

// Message is one message in the form of the GenAI semantic conventions.
type Message struct {
	Role  string // "system", "user", "assistant" or "tool"
	Parts []Part
}

// Part is a piece of a message.
type Part struct {
	// Type is "text", "reasoning", "tool_call" or "tool_call_response".
	Type string
	// ID and Name identify a tool call; a response only has the id.
	ID, Name string
	// Content is the text, the arguments or the response.
	Content string
}

type jsonMessage struct {
	Role  string     `json:"role"`
	Parts []jsonPart `json:"parts"`
}

type jsonPart struct {
	Type      string  `json:"type"`
	ID        string  `json:"id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Content   *string `json:"content,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Response  *string `json:"response,omitempty"`
}

// encodeMessages returns the newest parts that fit as JSON.
func encodeMessages(list []Message) string {
	const frame = 64 // bytes of a part or a message besides its text
	room := maxContent
	var out []jsonMessage
	for _, m := range slices.Backward(list) {
		jm := jsonMessage{Role: clean(m.Role)}
		for _, p := range slices.Backward(m.Parts) {
			if room -= frame + min(len(p.Content), maxPart); room < 0 {
				break
			}
			jm.Parts = append(jm.Parts, p.encode())
		}
		if room -= frame; room < 0 && len(jm.Parts) == 0 {
			break
		}
		slices.Reverse(jm.Parts)
		out = append(out, jm)
	}
	slices.Reverse(out)
	b, err := json.Marshal(out)
	if err != nil {
		panic("BUG: encode messages for a span: " + err.Error())
	}
	return string(b)
}

func (p *Part) encode() jsonPart {
	text := shorten(p.Content, maxPart)
	out := jsonPart{Type: clean(p.Type), ID: clean(p.ID), Name: clean(p.Name)}
	switch p.Type {
	case "tool_call":
		out.Arguments = &text
	case "tool_call_response":
		out.Response = &text
	default:
		out.Content = &text
	}
	return out
}
