package tokens

import (
	"math"
	"unicode/utf8"
)

const (
	// maxPiece is the longest piece, in bytes, that is merged as a whole. A longer one, which no prose and hardly any
	// code has, is counted in slices: off by a token or so for each, and its cost and its scratch space stay bounded.
	maxPiece = 4096
	// maxSlices is how many slices of a piece are counted: no text for a model has a piece that is longer, and a client could
	// send 40 MB of one letter. Those counted are spread over the piece.
	maxSlices = 16
	// smallPiece is the longest piece for which looking through all pairs is faster than a heap.
	smallPiece = 48
	// noRank is the rank of neighbours that do not make a token together.
	noRank = math.MaxUint32
)

// merger counts the tokens of a piece. It is scratch space: one for each goroutine, ready when zero.
type merger struct {
	// Of a short piece, starts has where each part begins, and its end; ranks the rank of the part with the next one.
	// Of a long piece, indices are positions in the piece, and only those where a part begins count.
	starts     [smallPiece + 1]uint8
	ranks      [maxPiece]uint32
	next, prev [maxPiece + 1]uint16
	heap       []pair
}

// pair is a candidate for a merge: the rank of what it makes above the position where its left part begins, so that
// the smaller one is to be merged first.
type pair uint64

func (p pair) rank() uint32 { return uint32(p >> 16) } //nolint:gosec // what pairOf put there
func (p pair) at() int      { return int(p & math.MaxUint16) }

//nolint:gosec // at is less than maxPiece
func pairOf(rank uint32, at int) pair { return pair(rank)<<16 | pair(at) }

// count returns the number of tokens of valid UTF-8. It takes time linear in its length.
func (v *vocabulary) count(m *merger, text []byte) int {
	n := 0
	for i := 0; i < len(text); {
		e := v.split(v.classes, text, i)
		n += v.piece(m, text[i:e])
		i = e
	}
	return n
}

func (v *vocabulary) piece(m *merger, b []byte) int {
	if len(b) > maxSlices*maxPiece {
		return v.sampled(m, b)
	}
	n := 0
	for len(b) > maxPiece {
		cut := maxPiece
		for !utf8.RuneStart(b[cut]) {
			cut--
		}
		n += v.long(m, b[:cut])
		b = b[cut:]
	}
	if len(b) == 1 || v.rank(b) != noRank {
		return n + 1
	}
	if len(b) <= smallPiece {
		return n + v.short(m, b)
	}
	return n + v.long(m, b)
}

// sampled estimates the number of tokens of a piece of more than maxSlices slices.
func (v *vocabulary) sampled(m *merger, b []byte) int {
	n, counted := 0, 0
	for i := range maxSlices {
		from := (len(b) - maxPiece) / (maxSlices - 1) * i
		to := from + maxPiece
		for !utf8.RuneStart(b[from]) {
			from++
		}
		for to < len(b) && !utf8.RuneStart(b[to]) {
			to--
		}
		n += v.long(m, b[from:to])
		counted += to - from
	}
	return int(float64(n) / float64(counted) * float64(len(b)))
}

// short merges in the order that defines the encoding: always the pair that makes the token of the lowest rank, of
// equal ones the first.
func (v *vocabulary) short(m *merger, b []byte) int {
	parts := len(b)
	for i := range parts {
		m.starts[i] = uint8(i)
		m.ranks[i] = noRank
		if i+2 <= parts {
			m.ranks[i] = v.rank(b[i : i+2])
		}
	}
	m.starts[parts] = uint8(parts) //nolint:gosec // at most smallPiece
	for {
		best, at := uint32(noRank), 0
		for i, r := range m.ranks[:parts] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			return parts
		}
		copy(m.starts[at+1:], m.starts[at+2:parts+1])
		copy(m.ranks[at+1:], m.ranks[at+2:parts])
		parts--
		m.ranks[at] = v.neighbours(m, b, at, parts)
		if at > 0 {
			m.ranks[at-1] = v.neighbours(m, b, at-1, parts)
		}
	}
}

// neighbours returns the rank of part i with the one after it.
func (v *vocabulary) neighbours(m *merger, b []byte, i, parts int) uint32 {
	if i+2 > parts {
		return noRank
	}
	return v.rank(b[m.starts[i]:m.starts[i+2]])
}

// long merges in the same order as short, with a heap of the pairs. A pair that has changed meanwhile is left in the
// heap and recognised by its rank when it comes up.
func (v *vocabulary) long(m *merger, b []byte) int {
	n := len(b)
	m.heap = m.heap[:0]
	for i := range n {
		m.next[i] = uint16(i + 1)
		m.prev[i+1] = uint16(i)
		m.ranks[i] = noRank // the last one has no neighbour
		if end := i + 2; end <= n {
			m.push(v.rank(b[i:end]), i)
		}
	}
	parts := n
	for len(m.heap) > 0 {
		top := m.pop()
		at := top.at()
		if m.ranks[at] != top.rank() {
			continue
		}
		gone := int(m.next[at])
		after := int(m.next[gone])
		m.ranks[gone] = noRank
		m.next[at], m.prev[after] = uint16(after), uint16(at) //nolint:gosec // at most maxPiece
		parts--
		m.ranks[at] = noRank
		if after < n {
			m.push(v.rank(b[at:m.next[after]]), at)
		}
		if at > 0 {
			before := int(m.prev[at])
			m.ranks[before] = noRank
			m.push(v.rank(b[before:after]), before)
		}
	}
	return parts
}

// push adds the pair at a position, if it makes a token.
func (m *merger) push(rank uint32, at int) {
	if rank == noRank {
		return
	}
	m.ranks[at] = rank
	m.heap = append(m.heap, 0)
	p, i := pairOf(rank, at), len(m.heap)-1
	for i > 0 && m.heap[(i-1)/2] > p {
		m.heap[i] = m.heap[(i-1)/2]
		i = (i - 1) / 2
	}
	m.heap[i] = p
}

// pop takes the smallest pair.
func (m *merger) pop() pair {
	h := m.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	m.heap = h
	i, child := 0, 1
	for child < len(h) {
		least := h[child]
		if right := child + 1; right < len(h) && h[right] < least {
			child, least = right, h[right]
		}
		if least >= last {
			break
		}
		h[i] = least
		i, child = child, 2*child+1
	}
	if len(h) > 0 {
		h[i] = last
	}
	return top
}
