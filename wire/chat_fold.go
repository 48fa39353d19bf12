package wire

import (
	"bytes"
	"cmp"
	"slices"
)

// maxIndex bounds the indexes of choices, tool calls and output items that a stream may name.
const maxIndex = 1024

// chatFold collects the deltas of a streamed completion.
type chatFold struct {
	choices []*chatChoice // in the order of their index
	full    bool          // nothing more is collected
}

// chatChoice is one choice: the members of its message, and its calls.
type chatChoice struct {
	index   int
	members accumulator
	audio   accumulator
	calls   []*chatCall // in the order of their first delta
	legacy  *chatCall
	finish  string
}

// chatCall is a tool call; its strings are raw content, so that escapes stay as upstream spelled them.
type chatCall struct {
	index           int
	id, name, input []byte
	custom          bool
	extra           accumulator
}

// index reads an index; def where it is absent or null, -1 where it is none that is accepted.
func index(raw []byte, def int) int {
	if raw == nil || isNull(raw) {
		return def
	}
	n := 0
	for _, c := range raw {
		if c < '0' || c > '9' || n >= maxIndex {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	if n >= maxIndex {
		return -1
	}
	return n
}

// chunk takes in one chunk and tells whether it was the last one: an error alone.
func (f *chatFold) chunk(m *replyMeta, data []byte) (last bool) {
	failed, chosen := false, false
	for p := range parts(data) {
		m.note(p)
		switch string(p.name) {
		case "error":
			failed = !isNull(p.value)
		case "choices":
			for e := range parts(p.value) {
				chosen = true
				f.choice(m, e.value)
			}
		}
	}
	return failed && !chosen
}

func (f *chatFold) choice(m *replyMeta, raw []byte) {
	i := index(member(raw, "index"), 0)
	if i < 0 {
		return
	}
	at, found := slices.BinarySearchFunc(f.choices, i, func(c *chatChoice, i int) int { return cmp.Compare(c.index, i) })
	if !found {
		f.choices = slices.Insert(f.choices, at, &chatChoice{index: i})
	}
	c := f.choices[at]
	for p := range parts(raw) {
		switch string(p.name) {
		case "finish_reason":
			c.finish = orElse(text(p.value), c.finish)
		case "delta":
			if !f.full {
				c.delta(p.value)
			}
		case "error":
			m.note(p)
		}
	}
}

func (c *chatChoice) delta(raw []byte) {
	for p := range parts(raw) {
		switch string(p.name) {
		case "role":
		case "tool_calls":
			for e := range parts(p.value) {
				c.toolCall(e.value)
			}
		case "function_call":
			if c.legacy == nil && p.value[0] == '{' {
				c.legacy = new(chatCall)
			}
			if c.legacy != nil {
				c.legacy.function(p.value, "arguments")
			}
		case "audio":
			for a := range parts(p.value) {
				c.audio.add(a.name, a.value, string(a.name) == "data" || string(a.name) == "transcript")
			}
		default:
			c.members.add(p.name, p.value, true)
		}
	}
}

// toolCall takes in one delta of tool_calls.
func (c *chatChoice) toolCall(raw []byte) {
	var at, id, typ, fn, custom []byte
	for p := range parts(raw) {
		switch string(p.name) {
		case "index":
			at = p.value
		case "id":
			id, _ = inside(p.value)
		case "type":
			typ, _ = inside(p.value)
		case "function":
			fn = p.value
		case "custom":
			custom = p.value
		}
	}
	call := c.call(at, id, member(fn, "name") != nil || member(custom, "name") != nil)
	if call == nil {
		return
	}
	if len(call.id) == 0 {
		call.id = bytes.Clone(id)
	}
	call.custom = call.custom || custom != nil || string(typ) == "custom"
	call.function(fn, "arguments")
	call.function(custom, "input")
	for p := range parts(raw) {
		switch string(p.name) {
		case "index", "id", "type", "function", "custom":
		default:
			call.extra.add(p.name, p.value, false)
		}
	}
}

// call finds the call that a delta belongs to: the one of its index, unless it names another id and begins anew (some
// upstreams give each of several calls the index 0); without an index the one of its id, or else the last one.
func (c *chatChoice) call(at, id []byte, named bool) *chatCall {
	i := index(at, maxIndex)
	for k := len(c.calls) - 1; k >= 0 && i >= 0; k-- {
		call := c.calls[k]
		other := len(id) > 0 && len(call.id) > 0 && !bytes.Equal(call.id, id)
		switch {
		case i == maxIndex && !other:
			return call
		case i == call.index && other && named:
			return c.begin(i)
		case i == call.index:
			return call
		}
	}
	return c.begin(i)
}

func (c *chatChoice) begin(i int) *chatCall {
	if i < 0 || len(c.calls) >= maxIndex {
		return nil
	}
	if i == maxIndex {
		i = len(c.calls)
	}
	call := &chatCall{index: i}
	c.calls = append(c.calls, call)
	return call
}

func (c *chatCall) function(raw []byte, input string) {
	for p := range parts(raw) {
		content, _ := inside(p.value)
		switch string(p.name) {
		case "name":
			if len(c.name) == 0 { // some upstreams repeat it with each delta
				c.name = bytes.Clone(content)
			}
		case input:
			c.input = append(c.input, content...)
		}
	}
}

// accumulator collects the members of an object that comes in pieces, in the order of their first piece.
type accumulator []accumulated

type accumulated struct {
	name  string
	kind  byte // '"' for a string, '[' for an array: value is what stands inside. 0: value is the whole value.
	value []byte
}

// maxAccumulated bounds the members of one accumulator; an API's messages have about ten.
const maxAccumulated = 64

// add takes in a piece of a member: strings are put together if join is set, arrays always; of all else the last value
// counts. null adds nothing.
func (a *accumulator) add(name, value []byte, join bool) {
	if isNull(value) {
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
	kind, content := value[0], value
	switch {
	case kind == '"' && join:
		content = value[1 : len(value)-1]
	case kind == '[':
		content = bytes.TrimSpace(value[1 : len(value)-1])
	default:
		kind = 0
	}
	if kind != m.kind || kind == 0 {
		m.kind, m.value = kind, m.value[:0]
	}
	if kind == '[' && len(m.value) > 0 && len(content) > 0 {
		m.value = append(m.value, ',')
	}
	m.value = append(m.value, content...)
}

func (m accumulated) append(dst []byte) []byte {
	switch m.kind {
	case '"':
		return append(append(append(dst, '"'), m.value...), '"')
	case '[':
		return append(append(append(dst, '['), m.value...), ']')
	}
	return append(dst, m.value...)
}

// appendMembers appends the members, but for those called one of without, each with a comma before it.
func (a accumulator) appendMembers(dst []byte, without ...string) []byte {
	for _, m := range a {
		if !slices.Contains(without, m.name) {
			dst = m.append(append(appendString(append(dst, ','), m.name), ':'))
		}
	}
	return dst
}

// finished tells that every choice has its finish reason.
func (f *chatFold) finished() bool {
	return len(f.choices) > 0 && !slices.ContainsFunc(f.choices, func(c *chatChoice) bool { return c.finish == "" })
}

func (f *chatFold) finish() string {
	if len(f.choices) == 0 {
		return ""
	}
	return f.choices[0].finish
}

func (f *chatFold) build() [][]Item {
	if len(f.choices) == 0 {
		return nil
	}
	out := make([][]Item, len(f.choices))
	dec := decoder{dialect: Chat, calls: maxCalls}
	for i, c := range f.choices {
		it := dec.item(c.message())
		// A choice that was cut before it said anything is no message: upstream would refuse it in a history.
		if c.finish != "" || it.HasText || len(it.Calls) > 0 {
			out[i] = []Item{it}
		}
	}
	return out
}

// message builds what the answer would have been without streaming.
func (c *chatChoice) message() []byte {
	calls := c.wholeCalls()
	out := []byte(`{"role":"assistant","content":`)
	i := slices.IndexFunc(c.members, func(m accumulated) bool { return m.name == "content" })
	if i < 0 || len(c.members[i].value) == 0 && (len(calls) > 0 || c.legacy != nil) {
		// Beside calls some APIs refuse an empty string; without calls others refuse null.
		out = append(out, "null"...)
	} else {
		out = c.members[i].append(out)
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

// wholeCalls are the calls in the order of their index. Of a choice that was cut, calls that are not known to be whole
// are left out: nobody can run them.
func (c *chatChoice) wholeCalls() []*chatCall {
	calls := slices.Clone(c.calls)
	slices.SortStableFunc(calls, func(x, y *chatCall) int { return cmp.Compare(x.index, y.index) })
	if c.finish == "" {
		calls = slices.DeleteFunc(calls, func(call *chatCall) bool { return !call.whole() })
	}
	return calls
}

func (c *chatCall) whole() bool { return !c.custom && valid(unescaped(c.input)) }

func (c *chatCall) append(dst []byte) []byte {
	typ, input := "function", "arguments"
	if c.custom {
		typ, input = "custom", "input"
	}
	dst = append(append(append(dst, `{"id":"`...), c.id...), `","type":`...)
	dst = append(appendString(append(appendString(dst, typ), ','), typ), ':')
	dst = append(c.appendFunction(dst, input), '}')
	return append(c.extra.appendMembers(dst), '}')
}

// appendFunction leaves the closing bracket to the caller.
func (c *chatCall) appendFunction(dst []byte, input string) []byte {
	dst = append(append(append(dst, `{"name":"`...), c.name...), `",`...)
	return append(append(append(appendString(dst, input), `:"`...), c.input...), '"')
}

// wholeCompletion reads the choices of a body that was not streamed.
func wholeCompletion(m *replyMeta, body []byte) [][]Item {
	type choice struct {
		index  int
		finish string
		items  []Item
	}
	var choices []choice
	dec := decoder{dialect: Chat, calls: maxCalls}
	for p := range parts(body) {
		m.note(p)
		if string(p.name) != "choices" {
			continue
		}
		for e := range parts(p.value) {
			at, msg, finish := choiceMembers(e.value)
			c := choice{index: index(at, len(choices)), finish: text(finish)}
			if c.index < 0 || len(choices) == maxIndex {
				continue
			}
			if len(msg) > 0 && msg[0] == '{' {
				c.items = []Item{dec.item(msg)}
			}
			choices = append(choices, c)
		}
	}
	slices.SortStableFunc(choices, func(x, y choice) int { return cmp.Compare(x.index, y.index) })
	var out [][]Item
	for i, c := range choices {
		if i == 0 {
			m.finish = c.finish
		}
		out = append(out, c.items)
	}
	return out
}
