package layer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"remora/wire"
)

// Block wraps stored text in a tag of its own, with LF between tag and text. The text is data: a closing tag in it is
// escaped, so that nothing that was once said can leave its block.
func Block(tag, text string) string {
	return "<" + tag + ">\n" + Escape(text) + "\n</" + tag + ">"
}

// Escape makes text harmless within any block: every "</" becomes "<\/", which opens and closes nothing. Text without
// it is returned as it is.
func Escape(text string) string { return strings.ReplaceAll(text, "</", `<\/`) }

var roleNames = map[wire.Role]string{
	wire.System: "system", wire.Developer: "developer", wire.User: "user", wire.Assistant: "assistant",
}

// NewText returns a message of the dialect. Role is system, developer, user or assistant.
func NewText(d wire.Dialect, role wire.Role, text string) wire.Item {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false) // a model reads tags as they are, and each escape would cost it tokens
	if err := enc.Encode(struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{roleNames[role], text}); err != nil {
		panic(fmt.Sprintf("BUG: encode a message: %v", err)) // two strings
	}
	it, err := wire.ParseItem(d, bytes.TrimSpace(raw.Bytes()))
	if err != nil {
		panic(fmt.Sprintf("BUG: parse a message: %v", err))
	}
	return it
}

// MapText returns the message of a user with f applied to each text in it: to its content where that is a string, else
// to each of its text parts. All other bytes stay. Where f changes nothing, and for every other item, it is the item
// itself. Text that is not valid Unicode is left alone.
func MapText(it wire.Item, f func(text string) string) wire.Item {
	if it.Kind != wire.Message || it.Role != wire.User {
		return it
	}
	edits := textSpans(it.Raw)
	raw, done := make([]byte, 0, len(it.Raw)), 0
	for _, s := range edits {
		text, err := jsontext.AppendUnquote(nil, it.Raw[s.from:s.to])
		if err != nil {
			continue
		}
		next := f(string(text))
		if next == string(text) {
			continue
		}
		raw = append(raw, it.Raw[done:s.from]...)
		raw, _ = jsontext.AppendQuote(raw, strings.ToValidUTF8(next, "\uFFFD"))
		done = s.to
	}
	if done == 0 {
		return it
	}
	changed, err := wire.ParseItem(it.Dialect, append(raw, it.Raw[done:]...))
	if err != nil {
		return it
	}
	return changed
}

// span is where a JSON string stands, quotes included.
type span struct{ from, to int }

// textSpans finds the texts of a message's content. Of duplicate members the last counts, as it does for wire.
func textSpans(raw []byte) []span {
	var found []span
	for m := range members(raw) {
		if m.name != "content" {
			continue
		}
		found = nil
		switch raw[m.from] {
		case '"':
			found = append(found, m.span)
		case '[':
			for _, e := range elements(raw[m.from:m.to]) {
				found = append(found, partText(raw, span{m.from + e.from, m.from + e.to})...)
			}
		}
	}
	return found
}

// partText returns the text of one part of a content, nothing for a part of another type.
func partText(raw []byte, part span) []span {
	switch raw[part.from] {
	case '"':
		return []span{part}
	case '{':
	default:
		return nil
	}
	var text span
	typ := ""
	for m := range members(raw[part.from:part.to]) {
		value := raw[part.from+m.from : part.from+m.to]
		switch {
		case value[0] != '"':
		case m.name == "type":
			typ = string(value)
		case m.name == "text":
			text = span{part.from + m.from, part.from + m.to}
		}
	}
	if text.to == 0 || typ != `"text"` && typ != `"input_text"` {
		return nil
	}
	return []span{text}
}

type member struct {
	name string
	span
}

// members yields the members of an object, with the place of their values in raw. It stops at invalid JSON.
func members(raw []byte) iter.Seq[member] {
	return func(yield func(member) bool) {
		d := decoder(raw)
		if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
			return
		}
		for d.PeekKind() == '"' {
			name, err := d.ReadToken()
			if err != nil {
				return
			}
			n := name.String()
			v, err := d.ReadValue()
			if err != nil {
				return
			}
			end := int(d.InputOffset())
			if !yield(member{n, span{end - len(v), end}}) {
				return
			}
		}
	}
}

// elements returns where the elements of an array stand in raw.
func elements(raw []byte) []span {
	d := decoder(raw)
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	var all []span
	for k := d.PeekKind(); k != ']' && k != jsontext.KindInvalid; k = d.PeekKind() {
		v, err := d.ReadValue()
		if err != nil {
			return nil
		}
		end := int(d.InputOffset())
		all = append(all, span{end - len(v), end})
	}
	return all
}

func decoder(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// Encode returns the State that v is kept as: its JSON, in which < and > stand as they are.
func Encode(v any) (State, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it takes six bytes for one
	if err := enc.Encode(v); err != nil {
		return nil, errors.New("state: cannot be encoded") // the reason may quote it
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
