package chat

import (
	"bytes"
	"slices"
	"strconv"

	"remora/wire"
	"remora/wire/merge"
)

// writing is one chunk while it is written anew.
type writing struct {
	*merger
	k  *chunk
	at int // number of the next call's delta
	// scored: clients match the text with the log probabilities of its tokens, so that nothing may come between.
	scored bool
	left   bool // something is left that the client has a use for
	// removed: something was left out, so that what remains may be nothing.
	removed bool
	// What it shows: the roles of these choices, the ends of these, and how many deltas of calls.
	shownRoles, shownEnds []int
	shownCalls            int
}

// show sends what the chunk says is to be sent of it.
func (c *merger) show(k *chunk) {
	w := writing{merger: c, k: k}
	data := wire.Edit(k.b.Data, func(_ int, p wire.Child) ([]byte, bool) { return w.top(p), true })
	if w.removed && !w.left {
		return
	}
	if c.first < 0 {
		c.first = c.s.Answer()
	}
	c.remember(k.b.Data)
	for _, i := range w.shownRoles {
		c.roles[i] = c.s.Answer()
	}
	for _, i := range w.shownEnds {
		c.ended[i] = c.s.Answer()
	}
	if w.shownCalls > 0 {
		c.showed = c.s.Answer()
	}
	c.s.Send(k.b, data)
}

// remember takes the members that all chunks get from the first ones that have them.
func (c *merger) remember(data []byte) {
	for p := range wire.Children(data) {
		if name := string(p.Name); ofHead(name) && merge.Empty(orNull(c.head[name])) && len(p.Value) <= merge.MaxIdentity {
			c.head[name] = bytes.Clone(p.Value)
		}
	}
}

func ofHead(name string) bool {
	return name == "id" || name == "created" || name == "model" || name == "system_fingerprint"
}

func orNull(raw []byte) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}

// later reports whether this answer continues one that the client has begun to see.
func (c *merger) later() bool { return c.first >= 0 && c.s.Answer() > c.first }

func (w *writing) top(p wire.Child) []byte {
	switch name := string(p.Name); {
	case w.later() && w.head[name] != nil:
		return w.head[name]
	case name == "usage" && !w.k.rest:
		return []byte("null")
	case name == "usage" && p.Value[0] == '{':
		w.left = true
		return merge.ContinueUsage(w.prior, p.Value)
	case name == "choices":
		return wire.Edit(p.Value, func(_ int, e wire.Child) ([]byte, bool) { return w.choice(e.Value) })
	}
	return p.Value
}

func (w *writing) choice(raw []byte) ([]byte, bool) {
	s := wire.NewScanner(raw)
	members := readChoice(&s)
	i := wire.IndexOr(members.index, 0) // -1 is no choice, and nothing in it was read
	if i == 0 {
		return w.mine(raw, members), true
	}
	answer, over := w.ended[i]
	if !w.k.rest || over && answer < w.s.Answer() {
		w.removed = true // it would be said twice
		return nil, false
	}
	w.left = true
	return wire.Edit(raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "delta", "message":
			return wire.Edit(p.Value, func(_ int, m wire.Child) ([]byte, bool) { return m.Value, w.other(i, m) }), true
		case "finish_reason":
			if wire.Text(p.Value) != "" {
				w.shownEnds = append(w.shownEnds, i)
			}
		}
		return p.Value, true
	}), true
}

// other reports whether the client gets a member of the delta or message of another choice than 0.
func (w *writing) other(choice int, m wire.Child) bool {
	switch string(m.Name) {
	case "role":
		return w.role(choice)
	case "tool_calls", "function_call":
		if merge.Empty(m.Value) || !w.s.Judges() && (choice > 0 || !w.s.Guards()) {
			break
		}
		if w.s.Judges() {
			w.s.DropUnjudged()
		}
		return false
	}
	return true
}

// role reports whether the client may see the role of a choice: once for all answers, though upstream may repeat it within
// one.
func (w *writing) role(i int) bool {
	if answer, ok := w.roles[i]; ok && answer < w.s.Answer() {
		w.removed = true
		return false
	} else if !ok {
		w.left = true // a client may need it for what comes
	}
	w.shownRoles = append(w.shownRoles, i)
	return true
}

