package layer

import "fmt"

// Bounded puts the default in the place of zero and refuses what is not within 1 and limit. The error names key.
func Bounded(key string, n *int, fallback, limit int) error {
	if *n == 0 {
		*n = fallback
	}
	if *n < 0 || *n > limit {
		return fmt.Errorf("%s: want 1 to %d, or 0 for %d", key, limit, fallback)
	}
	return nil
}
