package encrypted

import (
	"context"
	"fmt"

	"remora/cache/spool"
)

// Queue is a durable queue of records.
type Queue = spool.Records

// queue encrypts the records of inner.
type queue struct {
	*Sealer
	inner Queue
}

// plainQueue encrypts nothing, but recognises encrypted records.
type plainQueue struct{ Queue }

// Drain implements [Queue].
func (q *plainQueue) Drain(ctx context.Context, f func(rec []byte) error) error {
	return q.Queue.Drain(ctx, func(rec []byte) error {
		if isSealed(rec) {
			return fmt.Errorf("read spool: %w", errSealed)
		}
		return f(rec)
	})
}

// Adopt implements [Queue].
func (q *plainQueue) Adopt(f func(rec []byte)) (spool.Adopted, error) {
	return q.Queue.Adopt(func(rec []byte) {
		if !isSealed(rec) {
			f(rec)
		}
	})
}

// placeOfRecord returns the additional data of records, which belong to no group.
func placeOfRecord() []byte { return []byte{kindRecord} }

// Append implements [Queue].
func (q *queue) Append(rec []byte) error {
	sealed, err := q.ring.seal(make([]byte, 0, len(rec)+maxOverhead), rec, placeOfRecord())
	if err != nil {
		return err
	}
	return q.inner.Append(sealed)
}

// Drain implements [Queue].
func (q *queue) Drain(ctx context.Context, f func(rec []byte) error) error {
	return q.inner.Drain(ctx, func(sealed []byte) error {
		rec, err := q.open(sealed, placeOfRecord())
		if err != nil {
			return fmt.Errorf("read spool: %w", err)
		}
		return f(rec)
	})
}

// Adopt implements [Queue].
func (q *queue) Adopt(f func(rec []byte)) (spool.Adopted, error) {
	return q.inner.Adopt(func(sealed []byte) {
		if rec, err := q.open(sealed, placeOfRecord()); err == nil {
			f(rec)
		}
	})
}

// Len implements [Queue].
func (q *queue) Len() (records int, bytes int64) { return q.inner.Len() }
