package history

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

// Bounds of what is kept. Sizes are in bytes; JSON takes at most twice as many.
const (
	maxSummary       = 4 << 10  // one summary
	maxSummaries     = 32       // of one conversation
	maxAllSummaries  = 32 << 10 // of all conversations that share the state
	maxContent       = 4 << 10  // one memory
	maxEntries       = 256      // memories
	maxAllEntries    = 64 << 10
	maxIdentifier    = 128
	entryBytes       = 64 // what a summary or memory takes beside its texts
	stateVersion     = 1
	cutMark          = "..."
	identifierPrefix = "sha256:"
)

// state is what the layer keeps.
type state struct {
	Version   int       `json:"version"`
	Summaries []passage `json:"summaries,omitempty"` // of all conversations, oldest first
	Memories  Memories  `json:"memories,omitempty"`  // oldest first
}

// passage is the summary of what fell out of a conversation at once.
type passage struct {
	Conversation string `json:"conversation"`
	Text         string `json:"text"`
}

func (st *state) empty() bool { return len(st.Summaries) == 0 && len(st.Memories) == 0 }

// decode reads what is kept. What cannot be read is left out, and the rest stands: a damaged memory hides no summary
// (case 115).
func decode(s layer.State) state {
	var st state
	if len(s) > 0 {
		_ = json.Unmarshal(s, &st) // of JSON that is of another type in places, it reads the others
	}
	if st.Version != stateVersion {
		return state{Version: stateVersion}
	}
	kept := st.Summaries[:0]
	for _, p := range st.Summaries {
		if p.Text = clean(p.Text, maxSummary); p.Text != "" {
			kept = append(kept, passage{identifier(p.Conversation), p.Text})
		}
	}
	st.Summaries = kept
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
	size, of := 0, map[string]int{}
	st.Summaries = newest(st.Summaries, func(p passage) bool {
		size += len(p.Text) + len(p.Conversation) + entryBytes
		of[p.Conversation]++
		return size <= maxAllSummaries && of[p.Conversation] <= maxSummaries
	})
	n := 0
	size = 0
	st.Memories = newest(st.Memories, func(e Entry) bool {
		size += e.size()
		n++
		return size <= maxAllEntries && n <= maxEntries
	})
}

// newest are the elements that keep accepts, which is asked about the newest first.
func newest[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, v := range slices.Backward(list) {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	slices.Reverse(kept)
	return kept
}

func (st *state) addSummary(conversation, text string) {
	st.Summaries = append(st.Summaries, passage{conversation, text})
	st.bound()
}

// of are the summaries of a conversation, oldest first.
func (st *state) of(conversation string) []string {
	var texts []string
	for _, p := range st.Summaries {
		if p.Conversation == conversation {
			texts = append(texts, p.Text)
		}
	}
	return texts
}

// identifier is a client's name for something as it is kept: itself, or a digest where that is too long or no text.
func identifier(name string) string {
	if len(name) <= maxIdentifier && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return identifierPrefix + hex.EncodeToString(sum[:16])
}

// clean is text without control characters but line breaks and tabs, cut between characters to limit bytes.
func clean(text string, limit int) string {
	head := text
	if len(text) > limit {
		head = text[:limit]
	}
	head = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(head, ""))
	if len(text) > limit {
		end := limit - len(cutMark)
		for end = min(end, len(head)); end > 0 && end < len(head) && !utf8.RuneStart(head[end]); end-- {
		}
		head = head[:end] + cutMark
	}
	return strings.TrimSpace(head)
}
