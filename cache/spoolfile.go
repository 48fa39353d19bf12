package cache

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A spool directory holds numbered segments, "00000000.log" and so on. A segment is a sequence of frames: the length
// of the record (4 bytes, big-endian), the CRC-32C of these 4 bytes and the record, the record. Its ".head" says in
// 8 bytes where the first record stands that has not been drained; without it all of them have not.
const (
	spoolDirPrefix = "spool-"
	asideDirPrefix = "aside-" // of directories of the same form, for what nobody could read
	segmentSuffix  = ".log"
	headSuffix     = ".head"
	lockName       = "lock"
)

// segment is one file. Its owner guards the fields that change.
type segment struct {
	dir        *spoolDir
	file, mark *os.File // mark is the .head
	// head is where the first waiting record stands, end where the last durable one ends.
	head, end int64
	records   int // between head and end
}

func newSegment(dir *spoolDir, number int) (*segment, error) {
	name := fmt.Sprintf("%08d%s", number, segmentSuffix)
	seg, err := openSegment(dir, name)
	if err != nil {
		// The file may be there without its head. No other error matters here.
		_ = os.Remove(filepath.Join(dir.path, name))
		return nil, err
	}
	if err := syncDir(dir.path); err != nil {
		return nil, errors.Join(err, seg.remove())
	}
	return seg, nil
}

func openSegment(dir *spoolDir, name string) (*segment, error) {
	path := filepath.Join(dir.path, name)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // G304: the operator's own directory
	if err != nil {
		return nil, err
	}
	mark, err := os.OpenFile(strings.TrimSuffix(path, segmentSuffix)+headSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &segment{dir: dir, file: file, mark: mark}, nil
}

// recover reads through a segment that another process has left, and cuts off what is torn.
func (g *segment) recover() error {
	info, err := g.file.Stat()
	if err != nil {
		return err
	}
	var b [8]byte
	mark := int64(0)
	if _, err := g.mark.ReadAt(b[:], 0); err == nil {
		mark = int64(binary.BigEndian.Uint64(b[:])) //nolint:gosec // G115: scan checks it
	}
	if err := g.scan(g.file, info.Size(), mark); err != nil {
		return err
	}
	if g.end < info.Size() {
		return g.file.Truncate(g.end)
	}
	return nil
}

// scan finds head, end and records of a file. The head is where mark says, unless no record begins or ends there: then
// it is the beginning, because better twice than never.
func (g *segment) scan(r io.ReaderAt, size, mark int64) error {
	g.head, g.end = 0, 0
	total, before := 0, 0
	for {
		if g.end == mark {
			g.head, before = g.end, total
		}
		rec, err := readFrame(r, g.end, size)
		next := g.end + frameBytes(len(rec))
		if errors.Is(err, errTorn) {
			// What follows was acknowledged, and so was what is damaged: Drain sets that aside.
			next, err = nextFrame(r, g.end, size)
		}
		if errors.Is(err, errTorn) {
			g.records = total - before
			return nil
		}
		if err != nil {
			return err
		}
		g.end = next
		total++
	}
}

// write makes buf durable at the end. Where it fails it tries to leave nothing behind.
func (g *segment) write(buf []byte) error {
	_, err := g.file.WriteAt(buf, g.end)
	if err == nil {
		err = g.file.Sync()
	}
	if err != nil {
		return errors.Join(err, g.file.Truncate(g.end))
	}
	return nil
}

// readFirst returns the first record, and how long its frame is, of a segment whose frames end at end. Where the frame is
// damaged, the error wraps ErrUnreadable, and it goes on to the next whole one.
func (g *segment) readFirst(end int64) (rec []byte, n int64, err error) {
	rec, err = readFrame(g.file, g.head, end)
	if err == nil {
		return rec, frameBytes(len(rec)), nil
	}
	next := end
	if errors.Is(err, errTorn) {
		err = fmt.Errorf("%w: %w", ErrUnreadable, errTorn)
		if at, e := nextFrame(g.file, g.head, end); e == nil {
			next = at
		}
	}
	return nil, next - g.head, fmt.Errorf("read %s at %d: %w", g.file.Name(), g.head, err)
}

// raw returns what the first n bytes hold: the record of a whole frame, or all of a part that is damaged.
func (g *segment) raw(n int64) ([]byte, error) {
	rec, err := readFrame(g.file, g.head, g.head+n)
	if err == nil && frameBytes(len(rec)) == n {
		return rec, nil
	}
	rec = make([]byte, n)
	if _, err := g.file.ReadAt(rec, g.head); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return rec, nil
}

// saveHead is not synced: after a power cut some records come again, which is promised anyway.
func (g *segment) saveHead() error {
	_, err := g.mark.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(g.head)), 0) //nolint:gosec // G115: an offset
	return err
}

func (g *segment) close() error { return errors.Join(g.file.Close(), g.mark.Close()) }

