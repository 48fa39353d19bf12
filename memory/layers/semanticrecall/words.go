package semanticrecall

import (
	"maps"
	"strings"
	"unicode"

	"remora/memory/index"
)

// same reports whether the words of two texts are nearly equal: at least five of six are in both, and all with a digit.
func same(a, b index.WordSet) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	shared := a.In(b)
	return 6*shared >= 5*(len(a)+len(b)-shared) && maps.Equal(numbers(a), numbers(b))
}

// numbers returns the words that have a digit.
func numbers(words index.WordSet) index.WordSet {
	n := index.WordSet{}
	for w := range words {
		if strings.ContainsFunc(w, unicode.IsDigit) {
			n[w] = true
		}
	}
	return n
}

// echoes reports whether a statement only repeats the question in nearly the same words: it has no other words, or is a
// question, too.
func echoes(said, asked index.WordSet, text string) bool {
	return len(said) == 0 || same(said, asked) && (said.In(asked) == len(said) || index.Asks(text))
}
