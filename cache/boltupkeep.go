package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	// sweepGroups and sweepValues bound what one transaction of the sweeper removes, so that commits never wait long.
	sweepGroups = 256
	sweepValues = 4096
	// compactTxBytes is how much of the file one transaction of CompactBolt copies.
	compactTxBytes = 16 << 20
)

// List implements [Store].
func (s *boltStore) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := s.begin(ctx); err != nil {
		return nil, "", err
	}
	defer s.gate.leave()
	start, later, err := pageStart(after)
	if err != nil {
		return nil, "", err
	}
	limit = pageLimit(limit)
	var names []string
	next := ""
	now := s.now()
	err = s.db.View(func(tx *bolt.Tx) error {
		prefix := appendPart(nil, owner)
		from := prefix
		if later {
			from = groupPrefix(Group{owner, start})
		}
		c := tx.Bucket([]byte(listedBucket)).Cursor()
		seen := 0
		for k, v := c.Seek(from); bytes.HasPrefix(k, prefix); k, v = c.Next() {
			if later && bytes.Equal(k, from) {
				continue
			}
			if seen == limit {
				next = pageToken(start)
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
		return nil, "", fmt.Errorf("list groups in file: %w", err)
	}
	return names, next, nil
}

// removeGroup removes a group with all its values and index entries, expired or not.
func removeGroup(tx *bolt.Tx, prefix []byte) error {
	meta := readMeta(tx, prefix)
	if meta.version == 0 {
		return nil
	}
	if _, err := removeValues(tx, prefix, -1); err != nil {
		return err
	}
	return removeMeta(tx, prefix, meta)
}

// removeMeta forgets a group. The sequence of the bucket is the greatest version of all groups that are gone: one that is
// made anew begins above it.
func removeMeta(tx *bolt.Tx, prefix []byte, meta groupMeta) error {
	if meta.expires != 0 {
		if err := tx.Bucket([]byte(expiryBucket)).Delete(expiryKey(meta.expires, prefix)); err != nil {
			return err
		}
	}
	if err := tx.Bucket([]byte(listedBucket)).Delete(prefix); err != nil {
		return err
	}
	groups := tx.Bucket([]byte(groupsBucket))
	if meta.version > groups.Sequence() {
		if err := groups.SetSequence(meta.version); err != nil {
			return err
		}
	}
	return groups.Delete(prefix)
}

// removeValues removes at most limit values of a group (-1: all) and returns how many there were.
func removeValues(tx *bolt.Tx, prefix []byte, limit int) (int, error) {
	values := tx.Bucket([]byte(valuesBucket))
	// Deleting under a cursor may make it skip a key, so the keys are collected first.
	var keys [][]byte
	c := values.Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix) && len(keys) != limit; k, _ = c.Next() {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		if err := values.Delete(k); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// sweepEvery removes expired groups until the store is closed. Close waits for it.
func (s *boltStore) sweepEvery(interval time.Duration) {
	defer s.sweeper.Done()
	t := time.NewTicker(interval) //nolint:forbidigo // when to look; what has expired is told by Options.Now
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		// A failing disk is reported to those who commit; the next tick tries again.
		for more, err := true, error(nil); more && err == nil && !s.stopping(); {
			more, err = s.sweep()
		}
	}
}

func (s *boltStore) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// sweep removes some expired groups in one transaction and tells whether there may be more. A group too big for one
// transaction loses its values over several and its entry in the index last: nobody can see it meanwhile.
func (s *boltStore) sweep() (more bool, err error) {
	now := s.now()
	if !s.anyExpired(now) {
		return false, nil // without a write transaction, and so without an fsync
	}
	err = s.db.Update(func(tx *bolt.Tx) error {
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

func (s *boltStore) anyExpired(now time.Time) bool {
	any := false
	_ = s.db.View(func(tx *bolt.Tx) error { // a read fails only on a closed file, where nothing is to be done
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

// CompactBolt rewrites the file of a bolt store without the space that removed groups have left; bbolt never gives it
// back by itself. No other process may have the file open. The old file stays in place until the new one is on disk.
func CompactBolt(path string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("compact store: %w", err) // opening would create it
	}
	src, err := openBoltFile(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	tmp := path + ".compact"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("compact store: remove what an earlier run has left: %w", err)
	}
	dst, err := bolt.Open(tmp, 0o600, &bolt.Options{Timeout: boltLockWait})
	if err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	err = bolt.Compact(dst, src, compactTxBytes)
	if err = errors.Join(err, dst.Close()); err != nil {
		return errors.Join(fmt.Errorf("compact store %q: %w", path, err), os.Remove(tmp))
	}
	// While src still holds its lock: whoever waits for it sees, once he has it, that the file was replaced.
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // G304: the operator's own path
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
