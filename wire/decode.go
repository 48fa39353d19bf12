package wire

import (
	"bytes"
	"strings"
)

// kind says what a Responses item type is to pairing.
type kind struct {
	Kind
	family string
}

// kindOf knows the Responses item types that are more than opaque. What is not listed (hosted calls, which carry their
// own result, approvals, program, types that do not exist yet) is Other: never paired, never dropped.
func kindOf(typ string) kind {
	switch typ {
	case "message":
		return kind{Kind: Message}
	case "reasoning":
		return kind{Kind: Reasoning}
	case "item_reference":
		return kind{Kind: Reference}
	case "compaction", "compaction_summary":
		return kind{Kind: Compaction}
	case "function_call":
		return kind{ToolCall, familyFunction}
	case "function_call_output":
		return kind{ToolResult, familyFunction}
	case "custom_tool_call":
		return kind{ToolCall, familyCustom}
	case "custom_tool_call_output":
		return kind{ToolResult, familyCustom}
	case "local_shell_call":
		return kind{ToolCall, familyLocalShell}
	case "local_shell_call_output":
		return kind{ToolResult, familyLocalShell}
	case "shell_call":
		return kind{ToolCall, "shell"}
	case "shell_call_output":
		return kind{ToolResult, "shell"}
	case "apply_patch_call":
		return kind{ToolCall, "apply_patch"}
	case "apply_patch_call_output":
		return kind{ToolResult, "apply_patch"}
	case "computer_call":
		return kind{ToolCall, "computer"}
	case "computer_call_output":
		return kind{ToolResult, "computer"}
	case "tool_search_call":
		return kind{ToolCall, familyToolSearch}
	case "tool_search_output":
		return kind{ToolResult, familyToolSearch}
	}
	return kind{}
}

// ParseItem reads one element as it stands in messages, input or output. The item aliases raw. Errors are of type
// *ParseError; an element of any shape is an item, if only of kind Other.
func ParseItem(d Dialect, raw []byte) (Item, error) {
	s := scanner{b: raw}
	s.space()
	start := s.i
	if !s.value() {
		return Item{}, s.err()
	}
	end := s.i
	if s.space(); s.i != len(raw) {
		s.fail("data behind the item")
		return Item{}, s.err()
	}
	dec := decoder{dialect: d, calls: maxCalls}
	return dec.item(raw[start:end:end]), nil
}

// decoder reads the fields that pairing needs. Strings and calls of all its items share a few allocations.
type decoder struct {
	dialect Dialect
	calls   int // how many more calls may be read
	slab    []Call
	strings strings.Builder
	known   span // a string of the element at hand that was read before
}

// fields are the members of an element that decide what it is. Values are raw; nil where absent.
type fields struct {
	typ, role, id, name, callID, toolCallID []byte
	content, refusal, audio                 []byte
	toolCalls, functionCall                 []byte
	execution                               []byte
	contentAt, callsAt                      int // where content and toolCalls begin in the element
}

// slot is where the value of a member goes, nil for members that do not matter here.
func (f *fields) slot(name []byte) *[]byte {
	switch string(name) {
	case "type":
		return &f.typ
	case "role":
		return &f.role
	case "id":
		return &f.id
	case "name":
		return &f.name
	case "call_id":
		return &f.callID
	case "tool_call_id":
		return &f.toolCallID
	case "content":
		return &f.content
	case "refusal":
		return &f.refusal
	case "audio":
		return &f.audio
	case "tool_calls":
		return &f.toolCalls
	case "function_call":
		return &f.functionCall
	case "execution":
		return &f.execution
	}
	return nil
}

