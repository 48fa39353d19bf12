package wire

import (
	"bytes"
	"fmt"
)

// Convert returns the item in dialect d: as it is if it has that dialect already. A Chat assistant message with calls
// becomes a message and one item for each call. Reasoning becomes nothing in Chat, which has no place for it. What
// has no counterpart (hosted calls, references, legacy function calls, unknown parts) is an error that names it.
func (it Item) Convert(d Dialect) ([]Item, error) {
	return (&converter{to: d}).convert(it)
}

// convertAll converts the items that are of another dialect, and leaves out what has no counterpart: items, parts of a
// content, and what such an item made a pair with. Tool calls of one answer make one Chat message.
func convertAll(items []Item, d Dialect) []Item {
	foreign := 0
	for _, it := range items {
		if it.Dialect != d {
			foreign++
		}
	}
	if foreign == 0 {
		return items
	}
	c := converter{to: d, lenient: true, lost: make(map[string]bool)}
	out := make([]converted, 0, len(items)+foreign)
	var calls []Item // Responses calls that wait for the last one of their answer
	flush := func() {
		if len(calls) > 0 {
			it, _ := c.chatCalls(calls) // each one was found callable
			out, calls = append(out, converted{it, true}), nil
		}
	}
	for _, it := range items {
		switch {
		case it.Dialect == d:
			flush()
			out = append(out, converted{it, false})
		case it.Kind == ToolCall && callable(it):
			calls = append(calls, it)
		default:
			made, err := c.convert(it)
			if err != nil {
				c.lose(it)
				continue
			}
			if len(made) > 0 {
				flush()
			}
			for _, it := range made {
				out = append(out, converted{it, true})
			}
		}
	}
	flush()
	return c.settle(out)
}

// callable tells whether a Responses call has a counterpart in Chat.
func callable(it Item) bool {
	return it.Dialect == Responses && len(it.Calls) == 1 &&
		(it.Calls[0].Family == familyFunction || it.Calls[0].Family == familyCustom)
}

// converter remembers which calls were of custom tools: a Chat result does not say so, a Responses result has to.
type converter struct {
	to     Dialect
	custom map[string]bool
	// lenient leaves out the parts of a content, and the calls of a message, that have no counterpart.
	lenient bool
	lost    map[string]bool // keys of the calls and results that were left out
}

// lose notes that the other half of the item's pairs can't be sent either.
func (c *converter) lose(it Item) {
	for _, call := range it.Calls {
		c.lost[call.key()] = true
	}
	if it.Kind == ToolResult {
		c.lost[it.Answers.key()] = true
	}
}

func (c *converter) convert(it Item) ([]Item, error) {
	if it.Dialect == c.to {
		return []Item{it}, nil
	}
	switch it.Kind {
	case Message:
		return c.message(it)
	case ToolCall:
		if c.to == Chat {
			call, err := c.chatCalls([]Item{it})
			return []Item{call}, err
		}
	case ToolResult:
		return c.result(it)
	case Reasoning:
		return nil, nil
	default:
	}
	return nil, fmt.Errorf("no counterpart for %s", it.describe())
}

// describe names what the item is, without its content.
func (it Item) describe() string {
	if typ := text(member(it.Raw, "type")); it.Dialect == Responses && kindOf(typ).Kind != Other {
		return "item of type " + typ
	}
	switch it.Kind {
	case Message:
		return "message"
	case ToolResult:
		return "result of a legacy function"
	default:
		return "item of an unknown type"
	}
}