// mine writes choice 0. Its calls are in read, the member that the fold has read as its delta.
func (w *writing) mine(raw []byte, members choiceMembers) []byte {
	read := members.delta
	if about, ok := w.k.b.Effect.(*effect); ok && about.Whole && nothing(read) {
		read = members.message
	}
	w.scored = scored(raw)
	out := wire.Edit(raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "index":
		case "delta", "message":
			if !wire.SameBytes(p.Value, read) {
				visible, _, _ := withoutCalls(p.Value, func(c wire.Call) bool { return w.s.Verdict(c) == merge.Hidden })
				return visible, w.k.rest
			}
			delta := wire.Edit(p.Value, func(_ int, m wire.Child) ([]byte, bool) { return w.delta(m) })
			w.said = w.said || speaks(delta)
			return delta, true
		case "finish_reason":
			return w.reason(p.Value), true
		default:
			return p.Value, w.k.rest
		}
		return p.Value, true
	})
	if w.k.ends && w.silent() {
		w.said = true
		return withText(out)
	}
	return out
}

// silent reports whether the client has got nothing of choice 0, since calls are kept from it.
func (w *writing) silent() bool {
	return !w.said && w.showed < 0 && w.shownCalls == 0 && w.dropped
}

// withText gives a choice, which ends, a delta with an empty text.
func withText(choice []byte) []byte {
	delta := wire.Member(choice, "delta")
	if !wire.IsObject(delta) {
		delta = []byte("{}")
	}
	return wire.WithMember(choice, "delta", withContent(delta))
}

func (w *writing) reason(raw []byte) []byte {
	reason := wire.Text(raw)
	if reason == "" {
		return raw
	}
	if !w.k.ends {
		w.removed = true
		return []byte("null")
	}
	w.left = true
	e := ending{
		calls: w.showed >= 0 || w.shownCalls > 0, dropped: w.dropped,
		earlier: w.showed >= 0 && w.showed < w.s.Answer(),
	}
	return e.reason(raw)
}

// ending determines the finish reason.
type ending struct {
	calls   bool // the client got calls
	dropped bool // it did not get all
	earlier bool // it got some with an answer before the last one
}

// reason returns the finish reason that fits what the client got.
func (e ending) reason(raw []byte) []byte {
	switch reason := wire.Text(raw); {
	case (reason == "tool_calls" || reason == "function_call") && !e.calls && e.dropped:
		return []byte(`"stop"`)
	case reason == "stop" && e.earlier:
		return []byte(`"tool_calls"`)
	}
	return raw
}

func (w *writing) delta(m wire.Child) ([]byte, bool) {
	switch string(m.Name) {
	case "role":
		if !w.k.rest {
			return nil, false
		}
		return m.Value, w.role(0)
	case "tool_calls":
		if merge.Empty(m.Value) {
			return m.Value, w.k.rest
		}
		before := w.shownCalls
		list := wire.Edit(m.Value, func(_ int, e wire.Child) ([]byte, bool) { return w.callPiece(e.Value) })
		return list, w.shownCalls > before || w.k.rest && m.Value[0] != '[' && m.Value[0] != '{'
	case "function_call":
		if m.Value[0] != '{' {
			w.at++
			return m.Value, w.k.rest
		}
		_, ok := w.callPiece(m.Value)
		return m.Value, ok
	}
	if !w.k.rest {
		w.removed = true
		return nil, false
	}
	w.left = w.left || !merge.Empty(m.Value)
	if string(m.Name) == "content" && w.later() && w.spoke < w.s.Answer() && len(m.Value) > 2 && m.Value[0] == '"' {
		w.spoke = w.s.Answer()
		if !w.scored && touch(w.s.Text(), wire.Text(m.Value)) {
			return apart(m.Value), true
		}
	}
	return m.Value, true
}

// callPiece writes a call's delta, with the index that the client knows it by.
func (w *writing) callPiece(raw []byte) ([]byte, bool) {
	var k *call
	if w.at < len(w.k.calls) {
		k = w.k.calls[w.at]
	}
	w.at++
	if k == nil && w.s.Guards() || k != nil && k.verdict != merge.Passed {
		w.removed = true
		return nil, false
	}
	w.left, w.shownCalls = true, w.shownCalls+1
	if k == nil || k.told.legacy {
		return raw, true
	}
	if k.out < 0 {
		if k.out = w.index; !w.dropped {
			k.out = k.told.index
		}
		w.index = max(w.index, k.out+1)
	}
	if !w.dropped {
		return raw, true
	}
	at := wire.Member(raw, "index")
	if at == nil {
		number := append([]byte(`{"index":`), strconv.Itoa(k.out)...)
		return slices.Concat(number, []byte{','}, bytes.TrimSpace(raw[1:])), true
	}
	if n, ok := wire.Index(at, -1); ok && n == k.out {
		return raw, true
	}
	return wire.EditMember(raw, "index", func([]byte) []byte { return strconv.AppendInt(nil, int64(k.out), 10) }), true
}
