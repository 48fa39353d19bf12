package layer

import (
	"slices"
	"sort"
)

// Fits reports whether text costs at most budget tokens. Of a text that is far too long only the beginning is counted.
func Fits(count func(string) int, text string, budget int) bool {
	if budget < len(text)/8-64 && count(text[:boundary(text, 8*max(budget, 0)+64)]) > budget {
		return false
	}
	return count(text) <= budget
}

// Most returns the largest number, at most n, that fits; 0 needs no room. If a number fits, so do all smaller ones.
func Most(n int, fits func(n int) bool) int {
	if n == 0 || fits(n) {
		return n
	}
	return sort.Search(n-1, func(i int) bool { return !fits(i + 1) })
}

// FitLines recalls a block with as many of n lines as fit a budget together. block(n) renders the best n lines, n >= 1; kept is how
// many fit.
func FitLines(t *Turn, n, budget int, block func(n int) string) (r Recalled, kept int) {
	if n == 0 {
		return Recalled{}, 0
	}
	if kept = Most(n, func(n int) bool { return Fits(t.Count, block(n), budget) }); kept == 0 {
		return Recalled{NoRoom: true}, 0
	}
	return OneBlock(block(kept)), kept
}

// FitEach recalls a block with the entries that fit a budget together, the best first; one that is too long is left out, and those
// behind it are tried. block makes the block of some entries.
func FitEach[T any](t *Turn, entries []T, budget int, block func([]T) string) (r Recalled, kept []T) {
	r.NoRoom = len(entries) > 0
	for _, e := range entries {
		more := append(slices.Clip(kept), e)
		if text := block(more); Fits(t.Count, text, budget) {
			r, kept = OneBlock(text), more
		}
	}
	return r, kept
}
