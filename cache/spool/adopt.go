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

// adoption is the report of an Adopt, with the directories, segments and records that the queue takes over.
type adoption struct {
	Adopted

	dirs     []*lockedDir
	segments []*segment
	places   []place // of the records, oldest first
}

// adoptDirs takes over the sub-directories whose processes have died, oldest first. If quarantined is true, those with
// quarantined records come first. One that cannot be read keeps its records for a later try, and the error names it.
func adoptDirs(root string, quarantined bool) (a adoption, err error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return a, err
	}
	var all []contents
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

		c, err := a.dir(d)
		if err != nil {
			for _, seg := range c.segments {
				errs = append(errs, seg.close())
			}
			errs = append(errs, err, d.unlock())
			continue
		}
		a.dirs = append(a.dirs, d)
		if isQuarantined {
			c.since = math.MinInt64 // before all waiting records
		}
		all = append(all, c)
	}

	slices.SortStableFunc(all, func(a, b contents) int { return cmp.Compare(a.since, b.since) })
	for _, c := range all {
		a.segments = append(a.segments, c.segments...)
		a.places = append(a.places, c.places...)
	}
	a.Records = len(a.places)
	for _, p := range a.places {
		a.Bytes += p.length
	}
	return a, errors.Join(errs...)
}

// contents are the segments and records of a directory.
type contents struct {
	segments []*segment
	places   []place
	since    int64 // Unix nanoseconds of the last write to the oldest segment
}

// dir opens the segments of a directory, and finds their records. With an error it returns what it has opened.
func (a *adoption) dir(d *lockedDir) (c contents, err error) {
	entries, err := os.ReadDir(d.path) // sorted by name, which is by number
	if err != nil {
		return c, err
	}
	for _, e := range entries {
		if !isOwnFile(e.Name()) || !e.Type().IsRegular() {
			a.Foreign = append(a.Foreign, filepath.Join(d.path, e.Name()))
			continue
		}
		if !isSegment(e.Name()) {
			continue
		}

		seg, err := openSegment(d, e.Name(), noFollow)
		if err != nil {
			return c, err
		}
		c.segments = append(c.segments, seg)
		if info, err := seg.file.Stat(); err == nil && len(c.segments) == 1 {
			c.since = info.ModTime().UnixNano()
		}

		found, cut, err := seg.recover()
		if err != nil {
			return c, fmt.Errorf("recover %s: %w", seg.file.Name(), err)
		}
		c.places = append(c.places, found...)
		if cut > 0 {
			a.Cut++
			a.CutBytes += cut
		}
	}
	return c, nil
}
