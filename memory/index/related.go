package index

import (
	"cmp"
	"slices"
)

// gram is three letters that stand together in a word. A word begins and ends with a gap.
type gram [3]byte

// minGrams is how long a word has to be to have any, in bytes: shorter ones are like too many others.
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

func (ix *Index) addGrams(term uint32, word string) {
	grams(word, func(g gram) {
		list := ix.grams[g]
		if n := len(list); n == 0 || list[n-1] != term {
			ix.grams[g] = append(list, term)
			ix.bytes += 5
		}
	})
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

// related finds terms with nearly the same meaning or spelling as a word.
func (ix *Index) related(word string, s *scratch) []relatedTerm {
	found := s.related[:0]
	for _, o := range synonyms()[word] {
		if term, ok := ix.vocabulary[o]; ok {
			found = append(found, relatedTerm{term, synonymWeight})
		}
	}
	if len(word) >= minGrams {
		found = ix.alike(word, found, s)
	}
	s.related = found
	return found
}

// alike appends terms that share most of their letters with a word.
func (ix *Index) alike(word string, found []relatedTerm, s *scratch) []relatedTerm {
	own := 0
	if s.shared == nil {
		s.shared = map[uint32]int8{}
	}
	clear(s.shared)
	grams(word, func(g gram) {
		own++
		list := ix.grams[g]
		if len(list) > maxGramTerms {
			return
		}
		for _, term := range list {
			s.shared[term]++
		}
	})
	first := len(found)
	for term, n := range s.shared {
		other := ix.spelling[term]
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
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(ix.spelling[a.term], ix.spelling[b.term]))
	})
	return found[:first+min(len(rest), maxRelated)]
}

// maxGramTerms is how many terms may have three letters that say anything.
const maxGramTerms = 2000

// matchRelated adds what related terms of the question contribute.
func (s *scratch) matchRelated(ix *Index, t queryTerm) {
	for _, r := range ix.related(ix.spelling[t.term], s) {
		s.addRelated(ix, r, 0)
	}
}

// addRelated adds what one related term contributes. strange is the share of the question that it stands for, 0 where the
// index has the word itself.
func (s *scratch) addRelated(ix *Index, r relatedTerm, strange float32) {
	mean := float32(ix.length) / float32(len(ix.items))
	list := ix.postings[r.term]
	rarity := r.weight * ix.rarity(len(list), len(ix.items))
	for _, p := range list {
		at := p.item()
		it := &ix.items[at]
		score := rarity * saturated(p.count(), float32(it.length)/mean)
		s.matches[at].related += score
		s.matches[at].strange = max(s.matches[at].strange, r.weight*strange)
		s.matches[at].related3 += score
		if it.prev >= 0 {
			s.matches[it.prev].related3 += score
		}
		if it.next >= 0 {
			s.matches[it.next].related3 += score
		}
	}
}
