package chat

import (
	"bytes"
	"cmp"
	"slices"

	"remora/wire"
	"remora/wire/merge"
	"remora/wire/sse"
)

// answers reads answers.
type answers struct{}

func (answers) Stream() wire.Stream { return new(fold) }

// fold collects the deltas of a streamed completion.
type fold struct {
	choices []*choice // in the order of their index
	full    bool      // nothing more is collected
	effect  effect    // of the current chunk
}

// choice is one choice: the members of its message, and its calls.
type choice struct {
	index   int
	members accumulator
	audio   accumulator
	calls   []*streamedCall // in the order of their first delta
	legacy  *streamedCall
	finish  string
	spelled bool // there was a member content, if only null
	whole   bool // it comes in messages, not in deltas
}

// streamedCall is a tool call; its strings are raw content, so that escapes stay as upstream spelled them.
type streamedCall struct {
	index           int
	id, name, input []byte
	first, last     []byte // pieces of a name that came in several, nil of one that did not
	// What its pieces say that it is: a function's, a custom tool's, the function_call of a message.
	function, custom, legacy bool
	extra                    accumulator
}

// odd reports whether some clients run the call as one of another kind.
func (c *streamedCall) odd() bool { return c != nil && c.function && c.custom }

// Call returns the call by what has come of it.
func (c *streamedCall) Call() wire.Call {
	if c.legacy {
		return wire.Call{Family: wire.FamilyLegacy, Name: string(wire.Unescaped(c.name))}
	}
	return wire.Call{Family: wire.FamilyFunction, ID: string(wire.Unescaped(c.id)), Name: string(wire.Unescaped(c.name))}
}

// effect is a chunk's effect on the answer.
type effect struct {
	// Choices is how many choices the chunk holds, First how many of them are the first one.
	Choices, First int
	// Of the first choice: it has a role, it says something beside its calls, it ends; its message counts as a delta; it has
	// another message or delta, which was not read.
	Role, Says, Ends, Whole, Repeats bool
	// Failed: there is an error. Usage: there is a usage object.
	Failed, Usage bool
	// Touched are the calls of the first choice that the chunk brings pieces of, one for each piece; nil for a piece of none.
	Touched []*streamedCall
}

// Keep returns a copy of the effect, which shares no memory with its event.
func (e *effect) Keep(*sse.Block) wire.Effect {
	kept := *e
	kept.Touched = slices.Clone(e.Touched)
	return &kept
}

// Begun: an event is terminal as soon as its data are [DONE].
func (f *fold) Begun(_, data []byte) (begun, ended bool) {
	done := sse.IsDone(data)
	return done, done
}

func (f *fold) Lost([]byte) bool { return false }

func (f *fold) Stop() { f.full = true }

// Event takes in one chunk. An error alone is the last one.
func (f *fold) Event(m *wire.Meta, b *sse.Block) (did wire.Effect, last bool) {
	e := &f.effect
	*e = effect{Touched: e.Touched[:0]}
	for p := range wire.Children(b.Data) {
		m.Note(p.Name, p.Value)
		switch string(p.Name) {
		case "error":
			e.Failed = !wire.IsNull(p.Value)
		case "usage":
			e.Usage = e.Usage || p.Value[0] == '{'
		case "choices":
			s := wire.NewScanner(p.Value)
			for range s.Each() {
				e.Choices++
				f.choice(m, readChoice(&s))
			}
		}
	}
	return e, e.Failed && e.Choices == 0
}

func (f *fold) Reply(r *wire.Reply, line []byte) {
	// Some upstreams leave [DONE] out, or its line end.
	r.Complete = r.Complete || f.finished() || string(bytes.TrimSpace(line)) == "data: [DONE]"
	r.Choices, r.OtherNames = f.build(), f.otherNames()
	if r.Finish == "" {
		r.Finish = f.finish()
	}
}

