package session

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"remora/memory/recordcodec"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

func blockHash(text string) wire.Hash {
	sum := sha256.Sum256([]byte(text))
	return wire.Hash(sum[:16])
}

func blockName(h wire.Hash) string { return blockPrefix + string(h[:]) }

// putBlocks writes the block texts of a turn that the session does not have, and returns references to all of them for the
// turn's record.
func putBlocks(w *itemWriter, h *head, blocks []view.Block) (refs []turnrecord.BlockRef) {
	if len(blocks) == 0 {
		return nil
	}
	h.Blocks = slices.Clone(h.Blocks)
	for _, b := range blocks {
		for i, text := range b.Texts {
			sum := blockHash(text)
			ref := turnrecord.BlockRef{Block: b, System: b.Role == wire.System, Hash: hex.EncodeToString(sum[:])}
			if ref.Texts, ref.Role = nil, wire.RoleNone; i > 0 {
				ref.Tokens = 0 // what all texts cost stands with the first one
			}
			refs = append(refs, ref)

			if at := slices.Index(h.Blocks, sum); at >= 0 {
				h.Blocks = append(slices.Delete(h.Blocks, at, at+1), sum)
				continue
			}
			w.put(blockName(sum), []byte(text))
			h.Blocks = append(h.Blocks, sum)
		}
	}
	h.Blocks = h.Blocks[max(0, len(h.Blocks)-maxBlocks):]
	return refs
}

// withoutEchoes removes blocks of earlier views from a request: a client that has read a view somewhere may repeat them.
func withoutEchoes(items []wire.Item, blocks []wire.Hash) []wire.Item {
	if len(blocks) == 0 {
		return items
	}
	isEcho := func(it wire.Item) bool {
		said := it.Role == wire.System || it.Role == wire.Developer
		return said && slices.Contains(blocks, blockHash(it.Text()))
	}
	if !slices.ContainsFunc(items, isEcho) {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), isEcho)
}

// shownBlocks are the latest blocks of each layer in a conversation that upstream stores, which need not be sent again. They
// are stored with a response, since a client may continue from any response.
type shownBlocks []shownBlock

type shownBlock struct{ layer, texts wire.Hash }

// shownBlockSize is the size in bytes of a stored shownBlock.
const shownBlockSize = 2 * len(wire.Hash{})

// maxShownBlocks bounds the layers of shownBlocks.
const maxShownBlocks = 256

// textsHash returns a hash of a list of texts.
func textsHash(texts []string) wire.Hash {
	var all []byte
	for _, text := range texts {
		sum := blockHash(text)
		all = append(all, sum[:]...)
	}
	return blockHash(string(all))
}

// with returns the latest blocks after a view with more blocks.
func (t shownBlocks) with(blocks []view.Block) shownBlocks {
	all := append(shownBlocks{}, t...)
	byLayer := make(map[string][]string)
	var order []string
	for _, b := range blocks {
		if !slices.Contains(order, b.Layer) && len(b.Texts) > 0 {
			order = append(order, b.Layer)
		}
		byLayer[b.Layer] = append(byLayer[b.Layer], b.Texts...)
	}
	for _, id := range order {
		name := blockHash(id)
		all = slices.DeleteFunc(all, func(t shownBlock) bool { return t.layer == name })
		all = append(all, shownBlock{name, textsHash(byLayer[id])})
	}
	return all[max(0, len(all)-maxShownBlocks):]
}

func decodeShownBlocks(b []byte) (shownBlocks, error) {
	c := beginRecord(b)
	t := make(shownBlocks, min(len(c.Data)/shownBlockSize, maxShownBlocks)) // they go to the end of the record
	t.fields(&c)
	c.Bad = c.Bad || len(c.Data) > 0
	return t, endRecord(&c, "shown blocks")
}

func (t shownBlocks) fields(c *recordcodec.Codec) {
	for i := range t {
		c.Hash(&t[i].layer)
		c.Hash(&t[i].texts)
	}
}
