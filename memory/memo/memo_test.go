package memo_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/memo"
	"remora/wire"
)

// What is remembered of an item must be what hashing it again gives, wherever it stands and stood before.
func TestHashesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := memo.NewHashes()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			dialect := rapid.SampledFrom([]wire.Dialect{wire.Chat, wire.Responses}).Draw(t, "dialect")
			it, err := wire.ParseItem(dialect, fmt.Appendf(nil, `{"role":"user","content":"%d"}`, rapid.IntRange(0, 3).Draw(t, "text")))
			if err != nil {
				t.Fatal(err)
			}
			parent := wire.Hash{byte(rapid.IntRange(0, 2).Draw(t, "parent"))}
			want := it.ContentHash()
			if rapid.Bool().Draw(t, "alone") {
				if got := known.Of(it); got != want {
					t.Fatalf("%s: content hash %x, want %x", it.Raw, got, want)
				}
				continue
			}
			content, chain := known.Behind(parent, &it)
			if content != want || chain != wire.Chain(parent, want) {
				t.Fatalf("%s behind %x: %x and %x, want %x and %x", it.Raw, parent, content, chain, want, wire.Chain(parent, want))
			}
		}
	})
}

// A Map keeps the newest values, and those that were asked for, and never more than two halves of them.
func TestMapForgets(t *testing.T) {
	var m memo.Map[int, string]
	put := func(keys ...int) {
		for _, key := range keys {
			m.Put(key, fmt.Sprint(key), 2)
		}
	}
	find := func(keys ...int) map[int]string {
		found := map[int]string{}
		for _, key := range keys {
			if v, ok := m.Find(key); ok {
				found[key] = v
			}
		}
		return found
	}
	f := func(what string, want ...int) {
		t.Helper()
		wanted := map[int]string{}
		for _, key := range want {
			wanted[key] = fmt.Sprint(key)
		}
		if diff := cmp.Diff(wanted, find(1, 2, 3, 4, 5, 6)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	f("nothing was put")
	put(1, 2, 3)
	find(1) // moves to the younger half, which is full then
	put(4)
	m.Drop(3)
	f("2 was not asked for, 3 is dropped from the older half", 1, 4)
	m.Drop(4)
	m.Drop(400)
	f("4 is dropped from the younger half", 1)
	put(5, 6)
	find(1, 5)
	put(2, 3)
	put(4)
	f("1, 5 and 6 are too old", 2, 3, 4)
}
