package layer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"remora/wire"
)

// Block wraps stored text in a tag, with LF between tag and text. The text is data: closing tags in it are escaped, so that it
// cannot leave its block.
func Block(tag, text string) string {
	return "<" + tag + ">\n" + Escape(text) + "\n</" + tag + ">"
}

// Escape makes text harmless within any block: every "</" becomes "<\/", which opens and closes nothing. Text without
// it is returned as it is.
func Escape(text string) string { return strings.ReplaceAll(text, "</", `<\/`) }

// MapText returns a user message with f applied to each text in it: to its content if that is a string, else to each of its
// text parts. All other bytes stay. If f changes nothing, and for any other item, it returns the item itself. Text that is not
// valid Unicode is not changed.
func MapText(it wire.Item, f func(text string) string) wire.Item {
	if it.Role != wire.User {
		return it
	}
	raw, done := make([]byte, 0, len(it.Raw)), 0
	for _, s := range textSpans(it.Raw) {
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

// span is the position of a JSON string, quotes included.
type span struct{ from, to int }

// spanIn is the position of a part relative to base.
func spanIn(base int, p wire.Child) span { return span{base + p.End - len(p.Value), base + p.End} }

// textSpans finds the texts of a message's content. Of duplicate members the last counts, as it does for wire.
func textSpans(raw []byte) []span {
	var content wire.Child
	for p := range wire.Children(raw) {
		if string(p.Name) == "content" {
			content = p
		}
	}
	if len(content.Value) == 0 {
		return nil
	}
	at := spanIn(0, content)
	switch content.Value[0] {
	case '"':
		return []span{at}
	case '[':
	default:
		return nil
	}

	var found []span
	for part := range wire.Children(content.Value) {
		where := spanIn(at.from, part)
		if part.Value[0] == '"' {
			found = append(found, where)
			continue
		}
		var typ, text wire.Child
		for m := range wire.Children(part.Value) {
			switch string(m.Name) {
			case "type":
				typ = m
			case "text":
				text = m
			}
		}
		isText := string(typ.Value) == `"text"` || string(typ.Value) == `"input_text"`
		if isText && len(text.Value) > 0 && text.Value[0] == '"' {
			found = append(found, spanIn(where.from, text))
		}
	}
	return found
}

// Decode decodes a State of Encode. One that cannot be decoded, or that sound refuses, is the zero value: the layer begins anew.
// sound may be nil.
func Decode[T any](s State, sound func(*T) bool) (v T) {
	if json.Unmarshal(s, &v) != nil || sound != nil && !sound(&v) {
		var none T
		return none
	}
	return v
}

// Encode encodes v as a State: its JSON, with unescaped < and >.
func Encode(v any) (State, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it takes six bytes for one
	if err := enc.Encode(v); err != nil {
		return nil, errors.New("state: cannot be encoded") // the reason may quote it
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
