package stitch

import (
	"bytes"
	"slices"

	"remora/wire"
)

// Answer is one upstream answer that was not streamed.
type Answer struct {
	Body []byte
	// Withheld tells that the client gets nothing of it, as of an answer that was judged unfit; its usage counts.
	Withheld bool
}

// Whole makes one body of several answers, by the rules of a Stitcher: identity of the first one that the client gets
// something of, everything else of the last one, whose end the client sees; texts put together, the calls that hidden
// names (by the number of their answer) left out, usage summed. A single body with nothing hidden is returned as it is,
// and so is the last one where it is no answer but an error. Hidden may be nil.
func Whole(d wire.Dialect, answers []Answer, hidden func(answer int, c wire.Call) bool) []byte {
	w := whole{dialect: d, hidden: hidden}
	for i, a := range answers {
		if usage := wire.Member(a.Body, "usage"); a.Withheld {
			w.prior = addUsage(w.prior, usage)
		} else {
			if len(w.bodies) > 0 {
				w.prior = addUsage(w.prior, w.usage)
			}
			w.usage = usage
			w.bodies, w.numbers = append(w.bodies, a.Body), append(w.numbers, i)
		}
	}
	if len(w.bodies) == 0 {
		return nil
	}
	last := w.bodies[len(w.bodies)-1]
	if opaque(bytes.TrimSpace(last)) {
		return last
	}
	if d == wire.Responses {
		if wire.Member(last, "output") == nil {
			return last
		}
		return w.responses(last)
	}
	if wire.Member(last, "choices") == nil {
		return last
	}
	return w.completion(last)
}

// whole is the work on several bodies.
type whole struct {
	dialect wire.Dialect
	hidden  func(answer int, c wire.Call) bool
	bodies  [][]byte
	numbers []int  // of the bodies among all answers
	usage   []byte // of the last body
	prior   []byte // of all others
}

func (w *whole) hides(body int, c wire.Call) bool {
	return w.hidden != nil && w.hidden(w.numbers[body], c)
}

// edit rewrites the members that both dialects have, and those that more does.
func (w *whole) edit(last []byte, more func(p wire.Part) []byte, identity ...string) []byte {
	last = bytes.TrimSpace(last)
	return wire.Edit(last, func(_ int, p wire.Part) ([]byte, bool) {
		name, value := string(p.Name), p.Value
		switch {
		case name == "usage":
			value = addUsage(w.prior, value)
		case slices.Contains(identity, name) && len(w.bodies) > 1:
			if first := wire.Member(w.bodies[0], name); first != nil && !empty(first) {
				value = first
			}
		default:
			value = more(p)
		}
		return with(last, p, value), true
	})
}

func (w *whole) responses(last []byte) []byte {
	var seen []output
	for i, body := range w.bodies {
		for p := range wire.Parts(wire.Member(body, "output")) {
			it, err := wire.ParseItem(wire.Responses, p.Value)
			if err == nil && len(it.Calls) > 0 && w.hides(i, it.Calls[0]) {
				continue
			}
			seen = append(seen, output{raw: p.Value})
		}
	}
	return w.untouched(last, w.edit(last, func(p wire.Part) []byte {
		if string(p.Name) != "output" || p.Value[0] != '[' {
			return p.Value
		}
		return rewriteList(p.Value, seen)
	}, "id", "created_at"))
}

// untouched is last itself where the edited body is the same but for space around it.
func (w *whole) untouched(last, edited []byte) []byte {
	if bytes.Equal(bytes.TrimSpace(last), edited) {
		return last
	}
	return edited
}

func (w *whole) completion(last []byte) []byte {
	m := merging{whole: w}
	for i, body := range w.bodies {
		if message := wire.Member(choice(body, 0), "message"); len(message) > 0 && message[0] == '{' {
			m.add(i, message)
		}
	}
	return w.untouched(last, w.edit(last, func(p wire.Part) []byte {
		if string(p.Name) != "choices" {
			return p.Value
		}
		return wire.Edit(p.Value, func(_ int, e wire.Part) ([]byte, bool) { return with(p.Value, e, m.choice(e.Value)), true })
	}, "id", "created", "model", "system_fingerprint"))
}

// choice is what the client gets of a choice of the last answer.
func (m *merging) choice(last []byte) []byte {
	at, ok := index(wire.Member(last, "index"), 0)
	if !ok {
		return last
	}
	if at != 0 {
		if first := choice(m.bodies[0], at); first != nil {
			return first // as in a stream, it ended with the first answer
		}
		return last
	}
	return wire.Edit(last, func(_ int, p wire.Part) ([]byte, bool) {
		switch string(p.Name) {
		case "message":
			return with(last, p, m.message(p.Value)), true
		case "finish_reason":
			return with(last, p, m.end.reason(p.Value)), true
		}
		return last[p.Start:p.End], true
	})
}

