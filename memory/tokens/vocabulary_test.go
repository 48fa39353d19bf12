package tokens

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

var both = []encoding{o200kBase, cl100kBase}

// loaded are the vocabularies, read once for all tests.
var loaded = [encodings]func() *vocabulary{
	o200kBase:  sync.OnceValue(func() *vocabulary { return mustLoad(o200kBase) }),
	cl100kBase: sync.OnceValue(func() *vocabulary { return mustLoad(cl100kBase) }),
}

func mustLoad(e encoding) *vocabulary {
	v, err := load(e, newClasses())
	if err != nil {
		panic(err)
	}
	return v
}

// reference holds the encodings of tiktoken-go, which counts slowly and right.
var reference = [encodings]func() *tiktoken.Tiktoken{
	o200kBase:  sync.OnceValue(func() *tiktoken.Tiktoken { return mustReference(o200kBase) }),
	cl100kBase: sync.OnceValue(func() *tiktoken.Tiktoken { return mustReference(cl100kBase) }),
}

func mustReference(e encoding) *tiktoken.Tiktoken {
	tiktoken.SetBpeLoader(loader.NewOfflineLoader())
	t, err := tiktoken.GetEncoding(e.String())
	if err != nil {
		panic(err)
	}
	return t
}

func ranksOf(t *testing.T, e encoding) map[string]int {
	t.Helper()
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe(e.String() + ".tiktoken")
	if err != nil {
		t.Fatal(err)
	}
	return ranks
}

func TestRanks(t *testing.T) {
	for _, e := range both {
		v, ranks := loaded[e](), ranksOf(t, e)
		for token, rank := range ranks {
			if got := v.rank([]byte(token)); got != uint32(rank) {
				t.Fatalf("%s: token %q has rank %d, want %d", e, token, got, rank)
			}
			// One byte more is most often no token: the table must say so.
			longer := token + "\xff"
			want := uint32(noRank)
			if r, ok := ranks[longer]; ok {
				want = uint32(r)
			}
			if got := v.rank([]byte(longer)); got != want {
				t.Fatalf("%s: token %q has rank %d, want %d", e, longer, got, want)
			}
		}
		if got := v.rank(nil); got != noRank {
			t.Errorf("%s: no bytes have rank %d", e, got)
		}
	}
}

// TestProbesStayShort bounds what a hostile text can make of the hash table.
func TestProbesStayShort(t *testing.T) {
	for _, e := range both {
		v, longest, run := loaded[e](), 0, 0
		for _, slot := range slices.Concat(v.slots, v.slots) { // twice: a run may go over the end
			if run++; slot == 0 {
				run = 0
			}
			longest = max(longest, run)
		}
		if longest > 64 {
			t.Errorf("%s: %d slots in a row are taken", e, longest)
		}
	}
}

func TestDamagedVocabularies(t *testing.T) {
	f := func(name, lines string) {
		t.Helper()
		if v, err := parse([]byte(lines)); err == nil {
			t.Errorf("%s: got %d slots", name, len(v.slots))
		}
	}
	f("empty", "")
	f("without the first token", "IQ== 1\n")
	f("without one between", "IQ== 0\nIg== 2\n")
	f("no rank", "IQ==\n")
	f("no base64", "!! 0\n")
	f("a rank in words", "IQ== zero\n")
	f("empty token", " 0\n")
	f("long token", base64.StdEncoding.EncodeToString(make([]byte, maxToken+1))+" 0\n")
	var many strings.Builder
	for i := range 1 << rankBits {
		fmt.Fprintf(&many, "IQ== %d\n", i)
	}
	f("too many tokens", many.String())
}

func TestClasses(t *testing.T) {
	c := newClasses()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		var want class
		for _, is := range []struct {
			in    bool
			class class
		}{
			{unicode.IsLower(r) && unicode.Is(unicode.Ll, r), lower},
			{unicode.In(r, unicode.Lu, unicode.Lt), upper},
			{unicode.In(r, unicode.Lm, unicode.Lo), caseless},
			{unicode.Is(unicode.M, r), mark},
			{unicode.Is(unicode.N, r), number},
			{unicode.IsSpace(r), space},
			{r == '\r' || r == '\n', newline},
		} {
			if is.in {
				want |= is.class
			}
		}
		b := []byte(string(r))
		got, size := c.at(b, 0)
		if r >= 0xD800 && r < 0xE000 {
			continue // no character: string has made it U+FFFD
		}
		if got != want || size != len(b) {
			t.Fatalf("%U: class %b of %d bytes, want %b of %d", r, got, size, want, len(b))
		}
	}
	if len(c.pages) > 255 {
		t.Errorf("%d pages do not fit their index", len(c.pages))
	}
	if k, size := c.at(nil, 0); k != end || size != 0 {
		t.Errorf("behind the end: class %b of %d bytes", k, size)
	}
}
