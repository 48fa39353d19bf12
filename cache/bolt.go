package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// The buckets of the file. Keys are parts that end by themselves (appendPart), so a group is one key prefix.
//
//	values  owner, name, value name            -> the value
//	groups  owner, name                        -> version (8), expiry in Unix milliseconds or 0 (8), listed (1)
//	expiry  time (8), owner, name              -> nothing; only groups that expire
//	listed  owner, name                        -> the group's name in full; only groups that are listed
const (
	valuesBucket = "values"
	groupsBucket = "groups"
	expiryBucket = "expiry"
	listedBucket = "listed"

	// boltLockWait is how long a second process waits for the file before it gives up.
	boltLockWait = 500 * time.Millisecond
)

// boltStore is one file. Every commit is on disk (fsync) when it returns; commits that arrive while the disk is busy
// share the next write.
type boltStore struct {
	db      *bolt.DB
	now     func() time.Time
	gate    gate
	batcher *batcher[*boltCall]

	stop    chan struct{}
	sweeper sync.WaitGroup
}

// boltCall is one Commit, or one Delete where remove is set.
type boltCall struct {
	batches  []Batch
	remove   *Group
	outcomes []Outcome
	err      error
}

var _ Store = (*boltStore)(nil)

func openBolt(path string, o Options) (Store, error) {
	db, err := openBoltFile(path)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{valuesBucket, groupsBucket, expiryBucket, listedBucket} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store %q (store.url): %w", path, err), db.Close())
	}
	s := &boltStore{db: db, now: o.Now, stop: make(chan struct{})}
	s.batcher = &batcher[*boltCall]{run: s.run, slots: 1, maxCalls: 64, maxBytes: 1 << 20}
	s.sweeper.Add(1)
	go s.sweepEvery(o.SweepInterval)
	return s, nil
}

// openBoltFile opens and locks the file. A file that CompactBolt has replaced while this waited for the lock is let go
// and the new one taken: what went into the old one would be lost.
func openBoltFile(path string) (*bolt.DB, error) {
	const tries = 3
	for range tries {
		var file *os.File
		db, err := bolt.Open(path, 0o600, &bolt.Options{
			Timeout:      boltLockWait,
			FreelistType: bolt.FreelistMapType,
			// Saves the pauses in which a growing file is mapped anew, and costs address space only.
			InitialMmapSize: 64 << 20,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag, mode) //nolint:gosec // G304: the operator's own path
				file = f
				return f, err
			},
		})
		switch {
		case errors.Is(err, bolterrors.ErrTimeout):
			return nil, fmt.Errorf("open store %q (store.url): the file is locked: another Remora has it open; stop that one, or let both use Redis", path)
		case err != nil:
			return nil, fmt.Errorf("open store %q (store.url): %w", path, err)
		}
		if isFileAt(file, path) {
			return db, nil
		}
		if err := db.Close(); err != nil {
			return nil, fmt.Errorf("open store %q (store.url): %w", path, err)
		}
	}
	return nil, fmt.Errorf("open store %q (store.url): the file is being replaced", path)
}

// isFileAt tells whether path still names f.
func isFileAt(f *os.File, path string) bool {
	have, err := f.Stat()
	if err != nil {
		return false
	}
	want, err := os.Stat(path)
	return err == nil && os.SameFile(have, want)
}

// groupMeta is the value of the groups bucket.
type groupMeta struct {
	version uint64
	expires int64 // Unix milliseconds, 0 for never
	listed  bool
}

func (m groupMeta) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 17), m.version)
	b = binary.BigEndian.AppendUint64(b, uint64(m.expires)) //nolint:gosec // G115: times after 1970 only
	if m.listed {
		return append(b, 1)
	}
	return append(b, 0)
}

func (m groupMeta) expiredAt(now time.Time) bool {
	return m.expires != 0 && m.expires <= now.UnixMilli()
}

