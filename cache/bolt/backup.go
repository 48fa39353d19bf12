package bolt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"remora/cache"
)

// Copier is a store in one file, which can be copied while it is in use. A copy of the file by other means would hold pages
// of different moments.
type Copier interface {
	// CopyTo writes the file as it is at one moment. While it writes, the file can grow, and commits that need it to grow
	// beyond what is mapped wait: w must not block for long.
	CopyTo(w io.Writer) error
}

// Copy copies the file of a bolt store that no process has open.
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

// WriteBackup makes a file of a copy of a bolt store: write is given the file to write to. The file gets its name once it is
// whole and on disk. One that is there already is not replaced.
func WriteBackup(path string, write func(w io.Writer) error) (err error) {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("backup: %s is there already", path)
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".part-*") // for the owner alone
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
	db, err := openFile(f.Name()) // which refuses one that is not whole
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := db.close(); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil { // and not Rename, which would replace a file
		return fmt.Errorf("backup: %w", err)
	}
	return errors.Join(os.Remove(f.Name()), cache.SyncDir(dir))
}
