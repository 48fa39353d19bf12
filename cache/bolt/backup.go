package bolt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"remora/cache"
)

// Copy writes a copy of the file of a bolt store that no process has open.
func Copy(path string, w io.Writer) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("copy store: %w", err) // opening would create it
	}
	f, err := openFile(path)
	if err != nil {
		return err
	}
	return errors.Join(f.copyTo(w), f.close())
}

// WriteBackup creates a file, which write fills with a copy of a bolt store. The file gets its name once it is complete and on
// disk. An existing file is an error.
func WriteBackup(path string, write func(w io.Writer) error) (err error) {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("backup: %s is there already", path)
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".part-*") // mode 0600
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer func() {
		if err != nil {
			if gone := os.Remove(f.Name()); !errors.Is(gone, os.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	db, err := openFile(f.Name()) // fails if it is incomplete
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := db.close(); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil { // Rename would replace a file
		return fmt.Errorf("backup: %w", err)
	}
	return errors.Join(os.Remove(f.Name()), cache.SyncDir(dir))
}
