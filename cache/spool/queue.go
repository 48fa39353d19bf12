// Package spool is a durable queue on local disk. While the store is unavailable, a proxy puts turns there, and later writes them
// to the store. Start at [Open].
//
// Several processes may share a directory: each writes to its own sub-directory, and takes over those of processes that have
// died.
package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"remora/cache"
)

// ErrFull is returned by [Queue.Append] for a record that the spool has no room for.
var ErrFull = errors.New("spool is full")

const (
	// segmentBytes is the size of a file after which records go to a new one. Drained files are removed.
	segmentBytes = 4 << 20
	// maxRecord is the size of the largest record in bytes.
	maxRecord = 256 << 20
	// drainRecords and drainBytes bound the records that Drain passes at once: the first one, and others up to these bounds.
	drainRecords = 64
	drainBytes   = 1 << 20
)

// Records is a durable queue of records, such as Queue.
type Records interface {
	// Append puts a record at the end; it is on disk when Append returns.
	Append(rec []byte) error
	// Move is Append for a record that the function of a Drain was given, and that is removed next: the others come first. It may take
	// its room twice until then.
	Move(rec []byte) error
	// Drain calls f with the oldest records, in order, until none is left. f gets one or more, and returns how many of them it is
	// done with, from the first on: these are removed. Its error concerns the next one. If it wraps cache.ErrUnreadable, that
	// record is quarantined: it leaves the queue. Drain stops at any other error and returns it.
	Drain(ctx context.Context, f func(recs [][]byte) (done int, err error)) error
	// Adopt takes over the records of processes that have died, and calls f with a copy of each readable one.
	Adopt(f func(rec []byte)) (Adopted, error)
	// Len returns the number and the total size of the records in the queue.
	Len() (records int, bytes int64)
	// Max returns the size in bytes that the records may have together, 0 if nothing bounds it.
	Max() int64
}

// Queue is first in, first out, and delivers at least once: if a process dies between a record's use and its removal, the
// record is delivered again. It is safe for concurrent use.
//
// Open and Adopt take over the sub-directories of processes that have died. Their records come before the queue's own, oldest
// first.
//
// A record that cannot be read is quarantined: it is moved unchanged to another sub-directory, which this process does not read.
// The next Open takes it over, before all others. Quarantined records may take a quarter of maxBytes in addition to maxBytes; after
// an Open they are in the queue again, and count in maxBytes until a Drain has read them.
type Queue struct {
	// OnQuarantine, if not nil, is called with the records that a Drain quarantined. It must be set before the first Drain.
	OnQuarantine func(Quarantined)

	root    string
	max     int64     // bytes of records that wait
	found   *adoption // by Open, nil once Adopt has returned it
	gate    cache.Gate
	batcher *cache.Batcher[*appending]
	// draining holds a value while a Drain or an Adopt runs.
	draining chan struct{}

	// writing is held while records are written, and while the segment that they are written to is removed. It is locked
	// before mu.
	writing sync.Mutex
	own     *lockedDir

	mu sync.Mutex // never held during a call of the disk, which may hang: Len would, too
	// segments are sorted, oldest first. active, if not nil, is the last one.
	segments []*segment
	active   *segment
	dirs     []*lockedDir
	records  int
	bytes    int64 // of all frames not yet drained
	next     int   // number of the next segment of own

	remade bool // own was created again since the last Adopt

	// The fields below belong to the holder of draining.

	quarantineDir    quarantineDir
	quarantinedBytes int64 // of all quarantined frames
}

// Quarantined describes consecutive records that were quarantined for the same cause.
type Quarantined struct {
	File    string // the file of the last one
	Records int
	// Lost is the number of records that were dropped for lack of room.
	Lost  int
	Cause error
}

// quarantineShare: quarantined records may take 1/quarantineShare of maxBytes.
const quarantineShare = 4

// appending is a call of Append.
type appending struct {
	frame []byte
	moved bool
	err   error
}

// Open opens the spool in dir, which it creates if necessary. maxBytes bounds the waiting records, including 8 bytes of framing
// each; records that this process quarantines may take another quarter. Disk space is freed in files of 4 MiB.
func Open(dir string, maxBytes int64) (*Queue, error) {
	s := &Queue{root: dir, max: maxBytes, draining: make(chan struct{}, 1)}
	s.batcher = &cache.Batcher[*appending]{Run: s.write, Slots: 1, MaxCalls: 256, MaxBytes: 4 << 20}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool: %w", err), s.release())
	}
	return s, nil
}

