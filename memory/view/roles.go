package view

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"remora/wire"
)

// Form selects the message roles and order that a server accepts. Each form includes the forms before it. Servers that
// render a chat template are the reason: many templates refuse what the API allows.
type Form uint8

// Forms, from the one that changes least.
const (
	// AsIs makes each block a separate message, in the role of instructions.
	AsIs Form = iota
	// Joined puts the blocks before the history into one system message, and all others into the user's role. The client's
	// messages stay.
	Joined
	// OneSystem joins that message with the client's own: the first message is the only system message. Later ones of the
	// client get the user's role.
	OneSystem
	// Alternate joins consecutive messages of one role, so that user and assistant alternate.
	Alternate
	// NoSystem puts the text of the system message at the beginning of the first user message.
	NoSystem
)

// String returns the form's name in records.
func (f Form) String() string {
	return [...]string{"as_is", "joined", "one_system", "alternate", "no_system"}[min(f, NoSystem)]
}

// ParseForm is the inverse of Form.String.
func ParseForm(name string) (Form, error) {
	for f := AsIs; f <= NoSystem; f++ {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("form of messages %q is unknown", name)
}

// Messages is a view before the roles of its messages are decided.
type Messages struct {
	Dialect wire.Dialect
	// Instructions is the unchanged member of that name of a Responses request. To servers its text is a system message.
	Instructions []byte
	// Before follows the items that upstream stores (see Continue).
	Before []wire.Item
	// System are the client's system and developer items at the beginning, Items what follows them.
	System, Items []wire.Item
	// Blocks are the layers' blocks.
	Blocks []Block
	// After follows the blocks: answers of this turn, results of calls, guidance.
	After []wire.Item
	// Continues: upstream itself puts earlier items before these.
	Continues bool
	// Own reports whether an item of System or Items is the client's own, and not a stored one; nil if all are.
	Own func(wire.Item) bool
}

// Continue marks the view as one with earlier items at upstream. carried is the number of Items of the continued answer that
// upstream has not seen. They come first, then the results at the beginning of the client's items, so that neither blocks nor
// instructions separate a stored call and its result.
func (m *Messages) Continue(carried int) {
	m.Continues = true
	n := min(max(carried, 0), len(m.Items))
	for len(m.System) == 0 && n < len(m.Items) && m.Items[n].Kind == wire.ToolResult {
		n++
	}
	m.Before, m.Items = m.Items[:n:n], m.Items[n:]
}

// Without removes items from the history. Blocks inside it keep their places between the others.
func (m *Messages) Without(gone []wire.Item) {
	left := wire.NewItemSet(gone) // equal items may occur elsewhere
	m.replace(func(it wire.Item) (wire.Item, bool) { return it, !left.Has(it) })
}

// Reshape puts items of the history in the form that a shape asks for: portable (see wire.Item.Portable) and without calls,
// apart from items that are the client's own, unless the shape includes these, and pairs of which it has sent a half; and without
// the media that the model has answered, the client's own as well. A shape that includes the client's own makes the items of this
// answer's earlier rounds portable, too. It returns how many of the client's own items that changes.
func (m *Messages) Reshape(s Shape) (repaired int) {
	if s.NoCalls {
		m.leaveOutCalls()
	}
	answered, i := 0, -1
	if s.NoMedia {
		answered = m.answered()
	}
	m.replace(func(it wire.Item) (wire.Item, bool) {
		mine := m.own(it)
		if i++; i < answered {
			was := it
			if it = it.InWords(); mine && !wire.SameBytes(it.Raw, was.Raw) {
				repaired++
			}
		}
		switch {
		case !s.Portable || mine && !s.Own:
			return it, true
		case mine:
			out, ok := portableOwn(it)
			if !ok || !wire.SameBytes(out.Raw, it.Raw) {
				repaired++
			}
			return out, ok
		}
		return portable(it)
	})

	if s.Portable && s.Own {
		after := m.After
		m.After = nil
		for _, it := range after {
			if it, ok := portable(it); ok {
				m.After = append(m.After, it)
			}
		}
	}
	return repaired
}

func (m *Messages) own(it wire.Item) bool { return m.Own == nil || m.Own(it) }

// portable returns a stored item in portable form, and false if nothing remains.
func portable(it wire.Item) (wire.Item, bool) {
	if it.Kind != wire.ToolResult {
		var ok bool
		if it, ok = it.AsInput(func(wire.Audio) bool { return false }); !ok {
			return it, false
		}
	}
	return it.Portable(wire.OtherProvider)
}

// portableOwn returns an item of the client's in portable form, and false if nothing remains. It leaves alone what the client has
// said, what an item of the client refers to, and what stands for a conversation: another model could not do without them.
func portableOwn(it wire.Item) (wire.Item, bool) {
	asks := it.Kind == wire.Other && len(it.Parts) > 0 && it.Parts[0].Call.ID != ""
	if !ofModel(it) || asks {
		return it, true
	}
	it = it.WithoutAudio()
	out, ok := it.Portable(wire.OtherProvider)
	if !ok && it.Kind == wire.Message {
		return it, true
	}
	return out, ok
}

// answered returns the number of items before the last answer that the client has seen: all before the last item of the model
// that is followed by one of the client.
func (m *Messages) answered() (n int) {
	last := 0 // item of the model
	for i, it := range m.Items {
		switch {
		case ofModel(it):
			last = i
		case m.own(it):
			n = last
		}
	}
	return n
}

// leaveOutCalls removes calls and results from the history, unless they or the other half of their pair are the client's own.
func (m *Messages) leaveOutCalls() {
	stays := make(map[string]bool)
	for _, it := range m.Items {
		switch {
		case !m.own(it):
		case it.Kind == wire.ToolResult:
			stays[it.Answers().Key()] = true
		default:
			for _, c := range it.Calls() {
				stays[c.Key()] = true
			}
		}
	}

	m.replace(func(it wire.Item) (wire.Item, bool) {
		switch {
		case m.own(it):
			return it, true
		case it.Kind == wire.ToolResult:
			return it, stays[it.Answers().Key()]
		}
		return it.WithoutCalls(func(c wire.Call) bool { return !stays[c.Key()] })
	})
}

// replace replaces or removes each item of the history.
func (m *Messages) replace(with func(wire.Item) (wire.Item, bool)) {
	items, before := make([]wire.Item, 0, len(m.Items)), make([]int, 1, len(m.Items)+1)
	for _, it := range m.Items {
		if other, ok := with(it); ok {
			items = append(items, other)
		}
		before = append(before, len(items))
	}
	m.Items = items
	m.Blocks = slices.Clone(m.Blocks)
	for i := range m.Blocks {
		if b := &m.Blocks[i]; b.Inside {
			b.At = before[min(max(b.At, 0), len(before)-1)]
		}
	}
}

// Sent is a view in its sent form.
type Sent struct {
	Items []wire.Item
	// Instructions replace the member of that name; nil leaves it as it came.
	Instructions []byte
	// UserBlocks are the indices of layers' blocks in the user's role.
	UserBlocks []int
	// Repaired is the number of the client's own items that were changed.
	Repaired int
}

// In returns the view in a shape, as it is sent. NoTools is left to the caller, who knows the tools.
func (m Messages) In(s Shape) Sent {
	repaired := 0
	if s.Portable || s.NoMedia {
		repaired = m.Reshape(s)
	}
	sent := m.As(s.Form)
	sent.Repaired += repaired
	if s.Mend != 0 {
		// Some of what servers refuse is made by the conversion of items from the other API.
		was := wire.ConvertAll(sent.Items, m.Dialect)
		sent.Items = s.Mend.Apply(was)
		for i, it := range was {
			if m.own(it) && !wire.SameBytes(it.Raw, sent.Items[i].Raw) {
				sent.Repaired++
			}
		}
	}
	return sent
}

// Same reports whether a form does not change the view.
func (m *Messages) Same(f Form) bool {
	added := len(m.After) > 0 || slices.ContainsFunc(m.Blocks, func(b Block) bool { return len(b.Texts) > 0 })
	return f == AsIs || !m.Dialect.Known() || f == Joined && !added
}

// As returns the view in a form.
func (m *Messages) As(f Form) Sent {
	blocks := place(m.Dialect, m.Blocks)
	if m.Same(f) {
		items := append(blocks.around(m.System, m.Items), m.After...)
		if len(m.Before) > 0 {
			items = slices.Concat(m.Before, items)
		}
		return Sent{Items: items}
	}

	s := &shaping{m: m, form: f, blocks: blocks, convert: wire.NewConverter(m.Dialect)}
	s.add(m.Before, true)
	s.system()
	s.body()
	if f >= Alternate {
		s.alternate()
	}

	out := Sent{Items: make([]wire.Item, 0, len(s.list)), Instructions: s.instructions, Repaired: s.gone}
	for i, e := range s.list {
		out.Items = append(out.Items, e.Item)
		if e.changed {
			out.Repaired += e.own
		}
		if e.added && e.Role == wire.User {
			out.UserBlocks = append(out.UserBlocks, i)
		}
	}
	return out
}

// shaping is the state of As.
type shaping struct {
	m            *Messages
	form         Form
	blocks       placed
	convert      *wire.Converter
	list         []sentItem
	instructions []byte
	gone         int // items of the client's that became part of another place
}

// sentItem is a message of the view.
type sentItem struct {
	wire.Item
	added   bool // a layer's, an answer of this turn, or what upstream has not seen of the continued one: nothing that is repaired
	own     int  // how many of the client's items it holds
	changed bool
}

// ofHistory returns an item of the system prompt or the history.
func (s *shaping) ofHistory(it wire.Item) sentItem {
	e := sentItem{Item: it}
	if s.m.own(it) {
		e.own = 1
	}
	return e
}

// system makes the system message. After items at upstream it would not be the first message, so only instructions are possible
// there.
func (s *shaping) system() {
	m := s.m
	system := wire.ConvertAll(m.System, m.Dialect)
	blocks := joinTexts(s.blocks.anchored)

	if s.form == Joined || m.Continues && len(m.instructions()) == 0 && s.form < NoSystem {
		role := wire.System
		switch {
		case m.Continues:
			role = wire.User
		case m.Dialect.Rules().Instructions == "" && len(s.blocks.anchored) > 0:
			role = s.blocks.anchored[0].Role
		}
		for _, it := range system {
			e := s.ofHistory(it)
			if s.form > Joined {
				e = inRole(e, wire.User)
			}
			s.list = append(s.list, e)
		}
		if blocks != "" {
			s.list = append(s.list, sentItem{Item: wire.MessageOf(m.Dialect, role, []byte(blocks)), added: true})
		}
		return
	}

	if text := m.instructions(); len(text) > 0 || s.form == NoSystem {
		texts := []string{string(text)}
		for _, it := range system {
			texts = append(texts, quoted(it.Text()))
			s.gone += s.ofHistory(it).own
		}
		all := wire.JoinStrings(append(texts, blocks)...)
		switch {
		case s.form == NoSystem:
			if all != "" {
				s.list = append(s.list, sentItem{Item: wire.MessageOf(m.Dialect, wire.User, []byte(all)), added: true})
			}
			if len(text) > 0 {
				s.instructions, s.gone = []byte("null"), s.gone+1
			}
		case all != string(text):
			s.instructions, s.gone = []byte(all), s.gone+1
		}
		return
	}

	var e sentItem
	for _, it := range system {
		e.merge(s.ofHistory(it))
	}
	if blocks != "" {
		e.merge(sentItem{Item: wire.MessageOf(m.Dialect, wire.System, []byte(blocks)), added: true})
	}
	if len(e.Raw) > 0 {
		s.list = append(s.list, inRole(e, wire.System))
	}
}

// instructions returns the member as a JSON string; nil if it says nothing.
func (m *Messages) instructions() []byte {
	if len(m.Instructions) <= len(`""`) || m.Instructions[0] != '"' {
		return nil
	}
	return m.Instructions
}

// body appends the history and the other blocks to the system message.
func (s *shaping) body() {
	m := s.m
	for piece, block := range s.blocks.pieces(m.Items) {
		s.add(piece, block)
	}
	s.add(s.blocks.live, true)
	s.add(m.After, true)
}

// add appends items of the history, or added ones.
func (s *shaping) add(items []wire.Item, added bool) {
	for _, it := range s.convert.Next(items) {
		e := sentItem{Item: it, added: true}
		if !added {
			e = s.ofHistory(it)
		}
		if (it.Role == wire.System || it.Role == wire.Developer) && (added || s.form >= OneSystem) {
			e = inRole(e, wire.User)
		}
		s.list = append(s.list, e)
	}
}

// Texts for a missing message between two of the same role.
const (
	noAnswer = `"(no answer)"`
	goOn     = `"(continue)"`
)

// alternate makes user and assistant alternate, the user first, also before a call or reasoning that a window begins with. Other
// calls and results do not count. An answer directly before a message with calls becomes a part of that message, since some servers
// count it as a turn of its own, and some do not.
func (s *shaping) alternate() {
	m := s.m
	in := s.list
	s.list = make([]sentItem, 0, len(in)+1)
	turn, last := wire.RoleNone, -1      // who spoke last, and where
	turnBefore, lastBefore := turn, last // likewise before that
	add := func(e sentItem) {
		turnBefore, lastBefore = turn, last
		turn, last = e.Role, len(s.list)
		s.list = append(s.list, e)
	}
	for _, e := range in {
		if turn == wire.RoleNone && !m.Continues && ofModel(e.Item) {
			add(sentItem{Item: wire.MessageOf(m.Dialect, wire.User, []byte(goOn)), added: true})
		}
		if e.Kind == wire.Message && e.HasCalls() && turn == wire.Assistant && last == len(s.list)-1 {
			e.beginWith(s.list[last])
			s.list[last] = e
			turn, last = turnBefore, lastBefore
			continue
		}
		if e.Kind != wire.Message || e.HasCalls() || e.Role != wire.User && e.Role != wire.Assistant {
			s.list = append(s.list, e)
			continue
		}
		switch {
		case e.Role == turn && (last == len(s.list)-1 || e.added && turn == wire.User):
			s.list[last].merge(e)
			continue
		case e.Role == turn && turn == wire.User:
			add(sentItem{Item: wire.MessageOf(m.Dialect, wire.Assistant, []byte(noAnswer)), added: true})
		case e.Role == wire.Assistant && turn == wire.Assistant:
			add(sentItem{Item: wire.MessageOf(m.Dialect, wire.User, []byte(goOn)), added: true})
		}
		add(e)
	}
}

// merge appends a message's text to another one.
func (to *sentItem) merge(e sentItem) {
	if len(to.Raw) == 0 {
		*to = e
		return
	}
	to.say(wire.Member(to.Raw, "content"), saidIn(e.Item), e)
}

// beginWith puts an answer's text before what a message with calls says.
func (to *sentItem) beginWith(e sentItem) {
	to.say(saidIn(e.Item), wire.Member(to.Raw, "content"), e)
}

// say makes two contents the message's own; one of them is e's, which becomes a part of it.
func (to *sentItem) say(first, second []byte, e sentItem) {
	if content := joinContents(to.Item, first, second); content != nil {
		to.Item = withMember(to.Item, "content", content)
	}
	to.own, to.added, to.changed = to.own+e.own, to.added && e.added, true
}

// saidIn returns the content of a message that becomes part of another one, or its refusal as a text.
func saidIn(it wire.Item) []byte {
	content := wire.Member(it.Raw, "content")
	if content == nil || wire.IsNull(content) {
		return wire.Member(it.Raw, "refusal")
	}
	return content
}

// joinContents joins two contents for a message; nil if they say nothing.
func joinContents(to wire.Item, a, b []byte) []byte {
	if _, ok := wire.Inside(a); ok && to.Role == wire.Assistant && continuesAnswer(b) {
		return slices.Concat(a[:len(a)-1], b[1:])
	}
	return to.Dialect.JoinContents(to.Role, a, b)
}

// continuesAnswer reports whether an answer, as a JSON string, goes on with the one before, which the client began for the model: it begins
// with white space, as a model's answers of their own do not.
func continuesAnswer(answer []byte) bool {
	text := wire.Text(answer)
	return strings.TrimLeftFunc(text, unicode.IsSpace) != text
}

// inRole returns the message in another role.
func inRole(e sentItem, role wire.Role) sentItem {
	if e.Role != role {
		e.Item, e.changed = withMember(e.Item, "role", []byte(quoted(role.Name()))), true
	}
	return e
}

// joinTexts returns the texts of messages as one JSON string; empty for none.
func joinTexts(items []wire.Item) string {
	var texts []string
	for _, it := range items {
		texts = append(texts, quoted(it.Text()))
	}
	return wire.JoinStrings(texts...)
}

// withMember returns the item with another value of one member; all other bytes stay.
func withMember(it wire.Item, name string, value []byte) wire.Item {
	return it.Rewritten(wire.WithMember(it.Raw, name, value))
}

func quoted(text string) string { return string(wire.AppendString(nil, text)) }
