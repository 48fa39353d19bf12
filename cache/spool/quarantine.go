package spool

import (
	"errors"
	"fmt"
	"slices"

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

// Quarantine implements [Records].
func (s *Files) Quarantine(ref Ref, cause error) error {
	if err := s.gate.Enter(); err != nil {
		return err
	}
	defer s.gate.Leave()
	if err := s.setAside(ref, cause); err != nil {
		// cause is not wrapped: the error would count as an ErrUnreadable.
		return fmt.Errorf("quarantine spooled record (%s): %w", cause.Error(), err)
	}
	s.Remove(ref)
	return nil
}

// setAside copies a record to the directory of quarantined ones, if these have room for it. It is removed next.
func (s *Files) setAside(ref Ref, cause error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	p := s.place(ref)
	rec, err := p.read()
	damaged := errors.Is(err, cache.ErrUnreadable)
	if damaged {
		rec, err = p.raw()
	}
	if err != nil {
		return err
	}

	at := slices.IndexFunc(s.quarantined, func(q Quarantined) bool { return q.Cause.Error() == cause.Error() })
	if at < 0 {
		at, s.quarantined = len(s.quarantined), append(s.quarantined, Quarantined{Cause: cause})
	}
	q := &s.quarantined[at]
	frame := appendFrame(nil, rec)
	if size := s.asideBytes + int64(len(frame)); size > s.max/quarantineShare {
		q.Lost++
	} else {
		seg, _, err := s.writeSegment(&s.aside, frame)
		if err != nil {
			return err
		}
		s.mu.Lock()
		seg.records, seg.bytes = seg.records+1, seg.bytes+int64(len(frame))
		s.mu.Unlock()
		s.asideBytes, q.File = size, seg.file.Name()
	}
	q.Records++
	if damaged {
		p.mend(rec)
	}
	return nil
}

func (s *Files) reportQuarantined() {
	s.writing.Lock()
	all := s.quarantined
	s.quarantined = nil
	s.writing.Unlock()
	for _, q := range all {
		if s.OnQuarantine != nil && q.Records > 0 {
			s.OnQuarantine(q)
		}
	}
}
