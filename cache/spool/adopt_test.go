package spool_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache/spool"
)

// adopted calls Adopt, and returns the records that it passed to its function.
func adopted(t *testing.T, s *spool.Queue) (records []string, a spool.Adopted) {
	t.Helper()
	a, err := s.Adopt(func(rec []byte) { records = append(records, string(rec)) })
	if err != nil {
		t.Fatal(err)
	}
	return records, a
}

// files returns the paths of all files below a directory.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestRecordsOfADeadProcessAreAdopted: another process adopts them once, while it runs, and drains them before its own.
func TestRecordsOfADeadProcessAreAdopted(t *testing.T) {
	dir := t.TempDir()
	dead := openSpool(t, dir, 1<<20)
	appendAll(t, dead, "one", "two")
	living := openSpool(t, dir, 1<<20)
	appendAll(t, living, "three")

	if records, _ := adopted(t, living); len(records) > 0 {
		t.Errorf("records of a process that lives are adopted: %q", records)
	}
	closeSpool(t, dead)
	records, a := adopted(t, living)
	wantRecords(t, records, "one", "two")
	if a.Records != 2 || a.Cut != 0 || len(a.Foreign) != 0 {
		t.Errorf("%+v", a)
	}
	if records, a := adopted(t, living); len(records) > 0 || a.Records > 0 {
		t.Errorf("reported twice: %q", records)
	}
	wantLen(t, living, 3, 2*8+6+8+5)
	wantRecords(t, drained(t, living), "one", "two", "three")
	closeSpool(t, living)
	if left := files(t, dir); !slices.Equal(left, []string{filepath.Join(dir, "lock")}) {
		t.Errorf("left: %q", left)
	}
}

// TestIdleSpoolKeepsItsDirectory: Adopt does not remove the spool's own empty directory.
func TestIdleSpoolKeepsItsDirectory(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 1<<20)
	before := files(t, dir)
	for range 3 {
		if records, a := adopted(t, s); len(records) > 0 || a.Remade {
			t.Errorf("%q, %+v", records, a)
		}
		if now := files(t, dir); !slices.Equal(now, before) {
			t.Errorf("files %q, before %q", now, before)
		}
	}
	appendAll(t, s, "one")
	adopted(t, s)
	wantRecords(t, drained(t, s), "one")
	closeSpool(t, s)
}

// TestFirstAdoptIncludesOpen: the first Adopt includes the records that Open has found.
func TestFirstAdoptIncludesOpen(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 1<<20)
	appendAll(t, s, "one", "two")
	closeSpool(t, s)

	s = openSpool(t, dir, 1<<20)
	records, a := adopted(t, s)
	wantRecords(t, records, "one", "two")
	if a.Records != 2 {
		t.Errorf("%+v", a)
	}
	wantRecords(t, drained(t, s), "one", "two")
	closeSpool(t, s)
}

// TestUnreadableTail: a damaged last record was acknowledged, and is quarantined, as are bytes that are no record. An incomplete
// write was not acknowledged; it is cut off and counted.
func TestUnreadableTail(t *testing.T) {
	const whole = 2*8 + 6 // of the first two records
	for _, c := range []struct {
		name             string
		spoil            func(b []byte) []byte
		cut, quarantined int
	}{
		{"a bit of the last record", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, 0, 1},
		{"a last record that is cut off", func(b []byte) []byte { return b[:len(b)-1] }, 1, 0},
		{"zeros at the end", func(b []byte) []byte { return append(b[:whole], make([]byte, 5000)...) }, 1, 0},
		{"rubbish at the end", func(b []byte) []byte { return append(b, []byte("\xff not a record at all")...) }, 0, 1},
		{"nothing but rubbish", func([]byte) []byte { return slices.Repeat([]byte("\xf0rubbish"), 10_000) }, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openSpool(t, dir, 1<<20)
			appendAll(t, s, "one", "two", "three")
			closeSpool(t, s)
			logs, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
			if err != nil || len(logs) != 1 {
				t.Fatal(logs, err)
			}
			b, err := os.ReadFile(logs[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(logs[0], c.spoil(b), 0o600); err != nil {
				t.Fatal(err)
			}

			s = openSpool(t, dir, 1<<20)
			_, a := adopted(t, s)
			if a.Cut != c.cut || (a.CutBytes > 0) != (c.cut > 0) {
				t.Errorf("%+v, want %d cut", a, c.cut)
			}
			_, quarantined := picky(t, s)
			if len(quarantined) != c.quarantined {
				t.Errorf("reported %+v, want %d", quarantined, c.quarantined)
			}
			closeSpool(t, s)
		})
	}
}

// TestForeignFilesAreLeftAlone: links are not followed, and foreign files are neither read nor removed.
func TestForeignFilesAreLeftAlone(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(other, "precious")
	write(filepath.Join(dir, "spool-mine", "notes.log"), "no lock, so no spool's")
	write(filepath.Join(dir, "spool-left", "lock"), "")
	write(filepath.Join(dir, "spool-left", "readme"), "mine")
	if err := os.Symlink(other, filepath.Join(dir, "spool-left", "00000000.log")); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, "spool-link", "lock"), "")
	write(filepath.Join(dir, "spool-link", "00000001.log"), "")
	if err := os.Symlink(other, filepath.Join(dir, "spool-link", "00000001.head")); err != nil {
		t.Fatal(err)
	}

	s := openSpool(t, dir, 1<<20)
	_, a := adopted(t, s)
	if len(a.Foreign) != 5 {
		t.Errorf("foreign: %q", a.Foreign)
	}
	wantRecords(t, drained(t, s))
	closeSpool(t, s)

	for path, want := range map[string]string{
		other: "precious", filepath.Join(dir, "spool-mine", "notes.log"): "no lock, so no spool's", filepath.Join(dir, "spool-left", "readme"): "mine",
	} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v", path, b, err)
		}
	}
}

