package layer_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"remora/memory/layer"
)

// A state decodes to the same value after any sequence of Get and Put.
func TestDecoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := layer.NewDecoded(func(b []byte) string { return "says " + string(b) })
		states := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 4), 2, 6).Draw(t, "states")
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			was, b := rapid.SampledFrom(states).Draw(t, "was"), rapid.SampledFrom(states).Draw(t, "state")
			if rapid.Bool().Draw(t, "put") {
				d.Put(was, b, "says "+string(b))
				continue
			}
			given := bytes.Clone(b)
			for range 2 {
				if v := d.Get(given); v != "says "+string(b) {
					t.Fatalf("%x says %q", b, v)
				}
			}
			for i := range given {
				given[i]++ // whoever asked uses its memory for something else
			}
		}
	})
}

// asked counts how often a Decoded had to decode.
func asked(t *testing.T, f func(d *layer.Decoded[int])) int {
	t.Helper()
	n := 0
	f(layer.NewDecoded(func(b []byte) int { n++; return len(b) }))
	return n
}

func TestDecodedKeeps(t *testing.T) {
	ask := func(d *layer.Decoded[int], from, to, size int) {
		state := make([]byte, size)
		for i := from; i < to; i++ {
			copy(state, fmt.Sprint(i, "."))
			if n := d.Get(state); n != size {
				t.Errorf("%d, want %d", n, size)
			}
		}
	}
	for _, tc := range []struct {
		name string
		want int
		f    func(d *layer.Decoded[int])
	}{
		{"what was asked for", 1, func(d *layer.Decoded[int]) { ask(d, 0, 1, 9); ask(d, 0, 1, 9) }},
		{"what was put", 0, func(d *layer.Decoded[int]) { d.Put(nil, []byte("x"), 7); d.Get([]byte("x")) }},
		{"not what was replaced", 2, func(d *layer.Decoded[int]) {
			ask(d, 0, 1, 9)
			d.Put(append([]byte("0."), make([]byte, 7)...), []byte("x"), 1)
			ask(d, 0, 1, 9)
		}},
		{"so many", 4096, func(d *layer.Decoded[int]) { ask(d, 0, 4096, 9); ask(d, 0, 4096, 9) }},
		{"no more than that", 2 * 4097, func(d *layer.Decoded[int]) { ask(d, 0, 4097, 9); ask(d, 0, 4097, 9) }},
		{"so many bytes", 16 + 16 + 16, func(d *layer.Decoded[int]) {
			ask(d, 0, 16, 500_000)
			ask(d, 0, 16, 500_000)
			ask(d, 16, 32, 500_000)
			ask(d, 0, 16, 500_000)
		}},
		{"none that is huge", 3, func(d *layer.Decoded[int]) {
			ask(d, 0, 1, 9)
			ask(d, 0, 1, 1<<20)
			ask(d, 0, 1, 1<<20)
			ask(d, 0, 1, 9)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := asked(t, tc.f); got != tc.want {
				t.Errorf("decoded %d times, want %d", got, tc.want)
			}
		})
	}
}

// Many may ask and put at the same time.
func TestDecodedConcurrently(t *testing.T) {
	d := layer.NewDecoded(func(b []byte) string { return string(b) })
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				b, next := fmt.Appendf(nil, "%d", i%7), fmt.Appendf(nil, "%d", (i+g)%7)
				if v := d.Get(b); v != string(b) {
					t.Errorf("%s says %q", b, v)
				}
				d.Put(b, next, string(next))
			}
		})
	}
	wg.Wait()
}
