package session

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
)

// What is remembered of an item must be what hashing it again gives, wherever it stands and stood before.
func TestHashCacheIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := newHashCache()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			dialect := rapid.SampledFrom([]wire.Dialect{dialects.Chat, dialects.Responses}).Draw(t, "dialect")
			it, err := wire.ParseItem(dialect, fmt.Appendf(nil, `{"role":"user","content":"%d"}`, rapid.IntRange(0, 3).Draw(t, "text")))
			if err != nil {
				t.Fatal(err)
			}
			parent := wire.Hash{byte(rapid.IntRange(0, 2).Draw(t, "parent"))}
			want := it.ContentHash()
			if rapid.Bool().Draw(t, "alone") {
				if got := known.content(it); got != want {
					t.Fatalf("%s: content hash %x, want %x", it.Raw, got, want)
				}
				continue
			}
			content, chain := known.chain(parent, &it)
			if content != want || chain != wire.Chain(parent, want) {
				t.Fatalf("%s behind %x: %x and %x, want %x and %x", it.Raw, parent, content, chain, want, wire.Chain(parent, want))
			}
		}
	})
}
