package stitch

import (
	"bytes"
	"slices"

	"remora/wire"
)

// chat stitches streams of chunks.
type chat struct {
	s *Stitcher
	// head are members of the first answer that the client has seen something of, which all chunks get.
	head   map[string][]byte
	first  int         // the number of that answer, -1 before it
	roles  map[int]int // by choice: the answer that its role was shown in
	ended  map[int]int // by choice: the answer that its finish reason was shown in
	calls  []*call     // of choice 0 in this answer, in the order of their first delta
	legacy *call
	held   []*chunk // chunks with held calls
	ending []*chunk // the finish reason of choice 0, and what comes behind it
	index  int      // of the next call that the client gets
	// dropped tells that the client does not get all calls, showed in which answer it last got one, -1 for none.
	dropped bool
	showed  int
	said    bool   // the client has some text of choice 0
	prior   []byte // usage of the answers before
}

// call is a call of choice 0.
type call struct {
	wire.Call
	fate  fate
	index int  // in this answer
	out   int  // in the client's, -1 before its first delta has gone out
	late  bool // its name came after its first delta, which is held
}

// chunk is an event and what of it is still to be sent.
type chunk struct {
	b     *block
	calls []*call // of the elements of choice 0's calls in their order, nil for those not to be sent
	// rest is everything but calls and finish reason; ends is the finish reason.
	rest, ends bool
}

func newChat(s *Stitcher) *chat {
	return &chat{
		s: s, first: -1, showed: -1,
		head: make(map[string][]byte), roles: make(map[int]int), ended: make(map[int]int),
	}
}

func (c *chat) event(b *block) {
	if isDone(b.data) {
		c.s.terminate(b)
		return
	}
	k := chunk{b: b, rest: true}
	about := c.read(&k)
	if opaque(b.data) {
		// It can't be cut to what the client may see; some would read a call in it nevertheless.
		if about.unjudged {
			c.s.unjudged = true
		} else if len(k.calls) == 0 || !c.s.o.guards() {
			c.s.pass(b)
		}
		return
	}
	switch {
	case about.failed && about.choices == 0:
		c.s.terminate(b)
		return
	case about.choices == 0 && len(c.ending) > 0:
		c.hold(&c.ending, k)
		return
	}
	if c.plain(&k, about) {
		c.remember(b.data)
		c.s.pass(b)
		return
	}
	ends := k.ends
	holds := slices.ContainsFunc(k.calls, (*call).waits)
	pending := ends && c.pending()
	if !holds && !pending {
		c.show(&k)
		return
	}
	k.ends = ends && !pending
	if about.says || about.choices > about.mine || slices.ContainsFunc(k.calls, (*call).goes) {
		now := k
		now.calls = only(k.calls, (*call).goes)
		c.show(&now)
		k.rest, k.ends = false, false
	}
	if holds {
		c.hold(&c.held, chunk{b: b, calls: only(k.calls, (*call).waits), rest: k.rest, ends: k.ends})
		k.rest = false
	}
	if pending {
		c.hold(&c.ending, chunk{b: b, calls: make([]*call, len(k.calls)), rest: k.rest, ends: true})
	}
}

func (c *chat) hold(list *[]*chunk, k chunk) {
	k.b = c.s.keep(k.b)
	*list = append(*list, &k)
}

func (k *call) waits() bool { return k != nil && (k.fate == unnamed || k.fate == held) }
func (k *call) goes() bool  { return k != nil && k.fate == passed }

// only replaces the calls that are not to be kept by nil.
func only(calls []*call, keep func(*call) bool) []*call {
	out := slices.Clone(calls)
	for i, k := range out {
		if !keep(k) {
			out[i] = nil
		}
	}
	return out
}

// pending tells that the client does not have all calls of this answer, so that it may not be the last one.
func (c *chat) pending() bool {
	return slices.ContainsFunc(c.calls, func(k *call) bool { return k.fate != passed }) ||
		c.legacy != nil && c.legacy.fate != passed
}

// plain tells that a chunk does nothing but go on with what choice 0 of the first answer says, as nearly all do: show
// would find nothing to change in it, and nothing to note but what remember does. Show takes a few KiB of stack to find
// that out, which is what a stream that waits for its next event is measured by.
func (c *chat) plain(k *chunk, about contents) bool {
	return c.said && c.first == c.s.answer && about.choices == 1 && about.mine == 1 &&
		!about.role && !about.usage && !k.ends && len(k.calls) == 0
}

// contents is what a chunk holds.
type contents struct {
	choices, mine int  // all choices, those of index 0
	failed        bool // an error
	says          bool // choice 0 says something beside its calls
	role          bool // choice 0 has a role
	usage         bool
	unjudged      bool // another has calls, and calls are judged
}

// read finds out what a chunk holds, and the calls that it is about.
func (c *chat) read(k *chunk) (about contents) {
	for p := range wire.Parts(k.b.data) {
		switch string(p.Name) {
		case "error":
			about.failed = string(p.Value) != "null"
		case "usage":
			about.usage = about.usage || p.Value[0] == '{'
		case "choices":
			for e := range wire.Parts(p.Value) {
				about.choices++
				if number, ok := index(wire.Member(e.Value, "index"), 0); ok && number == 0 {
					about.mine++
					c.readChoice(k, e.Value, &about)
				} else if delta := wire.Member(e.Value, "delta"); c.s.o.judges() {
					about.unjudged = about.unjudged || has(delta, "tool_calls") || has(delta, "function_call")
				}
			}
		}
	}
	return about
}

