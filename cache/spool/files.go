// Package spool keeps records on local disk. While the store is unavailable, a proxy puts turns there, and later writes them to the
// store. Start at [Open].
//
// Several processes may share a directory: each writes to its own sub-directory, and takes over those of processes that have
// died.
package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"remora/cache"
)

// ErrFull is returned by [Files.Append] for a record that the spool has no room for.
var ErrFull = errors.New("spool is full")

const (
	// segmentBytes is the size of a file after which records go to a new one. A file without records is removed.
	segmentBytes = 4 << 20
	// maxRecord is the size of the largest record in bytes.
	maxRecord = 256 << 20
)

// Ref names a record while it is in the spool of this process. Later records have larger ones.
type Ref uint64

// Records keeps records, such as Files.
type Records interface {
	// Append adds a record, which is on disk when Append returns.
	Append(rec []byte) (Ref, error)
	// Read returns a record. Its error wraps cache.ErrUnreadable if the record itself is the reason: Quarantine it then.
	Read(ref Ref) ([]byte, error)
	// Remove removes a record. If the process dies soon after, the record may be there again.
	Remove(ref Ref)
	// Quarantine removes a record that cannot be used, and keeps it for the next process.
	Quarantine(ref Ref, cause error) error
	// Adopt takes over the records of processes that have died, and calls f with each, mostly in the order in which they were added. A
	// record that cannot be read, or for which f returns an error, is quarantined.
	Adopt(f func(ref Ref, rec []byte) error) (Adopted, error)
	// Len returns the number and the total size of the records.
	Len() (records int, bytes int64)
}

// Files keeps records in files until they are removed. If a process dies between the use of a record and its removal, or soon after
// that, the record is there again. It is safe for concurrent use.
//
// Open and Adopt take over the sub-directories of processes that have died.
//
// A record that is quarantined is moved to another sub-directory, which this process does not read. The next Open takes it over, before
// all others. Quarantined records may take a quarter of maxBytes in addition to maxBytes.
type Files struct {
	// OnQuarantine, if not nil, is called by Adopt and Close with the records that were quarantined before. It must be set before the
	// first Adopt.
	OnQuarantine func(Quarantined)

	root    string
	max     int64 // bytes of records
	gate    cache.Gate
	batcher *cache.Batcher[*appending]

	// The locks are in the order in which they are locked.

	// adopting is held by Adopt.
	adopting sync.Mutex
	found    *Adopted // by Open, nil once Adopt has returned it
	offered  []Ref    // taken over, and not yet passed to the function of an Adopt

	// writing is held while records are written, and while a file is removed.
	writing     sync.Mutex
	own         output
	aside       output // of quarantined records
	asideBytes  int64
	quarantined []Quarantined // by cause, since the last report

	// moving is held while records move to other files, and for reading while one is read or removed.
	moving sync.RWMutex

	mu       sync.Mutex
	places   map[Ref]place
	last     Ref
	bytes    int64 // of all places
	segments []*segment
	dirs     []*lockedDir
	remade   bool // own, or a file, was created again since the last Adopt
}

// output is a directory that this process writes to.
type output struct {
	prefix string
	dir    *lockedDir // nil for none
	active *segment   // that is written to, nil for none
	next   int        // number of the next segment
}

// appending is a call of Append.
type appending struct {
	frame []byte
	ref   Ref
	err   error
}

// Open opens the spool in dir, which it creates if necessary. maxBytes bounds the records, including 8 bytes of framing each;
// records that this process quarantines may take another quarter. Disk space is freed in files of 4 MiB, see [Files.Adopt].
func Open(dir string, maxBytes int64) (*Files, error) {
	s := &Files{
		root: dir, max: maxBytes, places: make(map[Ref]place),
		own: output{prefix: dirPrefix}, aside: output{prefix: quarantinePrefix},
	}
	s.batcher = &cache.Batcher[*appending]{Run: s.write, Slots: 1, MaxCalls: 256, MaxBytes: 4 << 20}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool: %w", err), s.release())
	}
	return s, nil
}

func (s *Files) open() error {
	unlock, err := s.lockedRoot()
	if err != nil {
		return err
	}
	defer unlock()
	found, err := s.takeOver(true)
	if s.found = &found; err != nil {
		return err
	}
	if err := s.sweep(); err != nil {
		return err
	}
	return s.makeDir(&s.own)
}

// lockedRoot creates the spool's directory if necessary, and locks it.
func (s *Files) lockedRoot() (unlock func(), err error) {
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return nil, err
	}
	return lockRoot(s.root)
}

// takeOver takes over the directories of dead processes. The caller has locked the root.
func (s *Files) takeOver(quarantined bool) (Adopted, error) {
	found, err := adoptDirs(s.root, quarantined)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs = append(s.dirs, found.dirs...)
	s.segments = append(s.segments, found.segments...)
	for _, p := range found.places {
		s.offered = append(s.offered, s.add(p))
	}
	return found.Adopted, err
}

