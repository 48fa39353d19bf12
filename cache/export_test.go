package cache

import (
	"encoding/base64"

	bolt "go.etcd.io/bbolt"
)

// CountBoltKeys returns the number of keys in all buckets of a bolt store.
func CountBoltKeys(s Store) (int, error) {
	n := 0
	b, ok := s.(*boltStore)
	if !ok {
		panic("BUG: not a bolt store")
	}
	err := b.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			n += b.Stats().KeyN
			return nil
		})
	})
	return n, err
}

func decodeBase64(s string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	return string(b), err
}
