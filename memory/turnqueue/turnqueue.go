// Package turnqueue holds the turns that wait for the store: in a spool on local disk, and in memory while that disk fails. It
// knows which sessions they belong to.
package turnqueue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"remora/cache"
	"remora/cache/spool"
)

const (
	// maxBytes is how much a process keeps of what its spool's disk does not take.
	maxBytes = 64 << 20
	// ownerShare: the records of an owner may take all but 1/ownerShare of the room that those of other owners leave on disk.
	ownerShare = 20
	// hangsAfter is how long the disk may take for a record before it counts as one that hangs: a busy disk takes a second now and then.
	hangsAfter = 5 * time.Second
)

// Disk is a durable local queue.
type Disk = spool.Records

// Record identifies a record of a Queue: its group, its name, and when its turn began, in any unit.
type Record struct {
	Group cache.Group
	Name  string
	Began uint64

	size int64 // in bytes
}

// Queue holds records on disk, and knows which groups have any. What the disk has no room for, or fails to write, it keeps in
// memory until the disk takes it: that does not outlive the process, but a store that is back before its end gets all of it.
// Beyond its bound turns are lost, and so they are where the operator's own bound (store.spool.max_bytes) is reached. One owner of
// groups cannot fill the disk for all: see ownerShare. A nil Queue is always empty, and takes nothing.
type Queue struct {
	disk Disk
	log  *slog.Logger
	now  func() time.Time

	mu      sync.Mutex
	waiting map[cache.Group][]Record // of each group, as they came, which may differ from their present order
	owned   map[string]int64         // bytes of the waiting records, by the owner of their group
	moved   map[string]bool          // names of records that the function of Drain has moved, until it has returned
	adding  int                      // records that are counted in waiting, but may be nowhere yet
	held    [][]byte                 // in memory, oldest first; while there are any, new records go after them
	overdue int                      // records that the disk has neither taken nor refused in time; new records are held meanwhile
	bytes   int64                    // of the held and the overdue ones
	fault   error                    // why the disk did not take the first of them
	since   time.Time                // when the first of them came
	logged  bool                     // that they are in memory
	writes  sync.WaitGroup           // calls of the disk
}

// New returns the queue over a disk.
func New(disk Disk, log *slog.Logger, now func() time.Time) *Queue {
	return &Queue{
		disk: disk, log: log, now: now,
		waiting: make(map[cache.Group][]Record), owned: make(map[string]int64), moved: make(map[string]bool),
	}
}

// Append puts a record at the end: on disk if that takes it. If ctx ends before, the disk hangs: then the record counts as one in
// memory until the disk takes or refuses it, and those after it are kept in memory. It is counted for its group before anyone can
// see it there. It fails with what the disk says where that is closed or holds as much as it may (cache.ErrClosed, spool.ErrFull),
// and with ErrFull and ErrShare.
func (q *Queue) Append(ctx context.Context, r Record, data []byte) error {
	r.size = int64(len(data))
	q.mu.Lock()
	if q.isBeyondShare(r) {
		q.mu.Unlock()
		return ErrShare
	}
	q.insert(r, len(q.waiting[r.Group]))
	q.adding++
	q.mu.Unlock()
	err := q.put(ctx.Done(), data, q.disk.Append)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.adding--; err != nil {
		q.uncount(r)
	}
	return err
}

// Move is Append for the record that the function of Drain was given, to have the others first. A disk that is full takes it, too, and
// it keeps its place among those of its group. It waits for the disk.
func (q *Queue) Move(r Record, data []byte) error {
	if err := q.put(nil, data, q.disk.Move); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moved[r.Name] = true
	return nil
}

func (q *Queue) put(late <-chan struct{}, rec []byte, write func(rec []byte) error) error {
	var refused error
	if q.takesMore() {
		var hangs bool
		refused, hangs = q.write(late, rec, write)
		if hangs || refused == nil || errors.Is(refused, spool.ErrFull) || errors.Is(refused, cache.ErrClosed) {
			return refused
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+int64(len(rec)) > maxBytes {
		return errors.Join(ErrFull, refused)
	}
	if len(q.held) == 0 && refused != nil { // else what was held has gone just now
		q.fault = refused
	}
	q.held = append(q.held, rec)
	q.keep(rec)
	return nil
}

// keep counts a record that is in memory, and logs once why. The caller holds the lock.
func (q *Queue) keep(rec []byte) {
	if q.bytes += int64(len(rec)); len(q.held)+q.overdue == 1 {
		q.since, q.logged = q.now(), false
	}
	if q.logged || q.isLate() {
		return
	}
	q.logged = true
	q.log.Error("spool's disk does not take turns; they are kept in memory until it does", "error", q.fault.Error())
}

// drop is the reverse of keep. The caller holds the lock.
func (q *Queue) drop(rec []byte) {
	if q.bytes -= int64(len(rec)); len(q.held)+q.overdue == 0 && q.logged {
		q.logged = false
		q.log.Info("the turns that were kept in memory are on disk or in the store")
	}
}

// isLate reports whether the disk may only be slow. The caller holds the lock.
func (q *Queue) isLate() bool {
	return errors.Is(q.fault, errHangs) && q.now().Sub(q.since) < hangsAfter
}

// takesMore reports whether a record goes to the disk, and not after others in memory.
func (q *Queue) takesMore() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held)+q.overdue == 0
}

