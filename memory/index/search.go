package index

import (
	"cmp"
	"math"
	"sync"
)

// BM25's constants.
const (
	k1 = 1.2
	b  = 0.75
)

// Hit is a turn that was found.
type Hit struct {
	Turn
	// Order is how many turns were added before.
	Order int
	// Score compares the hits of one question: exp of a difference is how much likelier one is than the other.
	Score float32
	// Match is the share of the question's words, by rarity, that the turn and its neighbours have, 0 to 1. A word that was
	// never said is as rare as can be.
	Match float32
	// Near is the cosine of what the turn and the question mean, 0 where that is not known of both.
	Near float32
}

// match is how well the words of a turn match.
type match struct {
	turn, other, window3, window5, window5Other, pairs, near, cover, cover5, related, related3 float32
	strange                                                                                    float32 // the share of words that were never said in that form
}

// sessionMatch is the word scores of a session.
type sessionMatch struct {
	match, other, cover, best, sum float32
}

// scratch holds the buffers of a search.
type scratch struct {
	scan     scanner
	question question
	matches  []match
	sessions []sessionMatch
	count3   []float32
	count5   []float32
	inSess   []float32
	touched3 []int32
	touched5 []int32
	touchedS []int32
	hits     []hit // a heap
	best     []hit
	related  []relatedTerm
	shared   map[uint32]int8
	cosines  []float32 // by turn

	// How well dated turns fit the question, for the day that was asked of last: neighbours are mostly of one.
	day  int32
	near float32
}

type hit struct {
	item  int32
	score float32
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	s = s[:n]
	clear(s)
	return s
}

// Search returns at most limit turns that answer a question best, best first. Turns for which skip returns true are
// left out; skip may be nil. A question without a word of the index finds only turns near to its meaning.
func (ix *Index) Search(q Question, limit int, skip func(t *Turn) bool) []Hit {
	s := scratches.Get().(*scratch) //nolint:forcetypeassert // of New
	defer scratches.Put(s)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	matches, near := s.match(ix, q), s.liken(ix, q.Meaning)
	if !matches && !near || limit <= 0 {
		return nil
	}

	s.hits = s.hits[:0]
	var v vector
	for at := range ix.items {
		s.features(ix, small(at), &v)
		score := v.dot(&weights)
		if near {
			score += q.Weight * max(0, s.cosines[at]-q.Floor)
		}
		s.hits = append(s.hits, hit{small(at), score})
	}
	for i := len(s.hits)/2 - 1; i >= 0; i-- {
		s.sink(ix, i)
	}

	known, found := s.question.known(), make([]Hit, 0, min(limit, len(s.hits)))
	take := func(h hit) {
		if t := &ix.items[h.item].Turn; skip == nil || !skip(t) {
			match := min(1, s.matches[h.item].cover5*known+s.matches[h.item].strange)
			found = append(found, Hit{Turn: *t, Order: int(h.item), Score: h.score, Match: match})
			if near {
				found[len(found)-1].Near = s.cosines[h.item]
			}
		}
	}
	least := float32(math.Inf(1))
	for _, h := range s.final(ix) {
		if least = h.score; len(found) < limit {
			take(h)
		}
	}
	for len(s.hits) > 0 && len(found) < limit {
		h := s.pop(ix)
		h.score = min(h.score, least) // the rest stays behind
		take(h)
	}
	return found
}

// pop takes the best hit off the heap.
func (s *scratch) pop(ix *Index) hit {
	best := s.hits[0]
	s.hits[0] = s.hits[len(s.hits)-1]
	s.hits = s.hits[:len(s.hits)-1]
	s.sink(ix, 0)
	return best
}

// before reports whether a is better than b; of two that are equal the newer is.
func before(ix *Index, a, b hit) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	return cmp.Or(ix.items[a.item].Time.Compare(ix.items[b.item].Time), cmp.Compare(a.item, b.item)) > 0
}

// sink moves a hit down a heap that has its best at the top.
func (s *scratch) sink(ix *Index, i int) {
	for h := s.hits; ; {
		best := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(h) && before(ix, h[c], h[best]) {
				best = c
			}
		}
		if best == i {
			return
		}
		h[best], h[i] = h[i], h[best]
		i = best
	}
}

// match works out how well the words of each turn and session match, and reports whether any does.
func (s *scratch) match(ix *Index, q Question) bool {
	question := ix.read(q, s)
	s.day, s.near = 0, 0
	n := len(ix.items)
	s.matches, s.sessions = grown(s.matches, n), grown(s.sessions, len(ix.sessions))
	s.count3, s.count5, s.inSess = grown(s.count3, n), grown(s.count5, n), grown(s.inSess, len(ix.sessions))
	if len(question.terms)+len(question.unknown) == 0 {
		return false
	}

	for _, t := range question.terms {
		s.matchTerm(ix, t)
		s.matchRelated(ix, t)
	}
	found := len(question.terms) > 0
	for _, word := range question.unknown {
		share := ix.rarity(0, n) / (question.mass + question.strange)
		for _, r := range ix.related(word, s) {
			found = true
			s.addRelated(ix, r, share)
		}
	}
	if !found {
		return false
	}
	s.matchPairs(ix)
	s.scale(ix)
	return true
}

