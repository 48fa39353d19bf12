package seldom

import (
	"testing"
	"time"
)

// TestDue: of each kind, one line in a while, and how many were left out before it.
func TestDue(t *testing.T) {
	var l Lines
	begin := time.Unix(1000, 0)
	for _, c := range []struct {
		name     string
		after    time.Duration
		due      bool
		unlogged int
	}{
		{"a", 0, true, 0},
		{"a", 1 * time.Second, false, 0},
		{"b", 2 * time.Second, true, 0},
		{"a", 9 * time.Second, false, 0},
		{"a", 10 * time.Second, true, 2},
		{"b", 12 * time.Second, true, 0},
		{"a", 20 * time.Second, true, 0},
	} {
		if unlogged, due := l.Due(c.name, begin.Add(c.after), 10*time.Second); due != c.due || unlogged != c.unlogged {
			t.Errorf("%s after %s: %d, %t, want %d, %t", c.name, c.after, unlogged, due, c.unlogged, c.due)
		}
	}
}
