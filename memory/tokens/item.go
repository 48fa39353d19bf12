package tokens

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

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

// walker counts text, and prices the JSON of items in one pass, without recursion. It is scratch space: one for each
// goroutine, ready when zero.
type walker struct {
	merger merger
	text   []byte
	buffer bytes.Buffer
	dec    *jsontext.Decoder
	v      *vocabulary
	rules  []rule // of the open objects and arrays, and of the current member
	names  bool   // names of members are read by the model too
	total  int
}

// count returns the number of tokens of the string in w.text.
func (w *walker) count() int { return w.v.count(&w.merger, w.text) }

// item returns the number of tokens of an item. Invalid JSON is estimated by its size.
func (w *walker) item(v *vocabulary, it wire.Item) int {
	if w.dec == nil {
		w.dec = new(jsontext.Decoder)
	}
	w.buffer = *bytes.NewBuffer(it.Raw)
	w.dec.Reset(&w.buffer, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	w.v, w.rules, w.total = v, append(w.rules[:0], ruleOther), itemTokens
	w.names = it.Kind == wire.Other
	if it.Kind == wire.Message {
		w.total += callTokens * calls(it)
	}
	for {
		more, ok := w.step()
		if !ok {
			return itemTokens + estimate(len(it.Raw))
		}
		if !more {
			return w.total
		}
	}
}

// release lets go of the item, and of scratch space that is too large to keep.
func (w *walker) release() {
	w.buffer = bytes.Buffer{}
	if cap(w.text) > maxScratch {
		w.text = nil
	}
}

// step prices the next token of the JSON. more is false after the value, ok is false for malformed JSON.
func (w *walker) step() (more, ok bool) {
	top := len(w.rules) - 1
	switch kind := w.dec.PeekKind(); kind {
	case '{', '[':
		w.rules = append(w.rules, w.rules[top])
	case '}', ']':
		w.rules = w.rules[:top]
	case '"':
		return w.str()
	case '0', 't', 'f':
		w.total += scalarTokens
	case 'n':
	default:
		return false, false
	}
	if _, err := w.dec.ReadToken(); err != nil {
		return false, false
	}
	return w.dec.StackDepth() > 0, true
}

// str prices a string. Of the name of a member it notes the rule, and skips a value that costs nothing.
func (w *walker) str() (more, ok bool) {
	kind, length := w.dec.StackIndex(w.dec.StackDepth())
	raw, err := w.dec.ReadValue()
	if err != nil {
		return false, false
	}
	// An error is about bytes that are no UTF-8, and those have been replaced.
	w.text, _ = jsontext.AppendUnquote(w.text[:0], raw)
	more = w.dec.StackDepth() > 0
	if kind != '{' || length%2 == 1 {
		w.value()
		return more, true
	}
	r := ruleOf(w.text)
	w.rules[len(w.rules)-1] = r
	if r == ruleSkip {
		return more, w.dec.SkipValue() == nil
	}
	if w.names && r == ruleOther {
		w.total += w.count()
	}
	return more, true
}

// value prices the string in w.text.
func (w *walker) value() {
	switch w.rules[len(w.rules)-1] {
	case ruleType:
		if isMedia(w.text) {
			w.total += mediaTokens
		}
	case ruleSealed:
		// Base64 is a third longer than what it holds, and four bytes of that are a token.
		w.total += len(w.text) * 3 / 16
	case ruleOther:
		if isData(w.text) {
			w.total += mediaTokens
			return
		}
		w.total += w.count()
	default:
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