// errHangs is the fault of a disk that has not answered in time.
var errHangs = errors.New("the disk does not answer")

// write writes a record to the disk, or reports that the disk has not answered when late is closed: then the write goes on.
func (q *Queue) write(late <-chan struct{}, rec []byte, write func(rec []byte) error) (refused error, hangs bool) {
	done, overdue := make(chan error, 1), false // the lock guards both
	q.writes.Go(func() {
		err := write(rec)
		q.mu.Lock()
		defer q.mu.Unlock()
		if !overdue {
			done <- err
			return
		}
		if q.overdue--; err == nil {
			q.drop(rec)
			return
		}
		q.held, q.fault = slices.Insert(q.held, 0, rec), err // the others came later
	})
	select {
	case err := <-done:
		return err, false
	case <-late:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case err := <-done: // just in time
		return err, false
	default:
	}
	overdue = true
	if q.overdue++; q.overdue == 1 && len(q.held) == 0 {
		q.fault = errHangs
	}
	q.keep(rec)
	return nil, true
}

// isBeyondShare reports whether a record would take room that is left to other owners. The caller holds the lock.
func (q *Queue) isBeyondShare(r Record) bool {
	most := q.disk.Max()
	if most == 0 {
		return false
	}
	own := q.owned[r.Group.Owner]
	_, taken := q.disk.Len()
	room := most - max(0, taken-own)
	return own+r.size > room-room/ownerShare
}

// insert counts a record, at a place among those of its group. The caller holds the lock.
func (q *Queue) insert(r Record, at int) {
	q.waiting[r.Group] = slices.Insert(q.waiting[r.Group], at, r)
	q.owned[r.Group.Owner] += r.size
}

// uncount takes a record away. As a rule it is the first of its group. The caller holds the lock.
func (q *Queue) uncount(r Record) {
	records := q.waiting[r.Group]
	at := slices.IndexFunc(records, func(o Record) bool { return o.Name == r.Name })
	if at < 0 {
		return
	}
	if q.owned[r.Group.Owner] -= records[at].size; q.owned[r.Group.Owner] == 0 {
		delete(q.owned, r.Group.Owner)
	}
	switch {
	case len(records) == 1:
		delete(q.waiting, r.Group)
	case at == 0:
		q.waiting[r.Group] = records[1:]
	default:
		q.waiting[r.Group] = slices.Delete(records, at, at+1)
	}
}

// Fault returns why the disk did not take the records that are held in memory, nil if there are none. A disk that has not answered hangs
// only after some seconds.
func (q *Queue) Fault() error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.held)+q.overdue == 0 || q.isLate() {
		return nil
	}
	return q.fault
}

var (
	// ErrFull says that neither the disk nor the memory has room for a record.
	ErrFull = errors.New("the spool's disk fails, and no more is kept in memory")
	// ErrShare says that an owner's records take as much of the disk as those of one owner may.
	ErrShare = errors.New("the tenant's turns take all of the spool (store.spool.max_bytes) that one tenant gets")
)

// Adopt adopts the records that dead processes have left on disk. known says which record is which; those that it does not know
// are quarantined when their turn comes. A record counts before records that began later: the other process may have moved it.
func (q *Queue) Adopt(known func(data []byte) (r Record, ok bool)) (spool.Adopted, error) {
	return q.disk.Adopt(func(data []byte) {
		r, ok := known(data)
		if !ok {
			return
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		records := q.waiting[r.Group]
		at := slices.IndexFunc(records, func(o Record) bool { return o.Began > r.Began })
		if at < 0 {
			at = len(records)
		}
		r.size = int64(len(data))
		q.insert(r, at)
	})
}

// Holds reports whether records of the group may wait.
func (q *Queue) Holds(group cache.Group) bool {
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting[group]) > 0
}

// First returns the record of the group that came first, a zero one for none.
func (q *Queue) First(group cache.Group) Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	if records := q.waiting[group]; len(records) > 0 {
		return records[0]
	}
	return Record{}
}

// Has reports whether a record of the group with a name waits.
func (q *Queue) Has(group cache.Group, name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.waiting[group], func(r Record) bool { return r.Name == name })
}

// Any reports whether a record of a group for which f holds may wait.
func (q *Queue) Any(f func(cache.Group) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for g := range q.waiting {
		if f(g) {
			return true
		}
	}
	return false
}

