package index

import "math"

// BM25's constants.
const (
	k1 = 1.2
	b  = 0.75
)

// wordMatches is how well the words of each turn and session match those of a question.
type wordMatches struct {
	turns    []turnMatch
	strange  []float32 // by turn: the share of the question's words that were never said in that form
	sessions []sessionMatch

	// Buffers: how often the current term stands in the window of three or five turns around each turn, and in each session.
	in3, in5, inSession tally
	likeness            likeness
}

// tally counts a term by place: the turn or the session.
type tally struct {
	count []float32
	at    []int32 // the places where it stands
}

func (t *tally) add(at int32, n float32) {
	if t.count[at] == 0 {
		t.at = append(t.at, at)
	}
	t.count[at] += n
}

// clear forgets the term.
func (t *tally) clear() {
	for _, at := range t.at {
		t.count[at] = 0
	}
	t.at = t.at[:0]
}

// turnMatch is how well the words of a turn match: its features from fTurn to fRelated3.
type turnMatch [fRelated3 + 1]float32

// sessionMatch is how well those of a session do.
type sessionMatch struct {
	match, other, cover, best, sum float32
}

// match compares the words of an index with a question's, and reports whether any matches, or the question is one for a
// date, which needs none.
func (w *wordMatches) match(ix *Index, question *question) bool {
	n := len(ix.items)
	w.turns, w.strange, w.sessions = zeros(w.turns, n), zeros(w.strange, n), zeros(w.sessions, len(ix.sessions))
	w.in3.count, w.in5.count, w.inSession.count = zeros(w.in3.count, n), zeros(w.in5.count, n), zeros(w.inSession.count, len(ix.sessions))
	if len(question.terms)+len(question.unknown) == 0 {
		return question.byDate
	}

	for _, t := range question.terms {
		w.matchTerm(ix, question, t)
		w.matchRelated(ix, t)
	}
	found := len(question.terms) > 0
	for _, word := range question.unknown {
		share := question.one / (question.familiar + question.strange)
		for _, r := range ix.vocabulary.related(word, &w.likeness) {
			found = true
			w.addRelated(ix, r, share)
		}
	}
	if !found && !question.byDate {
		return false
	}
	w.matchPairs(ix, question.pairs)
	w.scale(ix)
	return true
}

// matchTerm adds what one term of the question contributes.
func (w *wordMatches) matchTerm(ix *Index, question *question, t queryTerm) {
	list := ix.postings[t.term]
	all := float32(len(ix.items))
	mean := float32(ix.length) / all
	share := t.rarity / question.mass

	for _, p := range list {
		at, count := p.item(), p.count()
		it := &ix.items[at]
		m := &w.turns[at]
		score := t.rarity * saturated(count, float32(it.length)/mean)
		m[fTurn] += score
		m[fCover] += share
		if !t.name {
			m[fTurnOther] += score
		}

		w.in3.add(at, count)
		w.in5.add(at, count)
		if it.prev >= 0 {
			w.in3.add(it.prev, count)
			w.in5.add(it.prev, count)
			if prev := ix.items[it.prev].prev; prev >= 0 {
				w.in5.add(prev, count)
			}
		}
		if it.next >= 0 {
			w.in3.add(it.next, count)
			w.in5.add(it.next, count)
			if next := ix.items[it.next].next; next >= 0 {
				w.in5.add(next, count)
			}
		}
		w.inSession.add(it.session, count)
	}

	rarity, mean := rarityOf(len(w.in3.at), len(ix.items)), float32(ix.length3)/all
	for _, at := range w.in3.at {
		w.turns[at][fWindow3] += rarity * saturated(w.in3.count[at], float32(ix.items[at].length3)/mean)
	}
	rarity, mean = rarityOf(len(w.in5.at), len(ix.items)), float32(ix.length5)/all
	for _, at := range w.in5.at {
		score := rarity * saturated(w.in5.count[at], float32(ix.items[at].length5)/mean)
		m := &w.turns[at]
		m[fWindow5] += score
		m[fCover5] += share
		if !t.name {
			m[fWindow5Other] += score
		}
	}
	rarity, mean = rarityOf(len(w.inSession.at), len(ix.sessions)), float32(ix.length)/float32(len(ix.sessions))
	for _, n := range w.inSession.at {
		score := rarity * saturated(w.inSession.count[n], float32(ix.sessions[n].length)/mean)
		m := &w.sessions[n]
		m.match += score
		m.cover += share
		if !t.name {
			m.other += score
		}
	}

	for _, counted := range [...]*tally{&w.in3, &w.in5, &w.inSession} {
		counted.clear() // an index with fewer places may use them next
	}
}

