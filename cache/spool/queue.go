// Package spool is a durable queue on local disk. A proxy puts turns there while the store is away, and writes them to the
// store once it is back. Start at [Open].
//
// Several processes may use one directory; each writes to a sub-directory of its own, and takes over those of processes
// that have died.
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
	// segmentBytes is the size of a file from which on records go to a new one. Drained files are removed.
	segmentBytes = 4 << 20
	// maxRecord is the size of the largest record in bytes.
	maxRecord = 256 << 20
)

// Records is a durable queue of records, such as Queue.
type Records interface {
	// Append puts a record at the end; it is on disk when Append returns.
	Append(rec []byte) error
	// Drain calls f with each record, oldest first, and removes those for which it returns nil. Those for which it returns
	// an error that wraps cache.ErrUnreadable are set aside, kept out of the queue. It stops at the first other error, and
	// returns it.
	Drain(ctx context.Context, f func(rec []byte) error) error
	// Adopt takes over what processes that died have left, and hands f a copy of each of those records, as far as they can be
	// read.
	Adopt(f func(rec []byte)) (Adopted, error)
	// Len is how many records, of how many bytes in all, are in the queue.
	Len() (records int, bytes int64)
}

// Queue is first in, first out, and delivers at least once: where a process dies between a record's use and its removal,
// the record comes again after the restart. It is safe for concurrent use.
//
// Open and Adopt take over the sub-directories of processes that have died, the oldest first and before the own one.
//
// A record that cannot be read is set aside: it is moved unchanged to another sub-directory, which this process does not
// read. The next Open takes it over, before all others. Records that are set aside may take a quarter of maxBytes on top
// of maxBytes, so that they never take the room of records that can be read.
type Queue struct {
	// OnAside is called with what a Drain set aside, if it is not nil. It must be set before the first Drain.
	OnAside func(Aside)

	root    string
	max     int64 // bytes of records that wait
	found   Adopted
	listed  bool // Adopt has returned what Open found
	gate    cache.Gate
	batcher *cache.Batcher[*appending]
	// draining holds a value while a Drain or an Adopt is under way.
	draining chan struct{}

	// writing is held while records are written, and while the segment that they are written to is removed. It is locked
	// before mu.
	writing sync.Mutex
	own     *lockedDir

	mu sync.Mutex
	// segments is oldest first. Where active is not nil it is the last.
	segments []*segment
	active   *segment
	dirs     []*lockedDir
	records  int
	bytes    int64 // of all frames not yet drained
	next     int   // number of the next segment of own

	remade bool // own was made again since the last Adopt

	// The fields below belong to the holder of draining.

	aside      asideDir
	asideBytes int64 // of all frames that were set aside
}

// Aside describes records in a row that were set aside for the same cause.
type Aside struct {
	File    string // the file that the last of them is in
	Records int
	// Lost is how many of them were dropped, since there was no room for them.
	Lost  int
	Cause error
}

// asideShare: records that are set aside may take 1/asideShare of maxBytes.
const asideShare = 4

// appending is a call of Append.
type appending struct {
	frame []byte
	err   error
}

// Open opens the spool in dir, which is created if need be. maxBytes limits the waiting records, framing of 8 bytes
// each included; records that this process quarantines may take a quarter of that on top. Disk space is freed in files
// of 4 MiB.
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
	s.found, err = adoptDirs(s.root, true)
	s.takeOver(&s.found)
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

// lockedRoot makes the spool's directory if it is not there, and locks it.
func (s *Queue) lockedRoot() (unlock func(), err error) {
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return nil, err
	}
	return lockRoot(s.root)
}

// takeOver puts the records found before all that wait.
func (s *Queue) takeOver(a *Adopted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs = append(s.dirs, a.dirs...)
	s.segments = slices.Concat(a.segments, s.segments)
	s.records += a.Records
	s.bytes += a.Bytes
}

// Adopt takes over the records of processes that died since Open or the last Adopt, and calls f with a copy of each;
// the first call includes the records that Open has found. The records wait until a Drain takes them. A spool whose
// directory was deleted gets a new one, and the records that this process still has open are written there. Adopt does
// nothing while a Drain is under way.
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
	if err == nil {
		err = found.each(f)
	}
	if err != nil {
		return found, fmt.Errorf("adopt spools: %w", err)
	}
	return found, nil
}

// adopt is Adopt. The caller holds draining.
func (s *Queue) adopt() (Adopted, error) {
	if err := s.restore(); err != nil {
		return Adopted{}, err
	}
	if !s.listed {
		s.listed = true
		return s.found, nil
	}

	unlock, err := lockRoot(s.root)
	if err != nil {
		return Adopted{}, err
	}
	defer unlock()
	found, err := adoptDirs(s.root, false)
	s.takeOver(&found)
	s.mu.Lock()
	found.Remade, s.remade = s.remade, false
	s.mu.Unlock()
	return found, errors.Join(err, s.sweep())
}

// each calls f with every record that is whole.
func (a *Adopted) each(f func(rec []byte)) error {
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

// restore makes the spool's own directory again if it was deleted, and moves the records there whose files were: this
// process still has them open, but no other would find them. The caller holds draining.
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

// rewrite moves what waits in a segment to a new one. The caller holds draining and writing.
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
	defer s.mu.Unlock()
	if s.active == seg {
		s.active = nil
	}
	old := *seg
	*seg = *fresh
	return old.close()
}

