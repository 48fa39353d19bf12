package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OneLine makes text one line: runs of white space and control characters become one space, invalid UTF-8 is replaced, and
// what Hidden names is left out.
func OneLine(text string) string {
	gap := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return strings.Join(strings.FieldsFunc(Shown(strings.ToValidUTF8(text, "\uFFFD")), gap), " ")
}

// Shown is text without the characters of Hidden.
func Shown(text string) string {
	if !strings.ContainsFunc(text, Hidden) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if Hidden(r) {
			return -1
		}
		return r
	}, text)
}

// Hidden reports whether a character shows nothing and can carry what a reader of the text does not see, or let it appear in
// another order than it has: tags, which spell ASCII invisibly, variation selectors beyond those of emoji, marks and overrides of
// direction, and spaces without width. The joiners that Persian, Indian scripts and emoji are written with are not.
func Hidden(r rune) bool {
	switch {
	case r < '\u00AD':
		return false
	case r == '\u00AD', r == '\u061C', r == '\u180E', r == '\u200B', r == '\u200E', r == '\u200F', r == '\uFEFF':
		return true
	}
	return r >= '\u202A' && r <= '\u202E' || r >= '\u2060' && r <= '\u206F' || r >= 0xE0000 && r <= 0xE0FFF
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
	for back := 1; back < utf8.UTFMax && limit > 0 && !utf8.RuneStart(s[limit]); back++ {
		limit--
	}
	return strings.Clone(s[:limit])
}
