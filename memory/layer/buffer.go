package layer

import "slices"

// GroupBy groups values by a key, in the order in which the keys occur.
func GroupBy[E any, K comparable](all []E, key func(E) K) [][]E {
	at := make(map[K]int)
	var groups [][]E
	for _, e := range all {
		k := key(e)
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], e)
	}
	return groups
}

// Without removes values from all, each of them once. It writes into all.
func Without[E comparable](all, values []E) []E {
	for _, e := range values {
		if i := slices.Index(all, e); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}