// readMeta returns what the file says about a group, expired or not; version 0 for a group that is not there.
func readMeta(tx *bolt.Tx, prefix []byte) groupMeta {
	b := tx.Bucket([]byte(groupsBucket)).Get(prefix)
	if len(b) != 17 {
		return groupMeta{}
	}
	return groupMeta{
		version: binary.BigEndian.Uint64(b),
		expires: int64(binary.BigEndian.Uint64(b[8:])), //nolint:gosec // G115: as written by encode
		listed:  b[16] == 1,
	}
}

// Read implements [Store].
func (s *boltStore) Read(ctx context.Context, queries []Query) ([]Result, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	out := make([]Result, len(queries))
	now := s.now()
	err := s.db.View(func(tx *bolt.Tx) error {
		values := tx.Bucket([]byte(valuesBucket))
		for i, q := range queries {
			out[i].Values = make([][]byte, len(q.Names))
			prefix := groupPrefix(q.Group)
			meta := readMeta(tx, prefix)
			if meta.version == 0 || meta.expiredAt(now) {
				continue
			}
			out[i].Version = meta.version
			for j, name := range q.Names {
				if v := values.Get(appendPart(prefix, name)); v != nil {
					out[i].Values[j] = append(make([]byte, 0, len(v)), v...)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read groups from file: %w", err)
	}
	return out, nil
}

// Commit implements [Store].
func (s *boltStore) Commit(ctx context.Context, batches []Batch) []Outcome {
	if err := s.begin(ctx); err != nil {
		return allFailed(len(batches), err)
	}
	defer s.gate.leave()
	// The caller may leave before the batch is written, and may then use its buffers again.
	call := &boltCall{batches: copyBatches(batches), outcomes: make([]Outcome, len(batches))}
	if err := s.batcher.do(ctx, call, batchBytes(batches)); err != nil {
		return allFailed(len(batches), fmt.Errorf("commit groups to file: %w", err))
	}
	if call.err != nil {
		return allFailed(len(batches), fmt.Errorf("commit groups to file: %w", call.err))
	}
	return call.outcomes
}

// Delete implements [Store].
func (s *boltStore) Delete(ctx context.Context, g Group) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.gate.leave()
	call := &boltCall{remove: &g}
	if err := s.batcher.do(ctx, call, 0); err != nil {
		return fmt.Errorf("delete group from file: %w", err)
	}
	if call.err != nil {
		return fmt.Errorf("delete group from file: %w", call.err)
	}
	return nil
}

// run writes all calls in one transaction. A call that cannot be applied is taken out and the others go again, so
// that nobody pays for somebody else's batch.
func (s *boltStore) run(_ context.Context, calls []*boltCall) {
	left := append([]*boltCall(nil), calls...)
	for len(left) > 0 {
		bad := -1
		err := s.db.Update(func(tx *bolt.Tx) error {
			for i, c := range left {
				if err := s.apply(tx, c); err != nil {
					bad = i
					return err
				}
			}
			return nil
		})
		if err == nil {
			return
		}
		if bad < 0 {
			for _, c := range left {
				c.err = err
			}
			return
		}
		left[bad].err = err
		left = append(left[:bad], left[bad+1:]...)
	}
}

func (s *boltStore) apply(tx *bolt.Tx, c *boltCall) error {
	now := s.now()
	if c.remove != nil {
		return removeGroup(tx, groupPrefix(*c.remove))
	}
	for i, b := range c.batches {
		version, err := applyBatch(tx, b, now)
		if errors.Is(err, ErrConflict) {
			c.outcomes[i] = Outcome{Err: ErrConflict}
			continue
		}
		if err != nil {
			return err
		}
		c.outcomes[i] = Outcome{Version: version}
	}
	return nil
}

// applyBatch writes one batch. It returns ErrConflict before it has changed anything that can be seen.
func applyBatch(tx *bolt.Tx, b Batch, now time.Time) (uint64, error) {
	prefix := groupPrefix(b.Group)
	old := readMeta(tx, prefix)
	current := old
	if old.expiredAt(now) {
		current = groupMeta{}
	}
	if b.Expect != AnyVersion && b.Expect != current.version {
		return 0, ErrConflict
	}
	if old.version != 0 && current.version == 0 {
		if err := removeGroup(tx, prefix); err != nil {
			return 0, err
		}
	}
	values := tx.Bucket([]byte(valuesBucket))
	for _, name := range b.Deletes {
		if err := values.Delete(appendPart(prefix, name)); err != nil {
			return 0, err
		}
	}
	if err := putInOrder(values, prefix, b.Puts); err != nil {
		return 0, err
	}
	groups := tx.Bucket([]byte(groupsBucket))
	meta := groupMeta{version: current.version + 1, listed: current.listed || b.Listed}
	if current.version == 0 {
		meta.version += groups.Sequence()
	}
	if b.TTL > 0 {
		meta.expires = now.Add(max(b.TTL, time.Millisecond)).UnixMilli()
	}
	if err := writeIndexes(tx, b.Group, prefix, current, meta); err != nil {
		return 0, err
	}
	return meta.version, groups.Put(prefix, meta.encode())
}

// putInOrder writes values by ascending key. bbolt splits a page only when the transaction ends and moves all that
// stands behind a new key until then: in any other order a large batch takes time with the square of its size.
func putInOrder(values *bolt.Bucket, prefix []byte, puts []Put) error {
	type pair struct{ key, data []byte }
	pairs := make([]pair, len(puts))
	for i, p := range puts {
		pairs[i] = pair{appendPart(slices.Clip(prefix), p.Name), p.Data} // each key has its own bytes until it is put
	}
	// Stable: of two values with one name the later one counts.
	slices.SortStableFunc(pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	for _, p := range pairs {
		if err := values.Put(p.key, p.data); err != nil { // copies the key, not the data
			return err
		}
	}
	return nil
}

// writeIndexes brings the expiry and the listed bucket from what they say about a group to what they should.
func writeIndexes(tx *bolt.Tx, g Group, prefix []byte, from, to groupMeta) error {
	expiry := tx.Bucket([]byte(expiryBucket))
	if from.expires != 0 && from.expires != to.expires {
		if err := expiry.Delete(expiryKey(from.expires, prefix)); err != nil {
			return err
		}
	}
	if to.expires != 0 && from.expires != to.expires {
		if err := expiry.Put(expiryKey(to.expires, prefix), nil); err != nil {
			return err
		}
	}
	if to.listed && !from.listed {
		return tx.Bucket([]byte(listedBucket)).Put(prefix, []byte(g.Name))
	}
	return nil
}

func expiryKey(expires int64, prefix []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(prefix)), uint64(expires)) //nolint:gosec // G115: after 1970
	return append(b, prefix...)
}

// Ping implements [Store].
func (s *boltStore) Ping(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.gate.leave()
	return s.db.View(func(*bolt.Tx) error { return nil })
}

// Close implements [Store].
func (s *boltStore) Close() error {
	if !s.gate.shut() {
		return nil
	}
	close(s.stop)
	s.sweeper.Wait()
	s.batcher.work.Wait()
	return s.db.Close()
}

func (s *boltStore) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.gate.enter()
}

// copyBatches copies what a caller might change after it has left early.
func copyBatches(batches []Batch) []Batch {
	out := append([]Batch(nil), batches...)
	arena := make([]byte, 0, batchBytes(batches))
	for i := range out {
		out[i].Puts = append([]Put(nil), out[i].Puts...)
		out[i].Deletes = append([]string(nil), out[i].Deletes...)
		for j, p := range out[i].Puts {
			from := len(arena)
			arena = append(arena, p.Data...)
			out[i].Puts[j].Data = arena[from:len(arena):len(arena)]
		}
	}
	return out
}

func batchBytes(batches []Batch) int {
	n := 0
	for _, b := range batches {
		for _, p := range b.Puts {
			n += len(p.Name) + len(p.Data)
		}
	}
	return n
}