func (s *Queue) open() error {
	unlock, err := s.lockedRoot()
	if err != nil {
		return err
	}
	defer unlock()
	found, err := adoptDirs(s.root, true)
	s.found = &found
	s.takeOver(&found)
	if err != nil {
		return err
	}
	if err := s.sweep(); err != nil {
		return err
	}
	if s.own, err = newDir(s.root, dirPrefix); s.own != nil {
		s.dirs = append(s.dirs, s.own)
	}
	return err
}

// lockedRoot creates the spool's directory if necessary, and locks it.
func (s *Queue) lockedRoot() (unlock func(), err error) {
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return nil, err
	}
	return lockRoot(s.root)
}

// takeOver puts the adopted records before all others.
func (s *Queue) takeOver(a *adoption) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs = append(s.dirs, a.dirs...)
	s.segments = slices.Concat(a.segments, s.segments)
	s.records += a.Records
	s.bytes += a.Bytes
}

// Adopt takes over the records of processes that died since Open or the last Adopt, and calls f with a copy of each;
// the first call includes the records that Open has found. The records stay in the queue. If the spool's directory or a file in
// it was deleted, Adopt creates a new one and writes the records of files that are still open there. It does nothing while a Drain
// runs, and takes over nothing while another process has the spool locked.
func (s *Queue) Adopt(f func(rec []byte)) (Adopted, error) {
	if err := s.gate.Enter(); err != nil {
		return Adopted{}, err
	}
	defer s.gate.Leave()
	select {
	case s.draining <- struct{}{}:
		defer func() { <-s.draining }()
	default:
		return Adopted{}, nil
	}

	found, err := s.adopt()
	err = errors.Join(err, found.each(f)) // what was taken over before an error is in the queue
	if err != nil {
		return found.Adopted, fmt.Errorf("adopt spools: %w", err)
	}
	return found.Adopted, nil
}

// adopt is Adopt. The caller holds draining.
func (s *Queue) adopt() (found adoption, err error) {
	if err := s.restore(); err != nil {
		return found, err
	}
	if s.found != nil {
		found, s.found = *s.found, nil
		return found, nil
	}

	unlock, err := tryLockRoot(s.root)
	if unlock == nil {
		return found, err // another process takes over what there is, or the next call does
	}
	defer unlock()
	found, err = adoptDirs(s.root, false)
	s.takeOver(&found)
	s.mu.Lock()
	found.Remade, s.remade = s.remade, false
	s.mu.Unlock()
	return found, errors.Join(err, s.sweep())
}

// each calls f with every whole record.
func (a *adoption) each(f func(rec []byte)) error {
	for _, seg := range a.segments {
		for at := seg.head; at < seg.end; {
			rec, err := readFrame(seg.file, at, seg.end)
			next := at + frameBytes(len(rec))
			switch {
			case errors.Is(err, errTorn):
				if next, err = nextFrame(seg.file, at, seg.end); errors.Is(err, errTorn) {
					next, err = seg.end, nil
				}
			case err == nil:
				f(rec)
			}
			if err != nil {
				return err
			}
			at = next
		}
	}
	return nil
}

// restore creates the spool's own directory again if it was deleted, and moves the records of deleted files there: this process
// still has them open, but no other would find them. The caller holds draining.
func (s *Queue) restore() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.remake(); err != nil {
		return err
	}
	s.mu.Lock()
	segments := slices.Clone(s.segments)
	s.mu.Unlock()
	for _, seg := range segments {
		if seg.head == seg.end || !seg.gone() {
			continue
		}
		if err := s.rewrite(seg); err != nil {
			return err
		}
	}
	return nil
}

// rewrite moves the waiting records of a segment to a new one. The caller holds draining and writing.
func (s *Queue) rewrite(seg *segment) error {
	rest := make([]byte, seg.end-seg.head)
	if _, err := seg.file.ReadAt(rest, seg.head); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	fresh, err := newSegment(s.own, s.next)
	if err != nil {
		return err
	}
	s.next++
	if err := fresh.write(rest); err != nil {
		return errors.Join(err, fresh.remove())
	}
	fresh.end, fresh.records = int64(len(rest)), seg.records

	s.mu.Lock()
	if s.active == seg {
		s.active = nil
	}
	s.remade = true
	old := *seg
	*seg = *fresh
	s.mu.Unlock()
	return old.close()
}

// remake creates the spool's own directory again if it was deleted. The caller holds writing.
func (s *Queue) remake() error {
	if s.own != nil && !s.own.gone() {
		return nil
	}
	unlock, err := s.lockedRoot()
	if err != nil {
		return err
	}
	defer unlock()
	own, err := newDir(s.root, dirPrefix)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own, s.active, s.remade = own, nil, true
	s.dirs = append(s.dirs, own)
	return nil
}

