package wire

import (
	"bytes"
	"iter"
	"slices"
	"strings"
	"sync"
)

// Bounds on what a caller controls. They keep the index of a hostile body a small multiple of the body's size; what
// exceeds them is not parsed and so forwarded as it is. How many items and calls a body may have follows from its size:
// no conversation has items as short as these bounds allow.
const (
	maxMembers  = 4096    // members of a body
	maxElements = 1 << 15 // elements of messages, input or output; more if all of them have elementBytes on average
	maxCalls    = 1 << 15 // tool calls of all items of a body together; more if there are callBytes of the body for each

	elementBytes = 24
	callBytes    = 64
)

// Request is a parsed request body: its items, and the spans of its members over the original bytes.
type Request struct {
	Dialect Dialect
	// Body is the parsed body; it must not be modified while the Request or one of its items is in use.
	Body []byte
	// Deployment is the model that the request's path names, empty where it names none.
	Deployment string

	model    string // what the body says
	members  []memberSpan
	list     span // the value of messages or input; empty where it is absent
	elements []element
	once     sync.Once
	items    []Item
}

// span is a range of Body; end is exclusive.
type span struct{ start, end int }

// from returns the span in what begins at a place of it.
func (s span) from(at int) span { return span{s.start - at, s.end - at} }

// memberSpan is a member of the body's top level.
type memberSpan struct {
	name  []byte // unescaped
	value span
}

// element is an element of the list of items. Its longest string is noted, since nearly all of a conversation is text,
// which so need not be read a second time.
type element struct {
	span
	longest span
}

// Parse splits a request body in one pass. The items' list is "messages" in Chat, where it has to be there, and "input"
// in Responses, where it may be absent, null, a string or an array. Errors are of type *ParseError.
//
// The Request and its items alias body.
func Parse(d Dialect, body []byte) (*Request, error) {
	p := parser{Request: &Request{Dialect: d, Body: body}, Scanner: Scanner{b: body}}
	if !p.body() {
		return nil, p.err()
	}
	p.model = p.Text("model")
	return p.Request, nil
}

type parser struct {
	*Request
	Scanner
	found bool
}

func (p *parser) body() bool {
	p.space()
	if p.Peek() != '{' {
		return p.fail("not an object")
	}
	p.members = make([]memberSpan, 0, 8)
	more, ok := p.begin()
	for more && ok {
		if !p.member() {
			return false
		}
		more, ok = p.next()
	}
	if !ok {
		return false
	}
	p.space()
	if p.i != len(p.b) {
		return p.fail("data behind the object")
	}
	if !p.found && !p.Dialect.Rules().ListOptional {
		p.i = 0
		return p.fail("no " + p.Dialect.Rules().List)
	}
	return true
}

func (p *parser) member() bool {
	if len(p.members) == maxMembers {
		return p.fail("too many members")
	}
	m := memberSpan{name: Unescaped(p.b[p.keyStart:p.keyEnd])}
	name := p.Dialect.Rules().List
	isList := name != "" && string(m.name) == name
	if isList && p.found {
		p.i = p.keyStart
		return p.fail("more than one list of items")
	}
	p.space()
	m.value.start = p.i
	if isList {
		p.found = true
		if !p.itemList() {
			return false
		}
	} else if !p.value() {
		return false
	}
	m.value.end = p.i
	p.members = append(p.members, m)
	if isList {
		p.list = m.value
	}
	return true
}

func (p *parser) itemList() bool {
	c := p.Peek()
	if p.Dialect.Rules().ListOptional && (c == '"' || c == 'n') {
		return p.value()
	}
	if c != '[' {
		return p.fail("the items are no list")
	}
	most := max(maxElements, len(p.b)/elementBytes)
	p.elements = make([]element, 0, min(max(len(p.b)/512, 8), 1024))
	more, ok := p.begin()
	for more && ok {
		if len(p.elements) == most {
			return p.fail("too many items for their size")
		}
		p.space()
		start := p.i
		p.longest = span{}
		if !p.value() {
			return false
		}
		p.elements = append(p.elements, element{span{start, p.i}, p.longest})
		more, ok = p.next()
	}
	return ok
}

// Len returns the number of elements of messages or input, without reading them.
func (r *Request) Len() int { return len(r.elements) }