// add adds a record that is on disk. The caller holds mu.
func (s *Files) add(p place) Ref {
	s.last++
	s.places[s.last] = p
	s.bytes += p.length
	p.seg.records++
	p.seg.bytes += p.length
	return s.last
}

// Adopt implements [Records]. The first call includes the records that Open has found. It tidies up, too: see rewrite.
func (s *Files) Adopt(f func(ref Ref, rec []byte) error) (Adopted, error) {
	if err := s.gate.Enter(); err != nil {
		return Adopted{}, err
	}
	defer s.gate.Leave()
	s.adopting.Lock()
	defer s.adopting.Unlock()
	found, err := s.adopt()
	err = errors.Join(err, s.offer(f)) // what was taken over before an error is in the spool
	s.reportQuarantined()
	if err != nil {
		return found, fmt.Errorf("adopt spools: %w", err)
	}
	return found, nil
}

func (s *Files) adopt() (found Adopted, err error) {
	if err := s.rewrite(); err != nil {
		return found, err
	}
	if s.found != nil {
		found, s.found = *s.found, nil
		return found, nil
	}

	unlock, err := lockRoot(s.root)
	if err != nil {
		return found, err
	}
	found, err = s.takeOver(false)
	unlock() // before the lock of writers, who may wait for this one
	s.mu.Lock()
	found.Remade, s.remade = s.remade, false
	s.mu.Unlock()
	return found, errors.Join(err, s.sweep())
}

// offer passes the records that were taken over to f.
func (s *Files) offer(f func(ref Ref, rec []byte) error) error {
	for ; len(s.offered) > 0; s.offered = s.offered[1:] {
		ref := s.offered[0]
		rec, err := s.Read(ref)
		if err == nil {
			err = f(ref, rec)
		} else if !errors.Is(err, cache.ErrUnreadable) {
			return err
		}
		if err == nil {
			continue
		}
		if err := s.Quarantine(ref, err); err != nil {
			return err
		}
	}
	return nil
}

// rewrite creates the spool's own directory again if it was deleted, and moves the records of some files to others: of deleted ones,
// which this process still has open, but no other would find; and of one of which a quarter is removed, or more.
func (s *Files) rewrite() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.remake(&s.own); err != nil {
		return err
	}
	s.moving.Lock()
	defer s.moving.Unlock()
	s.mu.Lock()
	segments := slices.Clone(s.segments)
	s.mu.Unlock()
	tidied := false // one is enough: writers wait meanwhile
	for _, seg := range segments {
		gone := seg.gone()
		if seg.records == 0 || !gone && (tidied || seg == s.own.active || seg.bytes > seg.end/4*3) {
			continue
		}
		if gone && seg == s.own.active {
			s.own.active = nil
		}
		if err := s.empty(seg); err != nil && gone { // else only room is wasted: the disk may be full
			return err
		}
		s.remade, tidied = s.remade || gone, tidied || !gone
	}
	return nil
}

// empty moves the records of a segment to the active one, and removes it. The caller holds writing and moving, without which no places
// change.
func (s *Files) empty(seg *segment) error {
	var refs []Ref
	for ref, p := range s.places {
		if p.seg == seg {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	buf := make([]byte, 0, seg.bytes)
	for _, ref := range refs {
		raw, err := s.places[ref].raw()
		if err != nil {
			return err
		}
		buf = append(buf, raw...)
	}
	to, at, err := s.writeSegment(&s.own, buf)
	if err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		p := place{to, at, s.places[ref].length}
		s.places[ref] = p
		at += p.length
	}
	to.records, to.bytes = to.records+len(refs), to.bytes+int64(len(buf))
	seg.records, seg.bytes = 0, 0
	return s.drop(seg)
}

// remake creates the directory of an output if there is none, or it was deleted. The caller holds writing.
func (s *Files) remake(out *output) error {
	if out.dir != nil && !out.dir.gone() {
		return nil
	}
	unlock, err := s.lockedRoot()
	if err != nil {
		return err
	}
	defer unlock()
	deleted := out.dir != nil
	if err := s.makeDir(out); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remade = s.remade || deleted
	return nil
}

// makeDir creates the directory of an output. The caller has locked the root.
func (s *Files) makeDir(out *output) error {
	dir, err := newDir(s.root, out.prefix)
	if dir == nil {
		return err
	}
	out.dir, out.active = dir, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs = append(s.dirs, dir)
	return err
}

// sweep removes the files and directories of dead processes that hold no records.
func (s *Files) sweep() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, seg := range slices.Clone(s.segments) {
		errs = append(errs, s.drop(seg))
	}
	for _, d := range slices.Clone(s.dirs) {
		errs = append(errs, s.dropDir(d))
	}
	return errors.Join(errs...)
}

// Append implements [Records]. It returns [ErrFull] if there is no room. After another error, the record may or may not be in the spool
// of a later process.
func (s *Files) Append(rec []byte) (Ref, error) {
	if err := s.gate.Enter(); err != nil {
		return 0, err
	}
	defer s.gate.Leave()
	if len(rec) > maxRecord {
		return 0, ErrFull
	}
	call := &appending{frame: appendFrame(nil, rec)}
	err := s.batcher.Do(context.Background(), call, len(rec))
	if err == nil {
		err = call.err
	}
	if err == nil || errors.Is(err, ErrFull) {
		return call.ref, err
	}
	return 0, fmt.Errorf("append to spool: %w", err)
}

