package layer

import (
	"encoding/hex"

	"remora/wire"
)

// ItemName returns the content hash of an item as states keep it, for [Turn.Shows].
func ItemName(it wire.Item) string {
	content := it.ContentHash()
	return hex.EncodeToString(content[:])
}

// Shows reports whether the model sees an item itself, in the view or in a history that upstream keeps. The session is named by its
// [Digest], the item by its [ItemName]. It is false where InView is not set.
func (t *Turn) Shows(session, item string) bool {
	if t.InView == nil {
		return false
	}
	if t.Upstream && session == Digest(t.Thread) {
		return true
	}
	content, err := hex.DecodeString(item)
	return err == nil && len(content) == len(wire.Hash{}) && t.InView(wire.Hash(content))
}
