package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// ErrSpoolFull is returned by [Spool.Append] when a record does not fit into what the spool may hold.
var ErrSpoolFull = errors.New("spool is full")

const (
	// spoolSegmentBytes is when a new file is begun; files that have been drained are removed.
	spoolSegmentBytes = 4 << 20
	// spoolMaxRecord is the longest record.
	spoolMaxRecord = 256 << 20
)

// Spool is a queue of records on local disk, for what could not be written to the store yet. It is first in, first
// out, and at least once: a process that dies between a record's use and its removal sees it again after the restart.
//
// Several processes may use one directory. Each writes to a sub-directory that it has locked, and Open takes over the
// sub-directories of processes that have died, the oldest first and before its own.
//
// A record that nobody can read is set aside: it stays byte for byte in a sub-directory of its own, where this process
// leaves it alone. The next Open takes it over again, before all others.
type Spool struct {
	// OnAside is told of what a Drain set aside, if it is not nil. It must be set before the first Drain.
	OnAside func(Aside)

	root    string
	max     int64
	gate    gate
	batcher *batcher[*spoolCall]
	// draining holds a value while somebody drains.
	draining chan struct{}

	// writing is held while records are written, and by who retires the segment that they are written to. It is taken
	// before mu.
	writing sync.Mutex
	own     *spoolDir

	mu sync.Mutex
	// segments is oldest first. Where active is not nil it is the last.
	segments []*segment
	active   *segment
	dirs     []*spoolDir
	records  int
	bytes    int64 // of all frames not yet drained
	next     int   // number of the next segment of own

	aside asideDir // of who drains
	kept  int64    // bytes of all frames that were set aside
}

// Aside tells of records in a row that were set aside for the same cause.
type Aside struct {
	File    string // that the last of them is in
	Records int
	Cause   error
}

type spoolCall struct {
	frame []byte
	err   error
}

// OpenSpool opens the spool in dir, which is created if need be. maxBytes bounds the records that wait, framing of
// 8 bytes each included, and those that this process sets aside; space on disk is given back by files of 4 MiB.
func OpenSpool(dir string, maxBytes int64) (*Spool, error) {
	s := &Spool{root: dir, max: maxBytes, draining: make(chan struct{}, 1)}
	s.batcher = &batcher[*spoolCall]{run: s.write, slots: 1, maxCalls: 256, maxBytes: 4 << 20}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool: %w", err), s.release())
	}
	return s, nil
}

func (s *Spool) open() error {
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return err
	}
	unlock, err := lockRoot(s.root)
	if err != nil {
		return err
	}
	defer unlock()
	if s.dirs, s.segments, err = adoptDirs(s.root); err != nil {
		return err
	}
	for _, seg := range s.segments {
		s.records += seg.records
		s.bytes += seg.end - seg.head
	}
	if err := s.sweep(); err != nil {
		return err
	}
	if s.own, err = newSpoolDir(s.root, spoolDirPrefix); s.own != nil {
		s.dirs = append(s.dirs, s.own)
	}
	return err
}

// sweep removes what processes that died have left without records: nobody drains a spool that is empty.
func (s *Spool) sweep() error {
	var errs []error
	for _, seg := range slices.Clone(s.segments) {
		errs = append(errs, s.retire(seg))
	}
	for _, d := range slices.Clone(s.dirs) {
		if !slices.ContainsFunc(s.segments, func(g *segment) bool { return g.dir == d }) {
			s.dirs = slices.DeleteFunc(s.dirs, func(o *spoolDir) bool { return o == d })
			errs = append(errs, d.remove())
		}
	}
	return errors.Join(errs...)
}

// Append adds a record, which is on disk when it returns. It returns [ErrSpoolFull] when there is no room. Where it
// returns another error, the record may or may not be kept.
func (s *Spool) Append(rec []byte) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	if len(rec) > spoolMaxRecord {
		return ErrSpoolFull
	}
	call := &spoolCall{frame: appendFrame(nil, rec)}
	if err := s.batcher.do(context.Background(), call, len(rec)); err != nil {
		return fmt.Errorf("append to spool: %w", err)
	}
	if call.err != nil && !errors.Is(call.err, ErrSpoolFull) {
		return fmt.Errorf("append to spool: %w", call.err)
	}
	return call.err
}

// write puts all records that fit on disk, with one fsync for each segment that they touch.
func (s *Spool) write(_ context.Context, calls []*spoolCall) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for len(calls) > 0 {
		var buf []byte
		var fits []*spoolCall
		room := s.max - s.taken()
		n := 0
		for ; n < len(calls) && len(buf) < spoolSegmentBytes; n++ {
			c := calls[n]
			if int64(len(buf)+len(c.frame)) > room {
				c.err = ErrSpoolFull
				continue
			}
			fits = append(fits, c)
			buf = append(buf, c.frame...)
		}
		calls = calls[n:]
		if err := s.writeSegment(buf, len(fits)); err != nil {
			for _, c := range fits {
				c.err = err
			}
		}
	}
}

