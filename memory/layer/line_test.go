package layer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
)

// TestAnswerLines: models begin with a heading and number their lines, whatever they are asked for.
func TestAnswerLines(t *testing.T) {
	const answer = "Sure! Here is what I noted:\n\n**Facts:**\n1. user: Ann likes tea.\n 12) user: The key is 1. 2\n- user: #7 is due.\n" +
		"```\n2026-03-05 | The visit was moved.\nNone.\n* 3.5 percent: the fee\ncut"
	want := []string{"user: Ann likes tea.", "user: The key is 1. 2", "user: #7 is due.", "2026-03-05 | The visit was moved.", "3.5 percent: the fee"}
	if diff := cmp.Diff(want, layer.AnswerLines(answer, len(answer)-len("cut"))); diff != "" {
		t.Error(diff)
	}
}

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
		{"1äöüäöü", "1äöüäöü", "1äöü"}, // a character ends after the limit
	} {
		if got := layer.Line(c.text, 8); got != c.line {
			t.Errorf("line of %q: %q, want %q", c.text, got, c.line)
		}
		if got := layer.Head(c.text, 8); got != c.head {
			t.Errorf("head of %q: %q, want %q", c.text, got, c.head)
		}
	}
}
