package transcript

import (
	"hash/maphash"
	"sync"

	"remora/wire"
)

// hashes remembers content hashes by the bytes that they were worked out from: a client that resends its history
// sends the same items turn after turn, and hashing what they mean is the dearest part of a long request. Keys are
// 64-bit hashes under a seed of this process, so that nobody can make two items meet; the memory is bounded by
// keeping two generations, of which the older is dropped when the younger is full.
type hashes struct {
	seed   maphash.Seed
	shards [16]hashShard
}

type hashShard struct {
	mu         sync.Mutex
	young, old map[uint64]wire.Hash
}

const (
	// hashedBytes is the size in bytes below which an item is hashed sooner than it is looked up.
	hashedBytes = 128
	// maxHashes is how many hashes a generation of a shard holds: about 6 MB in all, when full.
	maxHashes = 4096
)

func newHashes() *hashes { return &hashes{seed: maphash.MakeSeed()} }

// of is the content hash of an item.
func (h *hashes) of(it wire.Item) wire.Hash {
	if len(it.Raw) < hashedBytes {
		return it.ContentHash()
	}
	key := maphash.Bytes(h.seed, it.Raw) ^ uint64(it.Dialect)
	s := &h.shards[key%uint64(len(h.shards))]
	if sum, ok := s.find(key); ok {
		return sum
	}
	sum := it.ContentHash()
	s.put(key, sum)
	return sum
}

func (s *hashShard) find(key uint64) (sum wire.Hash, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sum, ok = s.young[key]; ok {
		return sum, true
	}
	if sum, ok = s.old[key]; ok {
		s.keep(key, sum)
	}
	return sum, ok
}

func (s *hashShard) put(key uint64, sum wire.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(key, sum)
}

func (s *hashShard) keep(key uint64, sum wire.Hash) {
	if len(s.young) >= maxHashes || s.young == nil {
		s.old, s.young = s.young, make(map[uint64]wire.Hash)
	}
	s.young[key] = sum
}
