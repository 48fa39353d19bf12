package bolt

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"remora/cache"
)

// TestWholeFilesAreOpened: no file that the store wrote is taken for a damaged one, whatever was written and deleted.
func TestWholeFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		files++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", files))
		for range rapid.IntRange(1, 4).Draw(t, "starts") {
			s, err := Open(path, cache.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 12).Draw(t, "transactions") {
				var batches []cache.Batch
				for range rapid.IntRange(1, 40).Draw(t, "groups") {
					g := cache.Group{Owner: "o", Name: fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "group"))}
					if rapid.IntRange(0, 9).Draw(t, "deletes") == 0 {
						if err := s.Delete(t.Context(), g); err != nil {
							t.Fatal(err)
						}
						continue
					}
					size := rapid.SampledFrom([]int{0, 10, 300, 3000, 30_000}).Draw(t, "size")
					ttl := rapid.SampledFrom([]time.Duration{0, time.Nanosecond, time.Hour}).Draw(t, "lifetime")
					name := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "name"))
					batches = append(batches, cache.Batch{Group: g, Expect: cache.AnyVersion, TTL: ttl, Listed: true, Puts: []cache.Put{{Name: name, Data: make([]byte, size)}}})
				}
				for _, o := range s.Commit(t.Context(), batches) {
					if o.Err != nil {
						t.Fatal(o.Err)
					}
				}
				if _, err := s.sweep(); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// BenchmarkOpen opens a file of 64 MiB, of which all pages are checked.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store.db")
	s, err := Open(path, cache.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 64 {
		batches := make([]cache.Batch, 64)
		for j := range batches {
			var puts []cache.Put
			for k := range 10 {
				puts = append(puts, cache.Put{Name: fmt.Sprint(k), Data: make([]byte, 1500)})
			}
			batches[j] = cache.Batch{Group: cache.Group{Owner: "o", Name: fmt.Sprint(i, j)}, Expect: cache.AnyVersion, Puts: puts}
		}
		s.Commit(b.Context(), batches)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Open(path, cache.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
