// Package reserve is a spool that keeps records in memory while its disk fails.
package reserve

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

// Disk is a durable local queue: see spool.Queue.
type Disk interface {
	// Append puts a record at the end; it is on disk when Append returns.
	Append(rec []byte) error
	// Drain calls f with each record, oldest first, and removes those for which it returns nil. Those for which it returns
	// an error that wraps cache.ErrUnreadable are set aside, kept out of the queue. It stops at the first other error, and
	// returns it.
	Drain(ctx context.Context, f func(rec []byte) error) error
	// Adopt takes over what processes that died have left, and hands f a copy of each of those records, as far as they can be
	// read. See spool.Queue.
	Adopt(f func(rec []byte)) (spool.Adopted, error)
	// Len is how many records, of how many bytes in all, are in the queue.
	Len() (records int, bytes int64)
}

// Spool keeps in memory what the disk below it has no room for, or fails to write, until it does. It does not outlive
// the process, but a store that is back before its end gets all of it. Beyond its bound turns are lost, and so they are
// where the operator's own bound (store.spool.max_bytes) is reached.
type Spool struct {
	disk Disk
	log  *slog.Logger

	mu    sync.Mutex
	held  [][]byte // oldest first; while there are any, new records go behind them
	bytes int64
}

// Over makes a spool of a disk's.
func Over(disk Disk, log *slog.Logger) *Spool { return &Spool{disk: disk, log: log} }

// Append puts a record at the end: on disk if that takes it. It fails with what the disk says where that is closed or
// holds as much as it may (cache.ErrClosed, spool.ErrFull), and with ErrFull.
func (r *Spool) Append(rec []byte) error {
	var refused error
	if r.empty() {
		refused = r.disk.Append(rec)
		if refused == nil || errors.Is(refused, spool.ErrFull) || errors.Is(refused, cache.ErrClosed) {
			return refused
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes+int64(len(rec)) > maxBytes {
		return errors.Join(ErrFull, refused)
	}
	if len(r.held) == 0 && refused != nil { // else what was held has gone just now
		r.log.Error("spool's disk fails; turns are kept in memory until it takes them", "error", refused.Error())
	}
	r.held = append(r.held, rec)
	r.bytes += int64(len(rec))
	return nil
}

// ErrFull says that neither the disk nor the memory has room for a record.
var ErrFull = errors.New("the spool's disk fails, and no more is kept in memory")

// Adopt adopts the disk's records.
func (r *Spool) Adopt(f func(rec []byte)) (spool.Adopted, error) { return r.disk.Adopt(f) }

func (r *Spool) empty() bool { return r.first() == nil }

func (r *Spool) first() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) == 0 {
		return nil
	}
	return r.held[0]
}

// gone removes the first record once it is stored elsewhere. Until then the records after it wait.
func (r *Spool) gone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes -= int64(len(r.held[0]))
	if r.held = r.held[1:]; len(r.held) == 0 {
		r.held = nil
	}
}

// Settle writes the records held in memory to disk, until the disk refuses one. It and Drain are for one caller at a
// time.
func (r *Spool) Settle() error {
	for rec := r.first(); rec != nil; rec = r.first() {
		if err := r.disk.Append(rec); err != nil {
			return err
		}
		r.gone()
	}
	return nil
}

// Drain passes the records on disk to f, and then those in memory. A record in memory that has to be quarantined must
// reach the disk first, and goes behind the others.
func (r *Spool) Drain(ctx context.Context, f func(rec []byte) error) error {
	if err := r.disk.Drain(ctx, f); err != nil {
		return err
	}
	refused := 0
	for r.count() > refused {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f(r.first())
		if err != nil && !errors.Is(err, cache.ErrUnreadable) {
			return err
		}
		if err != nil {
			r.keep()
			refused++
		}
		r.gone()
	}
	if refused > 0 {
		return errHeld
	}
	return nil
}

// errHeld says that something could not be read, and waits in memory for the disk to take it.
var errHeld = errors.New("turns that cannot be read are kept in memory until the spool's disk takes them")

// keep puts a copy of the first record behind all others.
func (r *Spool) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, r.held[0])
	r.bytes += int64(len(r.held[0]))
}

func (r *Spool) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

// Close writes the records in memory to disk, and logs those that the disk refuses: they are lost, and counted by lost
// if that is not nil. Append must not be called any more. Closing a nil Spool does nothing.
func (r *Spool) Close(lost func(turns int)) {
	if r == nil {
		return
	}
	err := r.Settle()
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Error("turns lost: neither the store nor the spool took them", "turns", len(r.held), "error", err.Error())
	if lost != nil {
		lost(len(r.held))
	}
}

// Len counts both.
func (r *Spool) Len() (records int, bytes int64) {
	records, bytes = r.disk.Len()
	r.mu.Lock()
	defer r.mu.Unlock()
	return records + len(r.held), bytes + r.bytes
}
