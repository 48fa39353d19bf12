package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"remora/cache"
)

// compactTxBytes is the number of bytes that one transaction of Compact copies.
const compactTxBytes = 16 << 20

// Compact rewrites the file of a bolt store without the space of removed groups, which bbolt never frees by itself. No other
// process may have the file open. The old file stays until the new one is on disk.
func Compact(path string) (err error) {
	if _, err := os.Stat(path); err != nil {
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
	if err = errors.Join(err, dst.Close()); err != nil {
		return errors.Join(fmt.Errorf("compact store %q: %w", path, err), os.Remove(tmp))
	}
	// Rename while src holds its lock: a process that waits for the lock then sees that the file was replaced.
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	return cache.SyncDir(filepath.Dir(path))
}
