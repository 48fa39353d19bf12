package transcript

import (
	"context"

	"remora/cache"
)

// Beside is what is read and written together with an entry, in the same round trips: values of the session and of
// other groups that the transcript itself knows nothing about. What it writes to the session is there exactly if the
// turn is.
type Beside interface {
	// Queries says what to read: names of values of the session's group, and queries of other groups.
	Queries() (names []string, others []cache.Query)
	// Loaded gets what was read, in the order of Queries; a value that is not stored is nil. It is called again
	// where the session had to be read again because another turn was faster.
	Loaded(ctx context.Context, values [][]byte, others []cache.Result)
	// Writes says what to write with the answer. Empty data means that the value is taken away.
	Writes() (values []cache.Put, others []cache.Batch)
	// Wrote is called when the session's part is written. version is the session's now, others what became of the
	// other batches of Writes.
	Wrote(version uint64, others []cache.Outcome)
}

// besides are the queries of b behind those of the session, whose names it extends.
func besides(b Beside, session cache.Query) []cache.Query {
	if b == nil {
		return []cache.Query{session}
	}
	names, others := b.Queries()
	session.Names = append(session.Names, names...)
	return append([]cache.Query{session}, others...)
}

// write is the commit of a draft, with what b writes unless the answer is still to come.
func (d *draft) write(ctx context.Context, b Beside) (cache.Outcome, []cache.Outcome) {
	batches := d.batches()
	own := len(batches)
	if b != nil && !d.open {
		values, others := b.Writes()
		for _, v := range values {
			if len(v.Data) == 0 {
				batches[0].Deletes = append(batches[0].Deletes, v.Name)
			} else {
				batches[0].Puts = append(batches[0].Puts, v)
			}
		}
		batches = append(batches, others...)
	}
	out := d.e.log.store.Commit(ctx, batches)
	return out[0], out[own:]
}
