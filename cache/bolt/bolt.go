// Package bolt is a store in one bbolt file, for a single process. It is the proxy's default. Start at [Open].
package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"remora/cache"
)

// The buckets of the file. Keys are self-delimiting parts (appendPart), so a group is one key prefix.
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

	// boltLockWait bounds the wait for the lock of the file.
	boltLockWait = 500 * time.Millisecond
)

// sweepGroups and sweepValues bound what one transaction of the sweeper removes, so that commits never wait long.
const (
	sweepGroups = 256
	sweepValues = 4096
)

// Store is one file. Every commit is on disk (fsync) when it returns; commits that arrive during a write share the next one.
type Store struct {
	*storeFile
	path    string
	file    os.FileInfo // of the open file, to detect that path was deleted or replaced
	now     func() time.Time
	gate    cache.Gate
	batcher *cache.Batcher[*boltCall]

	stop    chan struct{}
	sweeper sync.WaitGroup
}

// boltCall is a Commit, or a Delete if remove is set.
type boltCall struct {
	batches  []cache.Batch
	remove   *cache.Group
	outcomes []cache.Outcome
	err      error
}

var _ cache.Store = (*Store)(nil)

// Open opens the store in a file, which it creates if necessary. If another process has the file open, it waits for half a second
// and returns an error.
func Open(path string, o cache.Options) (*Store, error) {
	if path == "" {
		return nil, errors.New("open store: store.url names no file: want bolt:PATH")
	}
	o = o.WithDefaults()

	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	err = db.update(func(tx *bolt.Tx) error {
		for _, name := range []string{valuesBucket, groupsBucket, expiryBucket, listedBucket} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	var file os.FileInfo
	if err == nil {
		file, err = os.Stat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store %q (store.url): %w", path, err), db.close())
	}

	s := &Store{storeFile: db, path: path, file: file, now: o.Now, stop: make(chan struct{})}
	s.batcher = &cache.Batcher[*boltCall]{Run: s.run, Slots: 1, MaxCalls: 64, MaxBytes: 1 << 20}
	s.sweeper.Add(1)
	go s.sweepUntilClosed()
	return s, nil
}

// sweepInterval is the time after which expired groups are removed again. It only affects space: an expired group is never returned.
const sweepInterval = time.Minute

// sweepUntilClosed removes expired groups until the store is closed. Close waits for it.
func (s *Store) sweepUntilClosed() {
	defer s.sweeper.Done()
	t := time.NewTicker(sweepInterval) //nolint:forbidigo // Options.Now decides what has expired
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		// A failing disk is reported to callers of Commit; the next tick tries again.
		for more, err := true, error(nil); more && err == nil && !s.gate.IsShut(); {
			more, err = s.sweep()
		}
	}
}

// sweep removes some expired groups in one transaction and reports whether there may be more. A group too large for one
// transaction loses its values over several and its index entry last; readers do not see it, since it has expired.
func (s *Store) sweep() (more bool, err error) {
	now := s.now()
	if !s.anyExpired(now) {
		return false, nil // saves a write transaction, and so an fsync
	}
	err = s.update(func(tx *bolt.Tx) error {
		prefixes := expiredGroups(tx, now, sweepGroups)
		more = len(prefixes) == sweepGroups
		left := sweepValues
		for _, prefix := range prefixes {
			n, err := removeValues(tx, prefix, left)
			if err != nil {
				return err
			}
			if left -= n; left == 0 {
				more = true
				return nil
			}
			if err := removeMeta(tx, prefix, readMeta(tx, prefix)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("sweep expired groups: %w", err)
	}
	return more, nil
}

func (s *Store) anyExpired(now time.Time) bool {
	any := false
	_ = s.view(func(tx *bolt.Tx) error { // fails only on a closed file
		any = len(expiredGroups(tx, now, 1)) > 0
		return nil
	})
	return any
}

func expiredGroups(tx *bolt.Tx, now time.Time, limit int) [][]byte {
	var out [][]byte
	c := tx.Bucket([]byte(expiryBucket)).Cursor()
	for k, _ := c.First(); len(k) > 8 && len(out) < limit; k, _ = c.Next() {
		if int64(binary.BigEndian.Uint64(k)) > now.UnixMilli() { //nolint:gosec // G115: as written by expiryKey
			break
		}
		out = append(out, bytes.Clone(k[8:]))
	}
	return out
}

// Read implements [cache.Store].
func (s *Store) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	if err := s.gate.Begin(ctx); err != nil {
		return nil, err
	}
	defer s.gate.Leave()
	out := make([]cache.Result, len(queries))
	now := s.now()
	err := s.view(func(tx *bolt.Tx) error {
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
				v := values.Get(appendPart(prefix, name))
				if int64(len(v)) > tx.Size() {
					return ErrDamaged // the length itself is damaged: do not allocate it
				}
				if v != nil {
					out[i].Values[j] = append(make([]byte, 0, len(v)), v...)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, inFile("read groups from file", err)
	}
	return out, nil
}

// Commit implements [cache.Store].
func (s *Store) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	if err := s.gate.Begin(ctx); err != nil {
		return cache.AllFailed(len(batches), err)
	}
	defer s.gate.Leave()
	// The caller may return before the batch is written, and then reuse its buffers.
	call := &boltCall{batches: copyBatches(batches), outcomes: make([]cache.Outcome, len(batches))}
	if err := s.batcher.Do(ctx, call, batchBytes(batches)); err != nil {
		return cache.AllFailed(len(batches), cache.Faulty(cache.FaultTimeout, fmt.Errorf("commit groups to file: %w", err)))
	}
	if call.err != nil {
		return cache.AllFailed(len(batches), inFile("commit groups to file", call.err))
	}
	return call.outcomes
}

// copyBatches copies the slices that a caller may modify after it has returned early.
func copyBatches(batches []cache.Batch) []cache.Batch {
	out := append([]cache.Batch(nil), batches...)
	changing := 0
	for _, b := range batches {
		for _, p := range b.Puts {
			if !p.Lasting {
				changing += len(p.Data)
			}
		}
	}
	arena := make([]byte, 0, changing)
	for i := range out {
		out[i].Puts = append([]cache.Put(nil), out[i].Puts...)
		out[i].Deletes = append([]string(nil), out[i].Deletes...)
		for j, p := range out[i].Puts {
			if p.Lasting {
				continue
			}
			from := len(arena)
			arena = append(arena, p.Data...)
			out[i].Puts[j].Data = arena[from:len(arena):len(arena)]
		}
	}
	return out
}

func batchBytes(batches []cache.Batch) int {
	n := 0
	for _, b := range batches {
		for _, p := range b.Puts {
			n += len(p.Name) + len(p.Data)
		}
	}
	return n
}

// Delete implements [cache.Store].
func (s *Store) Delete(ctx context.Context, g cache.Group) error {
	if err := s.gate.Begin(ctx); err != nil {
		return err
	}
	defer s.gate.Leave()
	call := &boltCall{remove: &g}
	if err := s.batcher.Do(ctx, call, 0); err != nil {
		return cache.Faulty(cache.FaultTimeout, fmt.Errorf("delete group from file: %w", err))
	}
	if call.err != nil {
		return inFile("delete group from file", call.err)
	}
	return nil
}

// run writes all calls in one transaction. If a call fails, it is removed and the others are retried, so that a bad batch does
// not fail others.
func (s *Store) run(ctx context.Context, calls []*boltCall) {
	if err := s.present(); err != nil {
		for _, c := range calls {
			c.err = err
		}
		return
	}

	left := append([]*boltCall(nil), calls...)
	for len(left) > 0 {
		bad := -1
		err := s.update(func(tx *bolt.Tx) error {
			for i, c := range left {
				if err := sound(func() error { return s.apply(tx, c) }); err != nil {
					bad = i
					return err
				}
			}
			return nil
		})

		if err == nil {
			return
		}
		if bad < 0 && errors.Is(err, ErrDamaged) && len(left) > 1 {
			for _, c := range left {
				s.run(ctx, []*boltCall{c}) // the damage may concern only some of them
			}
			return
		}
		if bad < 0 {
			for _, c := range left {
				c.err = err
			}
			return
		}
		left[bad].err = cache.Faulty(cache.FaultKey, err)
		left = append(left[:bad], left[bad+1:]...)
	}
}

func (s *Store) apply(tx *bolt.Tx, c *boltCall) error {
	now := s.now()
	if c.remove != nil {
		return removeGroup(tx, groupPrefix(*c.remove))
	}
	for i, b := range c.batches {
		version, err := applyBatch(tx, b, now)
		if errors.Is(err, cache.ErrConflict) {
			c.outcomes[i] = cache.Outcome{Err: cache.ErrConflict}
			continue
		}
		if err != nil {
			return err
		}
		c.outcomes[i] = cache.Outcome{Version: version}
	}
	return nil
}

// List implements [cache.Store].
func (s *Store) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := s.gate.Begin(ctx); err != nil {
		return nil, "", err
	}
	defer s.gate.Leave()
	start, later, err := cache.PageStart(after)
	if err != nil {
		return nil, "", err
	}
	limit = cache.PageLimit(limit)

	var names []string
	next := ""
	now := s.now()
	err = s.view(func(tx *bolt.Tx) error {
		prefix := appendPart(nil, owner)
		from := prefix
		if later {
			from = groupPrefix(cache.Group{Owner: owner, Name: start})
		}
		c := tx.Bucket([]byte(listedBucket)).Cursor()
		seen := 0
		for k, v := c.Seek(from); bytes.HasPrefix(k, prefix); k, v = c.Next() {
			if later && bytes.Equal(k, from) {
				continue
			}
			if seen == limit {
				next = cache.PageToken(start)
				return nil
			}
			seen++
			start = string(v)
			if !readMeta(tx, k).expiredAt(now) {
				names = append(names, start)
			}
		}
		return nil
	})
	if err != nil {
		return nil, "", inFile("list groups in file", err)
	}
	return names, next, nil
}

// CopyTo writes a consistent copy of the file, also while the store is in use; any other copy may mix pages of different moments.
// Meanwhile commits that need the file to grow beyond its mapping wait: w must not block for long.
func (s *Store) CopyTo(w io.Writer) error {
	if err := s.gate.Enter(); err != nil {
		return err
	}
	defer s.gate.Leave()
	if err := s.present(); err != nil {
		return err
	}
	if err := s.copyTo(w); err != nil {
		return inFile("copy the store's file", err)
	}
	return nil
}

// Ping implements [cache.Store].
func (s *Store) Ping(ctx context.Context) error {
	if err := s.gate.Begin(ctx); err != nil {
		return err
	}
	defer s.gate.Leave()
	if err := s.present(); err != nil {
		return err
	}
	return cache.Faulty(cache.FaultStore, s.view(func(*bolt.Tx) error { return nil }))
}

// Close implements [cache.Store].
func (s *Store) Close() error {
	if !s.gate.Shut() {
		return nil
	}
	close(s.stop)
	s.sweeper.Wait()
	s.batcher.Wait()
	return s.close()
}

// Shard implements [cache.Store].
func (s *Store) Shard(cache.Group) string { return "" }

// present returns an error if the file was deleted or replaced: writes would be lost at the next start.
func (s *Store) present() error {
	at, err := os.Stat(s.path)
	if err == nil && os.SameFile(at, s.file) {
		return nil
	}
	return cache.Faulty(cache.FaultStore, errors.New("the file of store.url was deleted or replaced while in use: put it back, or restart"))
}

// inFile wraps an error with the failed operation and its fault. Damage concerns the groups in which it was found.
func inFile(doing string, err error) error {
	if errors.Is(err, ErrDamaged) {
		return &cache.Error{Fault: cache.FaultCorrupt, Err: fmt.Errorf("%s: %w: %w", doing, cache.ErrUnreadable, err)}
	}
	return cache.Faulty(cache.FaultStore, fmt.Errorf("%s: %w", doing, err))
}
