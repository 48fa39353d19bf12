package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"remora/cache"
	"remora/cache/bolt"
	"remora/cache/stores"
	"remora/cache/storetest"
)

// filled writes a bolt store of a few hundred pages, and returns the bytes of its file that are in use.
func filled(tb testing.TB, path string) []byte {
	tb.Helper()
	s := open(tb, "bolt:"+path, cache.Options{})
	for i := range 300 {
		b := put("o", fmt.Sprint(i), storetest.Record(i))
		b.Listed = true
		mustCommit(tb, s, b)
	}
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}

	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		tb.Fatal(err)
	}
	used := int64(0)
	err = db.View(func(tx *bbolt.Tx) error {
		used = tx.Size()
		return nil
	})
	b, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr, db.Close()); err != nil {
		tb.Fatal(err)
	}
	return b[:used]
}

// visit reads and writes all groups of a store whose file may be damaged, several at once: a commit alone takes a write of the disk.
// Then it lists them. It returns the number of failed operations, and fails the test for errors that do not mention the damage.
func visit(tb testing.TB, s cache.Store) (failed int) {
	tb.Helper()
	errs := make([]error, 300)
	var work sync.WaitGroup
	for i := range errs {
		work.Go(func() {
			group := cache.Group{Owner: "o", Name: fmt.Sprint(i)}
			_, errs[i] = s.Read(ctx(), []cache.Query{{Group: group, Names: []string{"n"}}})
			if errs[i] == nil {
				errs[i] = s.Commit(ctx(), []cache.Batch{put("o", group.Name, storetest.Record(i))})[0].Err
			}
		})
	}
	work.Wait()
	_, _, err := s.List(ctx(), "o", "", 1000)

	for _, err := range append(errs, err) {
		if err == nil {
			continue
		}
		failed++
		if fault, _ := cache.FaultOf(err); errors.Is(err, bolt.ErrDamaged) && (fault != cache.FaultCorrupt || !errors.Is(err, cache.ErrUnreadable)) {
			tb.Errorf("damage is a fault of %v: %v", fault, err)
		}
	}
	return failed
}

// TestTruncatedBoltFile: Open returns an error for a truncated file of any length.
func TestTruncatedBoltFile(t *testing.T) {
	dir := t.TempDir()
	whole := filled(t, filepath.Join(dir, "whole.db"))
	sizes := []int{1, 100, 4095, 5000, 8192}
	for i := range 20 {
		sizes = append(sizes, len(whole)*(i+1)/21)
	}
	for _, size := range sizes {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", size))
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := stores.Open("bolt:"+path, cache.Options{})
		if err == nil {
			t.Errorf("a file of %d bytes of %d is opened", size, len(whole))
			_ = s.Close()
			continue
		}
		if !errors.Is(err, bolt.ErrDamaged) || !strings.Contains(err.Error(), "store.url") || !strings.Contains(err.Error(), "backup") {
			t.Errorf("%d bytes of %d: %v", size, len(whole), err)
		}
	}
}

// TestBoltPathOfAFolder: it is no damaged file.
func TestBoltPathOfAFolder(t *testing.T) {
	_, err := stores.Open("bolt:"+t.TempDir(), cache.Options{})
	if err == nil || errors.Is(err, bolt.ErrDamaged) || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("error: %v", err)
	}
}

// isWholeOrRefused opens a store: Open returns an error for a damaged file, and a store that it opens has all groups.
func isWholeOrRefused(tb testing.TB, path string, content []byte) (refused bool) {
	tb.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	s, err := stores.Open("bolt:"+path, cache.Options{})
	if err != nil {
		if !errors.Is(err, bolt.ErrDamaged) {
			tb.Errorf("%s: %v", filepath.Base(path), err)
		}
		return true
	}
	if failed := visit(tb, s); failed > 0 {
		tb.Errorf("%s is opened, and %d operations fail", filepath.Base(path), failed)
	}
	if err := s.Close(); err != nil {
		tb.Error(err)
	}
	return false
}

// TestDamagedBoltFile: Open returns an error for a file with a damaged page, unless the page is free.
func TestDamagedBoltFile(t *testing.T) {
	dir := t.TempDir()
	whole := filled(t, filepath.Join(dir, "whole.db"))
	page := os.Getpagesize()
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range 60 {
		b := bytes.Clone(whole)
		for range 1 + i%4 {
			at := random.IntN(len(b) / page)
			for j := range page {
				b[at*page+j] = byte(random.Uint32())
			}
		}
		if isWholeOrRefused(t, filepath.Join(dir, fmt.Sprintf("%d.db", i)), b) {
			refused++
		}
	}
	if refused < 30 {
		t.Errorf("%d of 60 files were refused", refused)
	}
}

