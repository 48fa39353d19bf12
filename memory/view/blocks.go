package view

import (
	"slices"

	"remora/wire"
)

// Blocks are what layers put into a view, by where it stands.
type Blocks struct {
	Anchored []wire.Item // before the history
	Round    []wire.Item // directly behind the user message that began the round
	Live     []wire.Item // at the end
}

// Around puts blocks into a view. Without a user message those of the round stand at its end. What a round began with
// stays the same while the model calls tools, and so do the items before and behind it: all of it can be cached.
func (b *Blocks) Around(lead, items []wire.Item) []wire.Item {
	at := len(items)
	for i, it := range slices.Backward(items) {
		if it.Kind == wire.Message && it.Role == wire.User {
			at = i + 1
			break
		}
	}
	return slices.Concat(lead, b.Anchored, items[:at], b.Round, items[at:], b.Live)
}
