package telemetry

import (
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

const (
	// maxContent is the most that a span holds of the input, and again of the output, in bytes of text; of more the
	// newest messages stay.
	maxContent = 64 << 10
	// maxPart is the most of one part.
	maxPart = 16 << 10
)

// Message is one message as GenAI semantic conventions show it.
type Message struct {
	Role  string // "system", "user", "assistant" or "tool"
	Parts []Part
}

// Part is a piece of a message.
type Part struct {
	// Type is "text", "reasoning", "tool_call" or "tool_call_response".
	Type string
	// ID and Name are those of a tool call; a response has the id.
	ID, Name string
	// Content is the text, the arguments or the response.
	Content string
}

// WantsContent tells whether Content would be kept: the operator has switched it on, and the call of upstream under way is
// sampled. Ask before making messages.
func (c *Call) WantsContent() bool {
	return c.t != nil && c.t.content && c.sending.open && c.sending.span != nil && c.sending.span.IsRecording()
}

// Content puts what was sent, and what came back, into the client span. Call it before Answered.
func (c *Call) Content(input, output []Message) {
	if !c.WantsContent() {
		return
	}
	for _, side := range []struct {
		key  attribute.Key
		list []Message
	}{{semconv.GenAIInputMessagesKey, input}, {semconv.GenAIOutputMessagesKey, output}} {
		if len(side.list) > 0 {
			c.sending.span.SetAttributes(side.key.String(encodeMessages(side.list)))
		}
	}
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

// encodeMessages is the JSON of the newest parts that fit.
func encodeMessages(list []Message) string {
	const frame = 64 // bytes that a part or a message takes besides its text
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
	text := p.Content
	if len(text) > maxPart {
		text = text[:maxPart]
		text += "..."
	}
	text = strings.ToValidUTF8(text, "")
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
