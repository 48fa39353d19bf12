package spool_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	return func(n int) error {
		_, err := s.Append(storetest.Record(n))
		return err
	}, err
}

// queue is a spool, and the records that it is known to have.
type queue struct {
	*spool.Files
	refs []spool.Ref
}

func openSpool(t *testing.T, dir string, maxBytes int64) *queue {
	t.Helper()
	s, err := spool.Open(dir, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return &queue{Files: s}
}

func appendAll(t *testing.T, s *queue, recs ...string) {
	t.Helper()
	for _, r := range recs {
		ref, err := s.Append([]byte(r))
		if err != nil {
			t.Fatal(err)
		}
		s.refs = append(s.refs, ref)
	}
}

// drained adopts what is to be adopted, and returns and removes all records, adopted ones first.
func drained(t *testing.T, s *queue) []string {
	t.Helper()
	read, _ := picky(t, s)
	return read
}

func closeSpool(t *testing.T, s *queue) {
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

func wantLen(t *testing.T, s *queue, records int, bytes int64) {
	t.Helper()
	if r, b := s.Len(); r != records || b != bytes {
		t.Fatalf("%d records of %d bytes wait, want %d of %d", r, b, records, bytes)
	}
}

func TestRecordsComeAndGo(t *testing.T) {
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

// TestAnyRecordCanBeRemoved: the next process gets those that were not, in their order.
func TestAnyRecordCanBeRemoved(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 1<<20)
	appendAll(t, s, "a", "b", "c", "d")
	s.Remove(s.refs[3])
	s.Remove(s.refs[1])
	wantLen(t, s, 2, 2+2*8)
	closeSpool(t, s)
	s = openSpool(t, dir, 1<<20)
	wantLen(t, s, 2, 2+2*8)
	appendAll(t, s, "e")
	wantRecords(t, drained(t, s), "a", "c", "e")
	closeSpool(t, s)
	left, err := filepath.Glob(filepath.Join(dir, "spool-*"))
	if err != nil || len(left) != 0 {
		t.Fatalf("an empty spool leaves %v, %v", left, err)
	}
}

func TestSpoolIsBounded(t *testing.T) {
	s := openSpool(t, t.TempDir(), 100)
	defer closeSpool(t, s)
	appendAll(t, s, strings.Repeat("a", 42), strings.Repeat("b", 40))
	wantLen(t, s, 2, 98)
	if _, err := s.Append([]byte("c")); !errors.Is(err, spool.ErrFull) {
		t.Fatalf("append beyond the limit: %v", err)
	}
	drained(t, s)
	appendAll(t, s, strings.Repeat("d", 92))
}

// TestRoomOfRemovedRecordsIsFreed: one record that stays does not keep the room of those that were around it.
func TestRoomOfRemovedRecordsIsFreed(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 1<<30)
	var want []string
	var stay []spool.Ref
	for i := range 32 { // a file has four
		appendAll(t, s, fmt.Sprint(i, strings.Repeat("x", 1<<20)))
		if ref := s.refs[i]; i%4 == 1 {
			stay, want = append(stay, ref), append(want, fmt.Sprint(i, strings.Repeat("x", 1<<20)))
		} else {
			s.Remove(ref)
		}
	}
	s.refs = stay
	for range stay {
		adopted(t, s)
	}
	var size int64
	for _, file := range files(t, dir) {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 13<<20 { // and the last file
		t.Errorf("8 MiB take %d MiB", size>>20)
	}
	closeSpool(t, s)
	s = openSpool(t, dir, 1<<30)
	got := drained(t, s)
	slices.Sort(got)
	slices.Sort(want)
	if !cmp.Equal(got, want) {
		t.Errorf("%d records are left, want %d", len(got), len(want))
	}
	closeSpool(t, s)
}

func TestSpoolRotatesAndRemovesFiles(t *testing.T) {
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

func TestRecordsAreReadAndRemovedWhileOthersAreAdded(t *testing.T) {
	const writers, each = 8, 100
	s := openSpool(t, t.TempDir(), 1<<30)
	defer closeSpool(t, s)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				want := fmt.Sprint(w, " ", i)
				ref, err := s.Append([]byte(want))
				if err != nil {
					t.Error(err)
				}
				if got, err := s.Read(ref); err != nil || string(got) != want {
					t.Errorf("read %q, %v, want %q", got, err, want)
				}
				s.Remove(ref)
			}
		})
	}
	wg.Wait()
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

func TestSpoolCutsTornTail(t *testing.T) {
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
	if _, err := s.Append([]byte("b")); !errors.Is(err, cache.ErrClosed) {
		t.Fatalf("append: %v", err)
	}
	if _, err := s.Read(s.refs[0]); !errors.Is(err, cache.ErrClosed) {
		t.Fatalf("read: %v", err)
	}
	s.Remove(s.refs[0])
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
			if _, err := s.Append([]byte("lost")); err == nil {
				t.Fatal("append to a full disk succeeded")
			}
		}
	}
	full(0, 5)
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

func TestSpoolRemovesEmptyLeftovers(t *testing.T) {
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
