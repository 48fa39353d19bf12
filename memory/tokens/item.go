package tokens

import (
	"bytes"
	"unicode/utf8"

	"remora/wire"
)

// What an item costs beside its texts. OpenAI's own examples charge three tokens for a message and one for its role;
// the rest is not documented anywhere.
const (
	// itemTokens is for each item: the marks around it, and its role.
	itemTokens = 4
	// callTokens is for each call of a Chat message, beside its name and arguments.
	callTokens = 3
	// mediaTokens is for each image, audio clip or file, of any size: GPT-4o's price of an image of 1024 by 1024 in
	// high detail. Their data is never counted.
	mediaTokens = 765
	// scalarTokens is for each number and boolean.
	scalarTokens = 1
)

// rule prices a string by the name of its member.
type rule uint8

const (
	ruleText   rule = iota // text that the model reads
	ruleOther              // text too, unless it looks like data
	ruleType               // the kind of a part: media cost a flat sum
	ruleSealed             // encrypted by upstream, and counted by its size
	ruleSkip               // never reaches the model, with all that is in it
)

// ruleOf returns the rule for the value of a member. Unknown members count as text: new kinds of items bring new names,
// and to count too much is the safer error.
func ruleOf(name []byte) rule {
	switch string(name) {
	case "type":
		return ruleType
	case "content", "text", "refusal", "name", "arguments", "input", "output", "summary", "stdout", "stderr", "code",
		"query", "instructions", "description", "reasoning", "reasoning_content", "tool_calls", "function", "custom":
		return ruleText
	case "encrypted_content", "signature":
		return ruleSealed
	case "id", "call_id", "tool_call_id", "item_id", "approval_request_id", "container_id", "response_id",
		"role", "status", "phase", "object", "index", "created_by", "format", "detail", "execution",
		"annotations", "logprobs", "cache_control", "usage",
		// The payloads of media, which are charged by their type.
		"image_url", "input_audio", "audio", "file", "file_id", "file_url", "file_data":
		return ruleSkip
	}
	return ruleOther
}

// isMedia reports whether a content part of this type is media, not text.
func isMedia(typ []byte) bool {
	switch string(typ) {
	case "image_url", "input_image", "image", "computer_screenshot", "input_audio", "audio", "file", "input_file",
		"input_video", "video_url":
		return true
	}
	return false
}

// walker counts text, and prices the JSON of items in one pass. It is scratch space: one for each goroutine, ready when zero.
type walker struct {
	merger merger
	text   []byte
	scan   wire.Scanner
	v      *vocabulary
	names  bool // names of members are read by the model too
	total  int
}

// count returns the number of tokens of the string in w.text. In it each bad byte is U+FFFD, as it is on its way to a model.
func (w *walker) count() int {
	if !utf8.Valid(w.text) {
		var text []byte
		for _, r := range string(w.text) {
			text = utf8.AppendRune(text, r)
		}
		w.text = text
	}
	return w.v.count(&w.merger, w.text)
}

// item returns the number of tokens of an item. Invalid JSON is estimated by its size.
func (w *walker) item(v *vocabulary, it wire.Item) int {
	w.v, w.total, w.names = v, itemTokens, it.Kind == wire.Other
	if it.Kind == wire.Message {
		w.total += callTokens * calls(it)
	}
	w.scan = wire.NewScanner(it.Raw)
	if w.value(ruleOther); !w.scan.OK() {
		return itemTokens + estimate(len(it.Raw))
	}
	return w.total
}

// release lets go of the item, and of scratch space that is too large to keep.
func (w *walker) release() {
	w.scan = wire.Scanner{}
	if cap(w.text) > maxScratch {
		w.text = nil
	}
}

// value prices the value at the scanner's place, in a member or a list of that rule. The scanner bounds how deep it goes.
func (w *walker) value(r rule) {
	s := &w.scan
	switch c := s.Peek(); c {
	case '{', '[':
		for name := range s.Each() {
			inner := r
			if c == '{' {
				inner = ruleOf(name)
			}
			if inner == ruleSkip {
				continue
			}
			if c == '{' && w.names && inner == ruleOther {
				w.text = append(w.text[:0], name...)
				w.total += w.count()
			}
			w.value(inner)
		}
	case '"':
		text, _ := wire.Inside(s.Raw())
		w.text = wire.AppendText(w.text[:0], text)
		w.str(r)
	default:
		if !wire.IsNull(s.Raw()) {
			w.total += scalarTokens
		}
	}
}

// str prices the string in w.text.
func (w *walker) str(r rule) {
	switch {
	case r == ruleType && isMedia(w.text), r == ruleOther && isData(w.text):
		w.total += mediaTokens
	case r == ruleSealed:
		// Base64 is a third longer than what it holds, and four bytes of that are a token.
		w.total += len(w.text) * 3 / 16
	case r != ruleType:
		w.total += w.count()
	}
}

// isData reports whether a string is a data URL, or base64 of some size.
func isData(s []byte) bool {
	const head = 1024
	if bytes.HasPrefix(s, []byte("data:")) && bytes.Contains(s[:min(len(s), head)], []byte(";base64,")) {
		return true
	}
	if len(s) < head {
		return false
	}
	for _, c := range s[:head] {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '+', c == '/', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