// Gone says that a record turned out to be no longer there: it could not be read, and was quarantined.
func (q *Queue) Gone(r Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uncount(r)
}

// wasMoved reports whether a record that Drain removes was moved, and waits in another place.
func (q *Queue) wasMoved(r Record) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	moved := q.moved[r.Name]
	delete(q.moved, r.Name)
	return moved
}

// first returns the first record in memory, nil for none, and while an earlier one is overdue.
func (q *Queue) first() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.held) == 0 || q.overdue > 0 {
		return nil
	}
	return q.held[0]
}

// remove removes a record in memory once it is stored elsewhere: until then the records after it wait. It was the first; one that was
// overdue may have been refused since.
func (q *Queue) remove(rec []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.IndexFunc(q.held, func(o []byte) bool { return &o[0] == &rec[0] })
	copy(q.held[1:at+1], q.held[:at]) // as a rule it still is the first
	if q.held[0], q.held = nil, q.held[1:]; len(q.held) == 0 {
		q.held = nil
	}
	q.drop(rec)
}

// Settle writes the records held in memory to disk, until the disk refuses one. It and Drain are for one caller at a
// time.
func (q *Queue) Settle() error {
	for rec := q.first(); rec != nil; rec = q.first() {
		if err := q.disk.Append(rec); err != nil {
			return err
		}
		q.remove(rec)
	}
	return nil
}

// Drain passes the records on disk to f, and then those in memory, until f fails. f gets one or more, and returns those that it has
// taken, or has moved, from the first on: they are removed. Its error concerns the next record. If it wraps
// cache.ErrUnreadable, that record is quarantined, and the drain goes on; then the last of those that f returns is that record, as
// far as it can tell. A record in memory must reach the disk for that, and goes after the others.
func (q *Queue) Drain(ctx context.Context, f func(data [][]byte) ([]Record, error)) error {
	var unreadable *Record // the last record, if it is about to be quarantined
	left := func() {
		if unreadable != nil {
			q.Gone(*unreadable)
		}
		unreadable = nil
	}
	err := q.drain(ctx, func(data [][]byte) (int, error) {
		left()
		records, err := f(data)
		if errors.Is(err, cache.ErrUnreadable) {
			last := len(records) - 1
			unreadable, records = &records[last], records[:last]
		}
		for _, r := range records {
			if !q.wasMoved(r) {
				q.Gone(r)
			}
		}
		return len(records), err
	})
	if err == nil {
		left()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, _ := q.disk.Len(); n+len(q.held)+q.overdue+q.adding == 0 {
		clear(q.waiting) // a record that was damaged after it was counted was quarantined, of a group that is not known
		clear(q.owned)
	}
	return err
}

func (q *Queue) drain(ctx context.Context, f func(data [][]byte) (int, error)) error {
	if err := q.disk.Drain(ctx, f); err != nil {
		return err
	}
	refused := 0
	for q.count() > refused {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec := q.first()
		if rec == nil {
			return errHangs
		}
		_, err := f([][]byte{rec})
		if err != nil && !errors.Is(err, cache.ErrUnreadable) {
			return err
		}
		if err != nil {
			q.moveBack(rec)
			refused++
		}
		q.remove(rec)
	}
	if refused > 0 {
		return errHeld
	}
	return nil
}

// errHeld says that something could not be read, and waits in memory for the disk to take it.
var errHeld = errors.New("turns that cannot be read are kept in memory until the spool's disk takes them")

// moveBack puts a copy of a record after all others.
func (q *Queue) moveBack(rec []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = append(q.held, bytes.Clone(rec))
	q.bytes += int64(len(rec))
}

func (q *Queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held)
}

// Close waits for the disk, and writes the records in memory to it, until ctx ends. It logs those that the disk has not taken: they are
// lost, and counted by lost if that is not nil. Append must not be called any more, and Settle and Drain have returned unless ctx has ended.
func (q *Queue) Close(ctx context.Context, lost func(turns int)) {
	if q == nil {
		return
	}
	settled := make(chan error, 1)
	if ctx.Err() == nil {
		go func() {
			q.writes.Wait()
			settled <- q.Settle()
		}()
	}
	err := errHangs
	select {
	case err = <-settled:
	case <-ctx.Done():
	}
	if err == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	turns := len(q.held) + q.overdue
	q.log.Error("turns lost: neither the store nor the spool took them", "turns", turns, "error", err.Error())
	if lost != nil {
		lost(turns)
	}
}

// Len counts both.
func (q *Queue) Len() (records int, bytes int64) {
	if q == nil {
		return 0, 0
	}
	records, bytes = q.disk.Len()
	q.mu.Lock()
	defer q.mu.Unlock()
	return records + len(q.held) + q.overdue, bytes + q.bytes
}