// choice is the choice of an index, nil if there is none.
func choice(body []byte, number int) []byte {
	for p := range wire.Parts(wire.Member(body, "choices")) {
		if at, ok := index(wire.Member(p.Value, "index"), 0); ok && at == number {
			return p.Value
		}
	}
	return nil
}

// merging puts the messages of several answers together, as a client does with the deltas of a stream.
type merging struct {
	*whole
	members  []merged
	messages int
	end      ending
}

type merged struct {
	name, value []byte
}

// maxMembers bounds the members of a message that are put together.
const maxMembers = 64

func (m *merging) add(body int, message []byte) {
	m.messages++
	visible, calls := m.visible(body, message)
	if calls && body < len(m.bodies)-1 {
		m.end.earlier = true
	}
	m.end.calls = m.end.calls || calls
	for p := range wire.Parts(visible) {
		m.member(p)
	}
}

// visible is the message without its hidden calls; calls tells that it has others.
func (m *merging) visible(body int, message []byte) (out []byte, calls bool) {
	out = wire.Edit(message, func(_ int, p wire.Part) ([]byte, bool) {
		switch string(p.Name) {
		case "tool_calls":
			kept, all := 0, 0
			list := wire.Edit(p.Value, func(_ int, e wire.Part) ([]byte, bool) {
				all++
				if m.hides(body, callOf(e.Value)) {
					return nil, false
				}
				kept++
				return p.Value[e.Start:e.End], true
			})
			calls = calls || kept > 0
			m.end.dropped = m.end.dropped || kept < all
			return with(message, p, list), kept > 0 || all == 0
		case "function_call":
			if p.Value[0] != '{' {
				break
			}
			if m.hides(body, wire.Call{Family: wire.FamilyLegacy, Name: wire.Text(wire.Member(p.Value, "name"))}) {
				m.end.dropped = true
				return nil, false
			}
			calls = true
		}
		return message[p.Start:p.End], true
	})
	return out, calls
}

// callOf is the call that an element of tool_calls makes.
func callOf(raw []byte) wire.Call {
	c := wire.Call{ID: wire.Text(wire.Member(raw, "id")), Family: "function"}
	for _, tool := range [...]string{"custom", "function"} {
		if name := wire.Text(wire.Member(wire.Member(raw, tool), "name")); name != "" {
			c.Name = name
		}
	}
	return c
}

// member puts a member to those that came before: texts and lists are joined, of all else the last value counts.
func (m *merging) member(p wire.Part) {
	i := slices.IndexFunc(m.members, func(o merged) bool { return string(o.name) == string(p.Name) })
	if i < 0 {
		if len(m.members) < maxMembers {
			m.members = append(m.members, merged{bytes.Clone(p.Name), p.Value})
		}
		return
	}
	old := &m.members[i].value
	a, b := *old, p.Value
	switch {
	case string(b) == "null", string(p.Name) == "role":
	case a[0] == '"' && b[0] == '"':
		*old = slices.Concat(a[:len(a)-1], b[1:])
	case a[0] == '[' && b[0] == '[' && !hasParts(b):
	case a[0] == '[' && b[0] == '[' && hasParts(a):
		*old = slices.Concat(bytes.TrimSpace(a[:len(a)-1]), []byte{','}, bytes.TrimSpace(b[1:]))
	default:
		*old = b
	}
}

// message is the message that the client gets; last is the one of the last answer.
func (m *merging) message(last []byte) []byte {
	if m.messages == 1 && len(m.bodies) == 1 {
		out, _ := m.visible(0, last)
		if m.end.dropped && !m.end.calls && !says(out) {
			out = withContent(out)
		}
		return out
	}
	out := []byte{'{'}
	for i, o := range m.members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(wire.AppendString(out, string(o.name)), ':'), o.value...)
	}
	out = append(out, '}')
	if !m.end.calls && !says(out) {
		out = withContent(out)
	}
	return out
}

// says tells that a message or a delta holds something that a client may show; null is not.
func says(message []byte) bool {
	for p := range wire.Parts(message) {
		switch string(p.Name) {
		case "content", "refusal", "audio":
			if string(p.Value) != "null" {
				return true
			}
		}
	}
	return false
}

// speaks is says for a delta, whose text may be empty without being shown.
func speaks(delta []byte) bool {
	return says(delta) && string(wire.Member(delta, "content")) != `""`
}

// withContent gives a message or a delta an empty text: one with neither text nor calls breaks clients, and upstreams
// refuse it in a history.
func withContent(message []byte) []byte {
	if len(message) == 0 || message[0] != '{' {
		return message
	}
	const text = `"content":""`
	if wire.Member(message, "content") != nil {
		return wire.Edit(message, func(_ int, p wire.Part) ([]byte, bool) {
			if string(p.Name) == "content" {
				return with(message, p, []byte(`""`)), true
			}
			return message[p.Start:p.End], true
		})
	}
	if rest := bytes.TrimSpace(message[1:]); rest[0] != '}' {
		return slices.Concat([]byte("{"+text+","), rest)
	}
	return []byte("{" + text + "}")
}
