package chat

import "remora/wire"

// Hash writes what a message means: what it says, then each of its calls, which are items of their own in other dialects.
func (*codec) Hash(h *wire.Hasher, it wire.Item) {
	var f fields
	for p := range wire.Children(it.Raw) {
		f.note(&p)
	}
	if it.Role != wire.Assistant {
		h.Role(f.role)
		h.Name(f.name)
		h.Content(f.content, f.refusal)
		return
	}

	legacy := len(f.functionCall) > 0 && f.functionCall[0] == '{'
	if it.HasContent() || !wire.HasChildren(f.toolCalls) && !legacy {
		h.Role(f.role)
		h.Content(f.content, f.refusal)
		// An answer's audio holds data and a transcript, its echo only the id.
		h.Audio(wire.Member(f.audio, "id"))
	}
	s := wire.NewScanner(f.toolCalls)
	for range s.Each() {
		h.Part()
		hashCall(h, &s)
	}
	if legacy {
		h.Part()
		function := wire.NewScanner(f.functionCall)
		c := wire.HashedCall{Family: wire.FamilyLegacy}
		c.Name, c.Input = hashFunction(&function, "arguments")
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
