// Package responses is the dialect of the Responses API: items are the elements of "input" and "output".
package responses

import (
	"remora/wire"
)

// Dialect is the Responses API.
var Dialect = wire.Define(wire.Rules{ //nolint:gochecknoglobals // a constant
	Name: "responses", Code: 2, List: "input", ListOptional: true,
	Instructions: "instructions", InstructionRole: wire.Developer,
	Previous: "previous_response_id", Conversation: "conversation",
	Template: "prompt",
	Kept:     true, References: true,
	Background: "background", Format: "text.format", Echoes: true, ErrorEvent: "error",
	Result: "output", Text: "input_text", AnswerText: "output_text",
	ClientTypes: []string{"", approvalResponse, "additional_tools", "configuration_update", "compaction_trigger"},
	Approval:    approvalResponse, Image: "image_generation_call",
	Calls: callPlaces(),
}, &codec{})

type codec struct {
	items
	converter
	answers
	merging
}

const approvalResponse = "mcp_approval_response"

// Families of calls that only this dialect has.
const (
	toolSearch = "tool_search"
)

// kind is an item type's role in pairing.
type kind struct {
	wire.Kind
	family string
}

// kindOf returns the kind of item types that are more than opaque. All others (hosted calls, which carry their own
// result, approvals, programs, types that do not exist yet) are Other: never dropped, unless they answer a missing
// item.
func kindOf(typ string) kind {
	switch typ {
	case "message":
		return kind{Kind: wire.Message}
	case "reasoning":
		return kind{Kind: wire.Reasoning}
	case "item_reference":
		return kind{Kind: wire.Reference}
	case "compaction", "compaction_summary":
		return kind{Kind: wire.Compaction}
	case "function_call":
		return kind{wire.ToolCall, wire.FamilyFunction}
	case "function_call_output":
		return kind{wire.ToolResult, wire.FamilyFunction}
	case "custom_tool_call":
		return kind{wire.ToolCall, wire.FamilyCustom}
	case "custom_tool_call_output":
		return kind{wire.ToolResult, wire.FamilyCustom}
	case "local_shell_call":
		return kind{wire.ToolCall, wire.FamilyLocalShell}
	case "local_shell_call_output":
		return kind{wire.ToolResult, wire.FamilyLocalShell}
	case "shell_call":
		return kind{wire.ToolCall, "shell"}
	case "shell_call_output":
		return kind{wire.ToolResult, "shell"}
	case "apply_patch_call":
		return kind{wire.ToolCall, "apply_patch"}
	case "apply_patch_call_output":
		return kind{wire.ToolResult, "apply_patch"}
	case "computer_call":
		return kind{wire.ToolCall, "computer"}
	case "computer_call_output":
		return kind{wire.ToolResult, "computer"}
	case "tool_search_call":
		return kind{wire.ToolCall, toolSearch}
	case "tool_search_output":
		return kind{wire.ToolResult, toolSearch}
	}
	return kind{}
}

// fields are the members of an item that are read. Values are raw; nil if absent.
type fields struct {
	typ, role, id, name, callID, content, refusal, audio, execution, approval []byte
	contentAt                                                                 int // where content begins in the item
}

// note takes in a member.
func (f *fields) note(p *wire.Child) {
	switch string(p.Name) {
	case "type":
		f.typ = p.Value
	case "role":
		f.role = p.Value
	case "id":
		f.id = p.Value
	case "name":
		f.name = p.Value
	case "call_id":
		f.callID = p.Value
	case "content":
		f.content, f.contentAt = p.Value, p.End-len(p.Value)
	case "refusal":
		f.refusal = p.Value
	case "audio":
		f.audio = p.Value
	case "execution":
		f.execution = p.Value
	case "approval_request_id":
		f.approval = p.Value
	}
}

func (*codec) Read(d *wire.Decoder, raw []byte) wire.Item {
	it, f := wire.Item{Dialect: Dialect, Raw: raw}, fields{}
	for p := range d.Children(raw) {
		f.note(&p)
	}

	it.ID = d.Text(f.id)

	typ, typed := wire.Inside(f.typ)
	k := kindOf(string(wire.Unescaped(typ)))
	if !typed {
		switch {
		case f.role != nil:
			k.Kind = wire.Message
		case it.ID != "": // the type of an item_reference may be left out
			k.Kind = wire.Reference
		}
	}
	switch k.Kind {
	case wire.Message:
		it.Role = wire.RoleOf(f.role)
		it.Parts = wire.MessageParts(d.Says(f.content, f.contentAt, f.refusal, f.audio))
	case wire.ToolCall, wire.ToolResult:
		c := wire.Call{ID: d.Text(f.callID), Family: k.family, Name: d.Text(f.name)}
		if k.family == wire.FamilyLocalShell && c.ID == "" {
			c.ID = it.ID // a local_shell_call_output names its call in id
		}
		if k.family == toolSearch && wire.Text(f.execution) == "server" {
			return it // carries its own result
		}
		if k.Kind == wire.ToolResult {
			c.Name = ""
			it.Role = wire.RoleTool
		}
		it.Parts = d.AddPart(nil, wire.Part{Kind: k.Kind, Call: c})
	case wire.Other:
		part := wire.Part{}
		switch string(wire.Unescaped(typ)) {
		case "mcp_approval_request":
			part.Call = wire.Call{ID: it.ID, Family: wire.FamilyApproval, Name: d.Text(f.name)}
		case approvalResponse:
			part = wire.Part{Kind: wire.ToolResult, Call: wire.Call{ID: d.Text(f.approval), Family: wire.FamilyApproval}}
		case "program":
			part.Call = wire.Call{ID: d.Text(f.callID), Family: wire.FamilyProgram}
		case "program_output":
			part = wire.Part{Kind: wire.ToolResult, Call: wire.Call{ID: d.Text(f.callID), Family: wire.FamilyProgram}}
		}
		if part.Call.ID != "" || part.Judged() {
			it.Parts = d.AddPart(nil, part)
		}
	default:
	}
	it.Kind = k.Kind
	return it
}

func (*codec) Input(it wire.Item, _ int) []byte { return it.Raw }

func (*codec) Function(name, description string, parameters []byte) []byte {
	out := wire.AppendFunctionTool([]byte(`{"type":"function",`), name, description, parameters)
	// Without it some servers make every property a required one.
	return append(out, `,"strict":false}`...)
}

// Result spells a result as its kind of tool does.
func (*codec) Result(c wire.Call, content []byte) []byte {
	typ, id := c.Family+"_call_output", "call_id"
	switch c.Family {
	case toolSearch:
		typ = "tool_search_output"
	case wire.FamilyLocalShell:
		id = "id"
	case "":
		typ = "function_call_output"
	}
	if c.Family == wire.FamilyApproval { // what rules deny is refused
		out := wire.AppendString([]byte(`{"type":"`+approvalResponse+`","approval_request_id":`), c.ID)
		return append(wire.AppendString(append(out, `,"approve":false,"reason":`...), wire.Text(content)), '}')
	}
	out := wire.AppendString([]byte(`{"type":`), typ)
	out = wire.AppendString(append(wire.AppendString(append(out, ','), id), ':'), c.ID)
	out = append(out, `,"output":`...)
	if c.Family == "shell" { // its output is a list of commands' outputs
		out = append(append(out, `[{"stdout":"","stderr":`...), content...)
		return append(out, `,"outcome":{"type":"exit","exit_code":1}}]}`...)
	}
	return append(append(out, content...), '}')
}
