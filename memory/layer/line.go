package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OneLine makes text one line: runs of white space and control characters become one space, and invalid UTF-8 is
// replaced.
func OneLine(text string) string {
	gap := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), gap), " ")
}

// Line is OneLine of at most limit characters, more than 3; a cut text ends in "...".
func Line(text string, limit int) string {
	text = OneLine(text)
	if utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit-len(cutMark)]) + cutMark
	}
	return text
}

// Digest names an id, of any length and with any characters, in 24 characters that do not show it. Layers name by it the
// sessions from which they have learnt something.
func Digest(id string) string {
	const enough = 12 // bytes
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:enough])
}

// Head returns the beginning of a text, at most limit bytes of it, cut between characters. What is cut keeps no memory of
// the rest.
func Head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.Clone(s[:limit])
}
