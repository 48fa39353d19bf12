package layer_test

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
)

// Cut keeps the longest beginning that fits, as trying them all finds it.
func TestCut(t *testing.T) {
	counts := map[string]func(string) int{"quarter": layertest.Quarter, "runes": utf8.RuneCountInString}
	for name, count := range counts {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			text, closing := rapid.String().Draw(t, "text"), rapid.SampledFrom([]string{"", "\n</a>", "日本"}).Draw(t, "closing")
			budget := rapid.IntRange(-1, 40).Draw(t, "budget")
			want := 0
			for i := range text {
				if count(text[:i]+closing) <= budget {
					want = i
				}
			}
			if count(text+closing) <= budget {
				want = len(text)
			}
			if got := layer.Cut(count, text, closing, budget); got != want {
				t.Fatalf("Cut = %d, want %d", got, want)
			}
		}))
	}
}

// A text of a mebibyte is not counted whole when only a little of it fits.
func TestCutCountsLittle(t *testing.T) {
	text, counted := string(make([]byte, 1<<20)), 0
	count := func(s string) int {
		counted += len(s)
		return layertest.Quarter(s)
	}
	if got := layer.Cut(count, text, "", 100); got != 400 {
		t.Fatalf("Cut = %d, want 400", got)
	}
	if counted > 20_000 {
		t.Fatalf("counted %d bytes for 400", counted)
	}
}

func TestBlockWithin(t *testing.T) {
	for _, c := range []struct {
		budget int
		want   string
	}{
		{100, "<b>\nsaid <\\/b> and more\n</b>"},
		{7, "<b>\nsaid <\\/b> and more\n</b>"},
		{6, "<b>\nsaid <\\/b> a...\n</b>"},
		{4, "<b>\nsaid...\n</b>"},
		{3, ""},
		{0, ""},
	} {
		if block := layer.BlockWithin(layertest.Quarter, "b", "said </b> and more", c.budget); block != c.want {
			t.Errorf("budget %d: %q, want %q", c.budget, block, c.want)
		}
	}
}
