package index

// Features returns the names of the features, in the order of a Sample.
func Features() []string { return featureNames[:] }

// Samples calls yield for every turn with its features for a question: the turn's number in order of addition, its
// session's number, and a slice that is valid until the next call. Weights are fitted on these samples. A question
// without a word of the index yields nothing.
func (ix *Index) Samples(q Question, yield func(turn, session int, features []float32)) {
	s := scratches.Get().(*scratch) //nolint:forcetypeassert // of New
	defer scratches.Put(s)
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if !s.match(ix, q) {
		return
	}
	var v vector
	for at := range ix.items {
		s.features(ix, small(at), &v)
		yield(at, int(ix.items[at].session), v[:])
	}
}
