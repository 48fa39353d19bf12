package semanticrecall

import "remora/memory/index"

// words is the set of a text's words.
type words map[string]bool

func newWords(text string) words {
	w := words{}
	for _, s := range index.Words(text) {
		w[s] = true
	}
	return w
}

// same reports whether two texts say nearly the same: at least five of six words are in both.
func (w words) same(o words) bool {
	if len(w) == 0 || len(o) == 0 {
		return false
	}
	shared := 0
	for s := range w {
		if o[s] {
			shared++
		}
	}
	return 6*shared >= 5*(len(w)+len(o)-shared)
}
