package chat

import "remora/wire"

// Hash writes what a message means: what it says, then each of its calls, which are items of their own in other dialects.
func (*codec) Hash(h *wire.Hasher, it wire.Item) {
	var role, content, refusal, audio, name, toolCalls, functionCall []byte
	for p := range wire.Children(it.Raw) {
		switch string(p.Name) {
		case "role":
			role = p.Value
		case "content":
			content = p.Value
		case "refusal":
			refusal = p.Value
		case "audio":
			audio = p.Value
		case "name":
			name = p.Value
		case "tool_calls":
			toolCalls = p.Value
		case "function_call":
			functionCall = p.Value
		}
	}
	if it.Role != wire.Assistant {
		h.Role(role)
		h.Name(name)
		h.Content(content, refusal)
		return
	}

	legacy := len(functionCall) > 0 && functionCall[0] == '{'
	if it.HasContent() || !wire.HasChildren(toolCalls) && !legacy {
		h.Role(role)
		h.Content(content, refusal)
		// An answer's audio holds data and a transcript, its echo only the id.
		h.Audio(wire.Member(audio, "id"))
	}
	s := wire.NewScanner(toolCalls)
	for range s.Each() {
		h.Part()
		hashCall(h, &s)
	}
	if legacy {
		h.Part()
		f := wire.NewScanner(functionCall)
		c := wire.HashedCall{Family: wire.FamilyLegacy}
		c.Name, c.Input = hashFunction(&f, "arguments")
		h.Call(c)
	}
}

// hashCall reads an element of tool_calls and writes it.
func hashCall(h *wire.Hasher, s *wire.Scanner) {
	from := s.Offset()
	var c wire.HashedCall
	for name := range s.Each() {
		switch member := string(name); {
		case member == "id":
			c.ID = s.Raw()
		case s.Peek() == 'n': // some servers write null for the kind that it is not
		case member == "function":
			c.Family = wire.FamilyFunction
			c.Name, c.Input = hashFunction(s, "arguments")
		case member == "custom":
			c.Family = wire.FamilyCustom
			c.Name, c.Input = hashFunction(s, "input")
		}
	}
	if c.Family != "" {
		h.Call(c)
		return
	}
	h.ID(c.ID)
	h.Opaque(s.From(from))
}

// hashFunction reads an object with the name of a tool, and its input in the member called so.
func hashFunction(s *wire.Scanner, member string) (name, input []byte) {
	for m := range s.Each() {
		switch string(m) {
		case "name":
			name = s.Raw()
		case member:
			input = s.Raw()
		}
	}
	return name, input
}
