package cache

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
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
	segmentSuffix  = ".log"
	headSuffix     = ".head"
	lockName       = "lock"
	frameHead      = 8
)

// errTorn tells that no whole frame stands where one was expected.
var errTorn = errors.New("record is cut off or damaged")

func frameBytes(rec int) int64 { return frameHead + int64(rec) }

// checksum covers the length too, so that a run of zeros is not a record.
func checksum(length, rec []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(length, table), table, rec)
}

// appendFrame appends rec as a frame.
func appendFrame(dst, rec []byte) []byte {
	length := binary.BigEndian.AppendUint32(nil, uint32(len(rec))) //nolint:gosec // G115: Append checks spoolMaxRecord
	dst = slices.Grow(dst, frameHead+len(rec))
	dst = append(dst, length...)
	dst = binary.BigEndian.AppendUint32(dst, checksum(length, rec))
	return append(dst, rec...)
}

// readFrame reads the frame at offset of a file that ends at end. It returns errTorn where there is no whole one.
func readFrame(r io.ReaderAt, offset, end int64) ([]byte, error) {
	if end-offset < frameHead {
		return nil, errTorn
	}
	var head [frameHead]byte
	if _, err := r.ReadAt(head[:], offset); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:4]))
	if n > spoolMaxRecord || n > end-offset-frameHead {
		return nil, errTorn
	}
	rec := make([]byte, n)
	if _, err := r.ReadAt(rec, offset+frameHead); err != nil && n > 0 {
		return nil, err
	}
	if checksum(head[:4], rec) != binary.BigEndian.Uint32(head[4:]) {
		return nil, errTorn
	}
	return rec, nil
}

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
		if errors.Is(err, errTorn) {
			g.records = total - before
			return nil
		}
		if err != nil {
			return err
		}
		g.end += frameBytes(len(rec))
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

func (g *segment) readFirst() ([]byte, error) {
	// A segment ends in whole frames, so the frame itself says how far it goes.
	rec, err := readFrame(g.file, g.head, 1<<62)
	if err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", g.file.Name(), g.head, err)
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

func newSpoolDir(root string) (*spoolDir, error) {
	path, err := os.MkdirTemp(root, spoolDirPrefix)
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
		if !e.IsDir() || !strings.HasPrefix(e.Name(), spoolDirPrefix) {
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
