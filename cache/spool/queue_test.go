package spool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/spool"
	"remora/cache/storetest"
	"remora/test/kit"
)

func TestMain(m *testing.M) {
	if !storetest.RunChild(openChild) {
		os.Exit(kit.RunWithoutLeaks(m))
	}
}

// openChild opens the spool that the child of a test writes to.
func openChild(dir string) (write func(n int) error, err error) {
	s, err := spool.Open(dir, 1<<30)
	return func(n int) error { return s.Append(storetest.Record(n)) }, err
}

func openSpool(t *testing.T, dir string, maxBytes int64) *spool.Queue {
	t.Helper()
	s, err := spool.Open(dir, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func appendAll(t *testing.T, s *spool.Queue, recs ...string) {
	t.Helper()
	for _, r := range recs {
		if err := s.Append([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
}

// drained returns all records, oldest first.
func drained(t *testing.T, s *spool.Queue) []string {
	t.Helper()
	var got []string
	if err := s.Drain(t.Context(), one(func(rec []byte) error { got = append(got, string(rec)); return nil })); err != nil {
		t.Fatal(err)
	}
	return got
}

func closeSpool(t *testing.T, s *spool.Queue) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantRecords(t *testing.T, got []string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("records (-want +got):\n%s", d)
	}
}

func wantLen(t *testing.T, s *spool.Queue, records int, bytes int64) {
	t.Helper()
	if r, b := s.Len(); r != records || b != bytes {
		t.Fatalf("%d records of %d bytes wait, want %d of %d", r, b, records, bytes)
	}
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	s := openSpool(t, t.TempDir(), 1<<20)
	defer closeSpool(t, s)
	wantRecords(t, drained(t, s))
	appendAll(t, s, "a", "", "b\x00", "c")
	wantLen(t, s, 4, 4+4*8)
	wantRecords(t, drained(t, s), "a", "", "b\x00", "c")
	wantLen(t, s, 0, 0)
	appendAll(t, s, "d")
	wantRecords(t, drained(t, s), "d")
}

func TestQueueDrainStopsAtFirstError(t *testing.T) {
	s := openSpool(t, t.TempDir(), 1<<20)
	defer closeSpool(t, s)
	appendAll(t, s, "a", "b", "c")
	down := errors.New("store is down")
	var seen []string
	err := s.Drain(t.Context(), one(func(rec []byte) error {
		if seen = append(seen, string(rec)); len(seen) == 2 {
			return down
		}
		return nil
	}))
	if !errors.Is(err, down) {
		t.Fatalf("drain: %v", err)
	}
	wantRecords(t, seen, "a", "b")
	wantRecords(t, drained(t, s), "b", "c")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(ended, one(func([]byte) error { return nil })); !errors.Is(err, context.Canceled) {
		t.Fatalf("drain with an ended context: %v", err)
	}
	appendAll(t, s, "d", "e")
	ending, cancel := context.WithCancel(t.Context())
	if err := s.Drain(ending, one(func([]byte) error { cancel(); return nil })); !errors.Is(err, context.Canceled) {
		t.Fatalf("drain with a context that ends: %v", err)
	}
	wantRecords(t, drained(t, s), "e")
}

func TestQueueRemembersWhatWasDrained(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 1<<20)
	appendAll(t, s, "a", "b", "c")
	n := 0
	_ = s.Drain(t.Context(), one(func([]byte) error { // drains one
		if n++; n == 2 {
			return errors.New("enough")
		}
		return nil
	}))
	closeSpool(t, s)
	s = openSpool(t, dir, 1<<20)
	wantLen(t, s, 2, 2+2*8)
	appendAll(t, s, "d")
	wantRecords(t, drained(t, s), "b", "c", "d")
	closeSpool(t, s)
	left, err := filepath.Glob(filepath.Join(dir, "spool-*"))
	if err != nil || len(left) != 0 {
		t.Fatalf("an empty spool leaves %v, %v", left, err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	s := openSpool(t, t.TempDir(), 100)
	defer closeSpool(t, s)
	appendAll(t, s, strings.Repeat("a", 42), strings.Repeat("b", 40))
	wantLen(t, s, 2, 98)
	if s.Max() != 100 {
		t.Errorf("it says that %d bytes is the most", s.Max())
	}
	if err := s.Append([]byte("c")); !errors.Is(err, spool.ErrFull) {
		t.Fatalf("append beyond the limit: %v", err)
	}
	var got []string
	err := s.Drain(t.Context(), func(recs [][]byte) (int, error) {
		got = append(got, string(recs[0][:1]))
		if len(got) == 1 {
			return 1, s.Move(recs[0]) // the others go first
		}
		return 1, nil
	})
	if err != nil || strings.Join(got, "") != "aba" {
		t.Errorf("drained %q, %v", got, err)
	}
	wantLen(t, s, 0, 0)
	appendAll(t, s, strings.Repeat("d", 92))
}

func TestQueueRotatesAndRemovesFiles(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 1<<30)
	defer closeSpool(t, s)
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprint(i)+strings.Repeat("x", 1<<20))
	}
	appendAll(t, s, want...)
	logs := func() int {
		names, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	if n := logs(); n < 3 {
		t.Fatalf("12 MiB are in %d files, want at least 3", n)
	}
	if got := drained(t, s); !cmp.Equal(got, want) {
		t.Fatal("records of several files differ")
	}
	if n := logs(); n != 0 {
		t.Fatalf("%d files are left of what was drained", n)
	}
}

func TestQueueDrainsWhileAppending(t *testing.T) {
	const writers, each = 8, 100
	s := openSpool(t, t.TempDir(), 1<<30)
	defer closeSpool(t, s)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := s.Append(fmt.Appendf(nil, "%d %d", w, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := [writers]int{}
	take := func(rec []byte) error {
		var w, i int
		if _, err := fmt.Sscanf(string(rec), "%d %d", &w, &i); err != nil {
			return err
		}
		if i != next[w] {
			return fmt.Errorf("writer %d: record %d came when %d was due", w, i, next[w])
		}
		next[w]++
		return nil
	}
	written := make(chan struct{})
	go func() { wg.Wait(); close(written) }()
	for last := false; !last; {
		select {
		case <-written:
			last = true
		default:
		}
		if err := s.Drain(t.Context(), one(take)); err != nil {
			t.Fatal(err)
		}
	}
	for w, n := range next {
		if n != each {
			t.Errorf("%d records of writer %d came, want %d", n, w, each)
		}
	}
	wantLen(t, s, 0, 0)
}

func TestDirectoryOfALivingProcessIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	a := openSpool(t, dir, 1<<20)
	appendAll(t, a, "a1", "a2")
	b := openSpool(t, dir, 1<<20) // locks belong to open files, so two spools in one process are like two processes
	wantLen(t, b, 0, 0)
	appendAll(t, b, "b1")
	closeSpool(t, a)
	c := openSpool(t, dir, 1<<20)
	appendAll(t, c, "c1")
	wantRecords(t, drained(t, c), "a1", "a2", "c1")
	wantRecords(t, drained(t, b), "b1")
	closeSpool(t, b)
	closeSpool(t, c)
}

func TestQueueCutsTornTail(t *testing.T) {
	whole := int64(3 * (8 + 3))
	for _, c := range []struct {
		name string
		harm func(b []byte) []byte
		want []string
	}{
		{"last byte missing", func(b []byte) []byte { return b[:whole-1] }, []string{"one", "two"}},
		{"head cut", func(b []byte) []byte { return b[:22+3] }, []string{"one", "two"}},
		{"bit flipped", func(b []byte) []byte { b[whole-1] ^= 1; return b }, []string{"one", "two"}},
		{"length flipped", func(b []byte) []byte { b[22] ^= 0x80; return b }, []string{"one", "two"}},
		{"zeros behind", func(b []byte) []byte { return append(b, make([]byte, 4096)...) }, []string{"one", "two", "six"}},
		{"first damaged", func(b []byte) []byte { b[9] ^= 1; return b }, []string{"two", "six"}},
		{"length of the first damaged", func(b []byte) []byte { b[1] ^= 1; return b }, []string{"two", "six"}},
		{"two damaged", func(b []byte) []byte { b[9] ^= 1; b[20] ^= 1; return b }, []string{"six"}},
		{"empty", func([]byte) []byte { return nil }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openSpool(t, dir, 1<<20)
			appendAll(t, s, "one", "two", "six")
			closeSpool(t, s)
			logs, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
			if err != nil || len(logs) != 1 {
				t.Fatalf("files: %v, %v", logs, err)
			}
			b, err := os.ReadFile(logs[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(logs[0], c.harm(b), 0o600); err != nil {
				t.Fatal(err)
			}
			s = openSpool(t, dir, 1<<20)
			defer closeSpool(t, s)
			appendAll(t, s, "new")
			wantRecords(t, drained(t, s), append(c.want, "new")...)
		})
	}
}

func TestKilledSpoolLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		acked := storetest.Writer(t, dir, 20+200*round, nil)
		s := openSpool(t, dir, 1<<30)
		seen := map[string]int{}
		for _, rec := range drained(t, s) {
			seen[rec]++
		}
		for _, n := range acked {
			if seen[string(storetest.Record(n))] != 1 {
				t.Fatalf("record %d of %d acknowledged came %d times", n, len(acked), seen[string(storetest.Record(n))])
			}
		}
		closeSpool(t, s)
	}
}

func TestClosedSpool(t *testing.T) {
	s := openSpool(t, t.TempDir(), 1<<20)
	appendAll(t, s, "a")
	closeSpool(t, s)
	closeSpool(t, s)
	if err := s.Append([]byte("b")); !errors.Is(err, cache.ErrClosed) {
		t.Fatalf("append: %v", err)
	}
	if err := s.Drain(t.Context(), one(func([]byte) error { return nil })); !errors.Is(err, cache.ErrClosed) {
		t.Fatalf("drain: %v", err)
	}
}

// openFiles counts the descriptors of this process that are open on files below dir.
func openFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(fds) == 0 {
		t.Skipf("no /proc: %v", err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && (strings.HasPrefix(to, dir) || to == "/dev/full") {
			n++
		}
	}
	return n
}

func TestFullDiskLeavesNothingBehind(t *testing.T) {
	root := t.TempDir()
	s := openSpool(t, root, 1<<20)
	defer closeSpool(t, s)
	dirs, err := filepath.Glob(filepath.Join(root, "spool-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("directories %v, %v", dirs, err)
	}
	before := openFiles(t, root)
	full := func(from, to int) {
		for i := from; i < to; i++ {
			if err := os.Symlink("/dev/full", filepath.Join(dirs[0], fmt.Sprintf("%08d.log", i))); err != nil {
				t.Fatal(err)
			}
			if err := s.Append([]byte("lost")); err == nil {
				t.Fatal("append to a full disk succeeded")
			}
		}
	}
	full(0, 5)
	headless := filepath.Join(dirs[0], "00000005.head")
	if err := os.Mkdir(headless, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Append([]byte("lost")); err == nil {
		t.Fatal("append to a segment without a head succeeded")
	}
	if err := os.Remove(headless); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dirs[0], "0*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if n := openFiles(t, root); n != before {
		t.Errorf("%d open files, %d before", n, before)
	}
	appendAll(t, s, "a", "b")
	wantRecords(t, drained(t, s), "a", "b")
}

// TestQueueDrainsFullDisk: Drain removes records even if the disk has no room to save its position.
func TestQueueDrainsFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 1<<20)
	defer closeSpool(t, s)
	dirs, err := filepath.Glob(filepath.Join(dir, "spool-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("spool has directories %v, %v", dirs, err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(dirs[0], "00000000.head")); err != nil {
		t.Fatal(err)
	}
	appendAll(t, s, "a", "b", "c")
	wantRecords(t, drained(t, s), "a", "b", "c")
	wantLen(t, s, 0, 0)
}

func TestQueueRemovesEmptyLeftovers(t *testing.T) {
	root := t.TempDir()
	s := openSpool(t, root, 1<<20)
	appendAll(t, s, "a")
	closeSpool(t, s)
	for _, dir := range []string{"spool-crashed", "spool-bare"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"lock", "00000000.log"} {
		if err := os.WriteFile(filepath.Join(root, "spool-crashed", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = openSpool(t, root, 1<<20)
	defer closeSpool(t, s)
	left, err := filepath.Glob(filepath.Join(root, "spool-*"))
	if err != nil || len(left) != 2 { // the record's and the new one
		t.Errorf("directories %v, %v", left, err)
	}
	wantLen(t, s, 1, 9)
	wantRecords(t, drained(t, s), "a")
}

// one passes records to f one after the other.
func one(f func(rec []byte) error) func(recs [][]byte) (int, error) {
	return func(recs [][]byte) (int, error) {
		if err := f(recs[0]); err != nil {
			return 0, err
		}
		return 1, nil
	}
}

// TestDrainOfSeveral: f gets several records, and what it says of the first ones and of the next one holds; the others come again.
func TestDrainOfSeveral(t *testing.T) {
	s := openSpool(t, t.TempDir(), 1<<20)
	appendAll(t, s, "a", "b", "bad", "c", "d", "e")
	down := errors.New("store is down")
	var aside int
	s.OnQuarantine = func(a spool.Quarantined) { aside += a.Records }
	var got []string
	err := s.Drain(t.Context(), func(recs [][]byte) (int, error) {
		for i, rec := range recs {
			switch string(rec) {
			case "bad":
				return i, cache.ErrUnreadable
			case "e":
				return i, down
			}
			got = append(got, string(rec))
		}
		return len(recs), nil
	})
	if !errors.Is(err, down) || aside != 1 {
		t.Errorf("drain: %v; %d were quarantined", err, aside)
	}
	wantRecords(t, got, "a", "b", "c", "d")
	wantLen(t, s, 1, 1+8)
	wantRecords(t, drained(t, s), "e")
}