// remake makes the spool's own directory again if it was deleted. The caller holds writing.
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
	var errs []error
	for _, seg := range slices.Clone(s.segments) {
		errs = append(errs, s.retire(seg))
	}
	for _, d := range slices.Clone(s.dirs) {
		if d == s.own {
			continue // empty most of the time, and written to at any
		}
		if !slices.ContainsFunc(s.segments, func(g *segment) bool { return g.dir == d }) {
			s.dirs = slices.DeleteFunc(s.dirs, func(o *lockedDir) bool { return o == d })
			errs = append(errs, d.remove())
		}
	}
	return errors.Join(errs...)
}

// Append adds a record, which is on disk when it returns. It returns [ErrFull] when there is no room. Where it
// returns another error, the record may or may not be kept.
func (s *Queue) Append(rec []byte) error {
	if err := s.gate.Enter(); err != nil {
		return err
	}
	defer s.gate.Leave()
	if len(rec) > maxRecord {
		return ErrFull
	}
	call := &appending{frame: appendFrame(nil, rec)}
	if err := s.batcher.Do(context.Background(), call, len(rec)); err != nil {
		return fmt.Errorf("append to spool: %w", err)
	}
	if call.err != nil && !errors.Is(call.err, ErrFull) {
		return fmt.Errorf("append to spool: %w", call.err)
	}
	return call.err
}

// write puts all records that fit on disk, with one fsync for each segment that they touch.
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
			if int64(len(buf)+len(c.frame)) > room {
				c.err = ErrFull
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

// writeSegment appends whole frames to the active segment. Only then can Drain see them.
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
// which f returns an error that wraps [cache.ErrUnreadable] is set aside, as one that is damaged on disk is; any other error of
// f ends the drain and is returned as it is. One drain runs at a time, others wait for it. Records may be appended
// meanwhile. rec belongs to f.
func (s *Queue) Drain(ctx context.Context, f func(rec []byte) error) error {
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
	var aside Aside
	defer func() { s.reportAside(aside) }()
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
		n, err := s.first(seg, end, f)
		if errors.Is(err, cache.ErrUnreadable) {
			aside, err = s.setAside(seg, n, aside, err)
		}
		if err != nil {
			return err
		}
		s.advance(seg, n)
	}
}

// first calls f with the first record of a segment, and returns the length of its frame in bytes.
func (s *Queue) first(seg *segment, end int64, f func(rec []byte) error) (n int64, err error) {
	rec, n, err := seg.readFirst(end)
	if err != nil {
		return n, fmt.Errorf("drain spool: %w", err)
	}
	return n, f(rec)
}

// setAside copies the n bytes at the head of a segment to the directory for unreadable records; the caller drops them from
// the segment. It returns what to call OnAside with once no more of the same cause follow.
func (s *Queue) setAside(seg *segment, n int64, before Aside, cause error) (Aside, error) {
	if before.Records > 0 && before.Cause.Error() != cause.Error() {
		s.reportAside(before)
		before = Aside{}
	}
	now := Aside{File: before.File, Records: before.Records + 1, Lost: before.Lost, Cause: cause}

	rec, err := seg.raw(n) // f may have changed what it was given
	switch {
	case err == nil && s.asideBytes+frameBytes(len(rec)) > s.max/asideShare:
		now.Lost++
	case err == nil:
		now.File, err = s.aside.add(s.root, rec)
	}
	if err != nil {
		// The cause stands in words: wrapped, it would be taken for this error.
		return before, fmt.Errorf("set spooled record aside (%s): %w", cause.Error(), err)
	}
	if now.Lost == before.Lost {
		s.asideBytes += frameBytes(len(rec))
	}
	return now, nil
}

func (s *Queue) reportAside(a Aside) {
	if s.OnAside != nil && a.Records > 0 {
		s.OnAside(a)
	}
}

// oldest returns the segment with the first record, and where its last record ends; nil when there is none. It removes
// drained segments on the way.
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

// retire removes a segment that has been drained, unless records have come to it meanwhile.
func (s *Queue) retire(seg *segment) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.drop(seg)
}

// drop is retire. The caller holds writing.
func (s *Queue) drop(seg *segment) error {
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
		s.dirs = slices.DeleteFunc(s.dirs, func(d *lockedDir) bool { return d == seg.dir })
		err = errors.Join(err, seg.dir.remove())
	}
	return err
}

func (s *Queue) advance(seg *segment, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := 1
	if seg.head += n; seg.head == seg.end {
		gone = seg.records // of which some may have been in a part that was damaged
	}
	seg.records -= gone
	s.records -= gone
	s.bytes -= n
	// The disk may be full of these very records, and only draining them frees it. After a crash some come twice, which
	// Drain's contract allows.
	_ = seg.saveHead()
}

// Len returns how many records wait and how many bytes they take, 8 for each included. What was set aside does not.
func (s *Queue) Len() (records int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records, s.bytes
}

// Close ends the calls under way and releases the files. Records that are left wait for the next Open.
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

// release closes all files, removes the directories that hold nothing any more, and unlocks the rest.
func (s *Queue) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.aside.close()}
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
