package cache

import (
	"errors"
	"fmt"
	"os"
)

// IsFileAt reports whether path still is the file f.
func IsFileAt(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	want, err := os.Stat(path)
	return err == nil && os.SameFile(have, want)
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // G304: the operator's own path
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
