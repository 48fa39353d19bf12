package chat

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"

	"remora/wire"
	"remora/wire/merge"
)

// Bodies puts the first choices of several answers together.
func (merging) Bodies(w *merge.Bodies) []byte {
	last := w.Last()
	if wire.Member(last, "choices") == nil {
		return last
	}
	m := joining{Bodies: w}
	for i, body := range w.All() {
		m.add(i, choiceOf(body, 0))
	}
	return w.Edit(func(p wire.Child) []byte {
		if string(p.Name) != "choices" {
			return p.Value
		}
		return wire.Edit(p.Value, func(i int, e wire.Child) ([]byte, bool) { return m.choice(e.Value, i), true })
	}, "id", "created", "model", "system_fingerprint")
}

// choice returns what the client gets of a choice of the last answer, which stands at a position of its list.
func (m *joining) choice(last []byte, position int) []byte {
	if at := wire.IndexOr(wire.Member(last, "index"), position); at != 0 {
		if first := choiceOf(m.All()[0], at); first != nil {
			return first // as in a stream, it ended with the first answer
		}
		return last
	}
	return wire.Edit(last, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "message":
			return m.message(p.Value), true
		case "finish_reason":
			return m.end.reason(p.Value), true
		case "logprobs": // clients match them with the text
			return m.logprobs(p.Value), true
		}
		return p.Value, true
	})
}

// logprobs joins the lists of tokens of all answers; last is the value of the last one.
func (m *joining) logprobs(last []byte) []byte {
	var all members
	for _, body := range m.All() {
		for p := range wire.Children(wire.Member(choiceOf(body, 0), "logprobs")) {
			all.add(p)
		}
	}
	if all == nil {
		return last
	}
	return all.object()
}

// choiceOf returns the choice of an index, nil if there is none. Choices are read as in readChoices.
func choiceOf(body []byte, number int) []byte {
	position := 0
	for p := range wire.Children(wire.Member(body, "choices")) {
		if wire.IndexOr(wire.Member(p.Value, "index"), position) == number {
			return p.Value
		}
		position++
	}
	return nil
}

// touch reports whether the texts of two answers would run into each other, as in "I'll note that.Your dog is Rex."
func touch(before, after string) bool {
	last, _ := utf8.DecodeLastRuneInString(before)
	first, _ := utf8.DecodeRuneInString(after)
	return before != "" && after != "" && !unicode.IsSpace(last) && !unicode.IsSpace(first)
}

// scored reports whether a choice has log probabilities of its tokens, which clients match with its text.
func scored(choice []byte) bool { return !merge.Empty(orNull(wire.Member(choice, "logprobs"))) }

// apart puts a blank line before a text.
func apart(text []byte) []byte { return slices.Concat([]byte(`"\n\n`), text[1:]) }

// joining puts the messages of several answers together, as a client does with the deltas of a stream.
type joining struct {
	*merge.Bodies
	members members
	text    string // of the latest answer that has some
	end     ending
}

// members are those of several objects, put together.
type members []merged

type merged struct {
	name, value []byte
}

// maxMembers bounds the members of an object that are put together.
const maxMembers = 64

func (m *joining) add(body int, choice []byte) {
	visible, calls := m.visible(body, wire.Member(choice, "message"))
	if calls && body < len(m.All())-1 {
		m.end.earlier = true
	}
	m.end.calls = m.end.calls || calls
	for p := range wire.Children(visible) {
		if text := wire.Text(p.Value); string(p.Name) == "content" && text != "" {
			if !scored(choice) && touch(m.text, text) {
				p.Value = apart(p.Value)
			}
			m.text = text
		}
		m.members.add(p)
	}
}

// visible returns the message without its hidden calls, and whether it has others.
func (m *joining) visible(body int, message []byte) (out []byte, calls bool) {
	out, calls, dropped := withoutCalls(message, func(c wire.Call) bool { return m.Hides(body, c) })
	m.end.dropped = m.end.dropped || dropped
	return out, calls
}

// withoutCalls returns a message without the calls that hide reports, and whether there were others and such.
func withoutCalls(message []byte, hide func(wire.Call) bool) (out []byte, others, hidden bool) {
	dec := wire.NewDecoder(Dialect)
	out = wire.Edit(message, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "tool_calls":
			kept, all := 0, 0
			list := wire.Edit(p.Value, func(_ int, e wire.Child) ([]byte, bool) {
				all++
				if call := wire.NewScanner(e.Value); hide(readCall(dec, &call)) {
					return nil, false
				}
				kept++
				return e.Value, true
			})
			others, hidden = others || kept > 0, hidden || kept < all
			return list, kept > 0 || all == 0
		case "function_call":
			if p.Value[0] != '{' {
				break
			}
			if hide(wire.Call{Family: wire.FamilyLegacy, Name: wire.Text(wire.Member(p.Value, "name"))}) {
				hidden = true
				return nil, false
			}
			others = true
		}
		return p.Value, true
	})
	return out, others, hidden
}

// add merges a member into the earlier ones: texts and lists are joined, of all else the last value counts.
func (m *members) add(p wire.Child) {
	i := slices.IndexFunc(*m, func(o merged) bool { return string(o.name) == string(p.Name) })
	if i < 0 {
		if len(*m) < maxMembers {
			*m = append(*m, merged{bytes.Clone(p.Name), p.Value})
		}
		return
	}
	old := &(*m)[i].value
	a, b := *old, p.Value
	switch {
	case merge.Empty(b), string(p.Name) == "role":
	case a[0] == '"' && b[0] == '"':
		*old = slices.Concat(a[:len(a)-1], b[1:])
	case a[0] == '[' && b[0] == '[' && wire.HasChildren(a) && wire.HasChildren(b):
		*old = slices.Concat(bytes.TrimSpace(a[:len(a)-1]), []byte{','}, bytes.TrimSpace(b[1:]))
	default:
		*old = b
	}
}

// object returns the object that has the members.
func (m members) object() []byte {
	out := []byte{'{'}
	for i, o := range m {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(wire.AppendString(out, string(o.name)), ':'), o.value...)
	}
	return append(out, '}')
}

// message returns the message that the client gets; last is the one of the last answer.
func (m *joining) message(last []byte) []byte {
	if len(m.All()) == 1 {
		out, _ := m.visible(0, last)
		if m.end.dropped && !m.end.calls && !says(out) {
			out = withContent(out)
		}
		return out
	}
	out := m.members.object()
	if !m.end.calls && !says(out) {
		out = withContent(out)
	}
	return out
}

// says reports whether a message or a delta holds something that a client may show. Null is nothing.
func says(message []byte) bool {
	for p := range wire.Children(message) {
		switch string(p.Name) {
		case "content", "refusal", "audio", "images":
			if string(p.Value) != "null" {
				return true
			}
		}
	}
	return false
}

// speaks is says for a delta, without those whose text is empty.
func speaks(delta []byte) bool {
	return says(delta) && string(wire.Member(delta, "content")) != `""`
}

// withContent gives a message or a delta an empty text: one with neither text nor calls breaks clients, and upstreams
// refuse it in a history.
func withContent(object []byte) []byte {
	return wire.WithMember(object, "content", []byte(`""`))
}
