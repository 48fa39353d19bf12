package bolt

import bolt "go.etcd.io/bbolt"

// CountKeys returns the number of keys in all buckets of a bolt store.
func CountKeys(s *Store) (int, error) {
	n := 0
	err := s.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			n += b.Stats().KeyN
			return nil
		})
	})
	return n, err
}
