package cache_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/bolt"
	"remora/cache/stores"
	"remora/cache/storetest"
)

func ctx() context.Context { return context.Background() }

func put(owner, name string, data []byte) cache.Batch {
	return cache.Batch{
		Group: cache.Group{Owner: owner, Name: name}, Expect: cache.AnyVersion,
		Puts: []cache.Put{{Name: "n", Data: data}},
	}
}

func read(t *testing.T, s cache.Store, owner, name string) []byte {
	t.Helper()
	got, err := s.Read(ctx(), []cache.Query{{Group: cache.Group{Owner: owner, Name: name}, Names: []string{"n"}}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0].Values[0]
}

func mustCommit(tb testing.TB, s cache.Store, b cache.Batch) {
	tb.Helper()
	if got := s.Commit(ctx(), []cache.Batch{b}); got[0].Err != nil {
		tb.Fatal(got[0].Err)
	}
}

func TestKilledBoltLosesNothingAcknowledged(t *testing.T) {
	for round := range 3 {
		path := filepath.Join(t.TempDir(), "store.db")
		acked := storetest.Writer(t, path, 20+100*round, nil)
		s := open(t, "bolt:"+path, cache.Options{})
		for _, n := range acked {
			if got := read(t, s, "o", strconv.Itoa(n)); string(got) != string(storetest.Record(n)) {
				t.Fatalf("record %d of %d acknowledged reads %.20q", n, len(acked), got)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBoltCopiedWhileWriting stops a writer in the middle of its work, as a crash would, and opens a copy of its file.
func TestBoltCopiedWhileWriting(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	copies := 0
	storetest.Writer(t, path, 400, func(p *os.Process, acked []int) {
		if len(acked)%60 != 0 {
			return
		}
		signal(t, p, syscall.SIGSTOP)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		signal(t, p, syscall.SIGCONT)
		copies++
		dup := filepath.Join(dir, fmt.Sprintf("copy%d.db", copies))
		if err := os.WriteFile(dup, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, "bolt:"+dup, cache.Options{})
		for _, n := range acked {
			if got := read(t, s, "o", strconv.Itoa(n)); string(got) != string(storetest.Record(n)) {
				t.Fatalf("copy %d: record %d reads %.20q", copies, n, got)
			}
		}
		mustCommit(t, s, put("o", "after", storetest.Record(1)))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func signal(t *testing.T, p *os.Process, sig syscall.Signal) {
	t.Helper()
	if err := p.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func TestBoltIsForOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, "bolt:"+path, cache.Options{})
	var fastest time.Duration
	for try := range 10 { // a single try may fail on a busy machine
		began := time.Now()
		_, err := stores.Open("bolt:"+path, cache.Options{})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another Remora") {
			t.Fatalf("second open: %v", err)
		}
		if took := time.Since(began); try == 0 || took < fastest {
			fastest = took
		}
		if fastest <= time.Second {
			break
		}
	}
	if fastest > time.Second {
		t.Fatalf("second open took %s", fastest)
	}
	if err := bolt.Compact(path); err == nil || !strings.Contains(err.Error(), "another Remora") {
		t.Fatalf("compact of an open file: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, "bolt:"+path, cache.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCompactBoltKeepsValuesAndShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, "bolt:"+path, cache.Options{})
	for n := range 200 {
		mustCommit(t, s, put("o", strconv.Itoa(n), make([]byte, 10_000)))
	}
	for n := range 200 {
		if err := s.Delete(ctx(), cache.Group{Owner: "o", Name: strconv.Itoa(n)}); err != nil {
			t.Fatal(err)
		}
	}
	mustCommit(t, s, put("o", "kept", storetest.Record(1)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := size(t, path)
	user := os.Getuid()
	if user == 0 {
		user = 65532 // that of the image, whose file an operator may compact
	}
	if err := errors.Join(os.Chown(path, user, -1), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if err := bolt.Compact(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 || info.Sys().(*syscall.Stat_t).Uid != uint32(user) { //nolint:forcetypeassert // of every Unix
		t.Errorf("the file has the mode %v and the owner of %+v, %v", info.Mode(), info.Sys(), err)
	}
	if after := size(t, path); after > before/4 {
		t.Fatalf("compacted from %d to %d bytes", before, after)
	}
	s = open(t, "bolt:"+path, cache.Options{})
	defer func() { _ = s.Close() }()
	if got := read(t, s, "o", "kept"); string(got) != string(storetest.Record(1)) {
		t.Fatalf("after compacting: %.20q", got)
	}
	if err := bolt.Compact(path + "-none"); err == nil {
		t.Fatal("compacting no file succeeds")
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestBoltTakesALargeCommitInAnyOrder: a large commit takes work in proportion to its size; bbolt would be busy for
// minutes with this one in any order of keys. The test measures processor time, which does not depend on other load.
func TestBoltTakesALargeCommitInAnyOrder(t *testing.T) {
	s := open(t, "bolt:"+filepath.Join(t.TempDir(), "x.db"), cache.Options{})
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	puts := make([]cache.Put, 150_000)
	for i := range puts {
		puts[i] = cache.Put{Name: fmt.Sprintf("%x", sha256.Sum256([]byte(strconv.Itoa(i)))), Data: []byte("x")}
	}
	begun := cpu(t)
	group := cache.Group{Owner: "o", Name: "n"}
	if out := s.Commit(ctx(), []cache.Batch{{Group: group, Puts: puts}}); out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	names := make([]string, len(puts))
	for i, p := range puts {
		names[i] = p.Name
	}
	read, err := s.Read(ctx(), []cache.Query{{Group: group, Names: names}})
	if err != nil {
		t.Fatal(err)
	}
	if took := cpu(t) - begun; took > 30*time.Second {
		t.Errorf("commit and read took %s of the processor", took)
	}
	for i, v := range read[0].Values {
		if string(v) != "x" {
			t.Fatalf("value %d was not written", i)
		}
	}
}

// cpu returns the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
