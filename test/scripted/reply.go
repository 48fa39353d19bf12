package scripted

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"remora/test/scripted/script"
)

// raw is encoded JSON.
type raw = json.RawMessage

// jnull returns JSON's null, for members that must be present without a value.
func jnull() raw { return raw("null") }

// obj returns a JSON object of alternating keys and values, in that order, like the fixed order of real APIs. A struct for each
// of the hundred shapes would be less readable. Nil values are left out; jnull is written.
func obj(kv ...any) raw {
	b := append(make([]byte, 0, 128), '{')
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i+1] == nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendValue(b, kv[i]), ':')
		b = appendValue(b, kv[i+1])
	}
	return append(b, '}')
}

// arr returns a JSON array.
func arr(elements ...raw) raw {
	b := raw("[")
	for i, e := range elements {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e...)
	}
	return append(b, ']')
}

// appendValue appends a value in JSON. Like the real APIs, it does not escape <, > and & in strings. It replaces invalid UTF-8.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case raw:
		return append(b, v...)
	case string:
		b, _ = jsontext.AppendQuote(b, v)
		return b
	}
	out, err := json.Marshal(v) // a number, a boolean, or a list of numbers
	if err != nil {
		panic("BUG: a value without a form in JSON: " + err.Error())
	}
	return append(b, out...)
}

// orElse returns v, or def if the request did not have the member.
func orElse(v raw, def string) raw {
	if len(v) == 0 {
		return raw(def)
	}
	return v
}

func isNull(v raw) bool { return len(v) == 0 || string(v) == "null" }

// apiError is an error answer of the API.
type apiError struct {
	status  int
	message string
	param   string // empty means null
	code    string // empty means null
	kind    string // "type"; empty means invalid_request_error
	// history: the error is in the request's history. Server.Faults lists it.
	history bool
	own     raw // the body, for kinds with another shape
}

func badRequest(message, param, code string) *apiError {
	return &apiError{status: http.StatusBadRequest, message: message, param: param, code: code}
}

func badHistory(message, param, code string) *apiError {
	e := badRequest(message, param, code)
	e.history = true
	return e
}

func orNull(s string) any {
	if s == "" {
		return jnull()
	}
	return s
}

func (e *apiError) object() raw {
	return obj("message", e.message, "type", cmp.Or(e.kind, "invalid_request_error"), "param", orNull(e.param), "code", orNull(e.code))
}

// body returns the error's body, indented as at OpenAI.
func (e *apiError) body() []byte {
	inner := obj("error", e.object())
	var buf bytes.Buffer
	if json.Indent(&buf, inner, "", "  ") != nil {
		return inner
	}
	return buf.Bytes()
}

// prompt returns the prompt of a request. It reads the round from the server's call ids if there are any, so that it is right even
// if the tool loop was shortened.
func (d *demand) prompt() Prompt {
	p := Prompt{Path: d.path, Model: d.model, Body: d.body}
	last := len(d.lines) - 1
	for ; last >= 0 && (d.lines[last].role != "user" || told(contentText(d.lines[last].content))); last-- {
	}
	last = max(last, 0)
	for i, l := range d.lines[last:] {
		switch l.role {
		case "user":
			if text := contentText(l.content); i == 0 || !told(text) {
				p.User = said(text)
			}
		case "tool":
			p.Results = append(p.Results, contentText(l.content))
		case "assistant":
			// Consecutive items of the model are one of its turns, unless the rounds in call ids differ: a client may put each output
			// after its call.
			if d.path != "responses" || i == 0 || d.lines[last+i-1].role != "assistant" {
				p.Round++
			}
			for _, id := range l.ids {
				if round, ok := roundOf(id); ok {
					p.Round = round + 1
				}
			}
		}
	}
	if script.Asks(p.User) {
		for _, l := range d.lines {
			p.Texts = append(p.Texts, wholeText(l.content))
		}
	}
	return p
}

// told reports whether a text in the user's role is a block in tags, which a gateway adds, not a user.
func told(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "<") && strings.HasSuffix(text, ">")
}

// said returns the paragraph of a text that is a script, or the whole text: gateways may join blocks with the user's text.
func said(text string) string {
	if script.Is(text) {
		if before, _, joined := strings.Cut(text, "\n\n<"); joined && strings.HasSuffix(strings.TrimSpace(text), ">") {
			return before
		}
		return text
	}
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if script.Is(paragraph) {
			return paragraph
		}
	}
	return text
}

// contentText returns the text of a content or output value. If one of several parts is a script, it returns only that part:
// agents often add reminders to the user's text.
func contentText(content raw) string {
	texts := contentTexts(content)
	for _, t := range slices.Backward(texts) {
		if len(texts) > 1 && script.Is(t) {
			return t
		}
	}
	return strings.Join(texts, "\n")
}

// wholeText returns all text of a content or output value.
func wholeText(content raw) string { return strings.Join(contentTexts(content), "\n") }

// contentTexts returns the texts of a content or output value: of a string, or of each part that has one.
func contentTexts(content raw) []string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return []string{s}
	}
	var parts []struct {
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return nil
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if t := p.Text + p.Refusal; t != "" {
			texts = append(texts, t)
		}
	}
	return texts
}

// seenLine returns one line of the answer to SEE.
func seenLine(who, text string) string {
	return who + ": " + strings.Join(strings.Fields(script.FirstRunes(text, 40)), " ")
}

// textPieces splits text for streaming: into pieces of size bytes, or of three words if size is 0. No piece splits a character.
func textPieces(text string, size int) []string {
	var out []string
	for text != "" {
		n := size
		if size == 0 {
			n = wordsEnd(text, 3)
		}
		n = min(max(n, 1), len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}

func wordsEnd(text string, words int) int {
	for i := range len(text) {
		if text[i] != ' ' {
			continue
		}
		if words--; words == 0 {
			return i + 1
		}
	}
	return len(text)
}

// bigText returns n bytes of filler.
func bigText(n int) string {
	const filler = "All work and no play makes a long answer. "
	return strings.Repeat(filler, n/len(filler)+1)[:n]
}

// tool holds the members of an offered tool, in either dialect, on which answers depend.
type tool struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
	Custom struct {
		Name string `json:"name"`
	} `json:"custom"`
}

// isCustom reports whether name is a custom tool, whose calls have free text instead of JSON.
func isCustom(tools []tool, name string) bool {
	return slices.ContainsFunc(tools, func(t tool) bool {
		return t.Type == "custom" && (t.Name == name || t.Custom.Name == name)
	})
}

type streamOptions struct {
	IncludeUsage       bool  `json:"include_usage"`
	IncludeObfuscation *bool `json:"include_obfuscation"`
}

func wantsObfuscation(so *streamOptions) bool {
	return so == nil || so.IncludeObfuscation == nil || *so.IncludeObfuscation
}

// usage is in tokens. A token is four bytes, unless the answer sets its usage.
type usage struct{ input, cached, output, reasoning int }

func usageOf(history int, a Answer) usage {
	n := len(a.Text) + len(a.Refusal)
	for _, c := range a.Calls {
		n += len(c.Name) + len(c.Arguments)
	}
	u := usage{input: history/4 + 1, reasoning: len(a.Reasoning) / 4}
	if a.Usage != (script.Usage{}) {
		u.input, u.cached = a.Usage.Prompt, a.Usage.Cached
	}
	u.output = n/4 + 1 + u.reasoning
	return u
}