// TestPartlyDamagedBoltPages: of some pages only keys are damaged. Reads would not find it, and writes would spread it.
func TestPartlyDamagedBoltPages(t *testing.T) {
	dir := t.TempDir()
	whole := filled(t, filepath.Join(dir, "whole.db"))
	page, refused := os.Getpagesize(), 0
	for i := range len(whole) / page { // which of them are in use differs between runs
		b := bytes.Clone(whole)
		copy(b[i*page+64:], strings.Repeat("x", 64))
		if isWholeOrRefused(t, filepath.Join(dir, fmt.Sprintf("%d.db", i)), b) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no file was refused")
	}
}

// FuzzDamagedBoltFile writes some bytes somewhere into a file.
func FuzzDamagedBoltFile(f *testing.F) {
	dir := f.TempDir()
	whole := filled(f, filepath.Join(dir, "whole.db"))
	path := filepath.Join(dir, "damaged.db")
	f.Add(uint32(0), []byte{1})
	f.Add(uint32(3*os.Getpagesize()+8), []byte{2, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, at uint32, bytesThere []byte) {
		b := bytes.Clone(whole)
		copy(b[int(at)%len(b):], bytesThere)
		isWholeOrRefused(t, path, b)
	})
}

// TestTornCopyOfBoltFile: a copy that was made while the file was written has some pages as they were before, and others as they
// were later.
func TestTornCopyOfBoltFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole.db")
	before := filled(t, path)
	s := open(t, "bolt:"+path, cache.Options{})
	if failed := visit(t, s); failed > 0 {
		t.Fatalf("%d operations failed", failed)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page, refused := os.Getpagesize(), 0
	for i := 1; i < len(before)/page; i++ {
		torn := slices.Concat(before[:i*page], after[i*page:])
		if isWholeOrRefused(t, filepath.Join(dir, fmt.Sprintf("%d.db", i)), torn) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no file was refused")
	}
}

// TestBoltFileThatIsOverwrittenInUse: after another store was copied over the file, writes fail until a restart.
func TestBoltFileThatIsOverwrittenInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	earlier := filled(t, path)
	s := open(t, "bolt:"+path, cache.Options{})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "1", []byte("1")))
	mustCommit(t, s, put("o", "1", []byte("2")))

	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(earlier, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	err = s.Commit(ctx(), []cache.Batch{put("o", "1", []byte("3"))})[0].Err
	if fault, _ := cache.FaultOf(err); fault != cache.FaultStore || !strings.Contains(err.Error(), "overwritten while in use") {
		t.Errorf("%v: %v", fault, err)
	}
}

// TestBoltFileThatIsDamagedInUse: truncating or overwriting the file does not crash a running process.
func TestBoltFileThatIsDamagedInUse(t *testing.T) {
	for name, damage := range map[string]func(f *os.File, size int64) error{
		"cut off": func(f *os.File, size int64) error { return f.Truncate(size / 2) },
		"overwritten": func(f *os.File, size int64) error {
			_, err := f.WriteAt([]byte(strings.Repeat("x", int(size)/4)), size/2)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			size := len(filled(t, path))
			s := open(t, "bolt:"+path, cache.Options{})
			f, err := os.OpenFile(path, os.O_RDWR, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(damage(f, int64(size)), f.Close()); err != nil {
				t.Fatal(err)
			}
			if visit(t, s) == 0 {
				t.Error("no operation has met the damage")
			}
			_ = s.Close() // it may say that the file is damaged
		})
	}
}

// TestBoltFileThatIsDeletedInUse: writes fail until the file is back.
func TestBoltFileThatIsDeletedInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, "bolt:"+path, cache.Options{})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "a", []byte("1")))

	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Ping(ctx()), s.Commit(ctx(), []cache.Batch{put("o", "a", []byte("2"))})[0].Err, s.Delete(ctx(), cache.Group{Owner: "o", Name: "a"})} {
		if fault, _ := cache.FaultOf(err); fault != cache.FaultStore || !strings.Contains(err.Error(), "deleted or replaced") {
			t.Errorf("%v: %v", fault, err)
		}
	}

	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(ctx()); err != nil {
		t.Error(err)
	}
	if got := read(t, s, "o", "a"); string(got) != "1" {
		t.Errorf("read %q", got)
	}
}
