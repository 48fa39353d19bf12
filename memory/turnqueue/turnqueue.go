// Package turnqueue holds the turns that wait for the store, those of each session in order: on local disk, and in memory while that
// disk fails.
package turnqueue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"remora/cache"
	"remora/cache/spool"
)

// maxBytes is how much a process keeps of what its spool's disk does not take.
const maxBytes = 64 << 20

// Disk keeps records on local disk.
type Disk = spool.Records

// Record describes a record of a Queue: its group, its name, and when its turn began, in any unit.
type Record struct {
	Group cache.Group
	Name  string
	Began uint64
}

// Entry is a record that waits. Its data is on disk or in memory.
type Entry struct {
	Record
	Bytes int
	Tries int // how often it was refused, as far as the reader of the queue counts that

	ref     spool.Ref
	data    []byte // nil once it is on disk
	writing bool   // to the disk: data and ref may change
}

// Queue holds records on disk, in the order in which they came for their group. What the disk has no room for, or fails to write, it
// keeps in memory until the disk takes it: that does not outlive the process, but a store that is back before its end gets all of it.
// Beyond its bound turns are lost, and so they are where the operator's own bound (store.spool.max_bytes) is reached. A nil Queue
// is always empty, and takes nothing.
type Queue struct {
	disk Disk
	log  *slog.Logger

	mu      sync.Mutex
	waiting map[cache.Group][]*Entry
	held    []*Entry       // those in memory that the disk refused or has not taken in time, oldest first; new records follow them
	bytes   int64          // of these
	fault   error          // why the disk did not take the first of them
	writes  sync.WaitGroup // calls of the disk
}

// New returns the queue over a disk.
func New(disk Disk, log *slog.Logger) *Queue {
	return &Queue{disk: disk, log: log, waiting: make(map[cache.Group][]*Entry)}
}

// ErrFull says that neither the disk nor the memory has room for a record.
var ErrFull = errors.New("the spool's disk fails, and no more is kept in memory")

// errHangs is the fault of a disk that has not answered in time.
var errHangs = errors.New("the disk does not answer")

// Append puts a record behind those of its group: on disk if that takes it. If ctx ends before, the disk hangs: then the record counts
// as one in memory until the disk takes it, and those after it are kept in memory. It fails with what the disk says where that is
// closed or holds as much as it may (cache.ErrClosed, spool.ErrFull), and with ErrFull.
func (q *Queue) Append(ctx context.Context, r Record, data []byte) error {
	e := &Entry{Record: r, Bytes: len(data), data: data}
	q.mu.Lock()
	q.waiting[r.Group] = append(q.waiting[r.Group], e)
	if len(q.held) > 0 {
		defer q.mu.Unlock()
		return q.hold(e, q.fault)
	}
	e.writing = true
	q.mu.Unlock()

	done := make(chan error, 1)
	q.writes.Go(func() { done <- q.write(e) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !e.writing { // just in time
		return <-done
	}
	return q.hold(e, errHangs)
}

// write writes an entry to the disk. If the disk refuses it, it stays in memory.
func (q *Queue) write(e *Entry) error {
	ref, err := q.disk.Append(e.data)
	q.mu.Lock()
	defer q.mu.Unlock()
	e.writing = false
	held := slices.Contains(q.held, e)
	switch {
	case err == nil:
		q.release(e)
		e.ref, e.data = ref, nil
	case held:
		q.fault = err
	case errors.Is(err, spool.ErrFull) || errors.Is(err, cache.ErrClosed):
		q.leave(e)
	default:
		return q.hold(e, err)
	}
	return err
}

// hold keeps an entry in memory that the disk did not take. The caller holds the lock.
func (q *Queue) hold(e *Entry, fault error) error {
	if q.bytes+int64(e.Bytes) > maxBytes && !e.writing {
		q.leave(e)
		return errors.Join(ErrFull, fault)
	}
	if len(q.held) == 0 {
		q.fault = fault
		q.log.Error("spool's disk fails; turns are kept in memory until it takes them", "error", fault.Error())
	}
	q.held = append(q.held, e)
	q.bytes += int64(e.Bytes)
	return nil
}

// release is for an entry that need not be kept in memory any more. The caller holds the lock.
func (q *Queue) release(e *Entry) {
	if at := slices.Index(q.held, e); at >= 0 {
		q.held = slices.Delete(q.held, at, at+1)
		q.bytes -= int64(e.Bytes)
	}
}

// leave takes an entry out of the queue. The caller holds the lock.
func (q *Queue) leave(e *Entry) {
	q.release(e)
	entries := q.waiting[e.Group]
	at := slices.Index(entries, e)
	if q.waiting[e.Group] = slices.Delete(entries, at, at+1); len(entries) == 1 {
		delete(q.waiting, e.Group)
	}
}

// Fault returns why the disk did not take the records that are held in memory, nil if there are none.
func (q *Queue) Fault() error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.held) == 0 {
		return nil
	}
	return q.fault
}

