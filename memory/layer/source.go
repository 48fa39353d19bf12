package layer

import (
	"encoding/hex"
	"slices"

	"remora/wire"
)

// Source is where something was said: the [Digest] of a session, and the [ItemName] of one of its items, empty if unknown.
type Source struct {
	Session string `json:"session"`
	Item    string `json:"item,omitempty"`
}

// ItemName returns the content hash of an item as states keep it.
func ItemName(it wire.Item) string {
	content := it.ContentHash()
	return hex.EncodeToString(content[:])
}

// Shows reports whether the model sees an item itself, in the view or in a history that upstream keeps. It is false where InView is
// not set.
func (t *Turn) Shows(s Source) bool {
	if t.InView == nil {
		return false
	}
	if t.Upstream && s.Session == Digest(t.Thread) {
		return true
	}
	var content wire.Hash
	return content.UnmarshalText([]byte(s.Item)) == nil && t.InView(content)
}

// Sources are the items that say the same, the newest last.
type Sources []Source

// maxSources is how many sources a statement names.
const maxSources = 8

// With adds sources, each once, and drops the oldest beyond 8.
func (s Sources) With(more Sources) Sources {
	s = slices.Clip(s)
	for _, m := range more {
		if !slices.Contains(s, m) {
			s = append(s, m)
		}
	}
	return Last(s, maxSources)
}

// ShownIn reports whether the model sees one of the sources itself.
func (s Sources) ShownIn(t *Turn) bool { return slices.ContainsFunc(s, t.Shows) }

// Without returns the sources in sessions that are not deleted, and whether any is left. What never had a source stays.
func (s Sources) Without(gone func(session string) bool) (left Sources, stays bool) {
	left = slices.DeleteFunc(slices.Clone(s), func(s Source) bool { return gone(s.Session) })
	return left, len(left) > 0 || len(s) == 0
}