// taken is how much of what the spool may hold it does.
func (s *Spool) taken() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes + s.kept
}

// writeSegment appends whole frames to the active segment. Only then can Drain see them.
func (s *Spool) writeSegment(buf []byte, records int) error {
	if len(buf) == 0 {
		return nil
	}
	seg := s.active
	if seg == nil || seg.end >= spoolSegmentBytes {
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
		// What is on disk behind the end is unknown, so nothing may follow it.
		s.mu.Lock()
		s.active = nil
		s.mu.Unlock()
		// A disk that stays full for long must not cost a file and its descriptors for each attempt.
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

// Drain hands the records to f, oldest first, until none is left. A record is removed once f has returned nil. One for
// which f returns an error that wraps [ErrUnreadable] is set aside, as one that is damaged on disk is; any other error of
// f ends the drain and is returned as it is. One drain runs at a time, others wait for it. Records may be appended
// meanwhile. rec belongs to f.
func (s *Spool) Drain(ctx context.Context, f func(rec []byte) error) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	select {
	case s.draining <- struct{}{}:
		defer func() { <-s.draining }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var aside Aside
	defer func() { s.tell(aside) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.gate.isShut() {
			return ErrClosed
		}
		seg, end, err := s.oldest()
		if err != nil {
			return fmt.Errorf("drain spool: %w", err)
		}
		if seg == nil {
			return nil
		}
		n, err := s.first(seg, end, f)
		if errors.Is(err, ErrUnreadable) {
			aside, err = s.setAside(seg, n, aside, err)
		}
		if err != nil {
			return err
		}
		s.advance(seg, n)
	}
}

// first hands f the first record of a segment, and returns how long its frame is.
func (s *Spool) first(seg *segment, end int64, f func(rec []byte) error) (n int64, err error) {
	rec, n, err := seg.readFirst(end)
	if err != nil {
		return n, fmt.Errorf("drain spool: %w", err)
	}
	return n, f(rec)
}

// setAside keeps the n bytes at the head of a segment elsewhere, so that they can be given up there. It returns what
// OnAside is to be told when no more of the same follow.
func (s *Spool) setAside(seg *segment, n int64, before Aside, cause error) (Aside, error) {
	rec, err := seg.raw(n) // f may have changed what it was given
	var file string
	if err == nil {
		file, err = s.aside.add(s.root, rec)
	}
	if err != nil {
		// Not as the cause, which nobody could tell from this one, but in words.
		return before, fmt.Errorf("set spooled record aside (%s): %w", cause.Error(), err)
	}
	s.mu.Lock()
	s.kept += frameBytes(len(rec))
	s.mu.Unlock()
	if before.Records > 0 && before.Cause.Error() != cause.Error() {
		s.tell(before)
		before.Records = 0
	}
	return Aside{File: file, Records: before.Records + 1, Cause: cause}, nil
}

func (s *Spool) tell(a Aside) {
	if s.OnAside != nil && a.Records > 0 {
		s.OnAside(a)
	}
}

// oldest returns the segment with the first record, and where its last one ends; nil when there is none. Segments that
// have been drained are removed on the way.
func (s *Spool) oldest() (seg *segment, end int64, err error) {
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

// retire removes a segment that has been drained, unless records have come to it meanwhile.
func (s *Spool) retire(seg *segment) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.drop(seg)
}

// drop is retire for who holds s.writing.
func (s *Spool) drop(seg *segment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seg.head != seg.end || !slices.Contains(s.segments, seg) {
		return nil // it has records again, or was dropped by another
	}
	if s.active == seg {
		s.active = nil
	}
	s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == seg })
	err := seg.remove()
	last := !slices.ContainsFunc(s.segments, func(o *segment) bool { return o.dir == seg.dir })
	if last && seg.dir != s.own {
		s.dirs = slices.DeleteFunc(s.dirs, func(d *spoolDir) bool { return d == seg.dir })
		err = errors.Join(err, seg.dir.remove())
	}
	return err
}

func (s *Spool) advance(seg *segment, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := 1
	if seg.head += n; seg.head == seg.end {
		gone = seg.records // of which some may have been in a part that was damaged
	}
	seg.records -= gone
	s.records -= gone
	s.bytes -= n
	// The disk may be full of these very records, and draining them is what gives it room again. After a crash some come
	// twice, which is promised anyway.
	_ = seg.saveHead()
}

// Len returns how many records wait and how many bytes they take, 8 for each included. What was set aside does not.
func (s *Spool) Len() (records int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records, s.bytes
}

// Close ends the calls under way and releases the files. Records that are left wait for the next Open.
func (s *Spool) Close() error {
	if !s.gate.shut() {
		return nil
	}
	s.batcher.work.Wait()
	if err := s.release(); err != nil {
		return fmt.Errorf("close spool: %w", err)
	}
	return nil
}

// release closes all files, removes the directories that hold nothing any more, and unlocks the rest.
func (s *Spool) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.aside.close()}
	used := map[*spoolDir]bool{}
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
