// Package turnqueue holds the turns that wait for the store: in a spool on local disk, and in memory while that disk fails. It
// knows for which sessions turns wait.
package turnqueue

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"remora/cache"
	"remora/cache/spool"
)

// maxBytes is how much a process keeps of what its spool's disk does not take.
const maxBytes = 64 << 20

// Disk is a durable local queue.
type Disk = spool.Records

// Queue holds records on disk. What the disk has no room for, or fails to write, it keeps in memory until the disk takes it:
// that does not outlive the process, but a store that is back before its end gets all of it. Beyond its bound turns are lost, and so they are
// where the operator's own bound (store.spool.max_bytes) is reached.
type Queue struct {
	disk Disk
	log  *slog.Logger

	mu    sync.Mutex
	held  [][]byte // oldest first; while there are any, new records go behind them
	bytes int64
	fault error // why the disk did not take the first of them
}

// New returns the queue over a disk.
func New(disk Disk, log *slog.Logger) *Queue { return &Queue{disk: disk, log: log} }

// Append puts a record at the end: on disk if that takes it. It fails with what the disk says where that is closed or
// holds as much as it may (cache.ErrClosed, spool.ErrFull), and with ErrFull.
func (q *Queue) Append(rec []byte) error {
	var refused error
	if q.empty() {
		refused = q.disk.Append(rec)
		if refused == nil || errors.Is(refused, spool.ErrFull) || errors.Is(refused, cache.ErrClosed) {
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
		q.log.Error("spool's disk fails; turns are kept in memory until it takes them", "error", refused.Error())
	}
	q.held = append(q.held, rec)
	q.bytes += int64(len(rec))
	return nil
}

// Fault returns why the disk did not take the records that are held in memory, nil if there are none.
func (q *Queue) Fault() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.held) == 0 {
		return nil
	}
	return q.fault
}

// ErrFull says that neither the disk nor the memory has room for a record.
var ErrFull = errors.New("the spool's disk fails, and no more is kept in memory")

// Adopt adopts the disk's records.
func (q *Queue) Adopt(f func(rec []byte)) (spool.Adopted, error) { return q.disk.Adopt(f) }

func (q *Queue) empty() bool { return q.first() == nil }

func (q *Queue) first() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.held) == 0 {
		return nil
	}
	return q.held[0]
}

// removeFirst removes the first record once it is stored elsewhere. Until then the records after it wait.
func (q *Queue) removeFirst() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= int64(len(q.held[0]))
	if q.held = q.held[1:]; len(q.held) == 0 {
		q.held = nil
	}
}

// Settle writes the records held in memory to disk, until the disk refuses one. It and Drain are for one caller at a
// time.
func (q *Queue) Settle() error {
	for rec := q.first(); rec != nil; rec = q.first() {
		if err := q.disk.Append(rec); err != nil {
			return err
		}
		q.removeFirst()
	}
	return nil
}

// Drain passes the records on disk to f, and then those in memory. A record in memory that has to be quarantined must
// reach the disk first, and goes behind the others.
func (q *Queue) Drain(ctx context.Context, f func(rec []byte) error) error {
	if err := q.disk.Drain(ctx, f); err != nil {
		return err
	}
	refused := 0
	for q.count() > refused {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f(q.first())
		if err != nil && !errors.Is(err, cache.ErrUnreadable) {
			return err
		}
		if err != nil {
			q.moveBack()
			refused++
		}
		q.removeFirst()
	}
	if refused > 0 {
		return errHeld
	}
	return nil
}

// errHeld says that something could not be read, and waits in memory for the disk to take it.
var errHeld = errors.New("turns that cannot be read are kept in memory until the spool's disk takes them")

// moveBack puts a copy of the first record behind all others.
func (q *Queue) moveBack() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = append(q.held, q.held[0])
	q.bytes += int64(len(q.held[0]))
}

func (q *Queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held)
}

// Close writes the records in memory to disk, and logs those that the disk refuses: they are lost, and counted by lost
// if that is not nil. Append must not be called any more. Closing a nil Queue does nothing.
func (q *Queue) Close(lost func(turns int)) {
	if q == nil {
		return
	}
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
	records, bytes = q.disk.Len()
	q.mu.Lock()
	defer q.mu.Unlock()
	return records + len(q.held), bytes + q.bytes
}
