package spool

import (
	"errors"
)

// asideDir is the directory of records that were set aside. It is made when it is first needed.
type asideDir struct {
	dir  *lockedDir
	seg  *segment
	next int
}

// add makes a record durable, and returns the name of its file.
func (a *asideDir) add(root string, rec []byte) (file string, err error) {
	if a.dir != nil && a.dir.gone() {
		*a = asideDir{} // what was in it is lost
	}
	if a.dir == nil {
		unlock, err := lockRoot(root)
		if err != nil {
			return "", err
		}
		defer unlock()
		if a.dir, err = newDir(root, asideDirPrefix); err != nil {
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
		return "", err // the end stays where it was; the next record overwrites what follows it
	}
	a.seg.end += int64(len(frame))
	return a.seg.file.Name(), nil
}

// close leaves the directory to the next Open, or removes it if there is nothing in it.
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
