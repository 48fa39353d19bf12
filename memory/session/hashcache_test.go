package session

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// What is remembered of an item must be what hashing it again gives, wherever it stands and stood before.
func TestHashCacheIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := newHashCache()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			dialect := rapid.SampledFrom([]wire.Dialect{dialects.Chat, dialects.Responses}).Draw(t, "dialect")
			said := rapid.IntRange(0, 3).Draw(t, "text")
			raw := fmt.Appendf(nil, `{"role":"user","content":"%d"}`, said)
			if dialect == dialects.Chat && rapid.Bool().Draw(t, "calls") {
				raw = fmt.Appendf(nil, `{"role":"assistant","content":"%d","tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}]}`, said)
			}
			it := wiretest.Parse(t, dialect, string(raw))
			parent := wire.Hash{byte(rapid.IntRange(0, 2).Draw(t, "parent"))}
			want := it.Meaning()
			if rapid.Bool().Draw(t, "alone") {
				if diff := cmp.Diff(want, known.meaning(it)); diff != "" {
					t.Fatalf("%s: %s", it.Raw, diff)
				}
				continue
			}
			meaning, chain := known.chain(parent, &it)
			if diff := cmp.Diff([]any{want, want.After(parent)}, []any{meaning, chain}); diff != "" {
				t.Fatalf("%s behind %x: %s", it.Raw, parent, diff)
			}
		}
	})
}