func (c *converter) message(it Item) ([]Item, error) {
	role := member(it.Raw, "role")
	if it.Role == RoleOther {
		return nil, fmt.Errorf("no counterpart for message of an unknown role")
	}
	var out []Item
	if it.HasText || len(it.Calls) == 0 {
		content, err := c.content(it)
		if err == nil {
			raw := append([]byte(`{"role":`), role...)
			raw = append(append(append(raw, `,"content":`...), content...), '}')
			out = append(out, c.item(raw))
		} else if !c.lenient || len(it.Calls) == 0 {
			return nil, err
		}
	}
	if len(it.Calls) == 0 {
		return out, nil
	}
	if last := it.Calls[len(it.Calls)-1]; last.Family == familyLegacy {
		if !c.lenient {
			return nil, fmt.Errorf("no counterpart for legacy function call")
		}
		c.lost[last.key()] = true
	}
	for p := range parts(member(it.Raw, "tool_calls")) {
		raw, err := c.responsesCall(p.value)
		if err != nil && c.lenient {
			c.lost[Call{ID: text(member(p.value, "id")), Family: familyFunction}.key()] = true
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, c.item(raw))
	}
	return out, nil
}

func (c *converter) item(raw []byte) Item {
	d := decoder{dialect: c.to, calls: maxCalls}
	return d.item(raw)
}

func (c *converter) responsesCall(raw []byte) ([]byte, error) {
	id := member(raw, "id")
	fn, typ, args := member(raw, "function"), "function_call", "arguments"
	if fn == nil {
		if fn = member(raw, "custom"); fn == nil {
			return nil, fmt.Errorf("no counterpart for tool call of an unknown type")
		}
		typ, args = "custom_tool_call", "input"
		if c.custom == nil {
			c.custom = make(map[string]bool)
		}
		c.custom[text(id)] = true
	}
	input := args
	out := append(appendString([]byte(`{"type":`), typ), `,"call_id":`...)
	out = append(append(out, orEmpty(id)...), `,"name":`...)
	out = append(append(out, orEmpty(member(fn, "name"))...), ',')
	out = append(appendString(out, input), ':')
	return append(append(out, orEmpty(member(fn, args))...), '}'), nil
}

// orEmpty is raw, or an empty string where there is none.
func orEmpty(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte(`""`)
	}
	return raw
}

// chatCalls makes one assistant message of Responses calls.
func (c *converter) chatCalls(items []Item) (Item, error) {
	out := []byte(`{"role":"assistant","content":null,"tool_calls":[`)
	for i, it := range items {
		if !callable(it) {
			return Item{}, fmt.Errorf("no counterpart for %s", it.describe())
		}
		typ, args := "function", "arguments"
		if it.Calls[0].Family == familyCustom {
			typ, args = "custom", "input"
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, `{"id":`...), orEmpty(member(it.Raw, "call_id"))...)
		out = append(appendString(append(out, `,"type":`...), typ), ',')
		out = append(append(appendString(out, typ), `:{"name":`...), orEmpty(member(it.Raw, "name"))...)
		out = append(appendString(append(out, ','), args), ':')
		out = append(append(out, orEmpty(member(it.Raw, args))...), '}', '}')
	}
	return c.item(append(out, ']', '}')), nil
}

func (c *converter) result(it Item) ([]Item, error) {
	content, err := c.content(it)
	if err != nil {
		return nil, err
	}
	var out []byte
	switch {
	case it.Dialect == Chat && it.Answers.Family == familyFunction:
		typ := "function_call_output"
		if c.custom[it.Answers.ID] {
			typ = "custom_tool_call_output"
		}
		out = append(appendString([]byte(`{"type":`), typ), `,"call_id":`...)
		out = append(append(out, orEmpty(member(it.Raw, "tool_call_id"))...), `,"output":`...)
	case it.Dialect == Responses && (it.Answers.Family == familyFunction || it.Answers.Family == familyCustom):
		out = append([]byte(`{"role":"tool","tool_call_id":`), orEmpty(member(it.Raw, "call_id"))...)
		out = append(out, `,"content":`...)
	default:
		return nil, fmt.Errorf("no counterpart for %s", it.describe())
	}
	return []Item{c.item(append(append(out, content...), '}'))}, nil
}