func (f *fold) choice(m *wire.Meta, raw choiceMembers) {
	i := wire.IndexOr(raw.index, 0)
	if i == 0 {
		f.effect.First++
		f.effect.Repeats = f.effect.Repeats || raw.twice
	}
	if i < 0 {
		return
	}
	at, found := slices.BinarySearchFunc(f.choices, i, func(c *choice, i int) int { return cmp.Compare(c.index, i) })
	if !found {
		f.choices = slices.Insert(f.choices, at, &choice{index: i})
	}
	c := f.choices[at]
	if reason := wire.Text(raw.finish); reason != "" {
		c.finish = reason
		f.effect.Ends = f.effect.Ends || i == 0
	}
	if raw.failure != nil {
		m.Note([]byte("error"), raw.failure)
	}
	f.delta(c, raw.delta)
	switch {
	case nothing(raw.message):
	case nothing(raw.delta) && c.takes(raw.message):
		f.effect.Whole = f.effect.Whole || i == 0
		f.delta(c, raw.message)
	default:
		f.effect.Repeats = f.effect.Repeats || i == 0
	}
}

// choiceMembers are the raw members of a choice, nil for one that it lacks.
type choiceMembers struct {
	index, delta, message, finish, failure []byte
	twice                                  bool // there are several deltas or messages
}

// readChoice reads a choice. Of members of one name the last one counts.
func readChoice(s *wire.Scanner) (c choiceMembers) {
	for name := range s.Each() {
		switch string(name) {
		case "index":
			c.index = s.Raw()
		case "delta":
			c.twice = c.twice || c.delta != nil
			c.delta = s.Raw()
		case "message":
			c.twice = c.twice || c.message != nil
			c.message = s.Raw()
		case "finish_reason":
			c.finish = s.Raw()
		case "error":
			c.failure = s.Raw()
		}
	}
	return c
}

// takes reports whether a message counts as a delta, as from gateways that stream a whole answer at once. Some servers repeat
// what the deltas have said in a message, and some what their earlier messages have.
func (c *choice) takes(message []byte) bool {
	says := func(m accumulated) bool { return len(m.value)+len(m.list) > 0 }
	if !c.whole && (slices.ContainsFunc(c.members, says) || len(c.calls) > 0 || c.legacy != nil) {
		return false
	}
	c.whole = true
	for _, m := range c.members {
		if said, ok := wire.Inside(wire.Member(message, m.name)); ok && m.name == "content" && bytes.HasPrefix(said, m.value) {
			c.members = nil
		}
	}
	return true
}

func (f *fold) delta(c *choice, raw []byte) {
	e := &f.effect
	if c.index != 0 {
		e = new(effect) // what it does to another choice is not asked for
	}
	for p := range wire.Children(raw) {
		switch string(p.Name) {
		case "role":
			e.Role = true
		case "tool_calls":
			for d := range wire.Children(p.Value) {
				e.Touched = append(e.Touched, c.toolCall(d.Value, f.full))
			}
		case "function_call":
			if c.legacy == nil && p.Value[0] == '{' {
				c.legacy = &streamedCall{legacy: true}
			}
			if c.legacy != nil {
				c.legacy.piece(p.Value, "arguments", f.full)
			}
			e.Touched = append(e.Touched, c.legacy)
		case "audio":
			e.Says = e.Says || !nothing(p.Value)
			for a := range wire.Children(p.Value) {
				if !f.full {
					c.audio.add(a.Name, a.Value, string(a.Name) == "data" || string(a.Name) == "transcript")
				}
			}
		default:
			if e.Says = e.Says || !nothing(p.Value); f.full {
				continue
			}
			c.spelled = c.spelled || string(p.Name) == "content"
			c.members.add(p.Name, p.Value, true)
		}
	}
}

// toolCall takes in one delta of tool_calls and returns the call that it is of, nil for none. Of its input nothing is kept if
// the answer is full.
func (c *choice) toolCall(raw []byte, full bool) *streamedCall {
	var at, id, fn, custom []byte
	for p := range wire.Children(raw) {
		switch string(p.Name) {
		case "index":
			at = p.Value
		case "id":
			id, _ = wire.Inside(p.Value)
		case "function":
			fn = p.Value
		case "custom":
			custom = p.Value
		}
	}
	call := c.call(at, id, wire.Member(fn, "name") != nil || wire.Member(custom, "name") != nil)
	if call == nil {
		return nil
	}
	if len(call.id) == 0 {
		call.id = bytes.Clone(id)
	}
	call.function = call.function || !nothing(fn)
	call.custom = call.custom || !nothing(custom)
	call.piece(fn, "arguments", full)
	call.piece(custom, "input", full)
	if full {
		return call
	}
	for p := range wire.Children(raw) {
		switch string(p.Name) {
		case "index", "id", "type", "function", "custom":
		default:
			call.extra.add(p.Name, p.Value, false)
		}
	}
	return call
}