// write writes all records that fit, with one fsync per segment.
func (s *Files) write(_ context.Context, calls []*appending) {
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
			if len(buf) == 0 {
				buf = slices.Clip(c.frame) // a large one is not copied
			} else {
				buf = append(buf, c.frame...)
			}
		}

		calls = calls[n:]
		if len(fits) == 0 {
			continue
		}
		seg, at, err := s.writeSegment(&s.own, buf)
		s.mu.Lock()
		for _, c := range fits {
			if c.err = err; err == nil {
				length := int64(len(c.frame))
				c.ref = s.add(place{seg, at, length})
				at += length
			}
		}
		s.mu.Unlock()
	}
}

// writeSegment appends whole frames to the active segment, and returns where they begin. The caller holds writing.
func (s *Files) writeSegment(out *output, buf []byte) (seg *segment, at int64, err error) {
	if err := s.remake(out); err != nil {
		return nil, 0, err
	}
	if seg = out.active; seg == nil || seg.end >= segmentBytes {
		if seg, err = newSegment(out.dir, out.next); err != nil {
			return nil, 0, err
		}
		out.next++
		out.active = seg
		s.mu.Lock()
		s.segments = append(s.segments, seg)
		s.mu.Unlock()
	}

	at = seg.end
	if err := seg.write(buf); err != nil {
		// The bytes on disk behind the end are unknown, so no frame may follow them.
		out.active = nil
		s.mu.Lock()
		defer s.mu.Unlock()
		// A full disk must not cost a file and its descriptor for each attempt.
		return nil, 0, errors.Join(err, s.drop(seg))
	}
	return seg, at, nil
}

// Read implements [Records].
func (s *Files) Read(ref Ref) ([]byte, error) {
	if err := s.gate.Enter(); err != nil {
		return nil, err
	}
	defer s.gate.Leave()
	s.moving.RLock()
	defer s.moving.RUnlock()
	rec, err := s.place(ref).read()
	if err != nil {
		return nil, fmt.Errorf("read from spool: %w", err)
	}
	return rec, nil
}

func (s *Files) place(ref Ref) place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[ref]
}

// Remove implements [Records].
func (s *Files) Remove(ref Ref) {
	if s.gate.Enter() != nil {
		return // the next process has the record again
	}
	defer s.gate.Leave()
	if seg := s.remove(ref); seg != nil {
		s.writing.Lock()
		defer s.writing.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = s.drop(seg) // what is left of it holds no records
	}
}

// remove removes a record, and returns its segment if that has no others.
func (s *Files) remove(ref Ref) *segment {
	s.moving.RLock()
	defer s.moving.RUnlock()
	s.place(ref).markRemoved()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[ref]
	delete(s.places, ref)
	s.bytes -= p.length
	p.seg.bytes -= p.length
	if p.seg.records--; p.seg.records > 0 {
		return nil
	}
	return p.seg
}

// drop removes a segment without records, and its directory with the last one. The caller holds writing and mu.
func (s *Files) drop(seg *segment) error {
	at := slices.Index(s.segments, seg)
	if at < 0 || seg.records > 0 {
		return nil // it was already dropped, or has new records
	}
	for _, out := range [...]*output{&s.own, &s.aside} {
		if out.active == seg {
			out.active = nil
		}
	}
	s.segments = slices.Delete(s.segments, at, at+1)
	return errors.Join(seg.remove(), s.dropDir(seg.dir))
}

// dropDir removes a directory without segments, except those to which records may be written at any time. The caller holds writing and
// mu.
func (s *Files) dropDir(d *lockedDir) error {
	at := slices.Index(s.dirs, d)
	if at < 0 || d == s.own.dir || d == s.aside.dir || slices.ContainsFunc(s.segments, func(g *segment) bool { return g.dir == d }) {
		return nil
	}
	s.dirs = slices.Delete(s.dirs, at, at+1)
	return d.remove()
}

// Len returns the number of records and their size, including 8 bytes of framing each. Quarantined records do not count.
func (s *Files) Len() (records int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.places), s.bytes
}

// Close waits for running calls, and closes the files. The next Open takes over the remaining records.
func (s *Files) Close() error {
	if !s.gate.Shut() {
		return nil
	}
	s.batcher.Wait()
	s.reportQuarantined()
	if err := s.release(); err != nil {
		return fmt.Errorf("close spool: %w", err)
	}
	return nil
}

// release closes all files, removes empty directories, and unlocks the others.
func (s *Files) release() error {
	s.own.dir, s.aside.dir = nil, nil // nothing is written any more
	errs := []error{s.sweep()}
	for _, seg := range s.segments {
		errs = append(errs, seg.close())
	}
	for _, d := range s.dirs {
		errs = append(errs, d.unlock())
	}
	return errors.Join(errs...)
}
