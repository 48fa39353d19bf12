package layer

import "fmt"

// Bounded sets a zero to the default and refuses values outside of 1 to limit. The error names key.
func Bounded(key string, n *int, fallback, limit int) error {
	if *n == 0 {
		*n = fallback
	}
	if *n < 0 || *n > limit {
		return fmt.Errorf("%s: want 1 to %d, or 0 for %d", key, limit, fallback)
	}
	return nil
}
