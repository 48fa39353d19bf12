package spool_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"remora/cache"
	"remora/cache/spool"
)

// picky drains a spool. It treats the records in bad as unreadable, and returns the other records and the quarantined ones.
func picky(t *testing.T, s *spool.Queue, bad ...string) (read []string, quarantined []spool.Quarantined) {
	t.Helper()
	s.OnQuarantine = func(a spool.Quarantined) { quarantined = append(quarantined, a) }
	err := s.Drain(t.Context(), one(func(rec []byte) error {
		text := string(rec)
		clear(rec) // f may modify it
		if slices.Contains(bad, text) {
			return fmt.Errorf("no key: %w", cache.ErrUnreadable)
		}
		read = append(read, text)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return read, quarantined
}

// TestUnreadableRecordsAreQuarantined: quarantined records do not delay others and take no room from waiting ones. The next
// process drains them before all others.
func TestUnreadableRecordsAreQuarantined(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 100)
	appendAll(t, s, "a", "bad1", "bad2", "b")
	read, quarantined := picky(t, s, "bad1", "bad2")
	wantRecords(t, read, "a", "b")
	if len(quarantined) != 1 || quarantined[0].Records != 2 || !errors.Is(quarantined[0].Cause, cache.ErrUnreadable) || !strings.HasPrefix(quarantined[0].File, dir) {
		t.Fatalf("reported %+v", quarantined)
	}
	if b, err := os.ReadFile(quarantined[0].File); err != nil || !bytes.Contains(b, []byte("bad1")) || !bytes.Contains(b, []byte("bad2")) {
		t.Fatalf("%q, %v", b, err)
	}
	wantLen(t, s, 0, 0)
	wantRecords(t, drained(t, s)) // not offered again
	if err := s.Append(make([]byte, 92)); err != nil {
		t.Errorf("with 24 bytes quarantined, 100 of 100 do not fit: %v", err)
	}
	wantRecords(t, drained(t, s), string(make([]byte, 92)))
	other := openSpool(t, dir, 1<<20) // another process does not get them while the first one runs
	wantRecords(t, drained(t, other))
	closeSpool(t, other)
	appendAll(t, s, "c")
	closeSpool(t, s)

	s = openSpool(t, dir, 1<<20) // with one record still unreadable
	read, quarantined = picky(t, s, "bad2")
	wantRecords(t, read, "bad1", "c")
	if len(quarantined) != 1 || quarantined[0].Records != 1 {
		t.Fatalf("reported %+v", quarantined)
	}
	closeSpool(t, s)

	s = openSpool(t, dir, 1<<20)
	wantRecords(t, drained(t, s), "bad2")
	closeSpool(t, s)
	if left, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestDamagedRecordIsQuarantined: damaged bytes are quarantined unchanged, whether the damage was found at the start or later.
func TestDamagedRecordIsQuarantined(t *testing.T) {
	for _, c := range []struct {
		name   string
		living bool
		at     int64
	}{
		{"before the start", false, 11 + 9},
		{"before the start, its length", false, 11 + 2},
		{"in a living process", true, 11 + 9},
		{"in a living process, its length", true, 11 + 2},
		{"in a living process, the last", true, 22 + 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openSpool(t, dir, 1<<20)
			appendAll(t, s, "one", "two", "six")
			logs, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
			if err != nil || len(logs) != 1 {
				t.Fatalf("files: %v, %v", logs, err)
			}
			f, err := os.OpenFile(logs[0], os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{'!'}, c.at); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if !c.living {
				closeSpool(t, s)
				s = openSpool(t, dir, 1<<20)
			}
			defer closeSpool(t, s)
			want, kept := []string{"one", "six"}, "!"
			if c.at > 22 {
				want = []string{"one", "two"}
			}
			read, quarantined := picky(t, s)
			wantRecords(t, read, want...)
			wantLen(t, s, 0, 0)
			if len(quarantined) != 1 {
				t.Fatalf("reported %+v", quarantined)
			}
			if b, err := os.ReadFile(quarantined[0].File); err != nil || !bytes.Contains(b, []byte(kept)) {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// TestQuarantineHasItsOwnShare: quarantined records take at most a quarter of maxBytes. Records beyond that are dropped and
// reported.
func TestQuarantineHasItsOwnShare(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 400)
	var bad []string
	for i := range 20 {
		bad = append(bad, fmt.Sprintf("bad%05d", i)) // 16 bytes each
	}
	appendAll(t, s, bad...)
	_, quarantined := picky(t, s, bad...)
	if len(quarantined) != 1 || quarantined[0].Records != 20 || quarantined[0].Lost != 14 {
		t.Fatalf("reported %+v", quarantined)
	}
	closeSpool(t, s)

	s = openSpool(t, dir, 400)
	wantRecords(t, drained(t, s), bad[:6]...)
	closeSpool(t, s)
}