// call finds the call that a delta belongs to: the one of its index, unless it names another id and begins anew (some
// upstreams give each of several calls the index 0); without an index the one of its id, or else the last one.
func (c *choice) call(at, id []byte, named bool) *streamedCall {
	i := wire.IndexOr(at, wire.MaxIndex)
	for _, call := range slices.Backward(c.calls) {
		other := len(id) > 0 && len(call.id) > 0 && !bytes.Equal(call.id, id)
		switch {
		case i == wire.MaxIndex && !other:
			return call
		case i == call.index && other && named:
			return c.begin(i)
		case i == call.index:
			return call
		}
	}
	return c.begin(i)
}

func (c *choice) begin(i int) *streamedCall {
	if i < 0 || len(c.calls) >= wire.MaxIndex {
		return nil
	}
	if i == wire.MaxIndex {
		i = len(c.calls)
	}
	call := &streamedCall{index: i}
	c.calls = append(c.calls, call)
	return call
}

// piece takes in a piece of the name and the input, which is in the member called so.
func (c *streamedCall) piece(raw []byte, input string, full bool) {
	for p := range wire.Children(raw) {
		switch string(p.Name) {
		case "name":
			content, _ := wire.Inside(p.Value)
			c.namePiece(content)
		case input:
			if !full {
				content, _ := wire.Inside(wire.StringArguments(p.Value))
				c.input = append(c.input, content...)
			}
		}
	}
}

// namePiece takes in a name, or a piece of one. Some upstreams repeat the name with each delta.
func (c *streamedCall) namePiece(content []byte) {
	switch {
	case len(content) == 0 || bytes.Equal(content, c.name):
	case len(c.name) == 0:
		c.name = bytes.Clone(content)
	default:
		if c.first == nil {
			c.first = c.name
		}
		c.last = bytes.Clone(content)
		c.name = append(bytes.Clone(c.name), content...)
	}
}

// otherNames returns the names that clients read which take the first or the last piece of a name, by the number of the call
// in choice 0.
func (f *fold) otherNames() map[int][]string {
	if len(f.choices) == 0 || f.choices[0].index != 0 {
		return nil
	}
	c := f.choices[0]
	var names map[int][]string
	calls := c.wholeCalls()
	if c.legacy != nil {
		calls = append(calls, c.legacy)
	}
	for i, call := range calls {
		if call.first != nil {
			if names == nil {
				names = make(map[int][]string)
			}
			names[i] = []string{string(wire.Unescaped(call.first)), string(wire.Unescaped(call.last))}
		}
	}
	return names
}

// accumulator collects the members of an object that comes in pieces, in the order of their first piece.
type accumulator []accumulated

type accumulated struct {
	name  string
	kind  byte // '"' for a string, of which value is the inside; '[' for a list; 0: value is the whole value
	value []byte
	list  []element
}

// element is an element of a list: its raw bytes, or the members of an object that came in several pieces.
type element struct {
	raw     []byte
	members accumulator
}

// maxAccumulated bounds the members of one accumulator; an API's messages have about ten.
const maxAccumulated = 64

// add takes in a piece of a member: strings are put together if join is set, lists always; of all else the last value counts.
// null adds nothing. A string that goes on as a list, or the reverse, is a list with its text.
func (a *accumulator) add(name, value []byte, join bool) {
	if wire.IsNull(value) {
		return
	}
	i := slices.IndexFunc(*a, func(m accumulated) bool { return m.name == string(name) })
	if i < 0 {
		if len(*a) == maxAccumulated {
			return
		}
		i = len(*a)
		*a = append(*a, accumulated{name: string(name)})
	}
	m := &(*a)[i]
	switch kind := value[0]; {
	case kind == '"' && join && m.kind == '[':
		m.addText(value)
	case kind == '"' && join:
		if m.kind == 0 {
			m.value = nil
		}
		m.kind, m.value = kind, append(m.value, value[1:len(value)-1]...)
	case kind == '[':
		if m.kind == '"' {
			m.addText(m.append(nil))
		}
		m.kind, m.value = kind, nil
		for e := range wire.Children(value) {
			m.addElement(e.Value)
		}
	default:
		m.kind, m.value, m.list = 0, append(m.value[:0], value...), nil
	}
}