// sweep removes the files and directories of dead processes that hold no records: Drain removes only what it has drained.
func (s *Queue) sweep() error {
	s.mu.Lock()
	segments := slices.Clone(s.segments)
	s.mu.Unlock()
	var errs []error
	for _, seg := range segments {
		errs = append(errs, s.retire(seg))
	}

	var empty []*lockedDir
	s.mu.Lock()
	s.dirs = slices.DeleteFunc(s.dirs, func(d *lockedDir) bool {
		if d == s.own || slices.ContainsFunc(s.segments, func(g *segment) bool { return g.dir == d }) {
			return false // its own may be written to at any time
		}
		empty = append(empty, d)
		return true
	})
	s.mu.Unlock()
	for _, d := range empty {
		errs = append(errs, d.remove())
	}
	return errors.Join(errs...)
}

// Append adds a record, which is on disk when it returns. It returns [ErrFull] if there is no room. After another error, the
// record may or may not be in the queue.
func (s *Queue) Append(rec []byte) error { return s.append(rec, false) }

// Move implements [Records].
func (s *Queue) Move(rec []byte) error { return s.append(rec, true) }

func (s *Queue) append(rec []byte, moved bool) error {
	if err := s.gate.Enter(); err != nil {
		return err
	}
	defer s.gate.Leave()
	if len(rec) > maxRecord {
		return ErrFull
	}
	call := &appending{frame: appendFrame(nil, rec), moved: moved}
	err := s.batcher.Do(context.Background(), call, len(rec))
	if err == nil {
		err = call.err
	}
	if err == nil || errors.Is(err, ErrFull) {
		return err
	}
	return fmt.Errorf("append to spool: %w", err)
}

// write writes all records that fit, with one fsync per segment.
func (s *Queue) write(_ context.Context, calls []*appending) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for len(calls) > 0 {
		var buf []byte
		var fits []*appending
		_, taken := s.Len()
		room := s.max - taken
		n := 0
		for ; n < len(calls) && len(buf) < segmentBytes; n++ {
			c := calls[n]
			if int64(len(buf)+len(c.frame)) > room && !c.moved {
				c.err = ErrFull
				continue
			}
			fits = append(fits, c)
			if len(buf) == 0 {
				buf = slices.Clip(c.frame) // a large one is not copied
			} else {
				buf = append(buf, c.frame...)
			}
		}

		calls = calls[n:]
		if err := s.writeSegment(buf, len(fits)); err != nil {
			for _, c := range fits {
				c.err = err
			}
		}
	}
}

// writeSegment appends whole frames to the active segment. Drain sees them only when it returns.
func (s *Queue) writeSegment(buf []byte, records int) error {
	if len(buf) == 0 {
		return nil
	}
	if err := s.remake(); err != nil {
		return err
	}
	seg := s.active
	if seg == nil || seg.end >= segmentBytes {
		var err error
		if seg, err = newSegment(s.own, s.next); err != nil {
			return err
		}
		s.next++
		s.mu.Lock()
		s.segments = append(s.segments, seg)
		s.active = seg
		s.mu.Unlock()
	}

	if err := seg.write(buf); err != nil {
		// The bytes on disk after the end are unknown, so no frame may follow them.
		s.mu.Lock()
		s.active = nil
		s.mu.Unlock()
		// A full disk must not cost a file and its descriptors for each attempt.
		return errors.Join(err, s.drop(seg))
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	seg.end += int64(len(buf))
	seg.records += records
	s.bytes += int64(len(buf))
	s.records += records
	return nil
}

// Drain implements [Records]. A record that is damaged on disk is quarantined, too. Other errors of f are returned unchanged. One
// Drain runs at a time, others wait. Records may be appended meanwhile. f may keep and modify recs.
func (s *Queue) Drain(ctx context.Context, f func(recs [][]byte) (done int, err error)) error {
	if err := s.gate.Enter(); err != nil {
		return err
	}
	defer s.gate.Leave()
	select {
	case s.draining <- struct{}{}:
		defer func() { <-s.draining }()
	case <-ctx.Done():
		return ctx.Err()
	}

	var quarantined Quarantined
	defer func() { s.reportQuarantined(quarantined) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.gate.IsShut() {
			return cache.ErrClosed
		}
		seg, end, err := s.oldest()
		if err != nil {
			return fmt.Errorf("drain spool: %w", err)
		}
		if seg == nil {
			return nil
		}

		recs, n, err := seg.readFirsts(end)
		if err != nil {
			err = fmt.Errorf("drain spool: %w", err)
		} else {
			frames := make([]int64, len(recs)) // f may modify recs
			for i, rec := range recs {
				frames[i] = frameBytes(len(rec))
			}
			var done int
			done, err = f(recs)
			for _, frame := range frames[:done] {
				s.advance(seg, frame)
			}
			if err != nil && done < len(frames) {
				n = frames[done]
			}
		}
		if errors.Is(err, cache.ErrUnreadable) {
			if quarantined, err = s.quarantine(seg, n, quarantined, err); err == nil {
				s.advance(seg, n)
			}
		}
		if err != nil {
			return err
		}
	}
}

// quarantine copies the n bytes at the head of a segment to the quarantine directory; the caller drops them from the segment. It
// reports before, unless the causes are equal, and returns the records to report later.
func (s *Queue) quarantine(seg *segment, n int64, before Quarantined, cause error) (Quarantined, error) {
	if before.Records > 0 && before.Cause.Error() != cause.Error() {
		s.reportQuarantined(before)
		before = Quarantined{}
	}
	now := Quarantined{File: before.File, Records: before.Records + 1, Lost: before.Lost, Cause: cause}

	rec, err := seg.raw(n) // read again, since f may have modified its copy
	switch {
	case err == nil && s.quarantinedBytes+frameBytes(len(rec)) > s.max/quarantineShare:
		now.Lost++
	case err == nil:
		now.File, err = s.quarantineDir.add(s.root, rec)
	}
	if err != nil {
		// cause is not wrapped: the error would count as an ErrUnreadable.
		return before, fmt.Errorf("quarantine spooled record (%s): %w", cause.Error(), err)
	}
	if now.Lost == before.Lost {
		s.quarantinedBytes += frameBytes(len(rec))
	}
	return now, nil
}

func (s *Queue) reportQuarantined(a Quarantined) {
	if s.OnQuarantine != nil && a.Records > 0 {
		s.OnQuarantine(a)
	}
}

// oldest returns the segment with the first record, and the end of its last record; nil if there is no record. It removes drained
// segments.
func (s *Queue) oldest() (seg *segment, end int64, err error) {
	for {
		s.mu.Lock()
		if len(s.segments) == 0 {
			s.mu.Unlock()
			return nil, 0, nil
		}
		seg, end = s.segments[0], s.segments[0].end
		empty := seg.head == end
		s.mu.Unlock()
		if !empty {
			return seg, end, nil
		}
		if err := s.retire(seg); err != nil {
			return nil, 0, err
		}
	}
}

// retire removes a drained segment, unless it has got new records.
func (s *Queue) retire(seg *segment) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.drop(seg)
}

