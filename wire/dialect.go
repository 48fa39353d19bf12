package wire

import (
	"bytes"
	"slices"
	"strings"
)

// Dialect is the format of a body's conversation. Dialects are compared with ==. The zero value is unknown: its items
// are opaque. A caller gets one from package dialects, or by the path of a request, and then only passes it on: its
// [Rules] have all that a caller needs to know.
type Dialect struct{ def *definition }

type definition struct {
	rules Rules
	codec Codec
}

// Define makes a dialect. Only the package of a dialect calls it, once: every call makes another one.
func Define(r Rules, c Codec) Dialect { return Dialect{&definition{rules: r, codec: c}} }

// Rules are the demands and features of a dialect's API, as data. Members are named as in a request's body, nested ones
// by a path; an empty name means that the dialect has no such member.
type Rules struct {
	// Name is the dialect's name in logs and records, Code its byte in records. Neither ever changes; 0 is none.
	Name string
	Code uint8

	// List is the member that holds the items. A request may lack it, or have a string in its place, if ListOptional.
	List         string
	ListOptional bool
	// Instructions holds the system prompt beside the items.
	Instructions string
	// InstructionRole is the role for a gateway's own instructions, if the client uses none.
	InstructionRole Role

	// Previous names the answer that a request continues, Conversation the conversation that upstream adds it to. By both,
	// upstream itself puts items before those of the request.
	Previous, Conversation string
	// Template names a template that upstream puts before the items.
	Template string
	// Kept: upstream stores an answer unless the request forbids it. References: a request may refer to items of a stored
	// answer by their ids.
	Kept, References bool
	// Background asks for an answer that comes later. Format is the output format that is asked for.
	Background, Format string
	// ErrorEvent is the type of the event that ends a stream with an error, "" if that is an error body.
	ErrorEvent string
	// Echoes: an answer repeats the tools that the request offered.
	Echoes bool

	// ResultsAdjacent: the results of a message's calls follow directly after it. Otherwise they may follow anywhere after
	// their call.
	ResultsAdjacent bool
	// TextResults: a result may only have text. User messages may have images.
	TextResults bool
	// OneItem: an answer is one item, its calls and its reasoning included.
	OneItem bool
	// Result is the member of a result with the tool's output.
	Result string
	// Text is the type of a text part, AnswerText the type in a model's message.
	Text, AnswerText string
	// ClientTypes are the types of items that are not understood and that clients make; nil where types of items are no part
	// of the dialect and clients may make any. Approval is the type of the one that answers a request for approval.
	ClientTypes []string
	Approval    string
	// Image is the type of the image that a model makes.
	Image string
	// Breakpoints: requests of the dialect may hold breakpoints of a prompt cache.
	Breakpoints bool
	// Calls are the members of an answer that its calls depend on: the place that each leads to, by its own place and name.
	// Members of one object that lead to one place, other than a Leaf, exclude each other.
	Calls map[Place]map[string]Place
}

// Place is a kind of object or list on the way from the top of an answer to a call in it. A dialect numbers its own from 1 on.
type Place uint8

// Places of every dialect. At a Leaf and a CallInput any value counts, at a Number only one that [Index] accepts.
const (
	Top       Place = 0
	CallInput Place = 253
	Number    Place = 254
	Leaf      Place = 255
)

// unknown is the zero Dialect.
var unknown = definition{Rules{Name: "unknown", InstructionRole: System, ListOptional: true}, Opaque{}} //nolint:gochecknoglobals // a constant

func (d Dialect) definition() *definition {
	if d.def == nil {
		return &unknown
	}
	return d.def
}

// Rules returns the dialect's rules. They must not be modified.
func (d Dialect) Rules() *Rules { return &d.definition().rules }

// Codec returns the dialect's code.
func (d Dialect) Codec() Codec { return d.definition().codec }

// Known reports whether it is a dialect, not the zero value.
func (d Dialect) Known() bool { return d.def != nil }

// Code returns the number of the dialect in records, 0 for the zero Dialect.
func (d Dialect) Code() uint8 { return d.Rules().Code }

// String returns the dialect's name in records and logs.
func (d Dialect) String() string { return d.Rules().Name }

// Equal reports whether both are the same dialect, as == does.
func (d Dialect) Equal(other Dialect) bool { return d == other }

// TextPart returns a content part of one text, which is given as a JSON string, as a message of that role has it.
func (d Dialect) TextPart(role Role, text []byte) []byte {
	typ := d.Rules().Text
	if role == Assistant {
		typ = d.Rules().AnswerText
	}
	out := append(AppendString([]byte(`{"type":`), typ), `,"text":`...)
	return append(append(out, text...), '}')
}

// JoinContents returns one content with what several of messages in that role say: texts with an empty line between them, and
// anything else as a list of parts. It is nil if none says anything.
func (d Dialect) JoinContents(role Role, contents ...[]byte) []byte {
	contents = slices.DeleteFunc(contents, func(c []byte) bool { return len(c) == 0 || c[0] != '[' && (c[0] != '"' || len(c) == len(`""`)) })
	switch len(contents) {
	case 0:
		return nil
	case 1:
		return contents[0]
	}
	var texts []string
	var parts [][]byte
	for _, c := range contents {
		if c[0] == '"' {
			texts, parts = append(texts, string(c)), append(parts, d.TextPart(role, c))
			continue
		}
		for p := range Children(c) {
			parts = append(parts, p.Value)
		}
	}
	if len(texts) == len(contents) {
		return []byte(JoinStrings(texts...))
	}
	return slices.Concat([]byte{'['}, bytes.Join(parts, []byte{','}), []byte{']'})
}

// JoinStrings joins JSON strings with an empty line between them, without reading them: what they spell oddly stays. It is empty if
// they are.
func JoinStrings(list ...string) string {
	var inner []string
	for _, s := range list {
		if len(s) > len(`""`) {
			inner = append(inner, s[1:len(s)-1])
		}
	}
	if inner == nil {
		return ""
	}
	return `"` + strings.Join(inner, `\n\n`) + `"`
}