// addText takes in a string where there is a list.
func (m *accumulated) addText(text []byte) {
	if len(text) > len(`""`) {
		m.addElement(append(append([]byte(`{"type":"text","text":`), text...), '}'))
	}
}

// addElement takes in an element of a list, which may be a piece of the last one.
func (m *accumulated) addElement(raw []byte) {
	n := len(m.list) - 1
	if n < 0 || !m.list[n].goesOn(raw) {
		m.list = append(m.list, element{raw: bytes.Clone(raw)})
		return
	}
	last := &m.list[n]
	if last.members == nil {
		last.take(last.raw)
	}
	last.take(raw)
}

func (e *element) take(raw []byte) {
	for p := range wire.Children(raw) {
		e.members.add(p.Name, p.Value, slices.Contains([]string{"text", "thinking", "summary"}, string(p.Name)))
	}
}

// goesOn reports whether an element is a further piece of text or of a thought. Clients have to send thoughts back whole: their
// signature, which ends them, is of all the text.
func (e *element) goesOn(raw []byte) bool {
	of := func(name string) []byte {
		for _, m := range e.members {
			if m.name == name {
				return m.append(nil)
			}
		}
		return wire.Member(e.raw, name)
	}
	typ := wire.Text(wire.Member(raw, "type"))
	if typ != wire.Text(of("type")) || !bytes.Equal(of("index"), wire.Member(raw, "index")) {
		return false
	}
	switch typ {
	case "text", "thinking", "reasoning", "reasoning.text", "reasoning.summary":
		return wire.Text(of("signature")) == ""
	default:
		return false
	}
}

func (e *element) append(dst []byte) []byte {
	if e.members == nil {
		return append(dst, e.raw...)
	}
	members := e.members.appendMembers(nil)
	return append(append(append(dst, '{'), members[1:]...), '}')
}

// text returns the string that a list is if it has nothing but text.
func (m *accumulated) text() (text []byte, ok bool) {
	if m.kind != '[' || len(m.list) != 1 {
		return nil, false
	}
	whole := m.list[0].append(nil)
	text = wire.Member(whole, "text")
	return text, wire.Text(wire.Member(whole, "type")) == "text" && len(text) > 0 && text[0] == '"'
}

func (m *accumulated) append(dst []byte) []byte {
	switch m.kind {
	case '"':
		return append(append(append(dst, '"'), m.value...), '"')
	case '[':
		dst = append(dst, '[')
		for i := range m.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.list[i].append(dst)
		}
		return append(dst, ']')
	}
	return append(dst, m.value...)
}

// appendMembers appends the members, but for those called one of without, each with a comma before it.
func (a accumulator) appendMembers(dst []byte, without ...string) []byte {
	for i := range a {
		if m := &a[i]; !slices.Contains(without, m.name) {
			dst = m.append(append(wire.AppendString(append(dst, ','), m.name), ':'))
		}
	}
	return dst
}

// finishError is the finish reason with which OpenRouter ends a choice that failed.
const finishError = "error"

// finished reports whether every choice has its finish reason.
func (f *fold) finished() bool {
	return len(f.choices) > 0 && !slices.ContainsFunc(f.choices, func(c *choice) bool { return c.finish == "" })
}

func (f *fold) finish() string {
	if len(f.choices) == 0 {
		return ""
	}
	return f.choices[0].finish
}

func (f *fold) build() [][]wire.Item {
	if len(f.choices) == 0 {
		return nil
	}
	out := make([][]wire.Item, len(f.choices))
	dec := wire.NewDecoder(Dialect)
	for i, c := range f.choices {
		it := dec.Item(c.message())
		// A choice that was cut or failed before it said anything is no message: upstream would refuse it in a history.
		if c.finish != "" && c.finish != finishError || it.HasContent() || it.HasCalls() {
			out[i] = []wire.Item{it}
		}
	}
	return out
}