// Items returns the elements of messages or input in their order; a string input is one user message, whose Raw is
// built. The slice is the same on every call and must not be modified.
func (r *Request) Items() []Item {
	r.once.Do(r.decode)
	return r.items
}

func (r *Request) decode() {
	d := newDecoder(r.Dialect, max(maxCalls, len(r.Body)/callBytes))
	if v := r.of(r.list); len(v) > 0 && v[0] == '"' {
		raw := append(append([]byte(`{"role":"user","content":`), v...), '}')
		r.items = []Item{d.Item(raw)}
		return
	}
	if len(r.elements) == 0 {
		return
	}
	r.items = make([]Item, len(r.elements))
	for i, e := range r.elements {
		d.known = e.longest.from(e.start)
		r.items[i] = d.Item(r.of(e.span))
	}
}

func (r *Request) of(s span) []byte { return r.Body[s.start:s.end:s.end] }

// Member returns the raw value of a member of the body ("model") or of an object in it ("metadata.session_id"), nil
// where it is absent, and for "", by which Rules name what a dialect does not have. The last one of duplicates counts.
func (r *Request) Member(path string) []byte {
	if path == "" {
		return nil
	}
	name, nested, deep := strings.Cut(path, ".")
	i := r.memberIndex(name)
	if i < 0 {
		return nil
	}
	m := r.members[i]
	if deep {
		if r.Body[m.value.start] != '{' {
			return nil
		}
		return Member(r.of(m.value), nested)
	}
	return r.of(m.value)
}

// WithMember returns the body with one more member after the others, or Body itself if it has one of that name, be it
// null. All other bytes stay. The value is JSON.
func (r *Request) WithMember(name string, value []byte) ([]byte, error) {
	if r.memberIndex(name) >= 0 {
		return r.Body, nil
	}
	at, err := r.appendPoint()
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(r.Body)+len(name)+len(value)+len(`,"":`))
	out = append(out, r.Body[:at.start]...)
	if len(r.members) > 0 {
		out = append(out, ',')
	}
	out = append(AppendString(out, name), ':')
	out = append(out, value...)
	return append(out, r.Body[at.end:]...), nil
}

// memberIndex returns the index of the last member of a name, -1 for none.
func (r *Request) memberIndex(name string) int {
	for i := len(r.members) - 1; i >= 0; i-- { //nolint:modernize // slices.Backward takes twice as long, a dozen times in each request
		if string(r.members[i].name) == name {
			return i
		}
	}
	return -1
}

// Previous returns the id of the answer that the request continues, "" for none.
func (r *Request) Previous() string { return r.Text(r.Dialect.Rules().Previous) }

// InConversation reports whether upstream adds the items of the request to a conversation that it keeps.
func (r *Request) InConversation() bool { return r.sets(r.Dialect.Rules().Conversation) }

// Continues reports whether upstream itself holds what comes before the request's items. A template without items asks by itself:
// nothing of a conversation can stand before its question.
func (r *Request) Continues() bool {
	return r.sets(r.Dialect.Rules().Previous) || r.InConversation() || r.Templated() && len(r.Items()) == 0
}

// Templated reports whether upstream puts a template before the items, which may have calls.
func (r *Request) Templated() bool { return r.sets(r.Dialect.Rules().Template) }

// sets reports whether a member has a value other than null and the empty string.
func (r *Request) sets(name string) bool {
	switch string(r.Member(name)) {
	case "", "null", `""`:
		return false
	}
	return true
}

// KeptByID reports whether upstream lets a client ask for the answer to the request by its id.
func (r *Request) KeptByID() bool {
	if r.Dialect.Rules().Kept {
		return string(r.Member("store")) != "false"
	}
	return string(r.Member("store")) == "true"
}

// InBackground reports whether the request asks for an answer that comes later.
func (r *Request) InBackground() bool {
	switch string(r.Member(r.Dialect.Rules().Background)) {
	case "", "null", "false":
		return false
	}
	return true
}

// Format returns the type of the output format that the request asks for, "" where it names none.
func (r *Request) Format() string { return Text(Member(r.Member(r.Dialect.Rules().Format), "type")) }