// content converts the content of a message, or the output of a result. A string stays the string that it is.
func (c *converter) content(it Item) ([]byte, error) {
	raw, refusal := member(it.Raw, "content"), member(it.Raw, "refusal")
	if it.Kind == ToolResult && it.Dialect == Responses {
		raw = member(it.Raw, "output")
	}
	_, refused := inside(refusal)
	if _, ok := inside(raw); ok && !refused {
		return raw, nil
	}
	if !refused && (len(raw) == 0 || isNull(raw)) {
		return []byte(`""`), nil
	}
	out := []byte{'['}
	if s, ok := inside(raw); ok && len(s) > 0 {
		out = c.textPart(out, raw, it.Role)
	}
	out, err := c.contentParts(out, raw, it.Role)
	if err != nil {
		return nil, err
	}
	if refused && it.Role == Assistant {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, `{"type":"refusal","refusal":`...), refusal...), '}')
	}
	if len(out) == 1 && c.lenient {
		if it.Kind == ToolResult {
			return []byte(`""`), nil // its call needs it
		}
		return nil, fmt.Errorf("no counterpart for any part of a content")
	}
	return append(out, ']'), nil
}

// contentParts appends the converted parts of a list.
func (c *converter) contentParts(out, raw []byte, role Role) ([]byte, error) {
	for p := range parts(raw) {
		if p.name != nil {
			return nil, fmt.Errorf("no counterpart for content that is an object")
		}
		before := len(out)
		if before > 1 {
			out = append(out, ',')
		}
		next, err := c.part(out, p.value, role)
		switch {
		case err == nil:
			out = next
		case c.lenient:
			out = out[:before]
		default:
			return nil, err
		}
	}
	return out, nil
}

func (c *converter) textPart(out, value []byte, role Role) []byte {
	typ := "text"
	if c.to == Responses {
		typ = "input_text"
		if role == Assistant {
			typ = "output_text"
		}
	}
	out = append(appendString(append(out, `{"type":`...), typ), `,"text":`...)
	return append(append(out, orEmpty(value)...), '}')
}

func (c *converter) part(out, raw []byte, role Role) ([]byte, error) {
	if _, ok := inside(raw); ok {
		return c.textPart(out, raw, role), nil
	}
	switch typ := text(member(raw, "type")); typ {
	case "text", "input_text", "output_text":
		return c.textPart(out, member(raw, "text"), role), nil
	case "refusal", "input_audio":
		return append(out, raw...), nil
	case "image_url":
		image := member(raw, "image_url")
		out = append(append(out, `{"type":"input_image","image_url":`...), orEmpty(member(image, "url"))...)
		return append(appendDetail(out, member(image, "detail")), '}'), nil
	case "input_image":
		url := member(raw, "image_url")
		if _, ok := inside(url); !ok {
			return nil, fmt.Errorf("no counterpart for image that is no URL")
		}
		out = append(append(out, `{"type":"image_url","image_url":{"url":`...), url...)
		return append(appendDetail(out, member(raw, "detail")), '}', '}'), nil
	case "file":
		// The members are named alike in both dialects; only Chat puts them one level down.
		file := bytes.TrimSpace(member(raw, "file"))
		if len(file) < 2 || file[0] != '{' || len(bytes.TrimSpace(file[1:len(file)-1])) == 0 {
			return nil, fmt.Errorf("no counterpart for file without members")
		}
		return append(append(out, `{"type":"input_file",`...), file[1:]...), nil
	case "input_file":
		file := keepParts(raw, func(_ int, p part) ([]byte, bool) {
			return raw[p.start:p.end], string(p.name) != "type"
		})
		return append(append(append(out, `{"type":"file","file":`...), file...), '}'), nil
	}
	return nil, fmt.Errorf("no counterpart for content part of an unknown type")
}

func appendDetail(out, detail []byte) []byte {
	if _, ok := inside(detail); !ok {
		return out
	}
	return append(append(out, `,"detail":`...), detail...)
}
