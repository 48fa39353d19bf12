package wire

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// maxCanonicalMembers bounds the index of a canonicalizer. JSON with more members is hashed unchanged.
const maxCanonicalMembers = 1 << 18

// canonicalizer writes JSON in one spelling: as RFC 8785, except that member names are sorted by their bytes, that
// numbers stay as they are spelled (a 20-digit integer is not the float next to it), and that the last of duplicate
// members counts.
//
// It works in two linear passes without recursion: the first makes an index of all members, sorted object by object,
// the second writes them in that order. Sorting while writing would be quadratic in depth on hostile input.
type canonicalizer struct {
	// all keeps every member; else those of the top level that clients drop are left out, dropID adding id and status.
	all, dropID bool

	b       []byte
	out     []byte
	names   []byte        // member names that were spelled with escapes, unescaped
	members []canonMember // members of closed objects, each object's together and sorted
	pending []canonMember // members of open objects
	objects []canonObject // in the order of their opening brackets
	open    []openObject
	frames  []frame
}

type canonMember struct {
	nameStart, nameEnd int
	escaped            bool // the name is in names, not in the input
	start, end         int
	object             int // number of the first object that opens at or after start
}

type canonObject struct {
	first, count int // its members
	end          int // behind its closing bracket
	next         int // number of the first object that opens after it
}

type openObject struct{ number, pending int }

// frame is an object that is being written.
type frame struct {
	object, member int
	limit          int // where the value around the object ends
}

// append appends the canonical spelling of raw to out.
func (c *canonicalizer) append(out, raw []byte) ([]byte, bool) {
	c.b, c.out = raw, out
	c.members, c.pending, c.objects, c.names = c.members[:0], c.pending[:0], c.objects[:0], c.names[:0]
	c.open, c.frames = c.open[:0], c.frames[:0]
	defer c.release()
	s := Scanner{b: raw}
	if !c.index(&s) {
		return out, false
	}
	end := s.i
	if s.space(); s.i != len(raw) {
		return out, false
	}
	c.write(end)
	return c.out, true
}

// release lets go of the input and of scratch space that is too large to keep.
func (c *canonicalizer) release() {
	c.b, c.out = nil, nil
	if cap(c.members)+cap(c.pending)+cap(c.objects) > maxCanonicalMembers/16 {
		c.members, c.pending, c.objects = nil, nil, nil
	}
	if cap(c.names) > maxPooled {
		c.names = nil
	}
}

func (c *canonicalizer) index(s *Scanner) bool {
	for {
		s.space()
		inside, ok := c.begin(s)
		for ok && !inside {
			if s.depth == 0 {
				return true
			}
			inside, ok = c.next(s)
		}
		if !ok {
			return false
		}
	}
}

// begin is the scanner's begin, noting the value and the object that begin here.
func (c *canonicalizer) begin(s *Scanner) (inside, ok bool) {
	if s.inObject() {
		m := &c.pending[len(c.pending)-1]
		m.start, m.object = s.i, len(c.objects)
	}
	object := s.Peek() == '{'
	inside, ok = s.begin()
	if !ok || len(c.objects)+len(c.members)+len(c.pending) > maxCanonicalMembers {
		return false, false
	}
	if object {
		c.open = append(c.open, openObject{len(c.objects), len(c.pending)})
		c.objects = append(c.objects, canonObject{})
		c.inObject(s, inside)
	}
	return inside, true
}

// next is the scanner's next, noting where the value before it ends.
func (c *canonicalizer) next(s *Scanner) (more, ok bool) {
	if !s.inObject() {
		return s.next()
	}
	c.pending[len(c.pending)-1].end = s.i
	more, ok = s.next()
	if ok {
		c.inObject(s, more)
	}
	return more, ok
}

// inObject notes what the scanner has come to: one more member, or the object's end.
func (c *canonicalizer) inObject(s *Scanner, more bool) {
	if more {
		m := canonMember{nameStart: s.keyStart, nameEnd: s.keyEnd}
		if name := s.b[s.keyStart:s.keyEnd]; bytes.IndexByte(name, '\\') >= 0 {
			m.nameStart, m.escaped = len(c.names), true
			c.names = AppendText(c.names, name)
			m.nameEnd = len(c.names)
		}
		c.pending = append(c.pending, m)
		return
	}
	top := c.open[len(c.open)-1]
	c.open = c.open[:len(c.open)-1]
	own := c.pending[top.pending:]
	slices.SortStableFunc(own, func(x, y canonMember) int { return bytes.Compare(c.name(x), c.name(y)) })
	first := len(c.members)
	for i, m := range own {
		if i+1 < len(own) && bytes.Equal(c.name(m), c.name(own[i+1])) {
			continue
		}
		if len(c.open) == 0 && s.depth == 0 && c.drops(m) {
			continue
		}
		c.members = append(c.members, m)
	}
	c.pending = c.pending[:top.pending]
	c.objects[top.number] = canonObject{first: first, count: len(c.members) - first, end: s.i, next: len(c.objects)}
}

// name returns a member's name without escapes.
func (c *canonicalizer) name(m canonMember) []byte {
	if m.escaped {
		return c.names[m.nameStart:m.nameEnd]
	}
	return c.b[m.nameStart:m.nameEnd]
}

// drops reports whether a member of the top level is one that clients drop or add when they echo an item.
func (c *canonicalizer) drops(m canonMember) bool {
	if c.all {
		return false
	}
	switch string(c.name(m)) {
	case "id", "status":
		return c.dropID
	case "annotations", "logprobs", "cache_control", "index", "phase":
		return true
	}
	return IsNull(c.b[m.start:m.end])
}

