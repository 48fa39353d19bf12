package bolt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"remora/cache"
)

// ErrDamaged is wrapped by errors about a file that is truncated, overwritten or corrupt.
var ErrDamaged = errors.New("the file is damaged: restore a backup (remora store backup makes them; cp of a file in use does not)")

// errOverwritten is the error of every write after another process has written the file.
var errOverwritten = errors.New("the file of store.url was overwritten while in use: restart, which checks what it holds now")

// leastPages is the number of pages of the smallest file.
const leastPages = 4

// storeFile is an open file that reports damage as an error. bbolt trusts its file: it panics on a corrupt page, and access to a
// missing page is a memory fault.
type storeFile struct {
	db *bolt.DB
	// stuck is set if a transaction could not begin or roll back: bbolt then keeps its locks, and later calls would block
	// forever.
	stuck atomic.Bool
	// last is the number of the transaction that was written last, or failed to be, 0 before the first. A write transaction
	// guards it.
	last int
}

// openFile opens and locks the file. If Compact replaced the file while openFile waited for the lock, it opens the new one:
// writes to the old one would be lost.
func openFile(path string) (*storeFile, error) {
	const tries = 3
	for range tries {
		db, file, err := openDB(path)
		switch {
		case errors.Is(err, bolterrors.ErrTimeout):
			return nil, fmt.Errorf("open store %q (store.url): the file is locked: another Remora has it open; stop that one, or let both use Redis", path)
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EROFS):
			full, _ := filepath.Abs(path)
			return nil, fmt.Errorf("open store %q (store.url): want a file in a folder that exists, which this process may write to: %w", full, err)
		case err != nil:
			return nil, fmt.Errorf("open store %q (store.url): %w", path, err)
		}
		if cache.IsFileAt(file, path) {
			return db, nil
		}
		if err := db.close(); err != nil {
			return nil, fmt.Errorf("open store %q (store.url): %w", path, err)
		}
	}
	return nil, fmt.Errorf("open store %q (store.url): the file is being replaced", path)
}

// openDB opens the file, unless another process has it locked. A file that is not a store is an ErrDamaged.
func openDB(path string) (f *storeFile, file *os.File, err error) {
	f = new(storeFile)
	err = sound(func() (err error) {
		f.db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout:      boltLockWait,
			FreelistType: bolt.FreelistMapType,
			// Avoids remapping a growing file, which pauses commits; costs only address space.
			InitialMmapSize: 64 << 20,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag, mode) //nolint:gosec // G304: the operator's own path
				file = f
				return f, err
			},
		})
		return err
	})
	if errors.Is(err, ErrDamaged) && file != nil {
		_ = file.Close() // releases the lock, which bbolt has not
	}
	if err != nil {
		if !errors.Is(err, ErrDamaged) && isNoStore(err, path) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return nil, nil, err
	}
	if err := f.whole(file); err != nil {
		return nil, nil, errors.Join(err, f.close())
	}
	return f, file, nil
}

// isNoStore reports whether a file could not be opened because of its content, or is shorter than any store.
func isNoStore(err error, path string) bool {
	if errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch) {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() > 0 && info.Size() < leastPages*int64(os.Getpagesize())
}

// whole returns an error if the file is too short for its used pages.
func (f *storeFile) whole(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return f.view(func(tx *bolt.Tx) error {
		if want := tx.Size(); info.Size() < want {
			return fmt.Errorf("%w: it has %d bytes of %d", ErrDamaged, info.Size(), want)
		}
		return checkPages(file, f.db.Info().PageSize, tx)
	})
}

// view runs a read transaction.
func (f *storeFile) view(read func(tx *bolt.Tx) error) error {
	tx, err := f.begin(false)
	if err != nil {
		return err
	}
	err = sound(func() error { return read(tx) })
	return errors.Join(err, tx.Rollback())
}

// update runs a write transaction. A panic rolls it back like an error; bbolt's own rollback would read the list of free pages
// from the damaged file.
func (f *storeFile) update(write func(tx *bolt.Tx) error) error {
	tx, err := f.begin(true)
	if err != nil {
		return err
	}
	id := tx.ID()
	err = sound(func() error {
		if f.last != 0 && id != f.last && id != f.last+1 {
			return errOverwritten // bbolt's list of free pages is of the file that was there before
		}
		if err := write(tx); err != nil {
			return err
		}
		f.db.AllocSize = growth(tx.Size())
		f.last = id // here, since Commit lets others write
		return tx.Commit()
	})
	if err == nil {
		return nil
	}
	e := sound(tx.Rollback)
	if errors.Is(e, ErrDamaged) {
		f.stuck.Store(true)
	}
	if !errors.Is(e, bolterrors.ErrTxClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// growth returns the number of bytes by which a file grows: a quarter of its size, so that a new file stays small and growing,
// which costs a flush, becomes rarer.
func growth(size int64) int {
	const least, most = 128 << 10, 16 << 20
	return int(min(max(size/4, least), most))
}

func (f *storeFile) begin(writable bool) (tx *bolt.Tx, err error) {
	if f.stuck.Load() {
		return nil, ErrDamaged
	}
	err = sound(func() (err error) {
		tx, err = f.db.Begin(writable)
		return err
	})
	if errors.Is(err, ErrDamaged) {
		f.stuck.Store(true)
	}
	return tx, err
}

func (f *storeFile) copyTo(w io.Writer) error {
	return f.view(func(tx *bolt.Tx) error {
		n, err := tx.WriteTo(w)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: it was truncated while in use, and has %d bytes of %d", ErrDamaged, n, tx.Size())
		}
		return err
	})
}

func (f *storeFile) close() error {
	if f.stuck.Load() {
		return fmt.Errorf("close store: %w", ErrDamaged) // closing would block forever
	}
	return f.db.Close()
}

// sound runs f, which accesses the mapped file, and returns a panic or memory fault as an ErrDamaged.
func sound(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w (%T)", ErrDamaged, v) // without its text, which may quote stored data
		}
	}()
	return f()
}
