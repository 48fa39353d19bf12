package media_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"remora/memory/media"
)

// values returns the stored form of the pieces.
func values(pieces []media.Piece) (list [][]byte) {
	for _, p := range pieces {
		list = append(list, p.Encode())
	}
	return list
}

// Whatever the strings hold, an item comes back with the bytes that it had.
func TestWhatIsCutComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var words []string
		for range rapid.IntRange(1, 5).Draw(t, "strings") {
			word := rapid.SampledFrom([]string{`\`, `"`, `\"`, "a", "é", "\n", `\\`, ""}).Draw(t, "word")
			words = append(words, word+strings.Repeat(word, rapid.IntRange(0, 2*media.Large).Draw(t, "times"))+word)
		}
		raw, err := json.Marshal(map[string]any{"content": words, words[0]: 1})
		if err != nil {
			t.Fatal(err)
		}
		kept, pieces := media.Cut(raw)
		if kept == nil {
			if len(pieces) > 0 {
				t.Fatal("pieces of nothing")
			}
			return
		}
		for _, p := range pieces {
			if len(p.Data) < media.Large {
				t.Errorf("a piece of %d bytes", len(p.Data))
			}
		}
		digests, err := media.Digests(kept)
		if err != nil || len(digests) != len(pieces) {
			t.Fatalf("%d digests of %d pieces: %v", len(digests), len(pieces), err)
		}
		for i, d := range digests {
			if d != pieces[i].Digest {
				t.Errorf("digest %d is another", i)
			}
		}
		again, err := media.Join(kept, values(pieces))
		if err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%d bytes came back of %d: %v", len(again), len(raw), err)
		}
		if rest, err := media.Without(kept, "x"); err != nil || !json.Valid(rest) || len(rest) > len(raw)-len(pieces)*(media.Large-1) {
			t.Errorf("without its pieces it is %d bytes of %d: %v", len(rest), len(raw), err)
		}
		if _, err := media.Join(kept, nil); !errors.Is(err, media.ErrCorrupt) {
			t.Errorf("without its pieces: %v", err)
		}
	})
}

func TestOnlyLargeStringsAreCut(t *testing.T) {
	text := strings.Repeat("x", media.Large)
	for raw, want := range map[string]int{
		`{"role":"user","content":"` + text[1:] + `"}`:                                                        0,
		`{"role":"user","content":"` + text + `"}`:                                                            1,
		`{"content":[` + strings.Repeat(`{"text":"short"},`, media.Large) + `1]}`:                             0,
		`{"content":[{"url":"` + text + `"},{"url":"` + text + `"}],"n":[1,2.5,true,null],"":"` + text + `"}`: 3,
	} {
		if kept, pieces := media.Cut([]byte(raw)); len(pieces) != want || (kept == nil) != (want == 0) || len(kept) > len(raw)-want*(media.Large-40) {
			t.Errorf("%.40s: %d pieces, %d bytes kept", raw, len(pieces), len(kept))
		}
	}
}

// Whatever stands in the store, reading it neither panics nor takes more memory than it may.
func FuzzJoin(f *testing.F) {
	kept, pieces := media.Cut([]byte(`{"url":"` + strings.Repeat("x", media.Large) + `"}`))
	f.Add(kept, pieces[0].Encode())
	f.Add([]byte{1, 200}, []byte{255, 255, 255, 255, 15, 0})
	f.Fuzz(func(_ *testing.T, kept, value []byte) {
		digests, err := media.Digests(kept)
		if err != nil || len(digests) > 4 {
			return
		}
		list := make([][]byte, len(digests))
		for i := range list {
			list[i] = value
		}
		_, _ = media.Join(kept, list)
	})
}