// drop is retire. The caller holds writing.
func (s *Queue) drop(seg *segment) error {
	s.mu.Lock()
	if seg.head != seg.end || !slices.Contains(s.segments, seg) {
		s.mu.Unlock()
		return nil // it has new records, or was already dropped
	}
	if s.active == seg {
		s.active = nil
	}
	s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == seg })
	last := seg.dir != s.own && !slices.ContainsFunc(s.segments, func(o *segment) bool { return o.dir == seg.dir })
	if last {
		s.dirs = slices.DeleteFunc(s.dirs, func(d *lockedDir) bool { return d == seg.dir })
	}
	s.mu.Unlock()

	err := seg.remove()
	if last {
		err = errors.Join(err, seg.dir.remove())
	}
	return err
}

func (s *Queue) advance(seg *segment, n int64) {
	s.mu.Lock()
	gone := 1
	if seg.head += n; seg.head == seg.end {
		gone = seg.records // a damaged part may have held several
	}
	seg.records -= gone
	s.records -= gone
	s.bytes -= n
	head := seg.head
	s.mu.Unlock()
	// Ignore the error: the disk may be full of these records, and only draining frees it. After a crash some are delivered
	// twice, which Drain's contract allows.
	_ = seg.saveHead(head)
}

// Max implements [Records].
func (s *Queue) Max() int64 { return s.max }

// Len returns the number of waiting records and their size, including 8 bytes of framing each. Quarantined records do not count.
func (s *Queue) Len() (records int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records, s.bytes
}

// Close waits for running calls, ending a Drain early, and closes the files. The next Open takes over the remaining records.
func (s *Queue) Close() error {
	if !s.gate.Shut() {
		return nil
	}
	s.batcher.Wait()
	if err := s.release(); err != nil {
		return fmt.Errorf("close spool: %w", err)
	}
	return nil
}

// release closes all files, removes empty directories, and unlocks the others.
func (s *Queue) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.quarantineDir.close()}
	used := map[*lockedDir]bool{}
	for _, seg := range s.segments {
		if seg.head == seg.end {
			errs = append(errs, seg.remove())
			continue
		}
		used[seg.dir] = true
		errs = append(errs, seg.close())
	}
	for _, d := range s.dirs {
		if used[d] {
			errs = append(errs, d.unlock())
		} else {
			errs = append(errs, d.remove())
		}
	}
	return errors.Join(errs...)
}
