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
type Spool struct {
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
}

type spoolCall struct {
	frame []byte
	err   error
}

// OpenSpool opens the spool in dir, which is created if need be. maxBytes bounds the records that wait, framing of
// 8 bytes each included; space on disk is given back by files of 4 MiB.
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
	if s.own, err = newSpoolDir(s.root); s.own != nil {
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
		room := s.max - s.waiting()
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

func (s *Spool) waiting() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
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

// Drain hands the records to f, oldest first, until none is left. A record is removed once f has returned nil; the
// first error of f ends the drain and is returned as it is. One drain runs at a time, others wait for it. Records may
// be appended meanwhile. rec belongs to f.
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
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.gate.isShut() {
			return ErrClosed
		}
		seg, err := s.oldest()
		if err != nil {
			return fmt.Errorf("drain spool: %w", err)
		}
		if seg == nil {
			return nil
		}
		rec, err := seg.readFirst()
		if err != nil {
			return fmt.Errorf("drain spool: %w", err)
		}
		if err := f(rec); err != nil {
			return err
		}
		s.advance(seg, frameBytes(len(rec)))
	}
}

// oldest returns the segment with the first record, and nil when there is none. Segments that have been drained are
// removed on the way.
func (s *Spool) oldest() (*segment, error) {
	for {
		s.mu.Lock()
		if len(s.segments) == 0 {
			s.mu.Unlock()
			return nil, nil
		}
		seg := s.segments[0]
		empty := seg.head == seg.end
		s.mu.Unlock()
		if !empty {
			return seg, nil
		}
		if err := s.retire(seg); err != nil {
			return nil, err
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
	seg.head += n
	seg.records--
	s.records--
	s.bytes -= n
	// The disk may be full of these very records, and draining them is what gives it room again. After a crash some come
	// twice, which is promised anyway.
	_ = seg.saveHead()
}

// Len returns how many records wait and how many bytes they take, 8 for each included.
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
	var errs []error
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