func (d *decoder) item(raw []byte) Item {
	it := Item{Dialect: d.dialect, Raw: raw}
	if len(raw) == 0 || raw[0] != '{' {
		return it
	}
	var f fields
	for p := range partsAround(raw, d.known) {
		if slot := f.slot(p.name); slot != nil {
			*slot = p.value
			switch slot {
			case &f.content:
				f.contentAt = p.end - len(p.value)
			case &f.toolCalls:
				f.callsAt = p.end - len(p.value)
			}
		}
	}
	it.ID = d.text(f.id)
	if d.dialect == Responses {
		d.responses(&it, &f)
	} else {
		d.chat(&it, &f)
	}
	return it
}

// text is the decoded text of a JSON string, "" for any other value.
func (d *decoder) text(raw []byte) string {
	content, _ := inside(raw)
	if len(content) == 0 {
		return ""
	}
	// What was built before keeps its bytes when the builder grows into a new buffer.
	start := d.strings.Len()
	d.strings.Write(unescaped(content))
	return d.strings.String()[start:]
}

func (d *decoder) chat(it *Item, f *fields) {
	role, _ := inside(f.role)
	switch string(unescaped(role)) {
	case "tool":
		it.Kind, it.Role = ToolResult, RoleTool
		it.Answers = Call{ID: d.text(f.toolCallID), Family: familyFunction}
		return
	case "function":
		it.Kind, it.Role = ToolResult, RoleTool
		it.Answers = Call{Family: familyLegacy, Name: d.text(f.name)}
		return
	}
	it.Role = roleOf(role)
	it.Kind = Message
	it.HasText = d.says(f)
	if it.Role == Assistant && !d.chatCalls(it, f) {
		it.Kind, it.Calls = Other, nil
	}
}

// chatCalls reads the calls of an assistant message. It returns false where they are too many, or no calls at all: a
// message that nobody understands is kept opaque.
func (d *decoder) chatCalls(it *Item, f *fields) bool {
	first := len(d.slab)
	s, ok := scanner{b: f.toolCalls, known: d.known.from(f.callsAt)}, true
	for name := range s.each() {
		if s.peek() != '{' || name != nil || d.calls == 0 {
			ok = false
			continue
		}
		d.calls--
		d.slab = append(d.slab, d.chatCall(&s))
	}
	if !ok {
		d.slab = d.slab[:first]
		return false
	}
	if len(f.functionCall) > 0 && f.functionCall[0] == '{' {
		d.slab = append(d.slab, Call{Family: familyLegacy, Name: d.text(member(f.functionCall, "name"))})
	}
	if n := len(d.slab); n > first {
		it.Calls = d.slab[first:n:n]
	}
	return true
}

// chatCall reads an element of tool_calls. Whatever its type, a message of role tool answers it by its id alone.
func (d *decoder) chatCall(s *scanner) Call {
	c := Call{Family: familyFunction}
	for name := range s.each() {
		switch string(name) {
		case "id":
			c.ID = d.text(s.raw())
		case "function", "custom":
			for name := range s.each() {
				if string(name) == "name" {
					c.Name = d.text(s.raw())
				}
			}
		}
	}
	return c
}

func (d *decoder) responses(it *Item, f *fields) {
	typ, typed := inside(f.typ)
	k := kindOf(string(unescaped(typ)))
	if !typed {
		switch {
		case f.role != nil:
			k.Kind = Message
		case it.ID != "": // the type of an item_reference may be left out
			k.Kind = Reference
		}
	}
	switch k.Kind {
	case Message:
		role, _ := inside(f.role)
		it.Role = roleOf(role)
		it.HasText = d.says(f)
	case ToolCall, ToolResult:
		c := Call{ID: d.text(f.callID), Family: k.family, Name: d.text(f.name)}
		if k.family == familyLocalShell && c.ID == "" {
			c.ID = it.ID // a local_shell_call_output names its call in id
		}
		if k.family == familyToolSearch && text(f.execution) == "server" {
			return // carries its own result
		}
		if k.Kind == ToolCall {
			d.slab = append(d.slab, c)
			it.Calls = d.slab[len(d.slab)-1 : len(d.slab) : len(d.slab)]
		} else {
			c.Name = ""
			it.Role, it.Answers = RoleTool, c
		}
	default:
	}
	it.Kind = k.Kind
}

