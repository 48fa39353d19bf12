package semanticrecall

import (
	"strings"
	"unicode"

	"remora/memory/index"
)

// words is the set of a text's words.
type words index.WordSet

func newWords(text string) words { return words(index.Words(text)) }

// same reports whether two texts are nearly equal: at least five of six words are in both, and all words with a digit.
func (w words) same(o words) bool {
	if len(w) == 0 || len(o) == 0 {
		return false
	}
	shared := w.in(o)
	return 6*shared >= 5*(len(w)+len(o)-shared) && w.numbers().equal(o.numbers())
}

// in counts the words that are in other.
func (w words) in(o words) int { return index.WordSet(w).In(index.WordSet(o)) }

func (w words) equal(o words) bool { return len(w) == len(o) && w.in(o) == len(w) }

// numbers returns the words that have a digit.
func (w words) numbers() words {
	n := words{}
	for s := range w {
		if strings.ContainsFunc(s, unicode.IsDigit) {
			n[s] = true
		}
	}
	return n
}

// echoes reports whether a statement only repeats the question in nearly the same words: it has no other words, or is a
// question, too.
func (w words) echoes(asked words, text string) bool {
	return len(w) == 0 || w.same(asked) && (w.in(asked) == len(w) || index.Asks(text))
}
