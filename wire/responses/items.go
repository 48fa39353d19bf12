package responses

import (
	"bytes"

	"remora/wire"
)

// items makes other items of items. None has more than one part, so it leaves the rest.
type items struct{ wire.Opaque }

// AsInput: what an answer says is accepted as it came. OpenAI refuses what only answers have, as unknown parameters: how an image
// was made (action, size, revised_prompt, ...), and created_by in items and in the outputs of a shell.
func (items) AsInput(it wire.Item, _ func(wire.Audio) bool) (wire.Item, bool) {
	image := it.IsImage()
	if !image && !bytes.Contains(it.Raw, []byte(`"created_by"`)) {
		return it, it.Kind != wire.Message || it.HasContent()
	}
	out := it.Rewritten(wire.Edit(it.Raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "id", "type", "status", "result":
			return p.Value, true
		case "created_by":
			return nil, false
		case "output":
			return wire.EditElements(p.Value, func(e []byte) []byte { return wire.WithoutMembers(e, "created_by") }), !image
		}
		return p.Value, !image
	}))
	return out, out.Kind != wire.Message || out.HasContent()
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
		switch string(p.Name) {
		case "id":
			return p.Value, pairs
		case "status":
			return p.Value, it.Kind != wire.Message
		case "arguments":
			if r == wire.OtherProvider && isFunction(it) {
				return wire.ObjectArguments(p.Value), true
			}
		case "content", "output":
			if r == wire.OtherProvider {
				return withoutBelongings(it, p.Value), true
			}
		}
		return p.Value, true
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
	return wire.EditElements(it.StoredInWords(content), func(e []byte) []byte {
		return wire.EditMember(e, "annotations", func([]byte) []byte { return []byte("[]") })
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
