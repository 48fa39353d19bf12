package layer

import "slices"

// Newest returns the elements of a list that keep accepts, which is asked about the newest, which is the last, first.
func Newest[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, v := range slices.Backward(list) {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	slices.Reverse(kept)
	return kept
}

// Limit returns a list with only the newest n of the elements that match, and all others: what there is much of must not drive out
// the rest.
func Limit[T any](list []T, n int, match func(T) bool) []T {
	return Newest(list, func(v T) bool {
		if !match(v) {
			return true
		}
		n--
		return n >= 0
	})
}

// Last returns the last n elements of a list, all of a shorter one.
func Last[S ~[]T, T any](list S, n int) S { return list[max(0, len(list)-n):] }

// Tail returns the longest tail of a list whose elements together have at most a size.
func Tail[T any](list []T, most int, size func(T) int) []T {
	for i, v := range slices.Backward(list) {
		if most -= size(v); most < 0 {
			return list[i+1:]
		}
	}
	return list
}
