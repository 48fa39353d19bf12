package index

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Hit is a found turn.
type Hit struct {
	Turn
	// Order is how many turns were added before.
	Order int
	// Score ranks the hits of one question: exp of a difference is the ratio of likelihoods.
	Score float32
	// Match is the share of the question's words, by rarity, that the turn and its neighbours have, 0 to 1. A word that was
	// never said is as rare as can be.
	Match float32
	// Near is the cosine of the vectors of the turn and the question, 0 if one is unknown.
	Near float32
}

// scratch holds the buffers of a search.
type scratch struct {
	scan     scanner
	question question
	words    wordMatches
	cosines  []float32 // by turn: how near it is to what the question means
	ranking  ranking
	best     []hit

	// How well dated turns fit the question, for the day that was asked of last: neighbours are mostly of one.
	day  int32
	near float32
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Search returns at most limit turns that answer a question best, best first. Turns for which skip returns true are left out;
// skip may be nil. A question without a word of the index finds only turns with a similar meaning; a question only about a
// date, such as "What did I do yesterday?", finds turns from that date or about it.
func (ix *Index) Search(q Question, limit int, skip func(t *Turn) bool) []Hit {
	s := scratches.Get().(*scratch) //nolint:forcetypeassert // of New
	defer scratches.Put(s)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	matches, near := s.compare(ix, q)
	if !matches && !near || limit <= 0 {
		return nil
	}

	s.ranking = s.ranking[:0]
	var v featureVector
	for at := range ix.items {
		if it := &ix.items[at]; s.question.byDate && !s.question.ofDate(it, ix.spans[it.span:it.span+it.dates]) &&
			(!s.question.weekday || s.words.turns[at][fTurn] == 0) {
			continue
		}
		s.features(ix, small(at), &v)
		score := v.dot(&weights)
		if near {
			score += q.Weight * max(0, s.cosines[at]-q.Floor)
		}
		s.ranking = append(s.ranking, hit{small(at), score})
	}
	s.ranking.order(ix)

	known, found := s.question.known(), make([]Hit, 0, min(limit, len(s.ranking)))
	take := func(h hit) {
		if t := &ix.items[h.item].Turn; skip == nil || !skip(t) {
			match := min(1, s.words.turns[h.item][fCover5]*known+s.words.strange[h.item])
			if s.question.byDate {
				match = 1
			}
			found = append(found, Hit{Turn: *t, Order: int(h.item), Score: h.score, Match: match})
			if near {
				found[len(found)-1].Near = s.cosines[h.item]
			}
		}
	}
	least := float32(math.Inf(1))
	for _, h := range s.finalists(ix) {
		if least = h.score; len(found) < limit {
			take(h)
		}
	}
	for len(s.ranking) > 0 && len(found) < limit {
		h := s.ranking.pop(ix)
		h.score = min(h.score, least) // the others come after it
		take(h)
	}
	return found
}

// compare reads a question and compares all turns with it. It reports whether any word matches, and whether any turn has a
// similar meaning.
func (s *scratch) compare(ix *Index, q Question) (matches, near bool) {
	s.question.read(q, ix, &s.scan)
	s.day, s.near = 0, 0
	matches = s.words.match(ix, &s.question)
	if q.Vector != nil {
		s.cosines = zeros(s.cosines, len(ix.items))
		near = q.cosines(ix.vectors, s.cosines)
	}
	return matches, near
}

// finalists takes the best turns off the heap and puts them into the order of the second stage.
func (s *scratch) finalists(ix *Index) []hit {
	s.best = s.best[:0]
	var v featureVector
	for len(s.ranking) > 0 && len(s.best) < Finalists {
		h := s.ranking.pop(ix)
		s.features(ix, h.item, &v)
		h.score += second(&v)
		s.best = append(s.best, h)
	}
	slices.SortFunc(s.best, func(a, b hit) int {
		if before(ix, a, b) {
			return -1
		}
		return 1
	})
	return s.best
}

// Samples calls yield for every turn with its features for a question: the turn's number in order of addition, its
// session's number, and a slice that is valid until the next call. Weights are fitted on these samples. A question
// without a word of the index yields nothing.
func (ix *Index) Samples(q Question, yield func(turn, session int, features []float32)) {
	s := scratches.Get().(*scratch) //nolint:forcetypeassert // of New
	defer scratches.Put(s)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if matches, _ := s.compare(ix, q); !matches {
		return
	}
	var v featureVector
	for at := range ix.items {
		s.features(ix, small(at), &v)
		yield(at, int(ix.items[at].session), v[:])
	}
}

// hit is a turn that may be found.
type hit struct {
	item  int32
	score float32
}

// ranking is a heap of hits with the best at the top: few of many are wanted.
type ranking []hit

// order makes a heap of the hits.
func (r ranking) order(ix *Index) {
	for i := len(r)/2 - 1; i >= 0; i-- {
		r.sink(ix, i)
	}
}

// pop takes the best hit off the heap.
func (r *ranking) pop(ix *Index) hit {
	h := *r
	best := h[0]
	h[0] = h[len(h)-1]
	*r = h[:len(h)-1]
	r.sink(ix, 0)
	return best
}

// sink moves a hit down to its place in the heap.
func (r ranking) sink(ix *Index, i int) {
	for {
		best := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(r) && before(ix, r[c], r[best]) {
				best = c
			}
		}
		if best == i {
			return
		}
		r[best], r[i] = r[i], r[best]
		i = best
	}
}

// before reports whether a is better than b; of two that are equal the newer is.
func before(ix *Index, a, b hit) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return cmp.Or(ix.items[a.item].Time.Compare(ix.items[b.item].Time), cmp.Compare(a.item, b.item)) > 0
}
