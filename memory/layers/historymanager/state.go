package historymanager

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"remora/memory/layer"
)

// Limits of the state. Sizes are in bytes; JSON takes at most twice as many.
const (
	maxSummary       = 4 << 10  // one part of a summary
	maxPending       = 24 << 10 // what of one conversation waits to be summarised
	maxLines         = 256      // the same
	maxLine          = 4 << 10
	maxChapters      = 128
	maxAllSummaries  = 48 << 10 // of all conversations that share the state
	maxContent       = 4 << 10  // one memory
	maxEntries       = 256      // memories
	maxAllEntries    = 64 << 10
	maxIdentifier    = 128
	entryBytes       = 64 // what a summary or memory takes beside its texts
	stateVersion     = 2
	identifierPrefix = "sha256:"
)

// state is the stored state of the layer.
type state struct {
	Version  int       `json:"version"`
	Chapters []chapter `json:"summaries,omitempty"` // by conversation, the one that was extended last at the end
	Memories Memories  `json:"memories,omitempty"`  // oldest first
}

func (st *state) empty() bool { return len(st.Chapters) == 0 && len(st.Memories) == 0 }

// decode reads a stored state. Unreadable parts are left out and the rest is kept: a damaged memory costs no summary.
func decode(s layer.State) state {
	var st state
	if len(s) > 0 {
		_ = json.Unmarshal(s, &st) // of JSON that is of another type in places, it reads the others
	}
	if st.Version != stateVersion {
		return state{Version: stateVersion}
	}
	kept := st.Chapters[:0]
	for _, c := range st.Chapters {
		c.Conversation = identifier(c.Conversation)
		if c.bound(); !c.empty() {
			kept = append(kept, c)
		}
	}
	st.Chapters = kept
	st.Memories = slices.DeleteFunc(st.Memories, func(e Entry) bool { return !e.sound() })
	st.bound()
	return st
}

func (st *state) encode() (layer.State, error) {
	st.bound()
	if st.empty() {
		return nil, nil
	}
	return layer.Encode(st)
}

// bound leaves the newest of everything, as far as that may be kept.
func (st *state) bound() {
	size, seen := 0, map[string]bool{}
	st.Chapters = layer.Newest(st.Chapters, func(c chapter) bool {
		if seen[c.Conversation] || len(seen) == maxChapters {
			return false
		}
		seen[c.Conversation] = true
		size += c.size() + len(c.Conversation) + entryBytes
		return size <= maxAllSummaries
	})
	st.Memories = layer.Tail(layer.Last(st.Memories, maxEntries), maxAllEntries, Entry.size)
}

// find is the summary of a conversation, an empty one if there is none.
func (st *state) find(conversation string) chapter {
	for _, c := range st.Chapters {
		if c.Conversation == conversation {
			return c
		}
	}
	return chapter{Conversation: conversation}
}

// take is find, and takes the summary out of the state.
func (st *state) take(conversation string) chapter {
	c := st.find(conversation)
	st.Chapters = slices.DeleteFunc(st.Chapters, func(c chapter) bool { return c.Conversation == conversation })
	return c
}

// identifier is a client's name for something as it is kept: itself, or a digest where that is too long or no text.
func identifier(name string) string {
	if len(name) <= maxIdentifier && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return identifierPrefix + hex.EncodeToString(sum[:16])
}

// digestOf is the digest of a conversation that is named by its identifier.
func digestOf(identifier string) string {
	if sum, ok := strings.CutPrefix(identifier, identifierPrefix); ok && len(sum) > len(layer.Digest("")) {
		return sum[:len(layer.Digest(""))]
	}
	return layer.Digest(identifier)
}

// clean is text without control characters but line breaks and tabs, cut between characters to limit bytes.
func clean(text string, limit int) string {
	head := text
	if len(text) > limit {
		head = text[:limit]
	}
	head = layer.Lines(head)
	if len(text) > limit {
		head = layer.Head(head, limit-len(layer.CutMark)) + layer.CutMark
	}
	return strings.TrimSpace(head)
}
