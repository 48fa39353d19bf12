package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"remora/cache"
)

// A spool directory holds numbered segments, "00000000.log" and so on. A segment is a sequence of frames: the length
// of the record (4 bytes, big-endian), the CRC-32C of these 4 bytes and the record, the record. Its ".head" is the offset
// of the first record that has not been drained, in 8 bytes; without it, no record has been drained.
const (
	dirPrefix        = "spool-"
	quarantinePrefix = "aside-" // of directories with quarantined records
	segmentSuffix    = ".log"
	headSuffix       = ".head"
	lockName         = "lock"
)

// segment is one file. The queue's mutex guards head, end and records.
type segment struct {
	dir        *lockedDir
	file, mark *os.File // mark is the .head
	// head is the offset of the first waiting record, end the end of the last durable one.
	head, end int64
	records   int // between head and end
}

func newSegment(dir *lockedDir, number int) (*segment, error) {
	name := fmt.Sprintf("%08d%s", number, segmentSuffix)
	seg, err := openSegment(dir, name, os.O_CREATE)
	if err != nil {
		// Remove the file without its head. Ignore other errors.
		_ = os.Remove(filepath.Join(dir.path, name))
		return nil, err
	}
	if err := cache.SyncDir(dir.path); err != nil {
		return nil, errors.Join(err, seg.remove())
	}
	return seg, nil
}

func openSegment(dir *lockedDir, name string, flag int) (*segment, error) {
	path := filepath.Join(dir.path, name)
	file, err := openLocal(path, flag)
	if err != nil {
		return nil, err
	}
	mark, err := openLocal(strings.TrimSuffix(path, segmentSuffix)+headSuffix, flag|os.O_CREATE)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &segment{dir: dir, file: file, mark: mark}, nil
}

// noFollow is the flag for files in the directory of another process: opening a symbolic link fails, since its target may not be
// the spool's.
const noFollow = syscall.O_NOFOLLOW

// openLocal opens a file of the spool for reading and writing.
func openLocal(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|flag, 0o600) //nolint:gosec // G304: the operator's own directory
}

// recover scans a segment of a dead process, and cuts off an incomplete write. It returns the number of bytes cut off.
func (g *segment) recover() (cut int64, err error) {
	info, err := g.file.Stat()
	if err != nil {
		return 0, err
	}
	var b [8]byte
	mark := int64(0)
	if _, err := g.mark.ReadAt(b[:], 0); err == nil {
		mark = int64(binary.BigEndian.Uint64(b[:])) //nolint:gosec // G115: scan checks it
	}
	if err := g.scan(g.file, info.Size(), mark); err != nil {
		return 0, err
	}
	if g.end < info.Size() {
		return info.Size() - g.end, g.file.Truncate(g.end)
	}
	return 0, nil
}

// scan sets head, end and records from a file. The head is at mark if a record begins or ends there. Otherwise it is the
// beginning of the file: a record delivered twice does less harm than a lost one.
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
			// The next frames were acknowledged, so the damaged one was too: Drain quarantines it.
			next, err = nextFrame(r, g.end, size)
		}
		if errors.Is(err, errTorn) {
			torn, err := isTorn(r, g.end, size)
			if err != nil {
				return err
			}
			if !torn { // the last record, which was acknowledged too, or no record at all
				g.end = size
				total++
			}
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

// write appends buf and syncs it. If that fails, it tries to truncate the file to its old end.
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

// readFirst returns the first record of a segment whose frames end at end, and the length of its frame in bytes. If the
// frame is damaged, the error wraps cache.ErrUnreadable, and n reaches to the next whole frame.
func (g *segment) readFirst(end int64) (rec []byte, n int64, err error) {
	rec, err = readFrame(g.file, g.head, end)
	if err == nil {
		return rec, frameBytes(len(rec)), nil
	}
	next := end
	if errors.Is(err, errTorn) {
		err = fmt.Errorf("%w: %w", cache.ErrUnreadable, errTorn)
		if at, e := nextFrame(g.file, g.head, end); e == nil {
			next = at
		}
	}
	return nil, next - g.head, fmt.Errorf("read %s at %d: %w", g.file.Name(), g.head, err)
}

// readFirsts is readFirst for one or more records, up to drainRecords and drainBytes. n is the length of the first one's frame.
func (g *segment) readFirsts(end int64) (recs [][]byte, n int64, err error) {
	first, n, err := g.readFirst(end)
	if err != nil {
		return nil, n, err
	}
	recs = [][]byte{first}
	for at := g.head + n; at < end && at-g.head < drainBytes && len(recs) < drainRecords; {
		rec, damaged := readFrame(g.file, at, end)
		if damaged != nil {
			return recs, n, nil //nolint:nilerr // the damaged one comes first after these
		}
		recs = append(recs, rec)
		at += frameBytes(len(rec))
	}
	return recs, n, nil
}

// raw returns the record of the first n bytes if they are a whole frame, otherwise the bytes.
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

// saveHead does not sync: after a power failure some records are delivered again, which Drain's contract allows.
func (g *segment) saveHead(head int64) error {
	_, err := g.mark.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(head)), 0) //nolint:gosec // G115: an offset
	return err
}

// gone reports whether the segment's file was deleted.
func (g *segment) gone() bool { return !cache.IsFileAt(g.file, g.file.Name()) }

func (g *segment) close() error { return errors.Join(g.file.Close(), g.mark.Close()) }

func (g *segment) remove() error {
	err := g.close()
	// The records first: a head without its segment is harmless, a segment without its head would be delivered again.
	for _, f := range []*os.File{g.file, g.mark} {
		if e := os.Remove(f.Name()); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