// matchRelated adds what related terms of the question contribute.
func (w *wordMatches) matchRelated(ix *Index, t queryTerm) {
	for _, r := range ix.vocabulary.related(ix.vocabulary.spelling[t.term], &w.likeness) {
		w.addRelated(ix, r, 0)
	}
}

// addRelated adds what one related term contributes. strange is the share of the question that it stands for, 0 where the
// index has the word itself.
func (w *wordMatches) addRelated(ix *Index, r relatedTerm, strange float32) {
	mean := float32(ix.length) / float32(len(ix.items))
	list := ix.postings[r.term]
	rarity := r.weight * rarityOf(len(list), len(ix.items))
	for _, p := range list {
		at := p.item()
		it := &ix.items[at]
		score := rarity * saturated(p.count(), float32(it.length)/mean)
		w.turns[at][fRelated] += score
		w.strange[at] = max(w.strange[at], r.weight*strange)
		w.turns[at][fRelated3] += score
		if it.prev >= 0 {
			w.turns[it.prev][fRelated3] += score
		}
		if it.next >= 0 {
			w.turns[it.next][fRelated3] += score
		}
	}
}

// matchPairs counts pairs of neighbours in the question that are adjacent, or near each other, in a turn.
func (w *wordMatches) matchPairs(ix *Index, pairs [][2]uint32) {
	const near = 4
	for _, p := range pairs {
		for _, post := range rarer(ix.postings[p[0]], ix.postings[p[1]]) {
			at := post.item()
			it := &ix.items[at]
			words := ix.sequence[it.sequence : it.sequence+it.words]
			best := near + 1
			lastA, lastB := -near-1, -near-1
			for i, term := range words {
				switch term {
				case p[0]:
					best = min(best, i-lastB)
					lastA = i
				case p[1]:
					best = min(best, i-lastA)
					lastB = i
				}
				if best == 1 {
					break // nothing is nearer
				}
			}
			if best == 1 {
				w.turns[at][fPairs]++
			}
			if best <= near {
				w.turns[at][fNear]++
			}
		}
	}
}

// rarer returns the shorter one of two lists.
func rarer(a, b []posting) []posting {
	if len(b) < len(a) {
		return b
	}
	return a
}

// scale divides each kind of match by its best, and sums up sessions by their turns.
func (w *wordMatches) scale(ix *Index) {
	nothing := func(m *turnMatch) bool { return m[fWindow5] == 0 && m[fRelated3] == 0 } // and so is all the rest of it
	var top turnMatch
	for i := range w.turns {
		if m := &w.turns[i]; !nothing(m) {
			for f, v := range m {
				if v > top[f] { // faster than max, which looks for NaN
					top[f] = v
				}
			}
		}
	}
	top[fRelated], top[fRelated3] = max(top[fRelated], top[fTurn]), max(top[fRelated3], top[fWindow3])
	top[fCover], top[fCover5] = 1, 1 // they are shares already

	by := func(top float32) float32 {
		if top == 0 {
			return 0
		}
		return 1 / top
	}
	var scale turnMatch
	for f, t := range top {
		scale[f] = by(t)
	}
	for i := range w.turns {
		m := &w.turns[i]
		if nothing(m) {
			continue
		}
		for f := range m {
			m[f] *= scale[f]
		}
		m[fTurnSquare] = m[fTurn] * m[fTurn]
		se := &w.sessions[ix.items[i].session]
		se.best = max(se.best, m[fTurn])
		se.sum += m[fTurnSquare]
	}

	var best sessionMatch
	for i := range w.sessions {
		m := &w.sessions[i]
		best.match, best.other, best.sum = max(best.match, m.match), max(best.other, m.other), max(best.sum, m.sum)
	}
	for i := range w.sessions {
		m := &w.sessions[i]
		m.match *= by(best.match)
		m.other *= by(best.other)
		m.sum *= by(best.sum)
	}
}

// saturated is the BM25 weight of count occurrences of a term. length is that of the text, relative to the mean.
func saturated(count, length float32) float32 {
	return count * (k1 + 1) / (count + k1*(1-b+b*length))
}

// rarityOf is the weight of a term that n of all documents have.
func rarityOf(n, all int) float32 {
	return float32(math.Log(1 + (float64(all)-float64(n)+0.5)/(float64(n)+0.5)))
}

// zeros returns n zeros, in the memory of s if that is large enough.
func zeros[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	s = s[:n]
	clear(s)
	return s
}
