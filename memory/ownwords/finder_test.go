package ownwords

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestNeededWords: a finder finds whatever its expression matches.
func TestNeededWords(t *testing.T) {
	for name, f := range map[string]finder{"mailHead": mailHead, "mailStart": mailStart, "material": material, "fiction": fiction} {
		t.Run(name, func(t *testing.T) {
			matching := rapid.StringMatching(f.compiled().String())
			rapid.Check(t, func(t *rapid.T) {
				// An expression takes the long s and the sign of kelvin as s and k, which their lower case is not.
				text := strings.NewReplacer("ſ", "s", "\u212a", "k").Replace(matching.Draw(t, "text"))
				if f.compiled().MatchString(text) && f.find(text, strings.ToLower(text), 1) == nil {
					t.Fatalf("%q is not found", text)
				}
			})
		})
	}
}
