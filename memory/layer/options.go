package layer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Setup has the settings of a layer that its kind's own options depend on. The Options of kinds that work differently with a model, or
// by scope, embed it.
type Setup struct {
	HasModel bool // the layer is configured with a model
	Scope    Scope
}

// SetUp is called with the rest of the layer's configuration, before the layer is made.
func (s *Setup) SetUp(hasModel bool, scope Scope) { s.HasModel, s.Scope = hasModel, scope }

// OneOf sets an empty value to the first word and refuses others than the words. The error names key.
func OneOf(key string, have *string, words ...string) error {
	*have = cmp.Or(*have, words[0])
	if !slices.Contains(words, *have) {
		return fmt.Errorf("%s: want one of %s", key, strings.Join(words, ", "))
	}
	return nil
}

// Text trims a text and refuses an empty one, one that is not UTF-8, and one of more than limit bytes. The error names key.
func Text(key string, have *string, limit int) error {
	*have = strings.TrimSpace(*have)
	if *have == "" || len(*have) > limit || !utf8.ValidString(*have) {
		return fmt.Errorf("%s: want UTF-8 text of at most %d bytes", key, limit)
	}
	return nil
}

// Bounded sets a zero to the default and refuses values outside of 1 to limit. The error names key.
func Bounded(key string, n *int, fallback, limit int) error {
	*n = cmp.Or(*n, fallback)
	if *n < 0 || *n > limit {
		return fmt.Errorf("%s: want 1 to %d, or 0 for %d", key, limit, fallback)
	}
	return nil
}

// UpTo refuses values outside of 0 to limit. The error names key.
func UpTo(key string, n, limit int) error {
	if n < 0 || n > limit {
		return fmt.Errorf("%s: want 0 to %d", key, limit)
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