// matchTerm adds what one term of the question contributes.
func (s *scratch) matchTerm(ix *Index, t queryTerm) {
	list := ix.postings[t.term]
	all := float32(len(ix.items))
	mean := float32(ix.length) / all
	share := t.rarity / s.question.mass

	s.touched3, s.touched5, s.touchedS = s.touched3[:0], s.touched5[:0], s.touchedS[:0]
	for _, p := range list {
		at, count := p.item(), p.count()
		it := &ix.items[at]
		m := &s.matches[at]
		score := t.rarity * saturated(count, float32(it.length)/mean)
		m.turn += score
		m.cover += share
		if !t.name {
			m.other += score
		}

		s.within3(at, count)
		s.within5(at, count)
		if it.prev >= 0 {
			s.within3(it.prev, count)
			s.within5(it.prev, count)
			if prev := ix.items[it.prev].prev; prev >= 0 {
				s.within5(prev, count)
			}
		}
		if it.next >= 0 {
			s.within3(it.next, count)
			s.within5(it.next, count)
			if next := ix.items[it.next].next; next >= 0 {
				s.within5(next, count)
			}
		}
		if s.inSess[it.session] == 0 {
			s.touchedS = append(s.touchedS, it.session)
		}
		s.inSess[it.session] += count
	}

	rarity, mean := ix.rarity(len(s.touched3), len(ix.items)), float32(ix.length3)/all
	for _, at := range s.touched3 {
		s.matches[at].window3 += rarity * saturated(s.count3[at], float32(ix.items[at].length3)/mean)
		s.count3[at] = 0
	}
	rarity, mean = ix.rarity(len(s.touched5), len(ix.items)), float32(ix.length5)/all
	for _, at := range s.touched5 {
		score := rarity * saturated(s.count5[at], float32(ix.items[at].length5)/mean)
		m := &s.matches[at]
		m.window5 += score
		m.cover5 += share
		if !t.name {
			m.window5Other += score
		}
		s.count5[at] = 0
	}
	rarity, mean = ix.rarity(len(s.touchedS), len(ix.sessions)), float32(ix.length)/float32(len(ix.sessions))
	for _, n := range s.touchedS {
		score := rarity * saturated(s.inSess[n], float32(ix.sessions[n].length)/mean)
		m := &s.sessions[n]
		m.match += score
		m.cover += share
		if !t.name {
			m.other += score
		}
		s.inSess[n] = 0
	}
}

func saturated(count, length float32) float32 {
	return count * (k1 + 1) / (count + k1*(1-b+b*length))
}

func (s *scratch) within3(at int32, count float32) {
	if s.count3[at] == 0 {
		s.touched3 = append(s.touched3, at)
	}
	s.count3[at] += count
}

func (s *scratch) within5(at int32, count float32) {
	if s.count5[at] == 0 {
		s.touched5 = append(s.touched5, at)
	}
	s.count5[at] += count
}

// matchPairs counts pairs of neighbours in the question that are adjacent, or near each other, in a turn.
func (s *scratch) matchPairs(ix *Index) {
	const near = 4
	for _, p := range s.question.pairs {
		for _, post := range ix.rarer(p) {
			at := post.item()
			it := &ix.items[at]
			words := ix.sequence[it.sequence : it.sequence+it.words]
			best := near + 1
			lastA, lastB := -near-1, -near-1
			for i, w := range words {
				switch w {
				case p[0]:
					best = min(best, i-lastB)
					lastA = i
				case p[1]:
					best = min(best, i-lastA)
					lastB = i
				}
			}
			if best == 1 {
				s.matches[at].pairs++
			}
			if best <= near {
				s.matches[at].near++
			}
		}
	}
}

// rarer returns the shorter of two terms' postings.
func (ix *Index) rarer(p [2]uint32) []posting {
	if a, b := ix.postings[p[0]], ix.postings[p[1]]; len(b) < len(a) {
		return b
	}
	return ix.postings[p[0]]
}

// scale divides each kind of match by its best, and sums up sessions by their turns.
func (s *scratch) scale(ix *Index) {
	var top match
	for i := range s.matches {
		m := &s.matches[i]
		if m.window5 == 0 && m.related3 == 0 {
			continue // and so is all the rest of it
		}
		top.turn, top.other, top.window3 = max(top.turn, m.turn), max(top.other, m.other), max(top.window3, m.window3)
		top.window5, top.window5Other = max(top.window5, m.window5), max(top.window5Other, m.window5Other)
		top.related, top.related3 = max(top.related, m.related), max(top.related3, m.related3)
		top.pairs, top.near = max(top.pairs, m.pairs), max(top.near, m.near)
	}
	by := func(top float32) float32 {
		if top == 0 {
			return 0
		}
		return 1 / top
	}
	scale := match{
		turn: by(top.turn), other: by(top.other), window3: by(top.window3), window5: by(top.window5), window5Other: by(top.window5Other),
		pairs: by(top.pairs), near: by(top.near), related: by(max(top.related, top.turn)), related3: by(max(top.related3, top.window3)),
	}
	for i := range s.matches {
		m := &s.matches[i]
		if m.window5 == 0 && m.related3 == 0 {
			continue
		}
		m.turn *= scale.turn
		m.other *= scale.other
		m.window3 *= scale.window3
		m.window5 *= scale.window5
		m.window5Other *= scale.window5Other
		m.pairs *= scale.pairs
		m.near *= scale.near
		m.related *= scale.related
		m.related3 *= scale.related3
		se := &s.sessions[ix.items[i].session]
		se.best = max(se.best, m.turn)
		se.sum += m.turn * m.turn
	}

	var best sessionMatch
	for i := range s.sessions {
		m := &s.sessions[i]
		best.match, best.other, best.sum = max(best.match, m.match), max(best.other, m.other), max(best.sum, m.sum)
	}
	for i := range s.sessions {
		m := &s.sessions[i]
		m.match *= by(best.match)
		m.other *= by(best.other)
		m.sum *= by(best.sum)
	}
}
