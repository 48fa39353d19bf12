package encrypted

import (
	"fmt"

	"remora/cache/spool"
)

// Queue keeps records on local disk.
type Queue = spool.Records

// queue encrypts the records of another one.
type queue struct {
	Queue

	seal, open func(rec []byte) ([]byte, error)
}

// Append implements [Queue].
func (q *queue) Append(rec []byte) (spool.Ref, error) {
	sealed, err := q.seal(rec)
	if err != nil {
		return 0, err
	}
	return q.Queue.Append(sealed)
}

// Read implements [Queue].
func (q *queue) Read(ref spool.Ref) ([]byte, error) {
	sealed, err := q.Queue.Read(ref)
	if err != nil {
		return nil, err
	}
	rec, err := q.open(sealed)
	if err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	return rec, nil
}

// Adopt implements [Queue].
func (q *queue) Adopt(f func(ref spool.Ref, rec []byte) error) (spool.Adopted, error) {
	return q.Queue.Adopt(func(ref spool.Ref, sealed []byte) error {
		rec, err := q.open(sealed)
		if err != nil {
			return fmt.Errorf("read spool: %w", err)
		}
		return f(ref, rec)
	})
}

// plain is the seal and the open of a queue that encrypts nothing, and recognises encrypted records.
func plain(rec []byte) ([]byte, error) {
	if isSealed(rec) {
		return nil, errSealed
	}
	return rec, nil
}