// Tools returns the names of the tools that the client offers, in order: functions, custom tools and namespaces by
// name, hosted tools by type. Legacy functions count. Tools without either are left out, and so are all after 4096
// names.
func (r *Request) Tools() []string {
	var names []string
	for name := range r.toolNames() {
		if len(names) == maxMembers {
			break
		}
		names = append(names, name)
	}
	return names
}

// OffersTools reports whether the client offers tools. It reads no more of them than the first.
func (r *Request) OffersTools() bool {
	for range r.toolNames() {
		return true
	}
	return false
}

// toolNames iterates what Tools returns, without its limit.
func (r *Request) toolNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range [...]string{"tools", "functions"} {
			for p := range Children(r.Member(list)) {
				if name := toolName(p.Value); name != "" && p.Name == nil && !yield(name) {
					return
				}
			}
		}
	}
}

// OffersFunctions reports whether the client offers tools in the old form, as functions. Upstream accepts no others beside them.
func (r *Request) OffersFunctions() bool {
	for range Children(r.Member("functions")) {
		return true
	}
	return false
}

func toolName(raw []byte) string {
	for _, nested := range [...][]byte{raw, Member(raw, "function"), Member(raw, "custom")} {
		if name := Text(Member(nested, "name")); name != "" {
			return name
		}
	}
	return Text(Member(raw, "type"))
}

// Text returns the text of a string member, or a number as it is spelled; "" for everything else. See Member for path.
func (r *Request) Text(path string) string {
	v := r.Member(path)
	switch {
	case len(v) == 0:
		return ""
	case v[0] == '"':
		return Text(v)
	case v[0] == '-', v[0] >= '0' && v[0] <= '9':
		return string(v)
	}
	return ""
}

// Model returns the model of the request's body, or else of its path.
func (r *Request) Model() string {
	if r.model != "" {
		return r.model
	}
	return r.Deployment
}

// Instructions returns the raw instructions that stand beside the items, nil where they are absent or null.
func (r *Request) Instructions() []byte {
	if v := r.Member(r.Dialect.Rules().Instructions); !IsNull(v) {
		return v
	}
	return nil
}

// IsNull reports whether a value is null.
func IsNull(raw []byte) bool { return bytes.Equal(raw, []byte("null")) }

// Names looks for members by their names in bodies that were not parsed.
type Names struct {
	names   []string
	lengths uint64 // bit n is set for a name of n bytes, the last bit for all longer ones
	longest int    // that a name can be spelled, in bytes
	odd     bool   // a name is one that is not looked for
}

// NewNames makes a Names of member names.
func NewNames(names ...string) *Names {
	n := &Names{names: names}
	for _, name := range names {
		n.lengths |= 1 << min(len(name), 63)
		n.longest = max(n.longest, len(`\u0000`)*len(name))
		n.odd = n.odd || strings.ContainsAny(name, `"\`)
	}
	return n
}

// In reports whether one of the names may be the name of a member of body, at any depth and with any escapes. False is
// certain for every body that Parse accepts. True is not: only the text before each colon is read. It costs a fraction
// of Parse, since colons are rarer than quotes and are not escaped. If a name itself has a quote or a backslash, it is
// true for every body.
func (n *Names) In(body []byte) bool {
	for from := 0; !n.odd; {
		k := bytes.IndexByte(body[from:], ':')
		if k < 0 {
			return false
		}
		end := from + k // becomes the place of the quote after a name
		from = end + 1
		for end--; end > 0 && isSpace(body[end]); end-- {
		}
		// A backslash before the quote makes it a part of a text; a name that ends in one is none of these.
		if end > 0 && body[end] == '"' && body[end-1] != '\\' && n.before(body[max(0, end-n.longest-1):end]) {
			return true
		}
	}
	return true
}

// before reports whether b, which stands before a closing quote, ends in an opening quote and one of the names.
func (n *Names) before(b []byte) bool {
	start, escaped := len(b), false
	for start > 0 && b[start-1] != '"' {
		start--
		escaped = escaped || b[start] == '\\'
	}
	raw := b[start:]
	if escaped {
		raw = Unescaped(raw)
	}
	if start == 0 || n.lengths&(1<<min(len(raw), 63)) == 0 {
		return false
	}
	return slices.Contains(n.names, string(raw))
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
