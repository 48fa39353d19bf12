package seal

import (
	"context"
	"fmt"
)

// Queue is a durable queue of records, such as cache.Spool.
type Queue interface {
	// Append puts a record at the end; it is on disk when Append returns.
	Append(rec []byte) error
	// Drain calls f with each record, oldest first, and removes those for which it returns nil. It stops at the first
	// error, and returns it.
	Drain(ctx context.Context, f func(rec []byte) error) error
	// Len is how many records, of how many bytes in all, are in the queue.
	Len() (records int, bytes int64)
}

// queue seals what goes into inner.
type queue struct {
	*Sealer
	inner Queue
}

// Queue returns inner with every record sealed that goes into it, or inner itself where it or s is nil.
//
// A record that can't be decrypted ends a Drain with an error that wraps [ErrUnreadable], and stays where it is with
// all behind it: with the right keys configured nothing of it is lost.
func (s *Sealer) Queue(inner Queue) Queue {
	if s == nil || inner == nil {
		return inner
	}
	return &queue{Sealer: s, inner: inner}
}

// placeOfRecord is what records are bound to: they are in no group, and each is complete by itself.
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

// Len implements [Queue].
func (q *queue) Len() (records int, bytes int64) { return q.inner.Len() }
