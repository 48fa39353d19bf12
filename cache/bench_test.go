package cache_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"remora/cache"
	"remora/test/kit"
)

// benchStores returns the stores of the benchmarks.
func benchStores() map[string]func(b *testing.B) string {
	return map[string]func(b *testing.B) string{
		"memory": func(*testing.B) string { return "memory:" },
		"bolt": func(b *testing.B) string {
			b.Helper()
			return "bolt:" + filepath.Join(b.TempDir(), "store.db")
		},
		"redis": func(b *testing.B) string {
			b.Helper()
			return kit.StartRedis(b).URL()
		},
	}
}

// BenchmarkTurn measures the store calls of one proxy request: a read of 1 group with 3 names of about 1 KB, then a
// commit of 7 values of about 3 KB, each caller in its own session.
func BenchmarkTurn(b *testing.B) { benchStore(b, true, true) }

func BenchmarkRead(b *testing.B) { benchStore(b, true, false) }

func BenchmarkCommit(b *testing.B) { benchStore(b, false, true) }

func benchStore(b *testing.B, read, commit bool) {
	b.Helper()
	for _, name := range []string{"memory", "bolt", "redis"} {
		for _, callers := range []int{1, 32, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) {
				s := open(b, benchStores()[name](b), cache.Options{})
				defer func() { _ = s.Close() }()
				small, large := bytes.Repeat([]byte("x"), 300), bytes.Repeat([]byte("y"), 430)
				measure(b, callers, func(ctx context.Context, caller int) error {
					g := cache.Group{Owner: "tenant-0123456789abcdef", Name: fmt.Sprintf("session-%d", caller)}
					if read {
						if _, err := s.Read(ctx, []cache.Query{{Group: g, Names: []string{"head", "a0", "a1"}}}); err != nil {
							return err
						}
					}
					if !commit {
						return nil
					}
					return s.Commit(ctx, []cache.Batch{{
						Group: g, Expect: cache.AnyVersion, Listed: true,
						Puts: []cache.Put{
							{Name: "head", Data: small},
							{Name: "a0", Data: small},
							{Name: "a1", Data: small},
							{Name: "a2", Data: large},
							{Name: "a3", Data: large},
							{Name: "a4", Data: large},
							{Name: "a5", Data: large},
						},
					}})[0].Err
				})
			})
		}
	}
}

// measure calls f from many goroutines and reports this process's CPU time per call.
func measure(b *testing.B, callers int, f func(ctx context.Context, caller int) error) {
	b.Helper()
	for i := range callers {
		if err := f(b.Context(), i); err != nil { // sets up connections, scripts and groups
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
				err := f(ctx, i)
				cancel()
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
