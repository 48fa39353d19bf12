package bolt

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"remora/cache"
)

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

// readMeta returns the stored metadata of a group, expired or not; version 0 if there is no such group.
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

// applyBatch writes one batch. It returns ErrConflict before any visible change.
func applyBatch(tx *bolt.Tx, b cache.Batch, now time.Time) (uint64, error) {
	prefix := groupPrefix(b.Group)
	old := readMeta(tx, prefix)
	current := old
	if old.expiredAt(now) {
		current = groupMeta{}
	}
	if b.Expect != cache.AnyVersion && b.Expect != current.version {
		return 0, cache.ErrConflict
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
	meta.version = max(meta.version, uint64(now.UnixMicro()))
	if b.TTL > 0 {
		meta.expires = now.Add(max(b.TTL, time.Millisecond)).UnixMilli()
	}
	if err := writeIndexes(tx, b.Group, prefix, current, meta); err != nil {
		return 0, err
	}
	return meta.version, groups.Put(prefix, meta.encode())
}

// putInOrder writes values by ascending key. bbolt splits a page only at the end of the transaction, and until then moves all
// keys after a new one: in any other order the time of a batch is quadratic in its size.
func putInOrder(values *bolt.Bucket, prefix []byte, puts []cache.Put) error {
	type pair struct{ key, data []byte }
	pairs := make([]pair, len(puts))
	for i, p := range puts {
		pairs[i] = pair{appendPart(slices.Clip(prefix), p.Name), p.Data} // Clip: keys must not share memory
	}
	// Stable: of two values with one name the last one is stored.
	slices.SortStableFunc(pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	for _, p := range pairs {
		if err := values.Put(p.key, p.data); err != nil { // copies the key, not the data
			return err
		}
	}
	return nil
}

// writeIndexes updates a group's entries in the expiry and listed buckets.
func writeIndexes(tx *bolt.Tx, g cache.Group, prefix []byte, from, to groupMeta) error {
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

// removeMeta removes a group's metadata and index entries. The bucket's sequence is the greatest version of all removed
// groups: a group that is created again starts above it.
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
	// Deleting during an iteration may skip keys, so collect them first.
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
