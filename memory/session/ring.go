package session

import "remora/wire"

// echo identifies an item in a client's resent history.
type echo struct {
	Content uint64 // leading bytes of the content hash
	Seq     uint64
}

// ring is the last items of the head line, oldest first.
type ring []echo

// add adds an item. Those that the ring has no room for are dropped.
func (r *ring) add(content wire.Hash, seq uint64) {
	if len(*r) >= ringSize {
		*r = (*r)[len(*r)-ringSize+1:]
	}
	*r = append(*r, echo{Content: shortHash(content), Seq: seq})
}

// endsOnce reports whether the last two items of a long head line did not come together before, as far as the head remembers.
func (r ring) endsOnce() bool {
	last := len(r) - 1
	if len(r) < ringSize {
		return false
	}
	for i := 1; i < last; i++ {
		if r[i].Content == r[last].Content && r[i-1].Content == r[last-1].Content {
			return false
		}
	}
	return true
}
