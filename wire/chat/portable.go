package chat

import "remora/wire"

func (messages) Portable(it wire.Item, r wire.Reach) (wire.Item, bool) {
	if r < wire.OtherModel || it.Kind == wire.ToolResult {
		return it, true
	}
	elsewhere := r == wire.OtherProvider
	if elsewhere {
		it = it.DrawnInWords()
	}
	said := true
	refusal := wire.Member(it.Raw, "refusal")
	refused := elsewhere && it.Role == wire.Assistant && wire.Text(refusal) != "" && wire.IsNull(wire.Member(it.Raw, "content"))
	raw := wire.Edit(it.Raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "reasoning_details", "thinking_blocks", "provider_specific_fields":
			return p.Value, it.Role != wire.Assistant
		case "reasoning", "reasoning_content", "annotations", "images", "audio":
			return p.Value, it.Role != wire.Assistant || !elsewhere
		case "refusal":
			if refused {
				return nil, false
			}
		case "content":
			if refused { // servers that do not know the member take it as text
				return refusal, true
			}
			value := p.Value
			if elsewhere {
				value = it.StoredInWords(value)
			}
			if elsewhere || it.Role == wire.Assistant {
				value, said = withoutThoughts(value)
			}
			return value, true
		case "tool_calls":
			return wire.EditElements(p.Value, func(call []byte) []byte { return portableCall(call, elsewhere) }), true
		}
		// Servers that know fewer members refuse even those that say nothing, such as refusal.
		return p.Value, it.Role != wire.Assistant || !elsewhere || !wire.IsNull(p.Value)
	})
	out := it.Rewritten(raw)
	if !said && !out.HasCalls() {
		return wire.Item{}, false
	}
	return out, out.HasContent() || out.HasCalls() || !it.HasContent()
}

// portableCall returns a call of Chat without what signs it, and for another provider with arguments that it can read.
func portableCall(call []byte, elsewhere bool) []byte {
	return wire.Edit(call, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "extra_content", "provider_specific_fields", "thought_signature":
			return nil, false
		case "function":
			return portableCall(p.Value, elsewhere), true
		case "arguments":
			if elsewhere {
				return wire.ObjectArguments(p.Value), true
			}
		}
		return p.Value, true
	})
}

// withoutThoughts leaves out the parts of a Chat content that are signed thoughts. It returns false where it leaves out all of them.
func withoutThoughts(content []byte) ([]byte, bool) {
	return wire.WithoutElements(content, func(p []byte) bool {
		typ := wire.Text(wire.Member(p, "type"))
		return typ == "thinking" || typ == "redacted_thinking"
	})
}
