package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"remora/cache"
)

// A spool directory holds numbered segments, "00000000.log" and so on. A segment is a sequence of frames: the length of the record
// (4 bytes, big-endian), the CRC-32C of these 4 bytes and the record, the record. The first byte is inverted when the record is
// removed.
const (
	dirPrefix        = "spool-"
	quarantinePrefix = "aside-" // of directories with quarantined records
	segmentSuffix    = ".log"
	lockName         = "lock"
)

// segment is one file.
type segment struct {
	dir  *lockedDir
	file *os.File
	end  int64 // of the last durable frame

	// Of the records in it that are not removed, with their frames. The queue's mutex guards them.
	records int
	bytes   int64
}

// place is where the frame of a record is.
type place struct {
	seg    *segment
	at     int64
	length int64
}

func newSegment(dir *lockedDir, number int) (*segment, error) {
	seg, err := openSegment(dir, fmt.Sprintf("%08d%s", number, segmentSuffix), os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := cache.SyncDir(dir.path); err != nil {
		return nil, errors.Join(err, seg.remove())
	}
	return seg, nil
}

func openSegment(dir *lockedDir, name string, flag int) (*segment, error) {
	file, err := openLocal(filepath.Join(dir.path, name), flag)
	if err != nil {
		return nil, err
	}
	return &segment{dir: dir, file: file}, nil
}

// noFollow is the flag for files in the directory of another process: opening a symbolic link fails, since its target may not be
// the spool's.
const noFollow = syscall.O_NOFOLLOW

// openLocal opens a file of the spool for reading and writing.
func openLocal(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|flag, 0o600) //nolint:gosec // G304: the operator's own directory
}

// recover finds the records of a segment of a dead process, and cuts off an incomplete write. It returns the number of bytes cut off.
func (g *segment) recover() (found []place, cut int64, err error) {
	info, err := g.file.Stat()
	if err != nil {
		return nil, 0, err
	}
	if found, err = g.scan(g.file, info.Size()); err != nil {
		return nil, 0, err
	}
	if g.end < info.Size() {
		return found, info.Size() - g.end, g.file.Truncate(g.end)
	}
	return found, 0, nil
}

// scan finds the records of a file, and sets the end behind which it was not completely written. A damaged record is one of them, with
// all that follows it up to the next whole one.
func (g *segment) scan(r io.ReaderAt, size int64) (found []place, err error) {
	for g.end < size {
		rec, removed, err := readFrame(r, g.end, size)
		next := g.end + frameBytes(len(rec))
		if errors.Is(err, errTorn) {
			// The next frames were acknowledged, so the damaged one was too.
			next, err = nextFrame(r, g.end, size)
		}
		if errors.Is(err, errTorn) {
			torn, err := isTorn(r, g.end, size)
			if torn || err != nil {
				return found, err
			}
			next = size // the last record, which was acknowledged too, or no record at all
		} else if err != nil {
			return nil, err
		}
		if !removed {
			found = append(found, place{g, g.end, next - g.end})
		}
		g.end = next
	}
	return found, nil
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
	g.end += int64(len(buf))
	return nil
}

// read returns the record, or an error that wraps cache.ErrUnreadable if it is damaged.
func (p place) read() ([]byte, error) {
	rec, _, err := readFrame(p.seg.file, p.at, p.at+p.length)
	if errors.Is(err, errTorn) || err == nil && frameBytes(len(rec)) != p.length {
		err = fmt.Errorf("%w: %w", cache.ErrUnreadable, errTorn)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", p.seg.file.Name(), p.at, err)
	}
	return rec, nil
}

// raw returns the bytes of the frame, also if it is damaged.
func (p place) raw() ([]byte, error) {
	b := make([]byte, p.length)
	if _, err := p.seg.file.ReadAt(b, p.at); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// markRemoved inverts the first byte of the frame. It does not sync, and ignores errors: after a crash the record may be delivered
// again, which the contract of the queue allows.
func (p place) markRemoved() {
	first := byte((p.length - frameHead) >> 24) //nolint:gosec // G115: of a length below 1<<32
	_, _ = p.seg.file.WriteAt([]byte{^first}, p.at)
}

// mend writes a frame's head that fits to the bytes of a damaged one, which raw has returned: only whole frames can be marked.
func (p place) mend(raw []byte) {
	if len(raw) >= frameHead {
		_, _ = p.seg.file.WriteAt(appendFrame(nil, raw[frameHead:])[:frameHead], p.at)
	}
}

// gone reports whether the segment's file was deleted.
func (g *segment) gone() bool { return !cache.IsFileAt(g.file, g.file.Name()) }

func (g *segment) close() error { return g.file.Close() }

func (g *segment) remove() error {
	return errors.Join(g.close(), ignoreMissing(os.Remove(g.file.Name())))
}
