package session

import (
	"strings"
	"testing"
)

// TestEndsOfLongTexts: of a long text the beginning and the end are read, cut between lines or words. A half of a key or of a
// password says nothing, and nothing shows that it is one.
func TestEndsOfLongTexts(t *testing.T) {
	lines, words, middle := strings.Repeat("a line\n", 1150), strings.Repeat("a word ", 1150), strings.Repeat("x", 4*maxSaidText)
	for _, c := range []struct{ name, text, want string }{
		{"short", lines, lines},
		{"between lines", lines + middle + "\n" + lines, lines + "\n" + lines},
		{"between words", words + middle + " " + words, strings.TrimRight(words, " ") + "\n\n" + words},
		{"one word", strings.Repeat("y", 2*maxSaidText+1), strings.Repeat("y", maxSaidText) + "\n\n" + strings.Repeat("y", maxSaidText)},
		{"one word of letters beyond ASCII", "a" + strings.Repeat("ü", maxSaidText), "a" + strings.Repeat("ü", maxSaidText/2-1) + "\n\n" + strings.Repeat("ü", maxSaidText/2)},
	} {
		if got := ends(c.text); got != c.want {
			t.Errorf("%s: %d bytes that begin with %.40q and end with %.40q", c.name, len(got), got, got[max(0, len(got)-40):])
		}
	}
}
