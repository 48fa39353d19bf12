package memory

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
)

func TestMissing(t *testing.T) {
	list := func(texts string) []wire.Item {
		var items []wire.Item
		for _, r := range texts {
			items = append(items, wire.NewMessage(dialects.Chat, wire.User, string(r)))
		}
		return items
	}
	for _, c := range []struct {
		name, all, view string
		want            []int
	}{
		{"duplicates count", "abab", "ab", []int{0, 1}},
		{"one of three", "aaa", "aa", []int{0}},
		{"with a gap", "abcd", "bd", []int{0, 2}},
		{"what the view has beside", "ab", "xaby", nil},
		{"nothing is shown", "ab", "", []int{0, 1}},
		{"nothing was said", "", "a", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, missingItems(list(c.all), list(c.view))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestToldOnce: in a growing conversation each item that leaves the view is reported once, also when the state went
// through the store in between.
func TestToldOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var told seenEvictions
		var keys []wire.Hash
		seen, due := map[int]int{}, map[int]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "turns") {
			for range rapid.IntRange(0, 5).Draw(t, "new items") {
				keys = append(keys, wire.Hash{byte(len(keys) + 1)})
			}
			var missing []int
			for i := range keys {
				if rapid.Bool().Draw(t, "left out") {
					missing, due[i] = append(missing, i), true
				}
			}
			fresh, next := told.Add(keys, missing)
			for _, i := range fresh {
				seen[i]++
			}
			if !slices.IsSorted(fresh) {
				t.Fatalf("out of order: %v", fresh)
			}
			told = decodeSeenEvictions(next.Encode())
		}
		for i := range keys {
			if want := map[bool]int{true: 1}[due[i]]; seen[i] != want {
				t.Fatalf("item %d was told of %d times, want %d", i, seen[i], want)
			}
		}
	})
}

func TestToldOfAnotherConversation(t *testing.T) {
	_, told := seenEvictions{}.Add([]wire.Hash{{1}, {2}, {3}}, []int{0, 1})
	fresh, _ := told.Add([]wire.Hash{{1}, {9}, {10}}, []int{0, 1})
	if diff := cmp.Diff([]int{0, 1}, fresh); diff != "" {
		t.Errorf("after an edit: %s", diff)
	}
	if fresh, same := told.Add([]wire.Hash{{1}, {2}, {}}, []int{0, 2}); fresh != nil || string(same.Encode()) != string(told.Encode()) {
		t.Errorf("an item without a key was told of: %v", fresh)
	}
}

func FuzzDecodeSeenEvictions(f *testing.F) {
	_, told := seenEvictions{}.Add([]wire.Hash{{1}, {2}, {3}}, []int{0, 2})
	f.Add(told.Encode())
	f.Add([]byte(`{"through":"00"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		told := decodeSeenEvictions(b)
		if again := decodeSeenEvictions(told.Encode()); string(again.Encode()) != string(told.Encode()) {
			t.Fatalf("%s\n%s", told.Encode(), again.Encode())
		}
	})
}
