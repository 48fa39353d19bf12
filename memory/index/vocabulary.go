package index

import (
	"cmp"
	"slices"
)

// vocabulary numbers the terms of an index, and finds those that are like a word.
type vocabulary struct {
	numbers  map[string]uint32 // by stem
	spelling []string          // by number
	grams    map[gram][]uint32 // the terms that have these letters
	bytes    int
}

func newVocabulary() vocabulary {
	return vocabulary{numbers: map[string]uint32{}, grams: map[gram][]uint32{}}
}

// number returns the number of a stem, the next one where it is new.
func (v *vocabulary) number(stem []byte) uint32 {
	n, ok := v.numbers[string(stem)]
	if !ok {
		n = uint32(small(len(v.spelling))) //nolint:gosec // never negative
		word := string(stem)
		v.numbers[word] = n
		v.spelling = append(v.spelling, word)
		v.bytes += termBytes + len(stem)
		grams(word, func(g gram) {
			list := v.grams[g]
			if at := len(list); at == 0 || list[at-1] != n {
				v.grams[g] = append(list, n)
				v.bytes += gramBytes
			}
		})
	}
	return n
}

// gram is three letters that stand together in a word. A word begins and ends with a gap.
type gram [3]byte

// minGrams is the length in bytes of the shortest word that has grams: shorter words resemble too many others.
const minGrams = 4

// grams yields the grams of a word.
func grams(word string, yield func(gram)) {
	if len(word) < minGrams || word[0] < 'a' && word[0] != ' ' {
		return // a number, or too short
	}
	yield(gram{' ', word[0], word[1]})
	for i := 2; i < len(word); i++ {
		yield(gram{word[i-2], word[i-1], word[i]})
	}
}

// relatedTerm is a term in the place of one of the question.
type relatedTerm struct {
	term   uint32
	weight float32
}

// How much related terms count, and how alike words have to be to be related.
const (
	synonymWeight = 0.5
	leastAlike    = 0.5
	maxRelated    = 8
)

// likeness holds the buffers of vocabulary.related.
type likeness struct {
	found  []relatedTerm
	shared map[uint32]int8 // letters that a term has in common with the word
}

// related finds terms with nearly the same meaning or spelling as a word. They hold until the next call with the same buffers.
func (v *vocabulary) related(word string, buffers *likeness) []relatedTerm {
	buffers.found = buffers.found[:0]
	for _, o := range synonyms()[word] {
		if term, ok := v.numbers[o]; ok {
			buffers.found = append(buffers.found, relatedTerm{term, synonymWeight})
		}
	}
	if len(word) >= minGrams {
		v.alike(word, buffers)
	}
	return buffers.found
}

// alike appends terms that share most of their letters with a word.
func (v *vocabulary) alike(word string, buffers *likeness) {
	own := 0
	if buffers.shared == nil {
		buffers.shared = map[uint32]int8{}
	}
	clear(buffers.shared)
	grams(word, func(g gram) {
		own++
		list := v.grams[g]
		if len(list) > maxGramTerms {
			return
		}
		for _, term := range list {
			buffers.shared[term]++
		}
	})
	found := buffers.found
	first := len(found)
	for term, n := range buffers.shared {
		other := v.spelling[term]
		if other == word {
			continue
		}
		if dice := 2 * float32(n) / float32(own+len(other)-1); dice >= leastAlike {
			found = append(found, relatedTerm{term, dice * dice})
		}
	}
	// The order of the map must not show.
	rest := found[first:]
	slices.SortFunc(rest, func(a, b relatedTerm) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(v.spelling[a.term], v.spelling[b.term]))
	})
	buffers.found = found[:first+min(len(rest), maxRelated)]
}

// maxGramTerms is how many terms may have three letters that say anything.
const maxGramTerms = 2000
