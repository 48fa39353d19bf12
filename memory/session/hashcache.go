package session

import (
	"hash/maphash"

	"remora/memory/lru"
	"remora/wire"
)

// hashCache caches the content hashes of items by their bytes: a client that resends its history sends the same items turn
// after turn, and hashing their content is the most expensive part of a long request. Keys are 64-bit hashes under a seed of
// this process, so that a caller cannot make two items collide. It is safe for concurrent use.
type hashCache struct {
	seed   maphash.Seed
	shards [16]lru.Cache[uint64, cachedHash]
}

// maxHashes is how many items a shard holds: about 17 MB in all, when full.
const maxHashes = 8192

func newHashCache() *hashCache { return &hashCache{seed: maphash.MakeSeed()} }

// cachedHash is the content hash of an item, with the chain hashes before and after it at its first place. A resent item
// usually has the same place, so that its chain hash need not be computed again.
type cachedHash struct {
	meaning       wire.Meaning
	parent, chain wire.Hash
}

// meaning returns the content hash of an item.
func (h *hashCache) meaning(it wire.Item) wire.Meaning {
	key, shard := h.keyOf(&it)
	known, ok := shard.Find(key)
	if !ok {
		known.meaning = it.Meaning()
		shard.Put(key, known, maxHashes)
	}
	return known.meaning
}

// chain returns the content hash of an item, and the chain hash of the history that ends with it. parent is the chain hash
// before it.
func (h *hashCache) chain(parent wire.Hash, it *wire.Item) (meaning wire.Meaning, chain wire.Hash) {
	key, shard := h.keyOf(it)
	known, ok := shard.Find(key)
	placed := known.chain != wire.Hash{}
	if placed && known.parent == parent {
		return known.meaning, known.chain
	}
	if !ok {
		known.meaning = it.Meaning()
	}
	chain = known.meaning.After(parent)
	if !placed {
		shard.Put(key, cachedHash{known.meaning, parent, chain}, maxHashes)
	}
	return known.meaning, chain
}

// keyOf returns the key of an item, and the shard that holds it.
func (h *hashCache) keyOf(it *wire.Item) (key uint64, shard *lru.Cache[uint64, cachedHash]) {
	key = maphash.Bytes(h.seed, it.Raw) ^ uint64(it.Dialect.Code())
	return key, &h.shards[key%uint64(len(h.shards))]
}