func (g *segment) remove() error {
	err := g.close()
	// The records first: a head without its segment does no harm, a segment without its head comes again.
	for _, f := range []*os.File{g.file, g.mark} {
		if e := os.Remove(f.Name()); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// spoolDir is a sub-directory that this process has locked.
type spoolDir struct {
	path string
	lock *os.File
}

// lockRoot keeps other processes from looking for directories to take over while one is being made.
func lockRoot(root string) (unlock func(), err error) {
	f, err := openLock(filepath.Join(root, lockName))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // G304: the operator's own directory
}

// lockDir locks a sub-directory; nil without an error when another process has it.
func lockDir(path string) (*spoolDir, error) {
	f, err := openLock(filepath.Join(path, lockName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // its owner has just removed it
	}
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return &spoolDir{path: path, lock: f}, nil
}

// newSpoolDir is for who holds lockRoot.
func newSpoolDir(root, prefix string) (*spoolDir, error) {
	path, err := os.MkdirTemp(root, prefix)
	if err != nil {
		return nil, err
	}
	d, err := lockDir(path)
	if err == nil && d == nil {
		err = fmt.Errorf("lock %s: another process took it", path)
	}
	if err != nil {
		return nil, err
	}
	return d, syncDir(root)
}

func (d *spoolDir) unlock() error { return d.lock.Close() }

func (d *spoolDir) remove() error {
	err := os.RemoveAll(d.path)
	return errors.Join(err, d.lock.Close())
}

// adoptDirs takes over the sub-directories whose processes have died, oldest first. It returns what it has locked even
// when it fails.
func adoptDirs(root string) (dirs []*spoolDir, segments []*segment, err error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, nil, err
	}
	var found []adopted
	for _, e := range entries {
		aside := strings.HasPrefix(e.Name(), asideDirPrefix)
		if !e.IsDir() || !aside && !strings.HasPrefix(e.Name(), spoolDirPrefix) {
			continue
		}
		d, err := lockDir(filepath.Join(root, e.Name()))
		if err != nil {
			return dirs, segments, err
		}
		if d == nil {
			continue
		}
		dirs = append(dirs, d)
		a, err := adoptDir(d)
		if aside {
			a.since = math.MinInt64 // older than all that still waits
		}
		found = append(found, a)
		segments = append(segments, a.segments...)
		if err != nil {
			return dirs, segments, err
		}
	}
	slices.SortStableFunc(found, func(a, b adopted) int { return cmp.Compare(a.since, b.since) })
	segments = segments[:0]
	for _, a := range found {
		segments = append(segments, a.segments...)
	}
	return dirs, segments, nil
}

type adopted struct {
	segments []*segment
	since    int64 // Unix nanoseconds of the last write to the oldest segment
}

func adoptDir(d *spoolDir) (adopted, error) {
	var a adopted
	names, err := filepath.Glob(filepath.Join(d.path, "*"+segmentSuffix))
	if err != nil {
		return a, err
	}
	slices.Sort(names)
	for _, name := range names {
		seg, err := openSegment(d, filepath.Base(name))
		if err != nil {
			return a, err
		}
		a.segments = append(a.segments, seg)
		if info, err := seg.file.Stat(); err == nil && len(a.segments) == 1 {
			a.since = info.ModTime().UnixNano()
		}
		if err := seg.recover(); err != nil {
			return a, fmt.Errorf("recover %s: %w", name, err)
		}
	}
	return a, nil
}

// asideDir is where a process puts what it sets aside: a directory that it makes when it needs it.
type asideDir struct {
	dir  *spoolDir
	seg  *segment
	next int
}

// add makes a record durable, and tells in which file.
func (a *asideDir) add(root string, rec []byte) (file string, err error) {
	if a.dir == nil {
		unlock, err := lockRoot(root)
		if err != nil {
			return "", err
		}
		defer unlock()
		if a.dir, err = newSpoolDir(root, asideDirPrefix); err != nil {
			return "", err
		}
	}
	if a.seg == nil || a.seg.end >= spoolSegmentBytes {
		seg, err := newSegment(a.dir, a.next)
		if err != nil {
			return "", err
		}
		if a.seg != nil {
			err = a.seg.close()
		}
		if a.next, a.seg = a.next+1, seg; err != nil {
			return "", err
		}
	}
	frame := appendFrame(nil, rec)
	if err := a.seg.write(frame); err != nil {
		return "", err // the end stays where it was, and what is behind that is written over
	}
	a.seg.end += int64(len(frame))
	return a.seg.file.Name(), nil
}

// close gives the directory up: to the next Open, if there is anything in it.
func (a *asideDir) close() error {
	if a.dir == nil {
		return nil
	}
	if a.seg == nil || a.next == 1 && a.seg.end == 0 {
		if a.seg != nil {
			_ = a.seg.close() // with its directory
		}
		return a.dir.remove()
	}
	return errors.Join(a.seg.close(), a.dir.unlock())
}
