package observational

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"remora/memory/layer"
	"remora/memory/ownwords"
)

// everywhere are the expressions of the cues as they read by themselves, tried at every word.
func everywhere() [cues]*regexp.Regexp {
	var all [cues]*regexp.Regexp
	for c := range cues {
		if c < leading {
			all[c] = regexp.MustCompile(`(?i)^(?:` + spelled[c] + `)`)
		} else {
			all[c] = regexp.MustCompile(`(?i)\b(?:` + spelled[c] + `)`)
		}
	}
	return all
}

var aName = regexp.MustCompile(`[\p{L}\d,;:.]\s+["'(]?\p{Lu}[\p{L}\d'’-]+`)

func sameSigns(t *testing.T, want [cues]*regexp.Regexp, text string) {
	t.Helper()
	s := signsOf(text)
	for c := range cues {
		if got := s.has(c); got != want[c].MatchString(text) {
			t.Fatalf("cue %d of %q: have %v", c, text, got)
		}
	}
	if got := proper(text); got != aName.MatchString(text) {
		t.Fatalf("a name in %q: have %v", text, got)
	}
}

// TestSigns: looking only where a cue's first word stands finds the same as looking everywhere.
func TestSigns(t *testing.T) {
	want := everywhere()
	words := regexp.MustCompile(`[a-zA-Z']+`).FindAllString(strings.Join(spelled[:], " "), -1)
	for _, w := range words {
		for _, text := range []string{w, strings.ToUpper(w) + " it", "Ana " + w + "s", "é" + w + " to Bob", "x" + w, "_" + w + ", (Eve)", w + " 'Eve"} {
			sameSigns(t, want, text)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var b strings.Builder
		for range 1 + r.IntN(10) {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteString([]string{" ", " ", " ", " ", " ", "  ", "'", ", ", " Ana ", " 'Eve' ", " 3 "}[r.IntN(11)])
		}
		sameSigns(t, want, b.String())
	}
}

// FuzzSigns is the same of any text but those with the two letters beyond ASCII that fold to one of it.
func FuzzSigns(f *testing.F) {
	want := everywhere()
	f.Add("If I ask, we don't really like that my dog's Rex, will be 3 days ago")
	f.Add("It's our plan to go; \"Ana\" is (Bob) in two weeks")
	f.Fuzz(func(t *testing.T, text string) {
		text = layer.Head(text, ownwords.MaxSentence)
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\u017f\u212a\n") {
			t.Skip("no sentence has these")
		}
		sameSigns(t, want, text)
	})
}
