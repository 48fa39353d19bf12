package cache_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"remora/cache"
	"remora/cache/bolt"
	"remora/cache/storetest"
)

// TestBackupOfABoltFileInUse: a copy made during writes is consistent and undamaged.
func TestBackupOfABoltFileInUse(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "bolt:"+filepath.Join(dir, "x.db"), cache.Options{})
	mustCommit(t, s, put("o", "first", []byte("1")))

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				s.Commit(ctx(), []cache.Batch{put("o", fmt.Sprint(i%50), storetest.Record(i))})
			}
		}
	}()
	for i := range 5 {
		path := filepath.Join(dir, fmt.Sprintf("backup-%d", i))
		err := bolt.WriteBackup(path, s.(*bolt.Store).CopyTo)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v, want a file for the owner alone", info, err)
		}

		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				return err
			}
			return nil
		})
		if err != nil {
			t.Errorf("the copy is not sound: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		copied := open(t, "bolt:"+path, cache.Options{})
		if got := read(t, copied, "o", "first"); string(got) != "1" {
			t.Errorf("the copy holds %q", got)
		}
		if err := copied.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBackupOfATruncatedFile: a store whose file was truncated while it is open says that it is damaged, and what to do.
func TestBackupOfATruncatedFile(t *testing.T) {
	dir := t.TempDir()
	whole := filled(t, filepath.Join(dir, "whole.db"))
	for _, size := range []int{len(whole) / 2, os.Getpagesize() * 2, 100, 0} {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", size))
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, "bolt:"+path, cache.Options{})
		if err := os.Truncate(path, int64(size)); err != nil {
			t.Fatal(err)
		}
		err := s.(*bolt.Store).CopyTo(io.Discard)
		if !errors.Is(err, bolt.ErrDamaged) || !strings.Contains(err.Error(), "restore a backup") {
			t.Errorf("%d bytes of %d: %v", size, len(whole), err)
		}
		_ = s.Close()
	}
}

// TestBackupIsCompleteOrAbsent: an incomplete backup leaves no file, and a backup replaces no file.
func TestBackupIsCompleteOrAbsent(t *testing.T) {
	dir := t.TempDir()
	whole := filled(t, filepath.Join(dir, "x.db"))
	path := filepath.Join(dir, "backup")
	cut := func(w io.Writer) error {
		_, err := w.Write(whole[:len(whole)/2])
		return err
	}
	if err := bolt.WriteBackup(path, cut); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("half a copy: %v", err)
	}
	if err := bolt.WriteBackup(path, func(w io.Writer) error { return bolt.Copy(filepath.Join(dir, "x.db"), w) }); err != nil {
		t.Fatal(err)
	}
	if err := bolt.WriteBackup(path, cut); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("over another file: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left: %q, %v", left, err)
	}
}
