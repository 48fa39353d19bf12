package main

import (
	"strings"
	"testing"

	"remora/wire/dialects"
)

// TestForeignSessionsAreNotJudged: only generated sessions have targets.
func TestForeignSessionsAreNotJudged(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		r := report{results: []*result{{policy: recommended, dialect: dialects.Chat, own: &sums{}}}, foreign: foreign}
		if text := r.markdown(); strings.Contains(text, "FAIL") == foreign || !strings.Contains(text, "| "+recommended+" |") {
			t.Errorf("foreign %v:\n%s", foreign, text)
		}
	}
}
