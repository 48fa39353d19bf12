package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	bolt "go.etcd.io/bbolt"

	"remora/cache"
)

// compactTxBytes is the number of bytes that one transaction of Compact copies.
const compactTxBytes = 16 << 20

// Compact rewrites the file of a bolt store without the space of removed groups, which bbolt never frees by itself. No other
// process may have the file open. The old file stays until the new one is on disk, which has its owner and mode.
func Compact(path string) (err error) {
	old, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("compact store: %w", err) // opening would create it
	}
	src, err := openFile(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	tmp := path + ".compact"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("compact store: remove the file of an earlier run: %w", err)
	}
	dst, err := bolt.Open(tmp, 0o600, &bolt.Options{Timeout: boltLockWait})
	if err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	err = sound(func() error { return bolt.Compact(dst, src.db, compactTxBytes) })
	if err = errors.Join(err, dst.Close(), inherit(tmp, old)); err != nil {
		return errors.Join(fmt.Errorf("compact store %q: %w", path, err), os.Remove(tmp))
	}
	// Rename while src holds its lock: a process that waits for the lock then sees that the file was replaced.
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	return cache.SyncDir(filepath.Dir(path))
}

// inherit gives a new file the mode and the owner of an old one. Where root compacts the file of a service, that must be able to
// open it again.
func inherit(path string, old os.FileInfo) error {
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	is, ok := file.Sys().(*syscall.Stat_t)
	want, known := old.Sys().(*syscall.Stat_t)
	if ok && known && (is.Uid != want.Uid || is.Gid != want.Gid) {
		if err := os.Chown(path, int(want.Uid), int(want.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(path, old.Mode().Perm()) // behind Chown, which may clear bits
}
