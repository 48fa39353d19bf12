package session

import (
	"slices"

	"remora/wire"
)

// tail is an end of the transcript other than the head: a branch, another line, an input without an answer.
type tail struct {
	Pos          position
	SystemPrompt wire.Hash
	Line         uint64 // the line that it is an end of
	Side         bool   // that is a side request's
	Turns        uint64
	Open         []uint64 // its unanswered calls, as openCalls.hashes has them; only some
}

// tails are the ends that the head lists, latest last.
type tails []tail

// add adds an end. It replaces a known one, or the oldest.
func (ts *tails) add(t tail) {
	ts.drop(t.Pos.Seq)
	if len(*ts) >= maxTails {
		*ts = slices.Delete(*ts, 0, len(*ts)-maxTails+1)
	}
	*ts = append(*ts, t)
}

// drop removes the end at seq and returns it, zero if there was none.
func (ts *tails) drop(seq uint64) tail {
	for i, t := range *ts {
		if t.Pos.Seq == seq && seq != 0 {
			*ts = slices.Delete(*ts, i, i+1)
			return t
		}
	}
	return tail{}
}

// isQuestion reports whether an end is an input without an answer.
func (ts tails) isQuestion(at position) bool {
	return slices.ContainsFunc(ts, func(t tail) bool { return t.Pos.Seq == at.Seq && t.Turns == 0 && at.Seq != 0 })
}

// waitsFor returns the index of the latest end that waits for a result, -1 for none.
func (ts tails) waitsFor(answer wire.Call) int {
	call := textHash(openKey(answer))
	for i, t := range slices.Backward(ts) {
		if slices.Contains(t.Open, call) {
			return i
		}
	}
	return -1
}

// answered records that the head of a line has the result of a call. Older branches of the line do not wait for another one.
func (ts tails) answered(line uint64, answer wire.Call) {
	call := textHash(openKey(answer))
	for i := range ts {
		if t := &ts[i]; t.Line == line && slices.Contains(t.Open, call) {
			t.Open = slices.DeleteFunc(slices.Clone(t.Open), func(c uint64) bool { return c == call })
		}
	}
}

// answeredOn returns the end of a line with the most turns, nil if no end of it has an answer: the others may be questions.
func (ts tails) answeredOn(line uint64) (end *tail) {
	for i := range ts {
		if t := &ts[i]; t.Line == line && t.Turns > 0 && (end == nil || t.Turns >= end.Turns) {
			end = t
		}
	}
	return end
}

// within reports whether one of the items after a place is the end of a line other than the head's: an input without an answer.
func (ts tails) within(at position, items []mark) bool {
	for _, m := range items {
		at = at.after(m)
		if m.onChain && slices.ContainsFunc(ts, func(t tail) bool { return t.Pos.Chain == at.Chain }) {
			return true
		}
	}
	return false
}
