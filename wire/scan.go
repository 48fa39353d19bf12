package wire

import (
	"bytes"
	"iter"
	"strconv"
)

// maxDepth bounds nesting, the top-level object included. It is far above what any API accepts and keeps the
// scanner's state on the stack.
const maxDepth = 1000

// ParseError says where and why a body can't be split. Such a body has to be forwarded as it is.
type ParseError struct {
	// Offset is the position of the offending byte; the length of the body where that is truncated.
	Offset int
	// Reason never quotes the body.
	Reason string
}

func (e *ParseError) Error() string {
	return "parse body at byte " + strconv.Itoa(e.Offset) + ": " + e.Reason
}

// Scanner walks JSON without recursion and without building anything. It is strict about structure (brackets, commas,
// colons, numbers, literals) and does not look into strings: what stands between two quotes is re-emitted as it came,
// so a strict reader judges it the same before and after.
type Scanner struct {
	b []byte
	i int
	// keyStart and keyEnd are the last member name that was read, without its quotes. A nested value overwrites them.
	keyStart, keyEnd int
	depth            int
	// objects has one bit for each open bracket: set for an object.
	objects [maxDepth/64 + 1]uint64
	// reason is why the scan stopped at i; empty while all is well.
	reason string
	// longest is the longest string so far. known is a string whose end is already known, so that scanning it costs
	// nothing.
	longest, known span
}

func (s *Scanner) fail(reason string) bool {
	if s.i >= len(s.b) {
		s.i, reason = len(s.b), "truncated"
	}
	s.reason = reason
	return false
}

func (s *Scanner) err() *ParseError { return &ParseError{Offset: s.i, Reason: s.reason} }

// Peek returns the next byte, 0 at the end.
func (s *Scanner) Peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// space skips white space. It is inlined; most values have none before them.
func (s *Scanner) space() {
	if s.i < len(s.b) && s.b[s.i] <= ' ' {
		s.skipSpace()
	}
}

func (s *Scanner) skipSpace() {
	for s.i < len(s.b) && s.b[s.i] <= ' ' {
		switch s.b[s.i] {
		case ' ', '\n', '\r', '\t':
			s.i++
		default:
			return
		}
	}
}

// value skips one value and the space before it.
func (s *Scanner) value() bool {
	floor := s.depth
	for {
		s.space()
		inside, ok := s.begin()
		if !ok {
			return false
		}
		for !inside {
			if s.depth == floor {
				return true
			}
			if inside, ok = s.next(); !ok {
				return false
			}
		}
	}
}

// begin consumes a scalar, an empty container, or the beginning of a container up to its first value; only then
// inside is true.
func (s *Scanner) begin() (inside, ok bool) {
	switch c := s.Peek(); c {
	case '"':
		return false, s.str()
	case '{', '[':
		if s.depth == maxDepth {
			return false, s.fail("nested too deep")
		}
		s.i++
		s.space()
		if s.Peek() == c+2 { // '{' and '}', '[' and ']' are two apart
			s.i++
			return false, true
		}
		word, bit := s.depth/64, uint64(1)<<(s.depth%64)
		s.depth++
		if c == '[' {
			s.objects[word] &^= bit
			return true, true
		}
		s.objects[word] |= bit
		return true, s.key()
	default:
		return false, s.scalar()
	}
}

// next consumes what follows a value inside a container: a comma up to the next value (more is true), or the closing
// bracket.
func (s *Scanner) next() (more, ok bool) {
	s.space()
	switch c, object := s.Peek(), s.inObject(); {
	case c == ',' && object:
		s.i++
		s.space()
		return true, s.key()
	case c == ',':
		s.i++
		return true, true
	case c == '}' && object, c == ']' && !object:
		s.i++
		s.depth--
		return false, true
	}
	return false, s.fail("expected a comma or a closing bracket")
}

// inObject reports whether the innermost open bracket belongs to an object.
func (s *Scanner) inObject() bool {
	top := s.depth - 1
	return top >= 0 && s.objects[top/64]>>(top%64)&1 == 1
}

// key reads a member name and its colon.
func (s *Scanner) key() bool {
	if s.Peek() != '"' {
		return s.fail("expected a member name")
	}
	start := s.i + 1
	if !s.str() {
		return false
	}
	s.keyStart, s.keyEnd = start, s.i-1
	s.space()
	if s.Peek() != ':' {
		return s.fail("expected a colon")
	}
	s.i++
	return true
}

// str skips a string. Looking for the next quote and then back over the run of backslashes before it stays linear
// on any input; looking for quotes and for backslashes separately does not.
func (s *Scanner) str() bool {
	if s.i == s.known.start && s.known.end > 0 {
		s.i = s.known.end
		return true
	}
	i := s.i + 1
	for {
		n := bytes.IndexByte(s.b[i:], '"')
		if n < 0 {
			s.i = len(s.b)
			return s.fail("truncated")
		}
		i += n + 1
		k := i - 2
		for s.b[k] == '\\' { // ends at the opening quote at the latest
			k--
		}
		if (i-k)%2 == 0 {
			if i-s.i > s.longest.end-s.longest.start {
				s.longest = span{s.i, i}
			}
			s.i = i
			return true
		}
	}
}

func (s *Scanner) scalar() bool {
	rest := s.b[s.i:]
	var word string
	switch s.Peek() {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	default:
		return s.number()
	}
	if len(rest) < len(word) && bytes.HasPrefix([]byte(word), rest) {
		s.i = len(s.b)
	} else if bytes.HasPrefix(rest, []byte(word)) {
		s.i += len(word)
		return true
	}
	return s.fail("expected a value")
}