func roleOf(content []byte) Role {
	switch string(unescaped(content)) {
	case "system":
		return System
	case "developer":
		return Developer
	case "user":
		return User
	case "assistant":
		return Assistant
	}
	return RoleOther
}

// says tells that a message has content, a refusal or audio.
func (d *decoder) says(f *fields) bool {
	if content, ok := inside(f.refusal); ok && len(content) > 0 {
		return true
	}
	if len(f.audio) > 0 && f.audio[0] == '{' {
		return true
	}
	if len(f.content) == 0 {
		return false
	}
	switch f.content[0] {
	case '"':
		return len(f.content) > 2
	case '[':
		s := scanner{b: f.content, known: d.known.from(f.contentAt)}
		said := false
		for range s.each() {
			said = said || !emptyText(&s)
		}
		return said
	}
	return f.content[0] == '{'
}

// emptyText reads a content part and tells that it is a text without any.
func emptyText(s *scanner) bool {
	if s.peek() != '{' {
		return string(s.raw()) == `""`
	}
	empty := false
	for name := range s.each() {
		if string(name) == "text" {
			empty = string(s.raw()) == `""`
		}
	}
	return empty
}

// maxGlance is the longest string that Glance reads backwards, in bytes.
const maxGlance = 1 << 10

// Glance returns the raw value of a member of body's top level where it can be had without reading the lists and objects
// there: if it is a scalar that stands before the first of them, or else behind the last one. It is nil otherwise, and
// may be anything for a body that Parse does not accept. Of duplicates any may be returned.
func Glance(body []byte, name string) []byte {
	s := scanner{b: body}
	s.space()
	if s.peek() != '{' {
		return nil
	}
	more, ok := s.begin()
	for more && ok {
		found := string(unescaped(body[s.keyStart:s.keyEnd])) == name
		s.space()
		if c := s.peek(); c == '{' || c == '[' {
			return glanceBack(body[s.i:], name)
		}
		if v := s.raw(); found && s.reason == "" {
			return v
		}
		more, ok = s.next()
	}
	return nil
}

func trimRight(b []byte) []byte { return bytes.TrimRight(b, " \n\r\t") }

// glanceBack looks for the member from the end of an object on. Outside of strings, the first quote on the way back is
// the end of one, and the next one that is not escaped is its beginning.
func glanceBack(b []byte, name string) []byte {
	b = trimRight(b)
	for end := byte('}'); len(b) > 0 && b[len(b)-1] == end; end = ',' {
		b = trimRight(b[:len(b)-1])
		start := scalarStart(b)
		value := b[start:]
		b = trimRight(b[:start])
		if len(value) == 0 || len(b) == 0 || b[len(b)-1] != ':' {
			return nil
		}
		b = trimRight(b[:len(b)-1])
		start = scalarStart(b)
		if key, ok := inside(b[start:]); !ok {
			return nil
		} else if string(unescaped(key)) == name {
			return value
		}
		b = trimRight(b[:start])
	}
	return nil
}

// scalarStart is where the scalar at the end of b begins; the length of b where there is none, or one that is too long.
func scalarStart(b []byte) int {
	i := len(b) - 1
	if i < 0 || b[i] != '"' {
		for i >= 0 && (b[i] >= '0' && b[i] <= '9' || b[i] >= 'a' && b[i] <= 'z' || b[i] == '-' || b[i] == '+' || b[i] == '.' || b[i] == 'E') {
			i--
		}
		return i + 1
	}
	for low := max(0, i-maxGlance); i > low; {
		i = low + bytes.LastIndexByte(b[low:i], '"')
		if i < low {
			break
		}
		k := i
		for k > low && b[k-1] == '\\' {
			k--
		}
		if (i-k)%2 == 0 {
			return i
		}
	}
	return len(b)
}
