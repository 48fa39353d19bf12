package spool

import (
	"errors"
)

// quarantineDir is the directory of quarantined records. It is created when it is first needed.
type quarantineDir struct {
	dir  *lockedDir
	seg  *segment
	next int
}

// add writes a record to disk, and returns the name of its file.
func (a *quarantineDir) add(root string, rec []byte) (file string, err error) {
	if a.dir != nil && a.dir.gone() {
		*a = quarantineDir{} // what was in it is lost
	}
	if a.dir == nil {
		unlock, err := lockRoot(root)
		if err != nil {
			return "", err
		}
		defer unlock()
		if a.dir, err = newDir(root, quarantinePrefix); err != nil {
			return "", err
		}
	}
	if a.seg == nil || a.seg.end >= segmentBytes {
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
		return "", err // the end is unchanged: the next record overwrites the failed one
	}
	a.seg.end += int64(len(frame))
	return a.seg.file.Name(), nil
}

// close leaves the directory to the next Open, or removes it if it is empty.
func (a *quarantineDir) close() error {
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