func (s *Scanner) number() bool {
	if s.Peek() == '-' {
		s.i++
	}
	if s.Peek() == '0' {
		s.i++
	} else if !s.digits() {
		return s.fail("expected a value")
	}
	if s.Peek() == '.' {
		s.i++
		if !s.digits() {
			return s.fail("expected a digit")
		}
	}
	if c := s.Peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.Peek(); c == '+' || c == '-' {
			s.i++
		}
		if !s.digits() {
			return s.fail("expected a digit")
		}
	}
	return true
}

func (s *Scanner) digits() bool {
	i := s.i
	for i < len(s.b) && s.b[i] >= '0' && s.b[i] <= '9' {
		i++
	}
	some := i > s.i
	s.i = i
	return some
}

// Strings iterates over the strings of valid JSON, names of members among them, as the places between their quotes.
func Strings(raw []byte) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for s := (Scanner{b: raw}); ; {
			n := bytes.IndexByte(raw[s.i:], '"')
			from := s.i + n + 1
			if s.i += n; n < 0 || !s.str() || !yield(from, s.i-1) {
				return
			}
		}
	}
}

// Valid reports whether raw is one JSON value, with nothing but space around it. It looks at structure only, not into strings.
func Valid(raw []byte) bool {
	s := Scanner{b: raw}
	if !s.value() {
		return false
	}
	s.space()
	return s.i == len(raw)
}

// IsObject reports whether raw is a JSON object, with no space before it.
func IsObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' && Valid(raw) }

// Each iterates over the members of an object, yielding their names, or over the elements of an array, at the
// scanner's place. The loop may read the value with raw or with each, which spares reading it twice, and must not end
// early; a value that it leaves alone is skipped. Any other value is skipped as a whole.
func (s *Scanner) Each() iter.Seq[[]byte] {
	return func(yield func(name []byte) bool) {
		s.space()
		c := s.Peek()
		if c != '{' && c != '[' {
			s.value()
			return
		}
		inside, ok := s.begin()
		for inside && ok {
			var name []byte
			if c == '{' {
				name = Unescaped(s.b[s.keyStart:s.keyEnd])
			}
			s.space()
			at := s.i
			if !yield(name) || s.i == at && !s.value() || s.reason != "" {
				return
			}
			inside, ok = s.next()
		}
	}
}

// NewScanner returns one at the beginning of a value.
func NewScanner(raw []byte) Scanner { return Scanner{b: raw} }

// OK reports whether what was read so far is well formed.
func (s *Scanner) OK() bool { return s.reason == "" }

// Offset returns the index of the next byte to read.
func (s *Scanner) Offset() int { return s.i }

// From returns the bytes from an offset to the next byte to read.
func (s *Scanner) From(offset int) []byte { return s.b[offset:s.i] }

// Raw reads the value at the scanner's place.
func (s *Scanner) Raw() []byte {
	s.space()
	start := s.i
	s.value()
	return s.b[start:s.i:s.i]
}

// Children iterates over the members of an object or the elements of an array, without space around them; over nothing
// for any other value. It ends early where raw is malformed.
func Children(raw []byte) iter.Seq[Child] { return childrenAround(raw, span{}) }

// childrenAround is Children for raw JSON with one string whose place is already known.
func childrenAround(raw []byte, known span) iter.Seq[Child] {
	return func(yield func(Child) bool) {
		s := Scanner{b: raw, known: known}
		s.space()
		if c := s.Peek(); c != '{' && c != '[' {
			return
		}
		object := s.Peek() == '{'
		inside, ok := s.begin()
		for inside && ok {
			var p Child
			if object {
				p.Start, p.Name = s.keyStart-1, Unescaped(raw[s.keyStart:s.keyEnd])
			}
			s.space()
			first := s.i
			if !object {
				p.Start = first
			}
			if !s.value() {
				return
			}
			p.Value, p.End = raw[first:s.i:s.i], s.i
			if !yield(p) {
				return
			}
			inside, ok = s.next()
		}
	}
}

// Member returns the raw value of an object's member, nil if it has none. Of duplicates the last one counts, as it does for
// most servers.
func Member(raw []byte, name string) []byte {
	var v []byte
	for p := range Children(raw) {
		if string(p.Name) == name {
			v = p.Value
		}
	}
	return v
}

// Child is one member of an object or one element of an array.
type Child struct {
	// Name is the member's name, unescaped; nil for an element.
	Name []byte
	// Value is the raw value, without space around it.
	Value []byte
	// Start is where the child begins, a member with its name; End is where its value ends.
	Start, End int
}

// MaxIndex bounds the indexes of choices, tool calls and output items that a stream may name.
const MaxIndex = 1024

// Index reads the index of a choice, a call or an output item; def where it is absent or null. ok is false for one that is
// not accepted.
func Index(raw []byte, def int) (n int, ok bool) {
	if raw == nil || IsNull(raw) {
		return def, true
	}
	for _, c := range raw {
		if c < '0' || c > '9' || n >= MaxIndex {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n < MaxIndex
}

// IndexOr is Index with -1 for an index that is not accepted.
func IndexOr(raw []byte, def int) int {
	if n, ok := Index(raw, def); ok {
		return n
	}
	return -1
}
