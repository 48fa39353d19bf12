package wire

import (
	"bytes"
	"iter"
	"strings"
)

// ParseItem reads one element as it stands in messages, input or output. The item aliases raw. Errors are of type
// *ParseError; an element of any shape is an item, if only of kind Other.
func ParseItem(d Dialect, raw []byte) (Item, error) {
	s := Scanner{b: raw}
	s.space()
	start := s.i
	if !s.value() {
		return Item{}, s.err()
	}
	end := s.i
	if s.space(); s.i != len(raw) {
		s.fail("data behind the item")
		return Item{}, s.err()
	}
	return NewDecoder(d).Item(raw[start:end:end]), nil
}

// Decoder reads the fields that pairing needs. Strings and parts of all its items share a few allocations.
type Decoder struct {
	dialect Dialect
	codec   Codec
	calls   int // how many more calls may be read
	slab    []Part
	strings strings.Builder
	known   span // a string of the current element that was read before
}

// NewDecoder returns one for items of an answer.
func NewDecoder(d Dialect) *Decoder { return newDecoder(d, maxCalls) }

func newDecoder(d Dialect, calls int) *Decoder {
	return &Decoder{dialect: d, codec: d.Codec(), calls: calls}
}

// Dialect returns the dialect of the items.
func (d *Decoder) Dialect() Dialect { return d.dialect }

// Item reads an element as an item.
func (d *Decoder) Item(raw []byte) Item {
	if len(raw) == 0 || raw[0] != '{' {
		return Item{Dialect: d.dialect, Parts: OnePart(Other), Raw: raw}
	}
	it := d.codec.Read(d, raw)
	if it.Parts == nil {
		it.Parts = OnePart(it.Kind)
	}
	return it
}

// Children is Children for the members of the current element.
func (d *Decoder) Children(raw []byte) iter.Seq[Child] { return childrenAround(raw, d.known) }

// Scan returns a Scanner for a value that begins at a place of the current element.
func (d *Decoder) Scan(value []byte, at int) Scanner {
	return Scanner{b: value, known: d.known.from(at)}
}

// Room takes one of the calls that all items together may have, and returns false where there is none left.
func (d *Decoder) Room() bool {
	if d.calls == 0 {
		return false
	}
	d.calls--
	return true
}

// maxSlab is how many parts are allocated at once.
const maxSlab = 256

// AddPart adds a part to those of the current item, nil before the first one.
func (d *Decoder) AddPart(parts []Part, p Part) []Part {
	if len(d.slab) == cap(d.slab) { // the items before keep the old one
		size := min(2*cap(d.slab), maxSlab)
		d.slab = append(make([]Part, 0, max(size, 2*len(parts), 1)), parts...)
	}
	first := len(d.slab) - len(parts)
	d.slab = append(d.slab, p)
	n := len(d.slab)
	return d.slab[first:n:n]
}

// DropParts takes the parts of the current item back.
func (d *Decoder) DropParts(parts []Part) { d.slab = d.slab[:len(d.slab)-len(parts)] }

// Text returns the decoded text of a JSON string, "" for any other value.
func (d *Decoder) Text(raw []byte) string {
	content, _ := Inside(raw)
	if len(content) == 0 {
		return ""
	}
	// What was built before keeps its bytes when the builder grows into a new buffer.
	start := d.strings.Len()
	d.strings.Write(Unescaped(content))
	return d.strings.String()[start:]
}

// RoleOf returns the role that a JSON string names.
func RoleOf(raw []byte) Role {
	content, _ := Inside(raw)
	switch string(Unescaped(content)) {
	case "system":
		return System
	case "developer":
		return Developer
	case "user":
		return User
	case "assistant":
		return Assistant
	}
	return RoleOther
}

// Says reports whether a message has a text or media in its content, which begins at a place of the current element, or a
// refusal or audio.
func (d *Decoder) Says(content []byte, at int, refusal, audio []byte) bool {
	if text, ok := Inside(refusal); ok && len(text) > 0 {
		return true
	}
	if len(audio) > 0 && audio[0] == '{' {
		return true
	}
	if len(content) == 0 {
		return false
	}
	switch content[0] {
	case '"':
		return len(content) > 2
	case '[':
		s := d.Scan(content, at)
		said := false
		for range s.Each() {
			said = said || !emptyText(&s)
		}
		return said
	}
	return content[0] == '{'
}

// emptyText reads a content part and reports whether it is an empty text.
func emptyText(s *Scanner) bool {
	if s.Peek() != '{' {
		return string(s.Raw()) == `""`
	}
	empty := false
	for name := range s.Each() {
		if string(name) == "text" {
			empty = string(s.Raw()) == `""`
		}
	}
	return empty
}

// maxGlance is the longest string that Glance reads backwards, in bytes.
const maxGlance = 1 << 10

// Glance returns the raw value of a member of body's top level where it can be had without reading the lists and objects
// there: if it is a scalar that stands before the first of them, or else after the last one. It is nil otherwise, and
// may be anything for a body that Parse does not accept. Of duplicates any may be returned.
func Glance(body []byte, name string) []byte {
	s := Scanner{b: body}
	s.space()
	if s.Peek() != '{' {
		return nil
	}
	more, ok := s.begin()
	for more && ok {
		found := string(Unescaped(body[s.keyStart:s.keyEnd])) == name
		s.space()
		if c := s.Peek(); c == '{' || c == '[' {
			return glanceBack(body[s.i:], name)
		}
		if v := s.Raw(); found && s.reason == "" {
			return v
		}
		more, ok = s.next()
	}
	return nil
}

func trimRight(b []byte) []byte { return bytes.TrimRight(b, " \n\r\t") }

// glanceBack looks for the member from the end of an object on. Outside of strings, the first quote on the way back is
// the end of one, and the next one that is not escaped is its beginning.
func glanceBack(b []byte, name string) []byte {
	b = trimRight(b)
	for end := byte('}'); len(b) > 0 && b[len(b)-1] == end; end = ',' {
		b = trimRight(b[:len(b)-1])
		start := scalarStart(b)
		value := b[start:]
		b = trimRight(b[:start])
		if len(value) == 0 || len(b) == 0 || b[len(b)-1] != ':' {
			return nil
		}
		b = trimRight(b[:len(b)-1])
		start = scalarStart(b)
		if key, ok := Inside(b[start:]); !ok {
			return nil
		} else if string(Unescaped(key)) == name {
			return value
		}
		b = trimRight(b[:start])
	}
	return nil
}

// scalarStart returns where the scalar at the end of b begins; the length of b where there is none, or one that is too long.
func scalarStart(b []byte) int {
	i := len(b) - 1
	if i < 0 || b[i] != '"' {
		for i >= 0 && (b[i] >= '0' && b[i] <= '9' || b[i] >= 'a' && b[i] <= 'z' || b[i] == '-' || b[i] == '+' || b[i] == '.' || b[i] == 'E') {
			i--
		}
		return i + 1
	}
	for low := max(0, i-maxGlance); i > low; {
		i = low + bytes.LastIndexByte(b[low:i], '"')
		if i < low {
			break
		}
		k := i
		for k > low && b[k-1] == '\\' {
			k--
		}
		if (i-k)%2 == 0 {
			return i
		}
	}
	return len(b)
}
