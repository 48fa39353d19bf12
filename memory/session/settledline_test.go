package session

import (
	"fmt"
	"testing"

	"remora/wire"
)

// BenchmarkFind looks up the items of a view of 4,000, all of them new, on lines of two lengths.
func BenchmarkFind(b *testing.B) {
	items := func(n int) []wire.Item {
		list := make([]wire.Item, n)
		for i := range list {
			list[i].Raw = fmt.Appendf(nil, "%d", i)
		}
		return list
	}
	fresh := items(4000)
	for _, n := range []int{4000, 400_000} {
		line := &storedLine{items: items(n)}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				l := settledLine{stored: line, n: n}
				for i := range fresh {
					if l.find(&fresh[i]) >= 0 {
						b.Fatal("found")
					}
				}
			}
		})
	}
}

// TestFindStaysLinear: a line is not searched again for each item of a view that it lacks, and what it has is found before and
// after it has an index.
func TestFindStaysLinear(t *testing.T) {
	const n = 100
	line := &storedLine{}
	for i := range n {
		line.items = append(line.items, wire.Item{Raw: fmt.Appendf(nil, "%d", i)})
	}
	l := settledLine{stored: line, n: n}
	for round := range 50 {
		if fresh := (wire.Item{Raw: []byte("0")}); l.find(&fresh) >= 0 {
			t.Fatal("an equal item from elsewhere is found")
		}
		for _, at := range []int{round, n - 1 - round} {
			if got := l.find(&line.items[at]); got != at {
				t.Fatalf("item %d is found at %d", at, got)
			}
		}
	}
	if l.passed > maxPasses*n+1 {
		t.Errorf("%d items are passed on a line of %d", l.passed, n)
	}
}
