package index

// Features returns the names of the features, in the order of a Sample.
func Features() []string { return featureNames[:] }

// Samples calls yield for every turn, with what it is scored by for a question: the turn's number in the order in which turns
// were added, that of its session, and a slice that holds until the next call. It is what weights are fitted on. Nothing is
// yielded for a question whose words the index does not have.
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