// write walks the text in the order of the index; limit is where the current value ends.
func (c *canonicalizer) write(limit int) {
	object := 0
	for i := 0; ; {
		if i == limit {
			if len(c.frames) == 0 {
				return
			}
			i, limit, object = c.nextMember()
			continue
		}
		switch ch := c.b[i]; ch {
		case ' ', '\n', '\r', '\t':
			i++
		case '"':
			s := Scanner{b: c.b, i: i}
			s.str()
			c.str(c.b[i+1 : s.i-1])
			i = s.i
		case '{':
			c.out = append(c.out, '{')
			c.frames = append(c.frames, frame{object: object, limit: limit})
			i, limit, object = c.nextMember()
		default:
			c.out = append(c.out, ch)
			i++
		}
	}
}

// nextMember goes on with the innermost open object: to the value of its next member, or after it.
func (c *canonicalizer) nextMember() (i, limit, object int) {
	f := &c.frames[len(c.frames)-1]
	o := c.objects[f.object]
	if f.member == o.count {
		c.out = append(c.out, '}')
		limit = f.limit
		c.frames = c.frames[:len(c.frames)-1]
		return o.end, limit, o.next
	}
	if f.member > 0 {
		c.out = append(c.out, ',')
	}
	m := c.members[o.first+f.member]
	f.member++
	if m.escaped {
		c.out = append(c.out, '"')
		for _, b := range c.name(m) {
			c.out = appendEscaped(c.out, b)
		}
		c.out = append(c.out, '"', ':')
	} else {
		c.out = append(append(append(c.out, '"'), c.name(m)...), '"', ':')
	}
	return m.start, m.end, m.object
}

// str writes a string from its raw content.
func (c *canonicalizer) str(content []byte) {
	c.out = append(c.out, '"')
	for {
		n := bytes.IndexByte(content, '\\')
		if n < 0 {
			break
		}
		c.out = append(c.out, content[:n]...)
		r, size := escape(content[n:])
		switch {
		case r < 0: // no escape: kept as it is
			c.out = append(c.out, content[n:n+size]...)
		case r < ' ' || r == '"' || r == '\\':
			c.out = appendEscaped(c.out, byte(r&0x7f))
		default:
			c.out = append(c.out, string(r)...)
		}
		content = content[n+size:]
	}
	c.out = append(append(c.out, content...), '"')
}

// Inside returns the raw content of a JSON string, without its quotes; ok is false for any other value.
func Inside(raw []byte) (content []byte, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, false
	}
	return raw[1 : len(raw)-1], true
}

// PlainText unescapes a text that is a JSON object or array, for who reads it as words: escaped line ends and quotes would become
// parts of them. Any other text is returned as it is.
func PlainText(text string) string {
	if text == "" || text[0] != '{' && text[0] != '[' {
		return text
	}
	return string(Unescaped([]byte(text)))
}

// Unescaped returns the text of a string's raw content; content itself where it holds no escape.
func Unescaped(content []byte) []byte {
	if bytes.IndexByte(content, '\\') < 0 {
		return content
	}
	return AppendText(make([]byte, 0, len(content)), content)
}

// Text returns the decoded text of a JSON string, "" for any other value.
func Text(raw []byte) string {
	content, _ := Inside(raw)
	return string(Unescaped(content))
}

// maxBlank is how long a text may be that is looked at for white space alone, in bytes of JSON.
const maxBlank = 1 << 10

// Blank reports whether a value is a string with nothing but white space in it.
func Blank(raw []byte) bool {
	content, ok := Inside(raw)
	return ok && len(content) <= maxBlank && len(bytes.TrimSpace(Unescaped(content))) == 0
}

// AppendText appends the text of a string's raw content. Escapes of lone surrogates become U+FFFD, as in every client
// that holds text as UTF-8; invalid escapes are kept as they are.
func AppendText(dst, content []byte) []byte {
	for {
		n := bytes.IndexByte(content, '\\')
		if n < 0 || n+1 == len(content) {
			return append(dst, content...)
		}
		dst = append(dst, content[:n]...)
		r, size := escape(content[n:])
		if r < 0 {
			dst = append(dst, content[n:n+size]...)
		} else {
			dst = utf8.AppendRune(dst, r)
		}
		content = content[n+size:]
	}
}

// escape reads the escape at the beginning of c, which has at least two bytes. The rune is -1 where it is none.
func escape(c []byte) (r rune, size int) {
	switch c[1] {
	case '"', '\\', '/':
		return rune(c[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(c)
		if r < 0 {
			return -1, 2
		}
		if utf16.IsSurrogate(r) {
			if pair := utf16.DecodeRune(r, hex4(c[6:])); pair != utf8.RuneError {
				return pair, 12
			}
			return utf8.RuneError, 6
		}
		return r, 6
	}
	return -1, 2
}

// hex4 returns the code unit of an escape such as \u00e9 at the beginning of c, -1 if there is none.
func hex4(c []byte) rune {
	if len(c) < 6 || c[0] != '\\' || c[1] != 'u' {
		return -1
	}
	var r rune
	for _, d := range c[2:6] {
		switch {
		case d >= '0' && d <= '9':
			d -= '0'
		case d >= 'a' && d <= 'f':
			d -= 'a' - 10
		case d >= 'A' && d <= 'F':
			d -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(d)
	}
	return r
}

// AppendString appends text as a JSON string. Of what RFC 8785 escapes it escapes all, and nothing else.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		dst = appendEscaped(dst, s[i])
	}
	return append(dst, '"')
}

func appendEscaped(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if c < ' ' {
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
	return append(dst, c)
}
