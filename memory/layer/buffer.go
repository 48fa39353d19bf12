package layer

import (
	"math"
	"slices"
	"strings"

	"remora/memory/redact"
	"remora/wire"
)

// Speakers, as in Heard.By.
const (
	ByUser      = "user"
	ByAssistant = "assistant"
	ByTool      = "tool"
)

// Heard is a text that waits in a Buffer.
type Heard struct {
	By   string `json:"by"`
	Text string `json:"text"`
	// Session and Item are its source: a Digest and an ItemName.
	Session string `json:"session"`
	Item    string `json:"item,omitempty"`
	// Day or At is when it was said: a model may read it days later. At is in milliseconds since 1970.
	Day string `json:"day,omitempty"`
	At  int64  `json:"at,omitempty"`
}

// Buffer is the part of a state with the texts that wait to be distilled, oldest first. Its methods never write into Texts: copies
// of the state share them.
type Buffer struct {
	Texts  []Heard `json:"buffer"`
	Tokens int     `json:"bufferTokens"` // of all texts since the last Count, dropped ones included
}

// perText is the overhead of a text in bytes, so that many short texts cannot fill the state.
const perText = 96

// Add appends the texts of users, models and tools that hears accepts, without secrets, and drops the oldest beyond a limit in
// bytes, but never the newest. details returns the Item, Day or At of a text. Add reports whether there was any text, and how many
// were dropped.
//
// The newest are read first, and no more than the buffer holds: looking for secrets in the whole of a long history, most of
// which would be dropped at once, takes longer than everything else in its request. What is older is counted by its size.
func (b *Buffer) Add(t *Turn, items []wire.Item, limit int, hears func(by string) bool, details func(wire.Item) Heard) (found bool, lost int) {
	var texts []Heard // the newest first
	size := 0
	for _, it := range slices.Backward(items) {
		by := speaker(it)
		if by == "" || !hears(by) {
			continue
		}
		if size > limit {
			const bytesPerToken = 4
			b.Tokens = min(b.Tokens, math.MaxInt32) + len(it.Raw)/bytesPerToken
			lost++
			continue
		}
		if text := redact.Text(Head(it.Text(), limit)); text != "" {
			h := details(it)
			h.By, h.Text, h.Session = by, strings.ToValidUTF8(text, "\uFFFD"), Digest(t.Thread) // Text as it will be read again
			texts = append(texts, h)
			size += len(h.Text) + perText
		}
	}
	if len(texts) == 0 {
		return false, lost
	}

	all := slices.Clip(b.Texts)
	for _, h := range slices.Backward(texts) {
		all = append(all, h)
		b.Tokens = min(b.Tokens, math.MaxInt32) + t.Count(h.Text)
	}
	b.Texts = Tail(all, limit, func(h Heard) int { return len(h.Text) + perText })
	if len(b.Texts) == 0 {
		b.Texts = all[len(all)-1:]
	}
	return true, lost + len(all) - len(b.Texts)
}

// speaker returns who says an item, "" for system and developer messages and for items that say nothing.
func speaker(it wire.Item) string {
	switch {
	case it.Kind == wire.ToolResult:
		return ByTool
	case it.Kind == wire.Message && it.Role == wire.User:
		return ByUser
	case it.Kind == wire.Message && it.Role == wire.Assistant:
		return ByAssistant
	default:
		return ""
	}
}

// Groups returns the texts of each session and those of its tools' results separately, so that a model can be asked about each
// and the source of what it answers is known without trusting it. Groups are in the order in which they begin.
func (b *Buffer) Groups() [][]Heard {
	type origin struct {
		session string
		tool    bool
	}
	at := make(map[origin]int)
	var groups [][]Heard
	for _, h := range b.Texts {
		o := origin{h.Session, h.By == ByTool}
		i, known := at[o]
		if !known {
			i = len(groups)
			at[o], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], h)
	}
	return groups
}

// Remove removes the texts of a group, each of them once, and reports whether the buffer had any. Tokens stays until Count.
func (b *Buffer) Remove(group []Heard) bool {
	left := slices.Clone(b.Texts)
	for _, h := range group {
		if i := slices.Index(left, h); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	removed := len(left) < len(b.Texts)
	b.Texts = left
	return removed
}

// Count counts the tokens of the texts anew.
func (b *Buffer) Count(t *Turn) {
	b.Tokens = 0
	for _, h := range b.Texts {
		b.Tokens += t.Count(h.Text)
	}
}

// Forget removes the texts of deleted sessions, for a Forgetter.
func (b *Buffer) Forget(t *Turn, gone func(session string) bool) {
	b.Texts = slices.DeleteFunc(slices.Clone(b.Texts), func(h Heard) bool { return gone(h.Session) })
	b.Count(t)
}
