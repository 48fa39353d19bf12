package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"remora/cache"
)

// lockedDir is a sub-directory that this process has locked.
type lockedDir struct {
	path string
	lock *os.File
}

const (
	// rootWait is how long a process waits for the lock of the whole spool. One that starts with a full spool reads it meanwhile.
	rootWait = time.Minute
	rootLook = 10 * time.Millisecond
)

// lockRoot locks the whole spool, so that no other process takes over a directory that is being created.
func lockRoot(root string) (unlock func(), err error) {
	for range rootWait / rootLook {
		if unlock, err = tryLockRoot(root); unlock != nil || err != nil {
			return unlock, err
		}
		time.Sleep(rootLook) //nolint:forbidigo // waits; no clock is read
	}
	return nil, fmt.Errorf("lock %s: another process has held it for %s", filepath.Join(root, lockName), rootWait)
}

// tryLockRoot is lockRoot that does not wait: it returns nil and no error if another process has the lock.
func tryLockRoot(root string) (unlock func(), err error) {
	f, err := openLocal(filepath.Join(root, lockName), os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if locked, err := lockFile(f); !locked {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// lockFile locks a file until it is closed. It closes one that it cannot lock, without an error if another process has the lock.
func lockFile(f *os.File) (locked bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, f.Close()
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return true, nil
}

// lockDir locks a sub-directory. It returns nil and no error if another process has the lock, or if there is no lock file: then
// it is no directory of a spool, or its owner has just removed it. With os.O_CREATE in flag it creates the lock file.
func lockDir(path string, flag int) (*lockedDir, error) {
	f, err := openLocal(filepath.Join(path, lockName), flag)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if locked, err := lockFile(f); !locked {
		return nil, err
	}
	return &lockedDir{path: path, lock: f}, nil
}

// newDir creates and locks a sub-directory. The caller holds lockRoot.
func newDir(root, prefix string) (*lockedDir, error) {
	path, err := os.MkdirTemp(root, prefix)
	if err != nil {
		return nil, err
	}
	d, err := lockDir(path, os.O_CREATE)
	if err == nil && d == nil {
		err = fmt.Errorf("lock %s: another process took it", path)
	}
	if err != nil {
		return nil, err
	}
	return d, cache.SyncDir(root)
}

func (d *lockedDir) unlock() error { return d.lock.Close() }

// gone reports whether the directory or its lock file was deleted.
func (d *lockedDir) gone() bool { return !cache.IsFileAt(d.lock, filepath.Join(d.path, lockName)) }

// remove deletes the directory. Foreign files in it stay, but not the lock file, so that no process takes the directory over.
func (d *lockedDir) remove() error {
	var errs []error
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && isOwnFile(e.Name()) {
			errs = append(errs, ignoreMissing(os.Remove(filepath.Join(d.path, e.Name()))))
		}
	}
	if err := os.Remove(d.path); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		errs = append(errs, ignoreMissing(err))
	}
	return errors.Join(append(errs, d.lock.Close())...)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// isOwnFile reports whether the spool creates files of this name.
func isOwnFile(name string) bool {
	return name == lockName || isNumbered(name, segmentSuffix) || isNumbered(name, headSuffix)
}

func isNumbered(name, suffix string) bool {
	digits, ok := strings.CutSuffix(name, suffix)
	return ok && len(digits) >= 8 && strings.Trim(digits, "0123456789") == ""
}