// message builds what the answer would have been without streaming.
func (c *choice) message() []byte {
	calls := c.wholeCalls()
	out := []byte(`{"role":"assistant"`)
	i := slices.IndexFunc(c.members, func(m accumulated) bool { return m.name == "content" })
	called := len(calls) > 0 || c.legacy != nil
	switch {
	case i >= 0 && (len(c.members[i].value)+len(c.members[i].list) > 0 || !called):
		out = append(out, `,"content":`...)
		if text, ok := c.members[i].text(); ok {
			out = append(out, text...)
		} else {
			out = c.members[i].append(out)
		}
	case c.spelled || !called:
		// Beside calls some APIs refuse an empty string; without calls others refuse null.
		out = append(out, `,"content":null`...)
	default: // an API that leaves it out beside calls refuses null there
	}
	out = c.members.appendMembers(out, "content")
	if len(c.audio) > 0 {
		audio := c.audio.appendMembers(nil)
		out = append(append(append(out, `,"audio":{`...), audio[1:]...), '}')
	}
	for i, call := range calls {
		if i == 0 {
			out = append(out, `,"tool_calls":[`...)
		} else {
			out = append(out, ',')
		}
		out = call.append(out)
	}
	if len(calls) > 0 {
		out = append(out, ']')
	}
	if c.legacy != nil && (c.finish != "" || c.legacy.whole()) {
		out = append(c.legacy.appendFunction(append(out, `,"function_call":`...), "arguments"), '}')
	}
	return append(out, '}')
}

// wholeCalls returns the calls in the order of their index. Of a choice that was cut, calls that are not known to be whole
// are left out, since they cannot be run.
func (c *choice) wholeCalls() []*streamedCall {
	calls := slices.Clone(c.calls)
	slices.SortStableFunc(calls, func(x, y *streamedCall) int { return cmp.Compare(x.index, y.index) })
	if c.finish == "" {
		calls = slices.DeleteFunc(calls, func(call *streamedCall) bool { return !call.whole() })
	}
	return calls
}

func (c *streamedCall) whole() bool { return !c.custom && wire.Valid(wire.Unescaped(c.input)) }

func (c *streamedCall) append(dst []byte) []byte {
	typ, input := "function", "arguments"
	if c.custom {
		typ, input = "custom", "input"
	}
	dst = append(append(append(dst, `{"id":"`...), c.id...), `","type":`...)
	dst = append(wire.AppendString(append(wire.AppendString(dst, typ), ','), typ), ':')
	dst = append(c.appendFunction(dst, input), '}')
	return append(c.extra.appendMembers(dst), '}')
}

// appendFunction leaves the closing bracket to the caller.
func (c *streamedCall) appendFunction(dst []byte, input string) []byte {
	dst = append(append(append(dst, `{"name":"`...), c.name...), `",`...)
	return append(append(append(wire.AppendString(dst, input), `:"`...), c.input...), '"')
}

// answerItem reads the message of an answer, with the role that it goes back with: some servers leave it out, or have a name of
// their own for it, and refuse such a message in a request.
func answerItem(d *wire.Decoder, message []byte) wire.Item {
	if it := d.Item(message); it.Role == wire.Assistant {
		return it
	}
	return d.Item(wire.WithMember(message, "role", []byte(`"assistant"`)))
}

// Whole reads the choices of a body that was not streamed.
func (answers) Whole(m *wire.Meta, s *wire.Scanner) (items [][]wire.Item, complete bool) {
	var choices []wholeChoice
	for name := range s.Each() {
		if string(name) == "choices" {
			choices = readChoices(choices, s)
		} else {
			m.Note(name, s.Raw())
		}
	}
	slices.SortStableFunc(choices, func(x, y wholeChoice) int { return cmp.Compare(x.index, y.index) })
	for i, c := range choices {
		if i == 0 {
			m.Finish = c.finish
		}
		items = append(items, c.items)
	}
	return items, true
}

// wholeChoice is a choice of a body that was not streamed.
type wholeChoice struct {
	index  int
	finish string
	items  []wire.Item
}

// readChoices appends the elements of a list of choices. One without an index has that of its position.
func readChoices(choices []wholeChoice, s *wire.Scanner) []wholeChoice {
	dec := wire.NewDecoder(Dialect)
	position := 0
	for range s.Each() {
		raw := readChoice(s)
		c := wholeChoice{index: wire.IndexOr(raw.index, position), finish: wire.Text(raw.finish)}
		if position++; c.index < 0 || len(choices) == wire.MaxIndex {
			continue
		}
		if len(raw.message) > 0 && raw.message[0] == '{' {
			c.items = []wire.Item{answerItem(dec, raw.message)}
		}
		choices = append(choices, c)
	}
	return choices
}

// nothing reports whether a value says nothing.
func nothing(raw []byte) bool { return len(raw) == 0 || merge.Empty(raw) }
