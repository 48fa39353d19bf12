package wordvectors_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"remora/memory/wordvectors"
)

func write(tb testing.TB, text string) string {
	tb.Helper()
	p := filepath.Join(tb.TempDir(), "table.vec")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return p
}

func open(tb testing.TB, text string) *wordvectors.Table {
	tb.Helper()
	table, err := wordvectors.Open(write(tb, text))
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// like reports whether two vectors have one direction.
func like(a, b []float32) bool {
	var dot, aa, bb float64
	for i := range a {
		if i >= len(b) {
			return false
		}
		dot, aa, bb = dot+float64(a[i]*b[i]), aa+float64(a[i]*a[i]), bb+float64(b[i]*b[i])
	}
	return len(a) == len(b) && (len(a) == 0 || dot/math.Sqrt(aa*bb) > 0.9999)
}

// TestVector: a text is the sum of its words, and of their pieces where it has a word in pieces only.
func TestVector(t *testing.T) {
	table := open(t, "cat 1 0 0 0\nParis 0 0 1 0\ndog 0 2 0 0\nplay 0 0 0 1\n##ing 0 0 1 0\n##er 0 1 0 0\n猫 1 0 0 0\n黒い 0 0 1 0\nsaint john 9 9 9 9\nx.y 1 1 1 1\n")
	for _, c := range []struct {
		text string
		want []float32
	}{
		{"cat", []float32{1, 0, 0, 0}},
		{"The CAT!", []float32{1, 0, 0, 0}},
		{"cat dog", []float32{1, 2, 0, 0}},
		{"'cat', (dog) cat.", []float32{2, 2, 0, 0}},
		{"Paris", []float32{0, 0, 1, 0}},
		{"paris", nil},
		{"playing", []float32{0, 0, 1, 1}},
		{"playerish", nil},
		{"黒い猫です", []float32{1, 0, 1, 0}},
		{"", nil},
		{"zebra", nil},
		{strings.Repeat("play", 100), nil},
	} {
		if got := table.Vector(c.text); !like(got, c.want) {
			t.Errorf("%q: %v, want the direction of %v", c.text, got, c.want)
		}
	}
}

// TestForms: a first line with counts, line ends of any kind, and words twice are taken as such files have them.
func TestForms(t *testing.T) {
	for _, text := range []string{"cat 1 0\ndog 0 1", "2 2\ncat 1 0\ndog 0 1\n", "cat 1 0 \r\ndog 0 1 \r\n", "cat 1 0\ncat 5 5\ndog 0 1\n", "cat 1e0 0\n\ndog 0 1\n"} {
		if got := open(t, text).Vector("dog cat dog"); !like(got, []float32{1, 2}) {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "have none",
		"2 2\n":                             "have none",
		"cat\n":                             "line 1: want a row of 2 to 2048 numbers",
		"cat 1 0\ndog 1\n":                  "line 2: want a row of 2 to 2048 numbers, as many as in the first row, have 1",
		"<html> <body>\n":                   "line 1: want a word and its numbers",
		"a secret text that has no numbers": "line 1: want a word and its numbers",
		"cat 1 NaN\n":                       "line 1: want a word and its numbers",
		"cat" + strings.Repeat(" 1", 3000):  "line 1: want a row of 2 to 2048 numbers",
		strings.Repeat("x", 100<<10):        "line 1: want at most 65536 bytes",
		"\x00\xff\x00\xff \x01 \x02 \x03\n": "line 1: want a word and its numbers",
	} {
		path := write(t, text)
		_, err := wordvectors.Open(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
		if err := wordvectors.Check(path); err == nil {
			t.Errorf("%.40q passes the check", text)
		}
	}
	if _, err := wordvectors.Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is opened")
	}
	if err := wordvectors.Check(write(t, "a 1 0\nb 1 0\nc 1 0\nd 1 0\ne 1 0\nf 1 0\ng 1 0\nh 1 0\ni 1 0\nj 1 0\nbroken further down")); err != nil {
		t.Errorf("the check reads more than the first rows: %v", err)
	}
}

func FuzzVector(f *testing.F) {
	table := open(f, "cat 1 0\n##s 0 1\n猫 1 0\n")
	for _, s := range []string{"cats", "猫猫", "\xff\xfe", "a\u0301", "''"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v := table.Vector(text); v != nil && len(v) != 2 {
			t.Errorf("%q: %v", text, v)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	var text strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&text, "w%d", i)
		for j := range 256 {
			fmt.Fprintf(&text, " %.4f", math.Sin(float64(i*j)))
		}
		text.WriteByte('\n')
	}
	path := write(b, text.String())
	for b.Loop() {
		if _, err := wordvectors.Open(path); err != nil {
			b.Fatal(err)
		}
	}
}
