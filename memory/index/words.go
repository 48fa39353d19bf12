package index

import "slices"

// Words returns what a text is about, as the index sees it: the stems of its words without stop words, and of scripts without
// spaces every two characters that stand together; each once, in no order.
func Words(text string) []string {
	s := scratches.Get().(*scratch) //nolint:forcetypeassert // of New
	defer scratches.Put(s)
	sc := &s.scan
	sc.scan(text)
	var words []string
	for i := range sc.tokens {
		if t := &sc.tokens[i]; !t.stop && (!t.pair || !t.single || len(sc.tokens) == 1) {
			words = append(words, string(sc.stem(t)))
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}
