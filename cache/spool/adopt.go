package spool

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Adopted describes the records and files of dead processes that a spool took over.
type Adopted struct {
	// Records and Bytes are the number and the size of the waiting records.
	Records int
	Bytes   int64
	// Cut is the number of files whose last write was incomplete, and CutBytes the bytes dropped. None of these records
	// was acknowledged.
	Cut      int
	CutBytes int64
	// Foreign are files and links in the spool's directories that are not the spool's, and at the start directories without a lock
	// file, such as a partial copy. They are not touched.
	Foreign []string
	// Remade: the directory of this process, or a file with records, had been deleted and was created again.
	Remade bool
}

// adoption is the report of an Adopt, with the directories and segments that the queue takes over.
type adoption struct {
	Adopted

	dirs     []*lockedDir
	segments []*segment // oldest first
}

// adoptDirs takes over the sub-directories whose processes have died, oldest first. If quarantined is true, those with
// quarantined records come first. One that cannot be read keeps its records for a later try, and the error names it.
func adoptDirs(root string, quarantined bool) (a adoption, err error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return a, err
	}
	type found struct {
		segments []*segment
		since    int64 // Unix nanoseconds of the last write to the oldest segment
	}
	var all []found
	var errs []error
	for _, e := range entries {
		isQuarantined := strings.HasPrefix(e.Name(), quarantinePrefix)
		if !e.IsDir() || isQuarantined && !quarantined || !isQuarantined && !strings.HasPrefix(e.Name(), dirPrefix) {
			continue
		}
		path := filepath.Join(root, e.Name())
		d, err := lockDir(path, noFollow)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if d == nil {
			// A process may have died before it had a lock. This removes an empty directory only.
			removed := os.Remove(path) == nil
			if _, err := os.Lstat(filepath.Join(path, lockName)); quarantined && !removed && errors.Is(err, os.ErrNotExist) {
				a.Foreign = append(a.Foreign, path)
			}
			continue
		}

		segments, since, err := a.dir(d)
		if err != nil {
			for _, seg := range segments {
				errs = append(errs, seg.close())
			}
			errs = append(errs, err, d.unlock())
			continue
		}
		a.dirs = append(a.dirs, d)
		if isQuarantined {
			since = math.MinInt64 // before all waiting records
		}
		all = append(all, found{segments, since})
	}

	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.since, b.since) })
	for _, f := range all {
		a.segments = append(a.segments, f.segments...)
	}
	for _, seg := range a.segments {
		a.Records += seg.records
		a.Bytes += seg.end - seg.head
	}
	return a, errors.Join(errs...)
}

// dir opens the segments of a directory. With an error it returns those that it has opened.
func (a *adoption) dir(d *lockedDir) (segments []*segment, since int64, err error) {
	entries, err := os.ReadDir(d.path) // sorted by name, which is by number
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		if !isOwnFile(e.Name()) || !e.Type().IsRegular() {
			a.Foreign = append(a.Foreign, filepath.Join(d.path, e.Name()))
			continue
		}
		if !isNumbered(e.Name(), segmentSuffix) {
			continue
		}

		seg, err := openSegment(d, e.Name(), noFollow)
		if errors.Is(err, syscall.ELOOP) { // its head is a link
			a.Foreign = append(a.Foreign, filepath.Join(d.path, e.Name()))
			continue
		}
		if err != nil {
			return segments, since, err
		}
		segments = append(segments, seg)
		if info, err := seg.file.Stat(); err == nil && len(segments) == 1 {
			since = info.ModTime().UnixNano()
		}

		cut, err := seg.recover()
		if err != nil {
			return segments, since, fmt.Errorf("recover %s: %w", seg.file.Name(), err)
		}
		if cut > 0 {
			a.Cut++
			a.CutBytes += cut
		}
	}
	return segments, since, nil
}
