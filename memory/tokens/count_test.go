package tokens

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// pieces are texts that the patterns and their backtracking treat specially; random characters hardly ever form them.
var pieces = []string{
	"'s", "'S", "'t", "'re", "'RE", "'vE", "'m", "'ll", "'lL", "'d", "'l", "'", "'ſ", "’s", "a'", "''s",
	" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", " \n ", "\v", "\f", "\u0085", "\u00a0", "\u2003", "\u3000", "\u2028", "\u200b",
	"a", "b", "the", "Hello", "HELLO", "World", "iPhone", "McDonald", "XMLHttpRequest", "Z", "É", "é", "e\u0301", "\u0301", "\u0301\u0301", "ß", "ﬁ",
	"ǅ", "ʰ", "ˈ", "ª", "あ", "カ", "ー", "漢", "字", "中文", "한국어", "ا", "ُ", "ع", "ह", "ि", "न्दी", "ไทย", "Ж", "ж", "א", "ִ",
	"0", "1", "12", "123", "1234", "٣", "Ⅷ", "½", "①", "一",
	"/", "//", "/*", "#", "()", "{}", "!", "...", "…", "—", "€", "\\", "\"", "<|endoftext|>", "<|im_start|>", "=", "==", "_", "__", "-",
	"😀", "👩‍👩‍👧", "🇩🇪", "\ufe0f", "\ufeff", "\ufffd", "\u0000", "\u007f", "𝒳", "𝟗", "𐐀", "𐐨", "𠀀", "\U000e0061", "\U0010ffff", "\u0378",
}

func texts() *rapid.Generator[string] {
	piece := rapid.OneOf(rapid.SampledFrom(pieces), rapid.SampledFrom(pieces), rapid.Map(rapid.Rune(), func(r rune) string { return string(r) }))
	return rapid.Map(rapid.SliceOfN(piece, 0, 40), func(all []string) string { return strings.Join(all, "") })
}

func same(tb rapid.TB, text string) {
	tb.Helper()
	var m merger
	for _, e := range both {
		want := len(reference[e]().EncodeOrdinary(text))
		if got := loaded[e]().count(&m, []byte(text)); got != want {
			tb.Errorf("%s: %q is %d tokens, want %d", e, text, got, want)
		}
	}
}

func TestCountIsThatOfTiktoken(t *testing.T) {
	for _, a := range pieces {
		for _, b := range pieces {
			same(t, a+b)
		}
	}
	for name, text := range corpora(t) {
		t.Run(name, func(t *testing.T) {
			for line := range strings.SplitAfterSeq(text, "\n\n") {
				same(t, line)
			}
		})
	}
	// Long enough for the heap, and around the place where it begins.
	for n := range 3 * smallPiece {
		same(t, strings.Repeat("a", n))
		same(t, "x"+strings.Repeat("ab", n))
		same(t, strings.Repeat(" ", n)+"x")
		same(t, strings.Repeat("漢字", n/2))
		same(t, strings.Repeat("=", n)+strings.Repeat("\n", n))
	}
}

func TestCountIsThatOfTiktokenOnAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { same(t, texts().Draw(t, "text")) })
}

// TestMergesAgree compares the two ways of merging, since tiktoken-go is too slow for long pieces.
func TestMergesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte("aaaabbethinr =\n\xe6\xbc\xa2\xad")), 2, smallPiece).Draw(t, "piece")
		var m merger
		for _, e := range both {
			v := loaded[e]()
			if short, long := v.short(&m, b), v.long(&m, b); short != long {
				t.Fatalf("%s: %q is %d parts, by the heap %d", e, b, short, long)
			}
		}
	})
}

func FuzzCount(f *testing.F) {
	for _, p := range pieces {
		f.Add(p)
	}
	f.Add("The quick brown fox'LL jump\r\n\r\n  over 12345 lazy dogs…")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 { // quadratic over there
			text = text[:4096]
		}
		same(t, strings.ToValidUTF8(text, "\ufffd"))
	})
}

// TestPiecesCoverTheText: the pieces of any text follow each other without a gap and end on characters.
func TestPiecesCoverTheText(t *testing.T) {
	c := newClasses()
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(texts().Draw(t, "text"))
		for _, e := range both {
			for i := 0; i < len(b); {
				next := e.splitter()(c, b, i)
				if next <= i || next > len(b) || next < len(b) && !utf8.RuneStart(b[next]) {
					t.Fatalf("%s: piece of %q from %d to %d", e, b, i, next)
				}
				i = next
			}
		}
	})
}

// TestEndlessPiecesAreEstimated: megabytes without a blank take no longer than some kilobytes, and cost what they would alone.
func TestEndlessPiecesAreEstimated(t *testing.T) {
	var m merger
	for _, e := range both {
		v := loaded[e]()
		for _, unit := range []string{"a", "漢", " ", "=", "😀"} {
			part := strings.Repeat(unit, maxSlices*maxPiece/len(unit))
			const times = 60
			want := times * v.count(&m, []byte(part))
			if got := v.count(&m, []byte(strings.Repeat(part, times))); got < want*98/100 || got > want*102/100 {
				t.Errorf("%s: megabytes of %.9q are %d tokens, want %d", e, unit, got, want)
			}
		}
	}
}

// TestLongPiecesAreSliced: each slice costs what it would alone, and none is cut within a character.
func TestLongPiecesAreSliced(t *testing.T) {
	var m merger
	for _, e := range both {
		v := loaded[e]()
		for _, unit := range []string{"a", "漢", " ", "=", "😀", "\u0301"} {
			one := strings.Repeat(unit, maxPiece/len(unit))
			want := 16 * v.count(&m, []byte(one))
			if got := v.count(&m, []byte(strings.Repeat(one, 16))); got != want {
				t.Errorf("%s: 16 slices of %q are %d tokens, want %d", e, unit, got, want)
			}
		}
	}
}
