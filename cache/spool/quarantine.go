package spool

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"remora/cache"
)

// Quarantined describes records that were quarantined for the same cause.
type Quarantined struct {
	File    string // the file of the last one
	Records int
	// Lost is the number of records that were dropped for lack of room.
	Lost  int
	Cause error
}

// quarantineShare: quarantined records may take 1/quarantineShare of maxBytes.
const quarantineShare = 4

// quarantine is the directory of quarantined records. It is created when it is first needed.
type quarantine struct {
	mu         sync.Mutex
	dir        *lockedDir
	seg        *segment
	number     int           // of the next segment
	bytes      int64         // of all records in it
	unreported []Quarantined // by cause
}

// Quarantine implements [Records].
func (s *Queue) Quarantine(ref Ref, cause error) error {
	if err := s.gate.Enter(); err != nil {
		return err
	}
	defer s.gate.Leave()
	if err := s.copyToQuarantine(ref, cause); err != nil {
		// cause is not wrapped: the error would count as an ErrUnreadable.
		return fmt.Errorf("quarantine spooled record (%s): %w", cause.Error(), err)
	}
	s.Remove(ref)
	return nil
}

func (s *Queue) copyToQuarantine(ref Ref, cause error) error {
	s.files.RLock()
	defer s.files.RUnlock()
	p := s.place(ref)
	rec, err := p.read()
	damaged := errors.Is(err, cache.ErrUnreadable)
	if damaged {
		rec, err = p.raw()
	}
	if err != nil {
		return err
	}

	q := &s.aside
	q.mu.Lock()
	defer q.mu.Unlock()
	full, file := q.bytes+frameBytes(len(rec)) > s.max/quarantineShare, ""
	if !full {
		if file, err = q.add(s.root, rec); err != nil {
			return err
		}
	}
	at := slices.IndexFunc(q.unreported, func(u Quarantined) bool { return u.Cause.Error() == cause.Error() })
	if at < 0 {
		at, q.unreported = len(q.unreported), append(q.unreported, Quarantined{Cause: cause})
	}
	u := &q.unreported[at]
	if u.Records++; full {
		u.Lost++
	} else {
		u.File = file
	}
	if damaged {
		p.mend(rec)
	}
	return nil
}

// add writes a record to disk, and returns the name of its file. The caller holds mu.
func (q *quarantine) add(root string, rec []byte) (file string, err error) {
	if q.dir != nil && q.dir.gone() {
		q.dir, q.seg = nil, nil // what was in it is lost
	}
	if q.dir == nil {
		unlock, err := lockRoot(root)
		if err != nil {
			return "", err
		}
		defer unlock()
		if q.dir, err = newDir(root, quarantinePrefix); err != nil {
			return "", err
		}
	}
	if q.seg == nil || q.seg.end >= segmentBytes {
		seg, err := newSegment(q.dir, q.number)
		if err != nil {
			return "", err
		}
		if q.seg != nil {
			err = q.seg.close()
		}
		if q.number, q.seg = q.number+1, seg; err != nil {
			return "", err
		}
	}
	frame := appendFrame(nil, rec)
	if err := q.seg.write(frame); err != nil {
		return "", err // the end is unchanged: the next record overwrites the failed one
	}
	q.bytes += int64(len(frame))
	return q.seg.file.Name(), nil
}

// report calls f, if it is not nil, with what was quarantined since the last report.
func (q *quarantine) report(f func(Quarantined)) {
	q.mu.Lock()
	all := q.unreported
	q.unreported = nil
	q.mu.Unlock()
	for _, u := range all {
		if f != nil {
			f(u)
		}
	}
}

// close leaves the directory to the next Open, or removes it if it is empty.
func (q *quarantine) close() error {
	switch {
	case q.dir == nil:
		return nil
	case q.seg == nil:
		return q.dir.remove()
	case q.number == 1 && q.seg.end == 0:
		return errors.Join(q.seg.close(), q.dir.remove())
	}
	return errors.Join(q.seg.close(), q.dir.unlock())
}
