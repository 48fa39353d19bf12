package chat

import "remora/wire"

// mending changes the calls of items.
type mending struct{}

func (mending) WithCallIDs(it wire.Item, ids []string) []byte {
	if it.Kind == wire.ToolResult {
		if ids[0] == "" {
			return it.Raw
		}
		return wire.WithMember(it.Raw, "tool_call_id", wire.AppendString(nil, ids[0]))
	}
	calls := ids[firstCall(it):]
	return wire.EditMember(it.Raw, "tool_calls", func(list []byte) []byte {
		return wire.Edit(list, func(i int, call wire.Child) ([]byte, bool) {
			if i >= len(calls) || calls[i] == "" {
				return call.Value, true
			}
			return wire.WithMember(call.Value, "id", wire.AppendString(nil, calls[i])), true
		})
	})
}

func (mending) WithReasoning(it wire.Item, text string) []byte {
	if it.Kind != wire.Message || it.Role != wire.Assistant || wire.Text(wire.Member(it.Raw, "reasoning_content")) != "" {
		return it.Raw
	}
	if own := wire.Text(wire.Member(it.Raw, "reasoning")); own != "" { // OpenRouter's name for it
		text = own
	}
	return wire.WithMember(it.Raw, "reasoning_content", wire.AppendString(nil, text))
}

// unsigned is the signature that Google documents for calls that another model has made.
const unsigned = `{"google":{"thought_signature":"skip_thought_signature_validator"}}`

func (mending) WithSignature(it wire.Item) []byte {
	return wire.EditMember(it.Raw, "tool_calls", func(list []byte) []byte {
		return wire.Edit(list, func(i int, call wire.Child) ([]byte, bool) {
			if signed := wire.Member(call.Value, "extra_content"); i > 0 || signed != nil && !wire.IsNull(signed) {
				return call.Value, true
			}
			return wire.WithMember(call.Value, "extra_content", []byte(unsigned)), true
		})
	})
}

func (mending) WithoutNull(it wire.Item) []byte {
	return wire.Edit(it.Raw, func(_ int, p wire.Child) ([]byte, bool) {
		return it.Raw[p.Start:p.End], string(p.Name) != "content" || !wire.IsNull(p.Value)
	})
}

func (mending) WithToolNames(it wire.Item, rename func(string) string) []byte {
	tool := func(raw []byte) []byte { return wire.RenameTool(raw, rename) }
	if it.Kind == wire.ToolResult {
		return tool(it.Raw)
	}
	raw := wire.EditMember(it.Raw, "tool_calls", func(list []byte) []byte {
		return wire.Edit(list, func(_ int, call wire.Child) ([]byte, bool) {
			return wire.EditMember(wire.EditMember(call.Value, "function", tool), "custom", tool), true
		})
	})
	return wire.EditMember(raw, "function_call", tool)
}
