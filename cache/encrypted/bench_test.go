package encrypted_test

import (
	"bytes"
	"fmt"
	"testing"

	"remora/cache"
	"remora/cache/encrypted"
)

// BenchmarkTurn measures the store calls of one proxy request, over a cheap store: a read of 3 values of about 300
// bytes, then a commit of 7 of about 430. The difference between sealed and plain is the cost of encryption.
func BenchmarkTurn(b *testing.B) {
	for _, c := range []struct {
		name string
		o    encrypted.Options
	}{{"plain", encrypted.Options{}}, {"sealed", options(key("2026-01", 1))}} {
		b.Run(c.name, func(b *testing.B) {
			s := sealer(b, c.o).Store(open(b, "memory:", cache.Options{}))
			g := cache.Group{Owner: "tenant-0123456789abcdef", Name: "s:0123456789abcdef0123456789abcdef"}
			small, large := bytes.Repeat([]byte("x"), 300), bytes.Repeat([]byte("y"), 430)
			queries := []cache.Query{{Group: g, Names: []string{"head", "a0", "a1"}}}
			batches := []cache.Batch{{Group: g, Expect: cache.AnyVersion, Listed: true}}
			for _, name := range []string{"head", "a0", "a1"} {
				batches[0].Puts = append(batches[0].Puts, cache.Put{Name: name, Data: small})
			}
			for _, name := range []string{"i1", "i2", "i3", "t1"} {
				batches[0].Puts = append(batches[0].Puts, cache.Put{Name: name, Data: large})
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Read(b.Context(), queries); err != nil {
					b.Fatal(err)
				}
				if out := s.Commit(b.Context(), batches); out[0].Err != nil {
					b.Fatal(out[0].Err)
				}
			}
		})
	}
}

// BenchmarkValue measures sealing and opening one value, as a record of the spool.
func BenchmarkValue(b *testing.B) {
	for _, size := range []int{64, 1 << 10, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var inner last
			q := sealer(b, options(key("2026-01", 1))).Queue(&inner)
			rec := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := q.Append(rec); err != nil {
					b.Fatal(err)
				}
				if err := q.Drain(b.Context(), func(recs [][]byte) (int, error) { return len(recs), nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
