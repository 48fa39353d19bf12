package responses

import "remora/wire"

// Hash writes what a message, a call or a reasoning means.
func (*codec) Hash(h *wire.Hasher, it wire.Item) {
	switch it.Kind {
	case wire.ToolCall:
		hashCall(h, it)
	case wire.Reasoning:
		texts := [...][]byte{wire.Member(it.Raw, "summary"), wire.Member(it.Raw, "content")}
		h.Reasoning(wire.Member(it.Raw, "encrypted_content"), texts[:], it.ID)
	default:
		hashMessage(h, it.Raw, it.Role == wire.Assistant)
	}
}

func hashMessage(h *wire.Hasher, raw []byte, answer bool) {
	var f fields
	for p := range wire.Children(raw) {
		f.note(&p)
	}
	h.Role(f.role)
	if !answer {
		h.Name(f.name)
	}
	h.Content(f.content, f.refusal)
}

func hashCall(h *wire.Hasher, it wire.Item) {
	c, input := wire.HashedCall{Family: it.Parts[0].Call.Family}, "arguments"
	switch c.Family {
	case wire.FamilyFunction:
	case wire.FamilyCustom:
		input = "input"
	default:
		h.CallAsIs(it.Parts[0].Call, it.Raw)
		return
	}
	for p := range wire.Children(it.Raw) {
		switch string(p.Name) {
		case "name":
			c.Name = p.Value
		case "call_id":
			c.ID = p.Value
		case input:
			c.Input = p.Value
		}
	}
	h.Call(c)
}