func (c *chat) readChoice(k *chunk, choice []byte, about *contents) {
	for p := range wire.Parts(choice) {
		switch string(p.Name) {
		case "finish_reason":
			k.ends = k.ends || wire.Text(p.Value) != ""
		case "delta":
			for m := range wire.Parts(p.Value) {
				switch string(m.Name) {
				case "role":
					about.role = true
				case "tool_calls":
					for e := range wire.Parts(m.Value) {
						k.calls = append(k.calls, c.call(e.Value))
					}
				case "function_call":
					k.calls = append(k.calls, c.legacyCall(m.Value))
				default:
					about.says = about.says || !empty(m.Value)
				}
			}
		}
	}
}

func has(raw []byte, name string) bool { return !empty(orNull(wire.Member(raw, name))) }

func empty(raw []byte) bool {
	switch string(raw) {
	case "null", `""`, "[]", "{}":
		return true
	}
	return false
}

// index reads an index, def where it is absent or null. ok is false for one that is not accepted.
func index(raw []byte, def int) (n int, ok bool) {
	if raw == nil || string(raw) == "null" {
		return def, true
	}
	for _, d := range raw {
		if d < '0' || d > '9' || n >= maxCalls {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	return n, n < maxCalls
}

// call finds the call that an element of tool_calls belongs to, by the rules of wire.Folder. It is nil where there is
// none, or too many.
func (c *chat) call(raw []byte) *call {
	fn := wire.Member(raw, "function")
	custom := wire.Member(raw, "custom")
	id := wire.Text(wire.Member(raw, "id"))
	name := wire.Text(wire.Member(fn, "name"))
	if name == "" {
		name = wire.Text(wire.Member(custom, "name"))
	}
	begins := wire.Member(fn, "name") != nil || wire.Member(custom, "name") != nil
	k := c.find(wire.Member(raw, "index"), id, begins)
	if k == nil {
		return nil
	}
	if k.ID == "" {
		k.ID = id
	}
	if k.Name == "" {
		k.Name = name
	}
	c.decide(k)
	return k
}

func (c *chat) find(at []byte, id string, begins bool) *call {
	number, ok := index(at, maxCalls)
	for _, k := range slices.Backward(c.calls) {
		other := id != "" && k.ID != "" && k.ID != id
		switch {
		case !ok:
			return nil
		case number == maxCalls && !other:
			return k
		case number != k.index:
		case other && begins:
			return c.begin(number)
		default:
			return k
		}
	}
	if !ok {
		return nil
	}
	return c.begin(number)
}

func (c *chat) begin(number int) *call {
	if len(c.calls) >= maxCalls {
		return nil
	}
	if number == maxCalls {
		number = len(c.calls)
	}
	k := &call{Call: wire.Call{Family: "function"}, index: number, out: -1}
	c.calls = append(c.calls, k)
	return k
}

func (c *chat) legacyCall(raw []byte) *call {
	if c.legacy == nil {
		if len(raw) == 0 || raw[0] != '{' {
			return nil
		}
		c.legacy = &call{Call: wire.Call{Family: wire.FamilyLegacy}, out: -1}
	}
	if c.legacy.Name == "" {
		c.legacy.Name = wire.Text(wire.Member(raw, "name"))
	}
	c.decide(c.legacy)
	return c.legacy
}

// decide gives a call its fate once its name is known.
func (c *chat) decide(k *call) {
	if k.fate != unnamed {
		return
	}
	if k.Name == "" && c.s.o.guards() {
		k.late = true
		return
	}
	k.fate = c.s.fate(k.Call)
	c.dropped = c.dropped || k.fate == hidden
	if k.late {
		c.flush()
	}
}

func (c *chat) release() {
	for _, k := range append(slices.Clone(c.calls), c.legacy) {
		if k.waits() {
			k.fate = c.s.fate(k.Call)
			c.dropped = c.dropped || k.fate == hidden
		}
	}
	c.flush()
}

// flush sends what was held of the calls that pass by now.
func (c *chat) flush() {
	chunks := c.held
	c.held = nil
	for _, k := range chunks {
		now := *k
		now.calls = only(k.calls, (*call).goes)
		if slices.ContainsFunc(now.calls, (*call).goes) {
			c.show(&now)
			k.rest, k.ends = false, false
		}
		if k.calls = only(k.calls, (*call).waits); slices.ContainsFunc(k.calls, (*call).waits) {
			c.held = append(c.held, k)
		}
	}
}

func (c *chat) end() {
	c.dropped = c.dropped || len(c.held) > 0
	for _, k := range c.ending {
		c.show(k)
	}
	for i, b := range c.s.terminal {
		if i == 0 && !isDone(b.data) { // an error
			c.show(&chunk{b: b, rest: true, ends: true})
			continue
		}
		c.s.pass(b)
	}
	c.held, c.ending = nil, nil
}

func (c *chat) next() {
	c.prior = bytes.Clone(addUsage(c.prior, c.s.Reply().Usage))
	c.calls, c.legacy, c.held, c.ending = nil, nil, nil, nil
}