// TestSpoolThatAnotherProcessHolds: a process that has locked the whole spool keeps no other one from its own records, and a start
// waits a minute for it.
func TestSpoolThatAnotherProcessHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := openSpool(t, dir, 1<<20)
		dead := openSpool(t, dir, 1<<20)
		adopted(t, s)
		appendAll(t, s, "own")
		appendAll(t, dead, "another's")
		closeSpool(t, dead)

		held, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		records, _ := adopted(t, s)
		wantRecords(t, records)
		wantRecords(t, drained(t, s), "own")
		begun := time.Now()
		if _, err := spool.Open(dir, 1<<20); err == nil || !strings.Contains(err.Error(), "another process has held it") {
			t.Errorf("a start: %v", err)
		}
		if waited := time.Since(begun); waited != time.Minute {
			t.Errorf("a start waits for %s", waited)
		}

		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
		records, _ = adopted(t, s)
		wantRecords(t, records, "another's")
		closeSpool(t, s)
	})
}

// TestAdoptWhileAppending: a proxy adopts the records of dead processes while its own turns come in.
func TestAdoptWhileAppending(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 1<<20)
	adopted(t, s)
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !done.Load() {
			if _, err := s.Adopt(func([]byte) {}); err != nil {
				t.Error(err)
			}
		}
	})
	for range 300 {
		appendAll(t, s, "one") // to a new file, since the last one was drained
		drained(t, s)
	}
	done.Store(true)
	wg.Wait()
	wantLen(t, s, 0, 0)
	closeSpool(t, s)
}

// TestDirectoryThatIsDeleted: a deleted directory is created again, for new and for waiting records, and so is a file in it.
func TestDirectoryThatIsDeleted(t *testing.T) {
	for name, c := range map[string]struct{ append, file bool }{
		"noticed by a record": {append: true}, "noticed without one": {}, "a file in it": {file: true}, "a file in it, and a record": {append: true, file: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "spool")
			s := openSpool(t, dir, 1<<20)
			adopted(t, s)
			appendAll(t, s, "one")
			gone := []string{dir}
			if c.file {
				gone, _ = filepath.Glob(filepath.Join(dir, "spool-*", "*.log"))
			}
			if err := os.RemoveAll(gone[0]); err != nil {
				t.Fatal(err)
			}
			want := []string{"one"}
			if c.append {
				appendAll(t, s, "two")
				want = []string{"one", "two"}
			}
			if _, a := adopted(t, s); !a.Remade {
				t.Errorf("not reported: %+v", a)
			}
			closeSpool(t, s) // as if the process ended before the store is back

			s = openSpool(t, dir, 1<<20)
			read := drained(t, s)
			slices.Sort(read)
			wantRecords(t, read, want...)
			closeSpool(t, s)
		})
	}
}

// TestDirectoryThatCannotBeRead: a directory with a file that cannot be opened keeps all its records, for a later process. The
// others are adopted.
func TestDirectoryThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	dead := openSpool(t, dir, 1<<20)
	appendAll(t, dead, "one", "two")
	heads, err := filepath.Glob(filepath.Join(dir, "spool-*", "00000000.head"))
	if err != nil || len(heads) != 1 {
		t.Fatal(heads, err)
	}
	broken := heads[0]
	other := openSpool(t, dir, 1<<20)
	appendAll(t, other, "three")
	s := openSpool(t, dir, 1<<20)
	adopted(t, s) // what was there at the start: nothing
	closeSpool(t, dead)
	closeSpool(t, other)
	if err := errors.Join(os.Remove(broken), os.Mkdir(broken, 0o700)); err != nil {
		t.Fatal(err)
	}

	var records []string
	a, err := s.Adopt(func(rec []byte) { records = append(records, string(rec)) })
	if err == nil || !strings.Contains(err.Error(), broken) {
		t.Errorf("error %v, want one that names %s", err, broken)
	}
	wantRecords(t, records, "three")
	wantLen(t, s, 1, 8+5)
	if a.Records != 1 {
		t.Errorf("%+v", a)
	}
	wantRecords(t, drained(t, s), "three")
	if _, err := spool.Open(dir, 1<<20); err == nil {
		t.Error("a start leaves the directory out without a word")
	}

	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	records, _ = adopted(t, s)
	wantRecords(t, records, "one", "two")
	closeSpool(t, s)
}