// Adopt adopts the records that dead processes have left on disk. read says which record is which, or why it is none: then it is
// quarantined. A record comes before those of its group that began later.
func (q *Queue) Adopt(read func(data []byte) (Record, error)) (spool.Adopted, error) {
	return q.disk.Adopt(func(ref spool.Ref, data []byte) error {
		r, err := read(data)
		if err != nil {
			return err
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		entries := q.waiting[r.Group]
		at := slices.IndexFunc(entries, func(o *Entry) bool { return o.Began > r.Began })
		if at < 0 {
			at = len(entries)
		}
		q.waiting[r.Group] = slices.Insert(entries, at, &Entry{Record: r, Bytes: len(data), ref: ref})
		return nil
	})
}

// Groups returns the groups of the records that wait, in the order in which their first ones began.
func (q *Queue) Groups() []cache.Group {
	q.mu.Lock()
	defer q.mu.Unlock()
	groups := make([]cache.Group, 0, len(q.waiting))
	for g := range q.waiting {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b cache.Group) int { return cmp.Compare(q.waiting[a][0].Began, q.waiting[b][0].Began) })
	return groups
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

// First returns the first record of the group, nil for none, and while that is being written to the disk.
func (q *Queue) First(group cache.Group) *Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if entries := q.waiting[group]; len(entries) > 0 && !entries[0].writing {
		return entries[0]
	}
	return nil
}

// Has reports whether a record of the group with a name waits.
func (q *Queue) Has(group cache.Group, name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.waiting[group], func(e *Entry) bool { return e.Name == name })
}

// Read returns the data of a record that First has returned. Its error wraps cache.ErrUnreadable if the record itself is the reason.
func (q *Queue) Read(e *Entry) ([]byte, error) {
	if e.data != nil {
		return e.data, nil
	}
	return q.disk.Read(e.ref)
}

// Remove removes a record that First has returned.
func (q *Queue) Remove(e *Entry) {
	if e.data == nil {
		q.disk.Remove(e.ref)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(e)
}

// Quarantine quarantines a record that First has returned. One in memory must reach the disk for that.
func (q *Queue) Quarantine(e *Entry, cause error) error {
	inMemory := e.data != nil
	q.mu.Lock()
	e.writing = inMemory
	q.mu.Unlock()
	if inMemory {
		if err := q.write(e); err != nil {
			return err
		}
	}
	if err := q.disk.Quarantine(e.ref, cause); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(e)
	return nil
}

// Settle writes the records held in memory to disk, until the disk refuses one. It is not called while others read or remove records.
func (q *Queue) Settle() error {
	for e := q.settling(); e != nil; e = q.settling() {
		if err := q.write(e); err != nil {
			return err
		}
	}
	return nil
}

// settling returns the first record that is held in memory, to be written to the disk; nil for none, and while it is being written.
func (q *Queue) settling() *Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.held) == 0 || q.held[0].writing {
		return nil
	}
	q.held[0].writing = true
	return q.held[0]
}

// Close waits for the disk, writes the records in memory to it, and logs those that the disk refuses: they are lost, and counted by lost
// if that is not nil. Append must not be called any more.
func (q *Queue) Close(lost func(turns int)) {
	if q == nil {
		return
	}
	q.writes.Wait()
	err := q.Settle()
	if err == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log.Error("turns lost: neither the store nor the spool took them", "turns", len(q.held), "error", err.Error())
	if lost != nil {
		lost(len(q.held))
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
	return records + len(q.held), bytes + q.bytes
}
