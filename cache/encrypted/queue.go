package encrypted

import (
	"context"
	"fmt"

	"remora/cache/spool"
)

// Queue is a durable queue of records.
type Queue = spool.Records

// queue encrypts the records of another one.
type queue struct {
	Queue

	seal, open func(rec []byte) ([]byte, error)
}

// Append implements [Queue].
func (q *queue) Append(rec []byte) error {
	sealed, err := q.seal(rec)
	if err != nil {
		return err
	}
	return q.Queue.Append(sealed)
}

// Move implements [Queue].
func (q *queue) Move(rec []byte) error {
	sealed, err := q.seal(rec)
	if err != nil {
		return err
	}
	return q.Queue.Move(sealed)
}

// Drain implements [Queue].
func (q *queue) Drain(ctx context.Context, f func(recs [][]byte) (done int, err error)) error {
	return q.Queue.Drain(ctx, func(sealed [][]byte) (int, error) {
		recs := make([][]byte, 0, len(sealed))
		for _, s := range sealed {
			rec, err := q.open(s)
			if err != nil && len(recs) == 0 {
				return 0, fmt.Errorf("read spool: %w", err)
			}
			if err != nil {
				break // those before it come first
			}
			recs = append(recs, rec)
		}
		return f(recs)
	})
}

// Adopt implements [Queue].
func (q *queue) Adopt(f func(rec []byte)) (spool.Adopted, error) {
	return q.Queue.Adopt(func(sealed []byte) {
		if rec, err := q.open(sealed); err == nil {
			f(rec)
		}
	})
}

// plain is the seal and the open of a queue that encrypts nothing, and recognises encrypted records.
func plain(rec []byte) ([]byte, error) {
	if isSealed(rec) {
		return nil, errSealed
	}
	return rec, nil
}
