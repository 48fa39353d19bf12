package layer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// Block wraps stored text in a tag, with LF between tag and text. The text is data: closing tags in it are escaped, so that it
// cannot leave its block.
func Block(tag, text string) string {
	return "<" + tag + ">\n" + Escape(text) + "\n</" + tag + ">"
}

// OwnBlock is Block for text whose tags stay, such as an operator's own or a file: only what would close the block is escaped, in
// upper or lower case.
func OwnBlock(tag, text string) string {
	var b strings.Builder
	b.WriteString("<" + tag + ">\n")
	for {
		before, after, found := strings.Cut(text, "</")
		b.WriteString(before)
		if !found {
			break
		}
		if len(after) >= len(tag) && strings.EqualFold(after[:len(tag)], tag) {
			b.WriteString(`<\/`)
		} else {
			b.WriteString("</")
		}
		text = after
	}
	b.WriteString("\n</" + tag + ">")
	return b.String()
}

// Quoted is text in double quotes, which cannot end within it: its own become single ones.
func Quoted(text string) string { return `"` + strings.ReplaceAll(text, `"`, "'") + `"` }

// Escape makes text harmless within any block: every "</" becomes "<\/", which opens and closes nothing. Text without
// it is returned as it is.
func Escape(text string) string { return strings.ReplaceAll(text, "</", `<\/`) }

// Decode decodes a State of Encode. One that cannot be decoded, or that sound refuses, is the zero value: the layer begins anew.
// sound may be nil.
func Decode[T any](s State, sound func(*T) bool) (v T) {
	if json.Unmarshal(s, &v) != nil || sound != nil && !sound(&v) {
		var none T
		return none
	}
	return v
}

// Compact returns JSON without space between its tokens, nil if it is not JSON.
func Compact(raw []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return nil
	}
	return b.Bytes()
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
