package wire

import (
	"bytes"
	"cmp"
)

// StringArguments returns the arguments of a call as a JSON string. Some servers answer with the object itself, which the API
// does not take back.
func StringArguments(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '{' {
		return AppendString(nil, string(raw))
	}
	return raw
}

// ObjectArguments returns the arguments of a call as a JSON string, or empty arguments if their text is not a JSON object, as
// after a cut: servers that parse them would refuse the whole history.
func ObjectArguments(raw []byte) []byte {
	raw = StringArguments(raw)
	text, _ := Inside(raw)
	if text = bytes.TrimSpace(Unescaped(text)); IsObject(text) {
		return raw
	}
	return []byte(`"{}"`)
}

// WithObjectArguments returns the item with the arguments of its function calls as [ObjectArguments] returns them. If they are
// so already, it is returned as it is.
func (it Item) WithObjectArguments() Item {
	for i, call := range it.Calls() {
		if call.Family != FamilyFunction && call.Family != FamilyLegacy {
			continue // its arguments are no string
		}
		v := Member(it.Dialect.Codec().Input(it, i), "arguments")
		if v != nil && !SameBytes(ObjectArguments(v), v) {
			return it.editTools(func(tool []byte) []byte { return EditMember(tool, "arguments", ObjectArguments) })
		}
	}
	return it
}

// WithToolNames returns the item with renamed tools in its calls or result. Where rename returns the same name, all bytes stay.
func (it Item) WithToolNames(rename func(name string) string) Item {
	if it.Kind != ToolResult && !it.HasCalls() {
		return it
	}
	return it.editTools(func(tool []byte) []byte {
		return EditMember(tool, "name", func(value []byte) []byte {
			was := Text(value)
			if is := rename(was); isString(value) && is != was {
				return AppendString(nil, is)
			}
			return value
		})
	})
}

// editTools rewrites the objects of an item that name a tool: the item itself, or, of a message, those in its calls.
func (it Item) editTools(edit func(tool []byte) []byte) Item {
	if it.Kind != Message {
		return it.Rewritten(edit(it.Raw))
	}
	raw := editCalls(it.Raw, func(_ int, call []byte) []byte {
		return EditMember(EditMember(call, "function", edit), "custom", edit)
	})
	return it.Rewritten(EditMember(raw, "function_call", edit))
}

// editCalls rewrites the elements of a message's list of calls.
func editCalls(message []byte, edit func(i int, call []byte) []byte) []byte {
	return EditMember(message, "tool_calls", func(list []byte) []byte {
		return Edit(list, func(i int, p Child) ([]byte, bool) { return edit(i, p.Value), true })
	})
}

// WithReasoning returns an answer with a text as its reasoning, unless it has one. Where reasoning is an item of its own, upstream
// asks for none.
func (it Item) WithReasoning(text string) Item {
	if !it.Dialect.Rules().OneItem || it.Kind != Message || it.Role != Assistant || Text(Member(it.Raw, "reasoning_content")) != "" {
		return it
	}
	text = cmp.Or(Text(Member(it.Raw, "reasoning")), text) // OpenRouter's name for it
	return it.Rewritten(WithMember(it.Raw, "reasoning_content", AppendString(nil, text)))
}

// unsigned is the signature that Google documents for calls that another model has made.
const unsigned = `{"google":{"thought_signature":"skip_thought_signature_validator"}}`

// WithSignature returns an answer with a placeholder as the signature of its first call, unless that is signed.
func (it Item) WithSignature() Item {
	return it.Rewritten(editCalls(it.Raw, func(i int, call []byte) []byte {
		if signed := Member(call, "extra_content"); i > 0 || signed != nil && !IsNull(signed) {
			return call
		}
		return WithMember(call, "extra_content", []byte(unsigned))
	}))
}

// WithoutNull returns the item without a null content.
func (it Item) WithoutNull() Item {
	return it.Rewritten(Edit(it.Raw, func(_ int, p Child) ([]byte, bool) {
		return it.Raw[p.Start:p.End], string(p.Name) != "content" || !IsNull(p.Value)
	}))
}
