package memo

import (
	"hash/maphash"

	"remora/wire"
)

// Hashes remembers content hashes by the bytes that they were worked out from: a client that resends its history
// sends the same items turn after turn, and hashing what they mean is the dearest part of a long request. Keys are
// 64-bit hashes under a seed of this process, so that nobody can make two items meet. It is safe for concurrent use.
type Hashes struct {
	seed   maphash.Seed
	shards [16]Map[uint64, hashed]
}

// maxHashes is how many items a half of a shard holds: about 10 MB in all, when full.
const maxHashes = 4096

// NewHashes makes a memory without any.
func NewHashes() *Hashes { return &Hashes{seed: maphash.MakeSeed()} }

// hashed is what is remembered of an item: what it means, and where it was seen first. The items of a history that is
// resent stand where they stood, so that their place need not be hashed again either.
type hashed struct{ content, parent, chain wire.Hash }

// Of is the content hash of an item.
func (h *Hashes) Of(it wire.Item) wire.Hash {
	key, shard := h.place(&it)
	known, ok := shard.Find(key)
	if !ok {
		known.content = it.ContentHash()
		shard.Put(key, known, maxHashes)
	}
	return known.content
}

// Behind is the content hash of an item, and the chain hash behind it where it stands behind parent.
func (h *Hashes) Behind(parent wire.Hash, it *wire.Item) (content, chain wire.Hash) {
	key, shard := h.place(it)
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
		shard.Put(key, hashed{known.content, parent, chain}, maxHashes)
	}
	return known.content, chain
}

// place is where an item is remembered.
func (h *Hashes) place(it *wire.Item) (key uint64, shard *Map[uint64, hashed]) {
	key = maphash.Bytes(h.seed, it.Raw) ^ uint64(it.Dialect)
	return key, &h.shards[key%uint64(len(h.shards))]
}
