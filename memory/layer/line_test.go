package layer_test

import (
	"testing"

	"remora/memory/layer"
)

func TestLine(t *testing.T) {
	for _, c := range []struct{ text, line, head string }{
		{"", "", ""},
		{" a\t\n\x00b ", "a b", " a\t\n\x00b "},
		{"a\xffb", "a\uFFFDb", "a\xffb"},
		{"a\u202Eb\u2066\u200B", "ab", "a\u202Eb\u2066"},
		{"\U000E0069\U000E0067c", "c", "\U000E0069\U000E0067"},
		{"क्\u200Dष", "क्\u200Dष", "क्"},
		{"12345678", "12345678", "12345678"},
		{"123456789", "12345...", "12345678"},
		{"äöüäöüäö", "äöüäöüäö", "äöüä"},
		{"äöüäöüäöü", "äöüäö...", "äöüä"},
		{"1äöüäöü", "1äöüäöü", "1äöü"}, // a character ends behind the limit
	} {
		if got := layer.Line(c.text, 8); got != c.line {
			t.Errorf("line of %q: %q, want %q", c.text, got, c.line)
		}
		if got := layer.Head(c.text, 8); got != c.head {
			t.Errorf("head of %q: %q, want %q", c.text, got, c.head)
		}
	}
}
