package index_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"remora/memory/index"
)

// chat makes n turns of 20 per session, with words as frequent as in a language: the k-th word about 1/k.
func chat(n int) []index.Turn {
	r := rand.New(rand.NewPCG(7, 7))
	words := rand.NewZipf(r, 1.1, 4, 8000)
	start := time.Date(2024, 1, 1, 9, 0, 0, 0, time.UTC)
	turns := make([]index.Turn, n)
	for i := range turns {
		var b strings.Builder
		for range 8 + r.IntN(30) {
			fmt.Fprintf(&b, "%s ", word(words.Uint64()))
		}
		session := i / 20
		turns[i] = index.Turn{
			ID: fmt.Sprintf("i%d", i), Session: fmt.Sprintf("s%d", session), Speaker: [2]string{"Ann", "Bob"}[i%2],
			Time: start.AddDate(0, 0, session), Text: b.String(),
		}
	}
	return turns
}

// word spells a number with letters.
func word(n uint64) string {
	const consonants, vowels = "bdfgklmnprtv", "aiou"
	w := ""
	for n++; n > 0; n /= 48 {
		w += string(consonants[n%12]) + string(vowels[n/12%4])
	}
	return w
}

func questions(turns []index.Turn) []string {
	r := rand.New(rand.NewPCG(9, 9))
	all := make([]string, 64)
	for i := range all {
		words := strings.Fields(turns[r.IntN(len(turns))].Text)
		all[i] = "When did Ann " + strings.Join(words[:6], " ") + " in May 2024?"
	}
	return all
}

func BenchmarkSearch(b *testing.B) {
	for _, n := range []int{600, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			turns := chat(n)
			ix := index.New()
			for _, t := range turns {
				ix.Add(t)
			}
			asked := questions(turns)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ix.Search(index.Question{Text: asked[i%len(asked)]}, 50, nil)
			}
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	turns := chat(10_000)
	ix := index.New()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(turns) == 0 {
			ix = index.New()
		}
		ix.Add(turns[i%len(turns)])
	}
	b.ReportMetric(float64(ix.Bytes())/float64(max(1, ix.Len())), "B/turn")
}
