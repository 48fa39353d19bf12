package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OneLine makes text one line: runs of white space and control characters become one space, invalid UTF-8 is replaced, and
// hidden characters are removed.
func OneLine(text string) string {
	gap := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return strings.Join(strings.FieldsFunc(WithoutHidden(strings.ToValidUTF8(text, "\uFFFD")), gap), " ")
}

// WithoutHidden returns text without hidden characters.
func WithoutHidden(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if hidden(r) {
			return -1
		}
		return r
	}, text)
}

// hidden reports whether an invisible character can carry hidden text or change the displayed order: tags, which encode ASCII
// invisibly, variation selectors beyond those of emoji, direction marks and overrides, and zero-width spaces. The joiners of
// Persian, Indian scripts and emoji are not hidden.
func hidden(r rune) bool {
	switch {
	case r < '\u00AD':
		return false
	case r == '\u00AD', r == '\u061C', r == '\u180E', r == '\u200B', r == '\u200E', r == '\u200F', r == '\uFEFF':
		return true
	}
	return r >= '\u202A' && r <= '\u202E' || r >= '\u2060' && r <= '\u206F' || r >= 0xE0000 && r <= 0xE0FFF
}

// Lines replaces the characters of a text that could end or hide a line, other than line feeds: control characters but tabs become
// a space, invalid UTF-8 and hidden characters are removed.
func Lines(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, WithoutHidden(strings.ToValidUTF8(text, "")))
}

// Line is OneLine of at most limit characters, more than 3; a cut text ends in "...".
func Line(text string, limit int) string {
	text = OneLine(text)
	if utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit-len(CutMark)]) + CutMark
	}
	return text
}

// Digest returns a one-way digest of an id, in 24 characters. Layers use it to record source sessions.
func Digest(id string) string {
	const enough = 12 // bytes
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:enough])
}

// Head returns the beginning of a text, at most limit bytes of it, cut between characters. A cut text does not keep the rest in
// memory.
func Head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.Clone(s[:boundary(s, limit)])
}

// numbering begins a line of a numbered list.
var numbering = Lazily(`^\d{1,2}[.)]\s+`)

// AnswerLines returns the lines of a model's answer, of which it reads at most that many bytes, without the marks of a list,
// headings ("Here are the facts:"), fences and NONE.
func AnswerLines(answer string, most int) []string {
	var found []string
	for l := range strings.Lines(Head(answer, most)) {
		l = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(l), "-*\u2022 \t"))
		l = strings.TrimLeft(numbering().ReplaceAllLiteralString(l, ""), "*")
		heading := strings.HasSuffix(strings.TrimRight(l, "*"), ":")
		if l != "" && !heading && !strings.EqualFold(strings.Trim(l, ".`"), "none") && !strings.HasPrefix(l, "```") {
			found = append(found, l)
		}
	}
	return found
}
