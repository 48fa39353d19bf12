package historymanager

import (
	"context"
	"slices"
	"strconv"
	"time"

	"remora/memory/index"
	"remora/memory/layer"
)

// Type is the type of a memory.
type Type string

// Types of memories.
const (
	Summary     Type = "summary"
	Fact        Type = "fact"
	Instruction Type = "instruction"
	ToolResult  Type = "tool_result"
	Custom      Type = "custom"
)

func types() []Type { return []Type{Summary, Fact, Instruction, ToolResult, Custom} }

// Entry is one memory. Unknown ids are empty.
type Entry struct {
	Type         Type   `json:"type"`
	Content      string `json:"content"`
	Agent        string `json:"agent,omitempty"`
	User         string `json:"user,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	At           int64  `json:"at"` // milliseconds since 1970
}

// sound reports whether this package can have made an entry.
func (e Entry) sound() bool {
	return slices.Contains(types(), e.Type) && e.Content != "" && e.Content == clean(e.Content, maxContent) &&
		e.Agent == identifier(e.Agent) && e.User == identifier(e.User) && e.Conversation == identifier(e.Conversation)
}

func (e Entry) size() int {
	return len(e.Type) + len(e.Content) + len(e.Agent) + len(e.User) + len(e.Conversation) + entryBytes
}

// Filters select memories. An unset filter selects all.
type Filters struct {
	Agent, User, Conversation string
	Types                     []Type
	Content                   string    // exactly this text
	After                     time.Time // strictly newer
}

func (f Filters) match(e Entry) bool {
	switch {
	case f.Agent != "" && f.Agent != e.Agent,
		f.User != "" && f.User != e.User,
		f.Conversation != "" && f.Conversation != e.Conversation,
		f.Content != "" && f.Content != e.Content,
		len(f.Types) > 0 && !slices.Contains(f.Types, e.Type),
		!f.After.IsZero() && e.At <= f.After.UnixMilli():
		return false
	}
	return true
}

// Backend is a long-term memory. Its input is bounded and has passed the filter for secrets.
type Backend interface {
	// Store adds an entry, in place of one with the same type, content and ids.
	Store(ctx context.Context, e Entry) error
	// Recall returns at most topK memories that match the filters and the query, best first.
	Recall(ctx context.Context, query string, topK int, f Filters) ([]Entry, error)
	// Forget removes the memories that match the filters, and returns their number.
	Forget(ctx context.Context, f Filters) (int, error)
}

// Opener opens the long-term memory for a turn. own is the part of the layer's state for memories; an external memory
// leaves it empty.
type Opener func(t *layer.Turn, own *Memories) Backend

// BuiltIn is the memory in the layer's state, which is shared as the layer's scope says and bounded.
func BuiltIn(t *layer.Turn, own *Memories) Backend { return builtIn{own, t.Now} }

// builtIn never fails.
type builtIn struct {
	*Memories
	now time.Time // which "yesterday" is relative to
}

// Recall returns at most topK entries that match the filters and share words with the query, the best first.
func (b builtIn) Recall(_ context.Context, query string, topK int, f Filters) ([]Entry, error) {
	return b.search(query, topK, f, b.now), nil
}

// Memories are entries in the layer's state, oldest first.
type Memories []Entry

// Store adds an entry, replacing one with the same type, content and ids.
func (m *Memories) Store(_ context.Context, e Entry) error {
	e.Content = clean(e.Content, maxContent)
	if !e.sound() {
		return nil
	}
	*m = slices.DeleteFunc(*m, func(old Entry) bool {
		old.At = e.At
		return old == e
	})
	*m = append(*m, e)
	return nil
}

// Forget removes the entries that match the filters and returns their number.
func (m *Memories) Forget(_ context.Context, f Filters) (int, error) {
	before := len(*m)
	*m = slices.DeleteFunc(*m, f.match)
	return before - len(*m), nil
}

// maxQuery is the number of bytes of a query that are read: the beginning of a longer message states its topic.
const maxQuery = 8 << 10

// search returns at most topK entries that match the filters and share words with the query, the best first.
func (m *Memories) search(query string, topK int, f Filters, now time.Time) (found []Entry) {
	all := *m
	if topK <= 0 || len(all) == 0 {
		return nil
	}
	ix := index.New()
	for i, e := range all { // each in a session of its own: what stands beside a memory says nothing of it
		ix.Add(index.Turn{Session: strconv.Itoa(i), Time: time.UnixMilli(e.At), Text: e.Content})
	}
	asked := index.Question{Text: layer.Head(query, maxQuery), Now: now}
	for _, h := range ix.Search(asked, len(all), nil) {
		if e := all[h.Order]; h.Match > 0 && f.match(e) && len(found) < topK {
			found = append(found, e)
		}
	}
	return found
}
