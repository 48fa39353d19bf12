package index

// WordSet is what a text is about, as the index sees it: the stems of its words without stop words, and of scripts without
// spaces every two characters that stand together.
type WordSet map[string]bool

// Words returns the words of a text.
func Words(text string) WordSet {
	s := scratches.Get().(*scratch) //nolint:forcetypeassert // of New
	defer scratches.Put(s)
	sc := &s.scan
	sc.scan(text)
	words := WordSet{}
	for i := range sc.tokens {
		if t := &sc.tokens[i]; !t.stop && (!t.pair || !t.single || len(sc.tokens) == 1) {
			words[string(sc.stem(t))] = true
		}
	}
	return words
}

// In counts the words that are in another set, too.
func (w WordSet) In(o WordSet) (n int) {
	for word := range w {
		if o[word] {
			n++
		}
	}
	return n
}
