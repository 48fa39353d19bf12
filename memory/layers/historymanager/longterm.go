package historymanager

import (
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

// Memories are entries in the layer's state, oldest first.
type Memories []Entry

// add adds an entry, replacing one with the same type, content and ids.
func (m *Memories) add(e Entry) {
	e.Content = clean(e.Content, maxContent)
	if !e.sound() {
		return
	}
	*m = slices.DeleteFunc(*m, func(old Entry) bool {
		old.At = e.At
		return old == e
	})
	*m = append(*m, e)
}

// remove removes the entries that match the filters and returns their number.
func (m *Memories) remove(f Filters) int {
	before := len(*m)
	*m = slices.DeleteFunc(*m, f.match)
	return before - len(*m)
}

// maxQuery is the number of bytes of a query that are read: the beginning of a longer message states its topic.
const maxQuery = 8 << 10

// search returns at most topK entries that match the filters and share words with the query, the best first. "Yesterday" in the
// query is relative to now.
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
