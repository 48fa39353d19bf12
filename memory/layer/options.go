package layer

import (
	"cmp"
	"fmt"
)

// Bounded sets a zero to the default and refuses values outside of 1 to limit. The error names key.
func Bounded(key string, n *int, fallback, limit int) error {
	*n = cmp.Or(*n, fallback)
	if *n < 0 || *n > limit {
		return fmt.Errorf("%s: want 1 to %d, or 0 for %d", key, limit, fallback)
	}
	return nil
}

// Share sets a zero to the default and refuses values outside of 0 to 1. The error names key.
func Share(key string, have *float64, fallback float64) error {
	*have = cmp.Or(*have, fallback)
	if !(*have > 0 && *have <= 1) {
		return fmt.Errorf("%s: want a number above 0, at most 1", key)
	}
	return nil
}
