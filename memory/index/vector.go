package index

import "math"

// Vector is a direction in which an embedding model puts a text, a byte for each dimension. Nil is unknown; a vector of zeros
// is like nothing.
type Vector []int8

// Quantise keeps the direction of an embedding. Numbers that are not finite make it a vector of zeros.
func Quantise(v []float32) Vector {
	top := float32(0)
	for _, x := range v {
		if top = max(top, x, -x); x != x {
			top = x
			break
		}
	}
	out := make(Vector, len(v))
	if !(top > 0) || math.IsInf(float64(top), 1) {
		return out
	}
	for i, x := range v {
		out[i] = int8(math.Round(float64(x / top * math.MaxInt8))) // -127 to 127
	}
	return out
}

// dot is the sum of the products of two vectors; those of different lengths have none.
func (v Vector) dot(o Vector) (sum int32) {
	if len(v) != len(o) {
		return 0
	}
	for len(v) >= 4 { // a third faster than one by one
		a, b := v[:4:4], o[:4:4]
		sum += int32(a[0])*int32(b[0]) + int32(a[1])*int32(b[1]) + int32(a[2])*int32(b[2]) + int32(a[3])*int32(b[3])
		v, o = v[4:], o[4:]
	}
	for i, x := range v {
		sum += int32(x) * int32(o[i])
	}
	return sum
}

// inverse is 1 / the vector's length, 0 for a vector of zeros.
func (v Vector) inverse() float32 {
	if n := v.dot(v); n > 0 {
		return float32(1 / math.Sqrt(float64(n)))
	}
	return 0
}

// placed is the vector of a turn.
type placed struct {
	Vector
	inverse float32
}

// Meaning is what a question means, beside its words.
type Meaning struct {
	Vector Vector
	// A turn whose cosine is above Floor is scored higher by Weight times what is above.
	Floor, Weight float32
}

// Lack is a part of a conversation that has no vector yet: the turns of one item, one after the other.
type Lack struct {
	Session string
	Content [16]byte
	First   int // the number of the first turn
	Texts   []string
}

// Lacking returns what has no vector among the newest turns of all, of one session or, for an empty name, of any; the newest
// first, limit items at most.
func (ix *Index) Lacking(session string, newest, limit int) []Lack {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	only := int32(-1)
	if session != "" {
		n, ok := ix.bySource[session]
		if !ok {
			return nil
		}
		only = n
	}
	var all []Lack
	for at := len(ix.items) - 1; at >= max(0, len(ix.items)-newest) && len(all) < limit; at-- {
		it := &ix.items[at]
		if at < len(ix.vectors) && ix.vectors[at].Vector != nil || only >= 0 && it.session != only {
			continue
		}
		first := at
		for first > 0 && ix.items[first-1].session == it.session && ix.items[first-1].ID == it.ID {
			first--
		}
		l := Lack{Session: it.Session, Content: it.Content, First: first}
		for _, part := range ix.items[first : at+1] {
			l.Texts = append(l.Texts, part.Text)
		}
		all = append(all, l)
		at = first
	}
	return all
}

// SetVectors gives consecutive turns their vectors.
func (ix *Index) SetVectors(first int, vectors []Vector) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for i, v := range vectors {
		ix.setVector(first+i, v)
	}
}

func (ix *Index) setVector(at int, v Vector) {
	if at >= len(ix.items) || v == nil {
		return
	}
	for len(ix.vectors) <= at {
		ix.vectors = append(ix.vectors, placed{})
	}
	ix.bytes += len(v) - len(ix.vectors[at].Vector) + vectorBytes
	ix.vectors[at] = placed{v, v.inverse()}
}

// liken works out how near each turn is to what the question means: the cosine of their vectors. It reports whether any is
// above the floor.
func (s *scratch) liken(ix *Index, m Meaning) (any bool) {
	inverse := m.Vector.inverse()
	if inverse == 0 {
		return false
	}
	s.cosines = grown(s.cosines, len(ix.items))
	for at := range ix.vectors {
		if v := &ix.vectors[at]; v.inverse > 0 {
			s.cosines[at] = float32(m.Vector.dot(v.Vector)) * inverse * v.inverse
			any = any || s.cosines[at] > m.Floor
		}
	}
	return any
}
