package session

import (
	"hash/maphash"

	"remora/memory/lru"
	"remora/wire"
)

// hashCache holds content hashes of items, by the items' bytes: a client that resends its history sends the same items
// turn after turn, and hashing what they mean is the most expensive part of a long request. Keys are 64-bit hashes under
// a seed of this process, so that a caller cannot make two items collide. It is safe for concurrent use.
type hashCache struct {
	seed   maphash.Seed
	shards [16]lru.Cache[uint64, cachedHash]
}

// maxHashes is how many items a shard holds: about 17 MB in all, when full.
const maxHashes = 8192

func newHashCache() *hashCache { return &hashCache{seed: maphash.MakeSeed()} }

// cachedHash is the content hash of an item, with the chain hashes before and behind it where it was seen first. A
// resent item usually stands in the same place, so that its chain hash need not be computed again either.
type cachedHash struct{ content, parent, chain wire.Hash }

// content returns the content hash of an item.
func (h *hashCache) content(it wire.Item) wire.Hash {
	key, shard := h.keyOf(&it)
	known, ok := shard.Find(key)
	if !ok {
		known.content = it.ContentHash()
		shard.Put(key, known, maxHashes)
	}
	return known.content
}

// chain returns the content hash of an item, and the chain hash of the history that ends with it, where parent is the
// chain hash before it.
func (h *hashCache) chain(parent wire.Hash, it *wire.Item) (content, chain wire.Hash) {
	key, shard := h.keyOf(it)
	known, ok := shard.Find(key)
	placed := known.chain != wire.Hash{}
	if placed && known.parent == parent {
		return known.content, known.chain
	}
	if !ok {
		known.content = it.ContentHash()
	}
	chain = wire.Chain(parent, known.content)
	if !placed {
		shard.Put(key, cachedHash{known.content, parent, chain}, maxHashes)
	}
	return known.content, chain
}

// keyOf returns the key of an item, and the shard that holds it.
func (h *hashCache) keyOf(it *wire.Item) (key uint64, shard *lru.Cache[uint64, cachedHash]) {
	key = maphash.Bytes(h.seed, it.Raw) ^ uint64(it.Dialect.Code())
	return key, &h.shards[key%uint64(len(h.shards))]
}
