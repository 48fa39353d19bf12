package lru_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"remora/memory/lru"
)

// A Cache holds what a list of its entries in the order of their use holds, within both bounds.
func TestCache(t *testing.T) {
	type entry struct{ key, value, bytes int }
	rapid.Check(t, func(t *rapid.T) {
		var m lru.Cache[int, int]
		var model []entry // the one used last first
		use := func(key int) bool {
			i := slices.IndexFunc(model, func(e entry) bool { return e.key == key })
			if i < 0 {
				return false
			}
			e := model[i]
			model = slices.Insert(slices.Delete(model, i, i+1), 0, e)
			return true
		}
		put := func(key, value, most int) {
			if use(key) {
				model = model[1:]
			}
			model = slices.Insert(model[:min(len(model), most-1)], 0, entry{key, value, 0})
		}
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			key, most := rapid.IntRange(0, 7).Draw(t, "key"), rapid.IntRange(1, 5).Draw(t, "most")
			op := rapid.SampledFrom([]string{"find", "find or put", "put", "resize", "drop"}).Draw(t, "op")
			switch op {
			case "find":
				got, ok := m.Find(key)
				if want := use(key); ok != want || ok && got != model[0].value || !ok && got != 0 {
					t.Fatalf("find %d: %d, %v; want %v of %v", key, got, ok, want, model)
				}
			case "find or put":
				if !use(key) {
					put(key, step, most)
				}
				if got := m.FindOrPut(key, step, most); got != model[0].value {
					t.Fatalf("find or put %d: %d, want %d", key, got, model[0].value)
				}
			case "put":
				m.Put(key, step, most)
				put(key, step, most)
			case "resize":
				bytes, room := rapid.IntRange(0, 9).Draw(t, "bytes"), rapid.IntRange(0, 20).Draw(t, "room")
				m.Resize(key, bytes, room)
				if !use(key) {
					break
				}
				model[0].bytes = bytes
				for i, sum := 0, 0; i < len(model); i++ {
					if sum += model[i].bytes; sum > room && i > 0 {
						model = model[:i]
					}
				}
			case "drop":
				m.Drop(key)
				if use(key) {
					model = model[1:]
				}
			}
		}
		for _, want := range slices.Backward(model) {
			if got, ok := m.Find(want.key); !ok || got != want.value {
				t.Errorf("%d: %d, %v, want %d", want.key, got, ok, want.value)
			}
			m.Drop(want.key)
		}
		for key := range 8 {
			if got, ok := m.Find(key); ok {
				t.Errorf("%d: %d, want none", key, got)
			}
		}
	})
}
