package responses

import "remora/wire"

// items makes other items of items. None has more than one part, so it leaves the rest.
type items struct{ wire.Opaque }

// AsInput: what an answer says is accepted as it came. An image holds how it was made (action, size, revised_prompt, ...), which
// OpenAI refuses as unknown parameters of an input item.
func (items) AsInput(it wire.Item, _ func(wire.Audio) bool) (wire.Item, bool) {
	if !it.IsImage() {
		return it, it.HasContent()
	}
	return it.Rewritten(wire.Edit(it.Raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "id", "type", "status", "result":
			return it.Raw[p.Start:p.End], true
		}
		return nil, false
	})), true
}

func (items) Portable(it wire.Item, r wire.Reach) (wire.Item, bool) {
	switch it.Kind {
	case wire.Reasoning, wire.Reference:
		return wire.Item{}, false
	case wire.Compaction:
		return it, r == wire.Unnamed // encrypted: its maker can read it, stored or not
	case wire.Other:
		return it, r == wire.Unnamed && it.ID == ""
	default:
	}

	// A local_shell_call without call_id is paired by its id.
	pairs := it.Kind != wire.Message && wire.Member(it.Raw, "call_id") == nil
	raw := wire.Edit(it.Raw, func(_ int, p wire.Child) ([]byte, bool) {
		whole := it.Raw[p.Start:p.End]
		switch string(p.Name) {
		case "id":
			return whole, pairs
		case "status":
			return whole, it.Kind != wire.Message
		case "arguments":
			if r == wire.OtherProvider && isFunction(it) {
				return wire.WithValue(it.Raw, p, wire.ObjectArguments(p.Value)), true
			}
		case "content", "output":
			if r == wire.OtherProvider {
				return wire.WithValue(it.Raw, p, withoutBelongings(it, p.Value)), true
			}
		}
		return whole, true
	})
	return it.Rewritten(raw), true
}

// isFunction reports whether an item calls a function. The arguments of other calls are no string.
func isFunction(it wire.Item) bool {
	return it.Kind == wire.ToolCall && it.Parts[0].Call.Family == wire.FamilyFunction
}

// withoutBelongings puts words in place of the parts of a content or output that are files stored in an account, and leaves out
// the annotations that refer to some.
func withoutBelongings(it wire.Item, content []byte) []byte {
	content = it.StoredInWords(content)
	if len(content) == 0 || content[0] != '[' {
		return content
	}
	return wire.Edit(content, func(_ int, e wire.Child) ([]byte, bool) {
		if len(e.Value) == 0 || e.Value[0] != '{' {
			return e.Value, true
		}
		return wire.EditMember(e.Value, "annotations", func([]byte) []byte { return []byte("[]") }), true
	})
}

func (items) WithCallIDs(it wire.Item, ids []string) []byte {
	id := ids[0]
	// A local_shell_call without call_id is paired by its id, which upstream has given it.
	if id == "" || wire.Member(it.Raw, "call_id") == nil {
		return it.Raw
	}
	return wire.WithMember(it.Raw, "call_id", wire.AppendString(nil, id))
}
