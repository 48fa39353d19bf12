// Package chat is the dialect of Chat Completions: items are the elements of "messages".
package chat

import (
	"remora/wire"
)

// Dialect is Chat Completions.
var Dialect = wire.Define(wire.Rules{ //nolint:gochecknoglobals // a constant
	Name: "chat", Code: 1, List: "messages",
	// Many servers know no developer messages.
	InstructionRole: wire.System,
	Format:          "response_format",
	ResultsAdjacent: true, TextResults: true, OneItem: true,
	Result: "content", Text: "text", AnswerText: "text",
	Breakpoints: true, Calls: callPlaces(),
}, &codec{})

type codec struct {
	messages
	converter
	answers
	merging
}

// fields are the members of a message that are read. Values are raw; nil if absent.
type fields struct {
	role, name, toolCallID, content, refusal, audio, images, toolCalls, functionCall []byte
	contentAt, callsAt                                                               int // where content and toolCalls begin in the message
}

// note takes in a member.
func (f *fields) note(p *wire.Child) {
	switch string(p.Name) {
	case "role":
		f.role = p.Value
	case "name":
		f.name = p.Value
	case "tool_call_id":
		f.toolCallID = p.Value
	case "content":
		f.content, f.contentAt = p.Value, p.End-len(p.Value)
	case "refusal":
		f.refusal = p.Value
	case "audio":
		f.audio = p.Value
	case "images":
		f.images = p.Value
	case "tool_calls":
		f.toolCalls, f.callsAt = p.Value, p.End-len(p.Value)
	case "function_call":
		f.functionCall = p.Value
	}
}

func (*codec) Read(d *wire.Decoder, raw []byte) wire.Item {
	it, f := wire.Item{Dialect: Dialect, Raw: raw}, fields{}
	for p := range d.Children(raw) {
		f.note(&p)
	}

	role, _ := wire.Inside(f.role)
	switch string(wire.Unescaped(role)) {
	case "tool":
		it.Kind, it.Role = wire.ToolResult, wire.RoleTool
		it.Parts = d.AddPart(nil, wire.Part{Kind: it.Kind, Call: wire.Call{ID: d.Text(f.toolCallID), Family: wire.FamilyFunction}})
		return it
	case "function":
		it.Kind, it.Role = wire.ToolResult, wire.RoleTool
		it.Parts = d.AddPart(nil, wire.Part{Kind: it.Kind, Call: wire.Call{Family: wire.FamilyLegacy, Name: d.Text(f.name)}})
		return it
	}
	it.Role = wire.RoleOf(f.role)
	it.Kind = wire.Message
	says := d.Says(f.content, f.contentAt, f.refusal, f.audio) || wire.HasChildren(f.images)
	if it.Role == wire.Assistant {
		var ok bool
		if it.Parts, ok = f.calls(d, says); !ok {
			it.Kind = wire.Other
			return it
		}
	}
	if it.Parts == nil {
		it.Parts = wire.MessageParts(says)
	}
	return it
}

// calls reads the calls of an assistant message. What it says beside them is a part before theirs; without calls there are no
// parts. It returns false where they are too many, or no calls at all: a message that cannot be understood is kept opaque.
func (f *fields) calls(d *wire.Decoder, says bool) (parts []wire.Part, ok bool) {
	add := func(c wire.Call) {
		if parts == nil && says {
			parts = d.AddPart(parts, wire.Part{Kind: wire.Message})
		}
		parts = d.AddPart(parts, wire.Part{Kind: wire.ToolCall, Call: c})
	}
	s := d.Scan(f.toolCalls, f.callsAt)
	ok = true
	for name := range s.Each() {
		if s.Peek() != '{' || name != nil || !d.Room() {
			ok = false
			continue
		}
		add(readCall(d, &s))
	}
	if !ok {
		d.DropParts(parts)
		return nil, false
	}
	if len(f.functionCall) > 0 && f.functionCall[0] == '{' {
		add(wire.Call{Family: wire.FamilyLegacy, Name: d.Text(wire.Member(f.functionCall, "name"))})
	}
	return parts, true
}

// readCall reads an element of tool_calls. Whatever its type, a message of role tool answers it by its id alone.
func readCall(d *wire.Decoder, s *wire.Scanner) wire.Call {
	c := wire.Call{Family: wire.FamilyFunction}
	for name := range s.Each() {
		switch string(name) {
		case "id":
			c.ID = d.Text(s.Raw())
		case "function", "custom":
			for name := range s.Each() {
				if string(name) == "name" {
					c.Name = d.Text(s.Raw())
				}
			}
		}
	}
	return c
}

func (*codec) Input(it wire.Item, part int) []byte {
	if it.Parts[part].Call.Family == wire.FamilyLegacy {
		return wire.Member(it.Raw, "function_call")
	}
	raw := it.Raw
	i := firstCall(it)
	for p := range wire.Children(wire.Member(it.Raw, "tool_calls")) {
		if i == part {
			raw = p.Value
		}
		i++
	}
	tool, _ := toolOf(raw)
	return tool
}

// toolOf returns the member of a call that has its tool and input, and whether it is a custom tool.
func toolOf(call []byte) (tool []byte, custom bool) {
	if tool = wire.Member(call, "function"); tool != nil && !wire.IsNull(tool) {
		return tool, false
	}
	return wire.Member(call, "custom"), true
}

// firstCall is the index of the part of a message's first call.
func firstCall(it wire.Item) int {
	if it.HasContent() {
		return 1
	}
	return 0
}

// hasLegacyCall reports whether a message has a function_call. It is the last part.
func hasLegacyCall(it wire.Item) bool {
	return it.Parts[len(it.Parts)-1].Call.Family == wire.FamilyLegacy
}

func (*codec) Function(name, description string, parameters []byte) []byte {
	out := wire.AppendFunctionTool([]byte(`{"type":"function","function":{`), name, description, parameters)
	return append(out, "}}"...)
}

func (*codec) Result(c wire.Call, content []byte) []byte {
	out := []byte(`{"role":"tool","tool_call_id":`)
	id := c.ID
	if c.Family == wire.FamilyLegacy {
		out, id = []byte(`{"role":"function","name":`), c.Name
	}
	out = append(wire.AppendString(out, id), `,"content":`...)
	return append(append(out, content...), '}')
}
