package temporal

import (
	"cmp"
	"maps"
	"slices"

	"remora/memory/layer"
	"remora/memory/redact"
	"remora/wire"
)

// state is the stored state. The keys of Facts are their times, in ISO 8601.
type state struct {
	Facts        map[string][]fact `json:"facts"`
	Buffer       []heard           `json:"buffer"`
	BufferTokens int               `json:"bufferTokens"`
	Version      int               `json:"version"`
}

// fact is a statement, and the digests of its source sessions.
type fact struct {
	Text string   `json:"text"`
	From []string `json:"from,omitempty"`
}

// byTool is the speaker of tools' results.
const byTool = "tool"

// heard is a buffered text, the digest of its session, its speaker, and when it was said, in milliseconds since 1970.
type heard struct {
	Text    string `json:"text"`
	Session string `json:"session"`
	By      string `json:"by"`
	At      int64  `json:"at"`
}

// origin is what the model is asked about separately: a session, and the results of its tools.
type origin struct {
	session string
	tool    bool
}

func (h heard) origin() origin { return origin{h.Session, h.By == byTool} }

// read decodes a stored state. An unreadable one is empty.
func read(s layer.State) state {
	return layer.Decode(s, func(st *state) bool { return st.BufferTokens >= 0 && st.Version >= 0 })
}

// gather adds the texts of items to the buffer, and drops the oldest beyond the limit. It reports whether it added any. System
// and developer messages are ignored.
func (st *state) gather(t *layer.Turn, items []wire.Item) bool {
	const perText = 80 // overhead of a text in bytes
	found := false
	for _, it := range items {
		by := byTool
		switch {
		case it.Kind == wire.ToolResult:
		case it.Kind == wire.Message && (it.Role == wire.User || it.Role == wire.Assistant):
			by = it.Role.Name()
		default:
			continue
		}
		text := redact.Text(layer.Head(it.Text(), maxBuffer))
		if text == "" {
			continue
		}
		found = true
		st.Buffer = append(st.Buffer, heard{text, layer.Digest(t.Thread), by, t.Now.UnixMilli()})
		st.BufferTokens = min(st.BufferTokens, limitThreshold) + t.Count(text)
	}
	st.Buffer = layer.Tail(st.Buffer, maxBuffer+perText, func(h heard) int { return len(h.Text) + perText })
	return found
}

// count counts the buffer's tokens.
func (st *state) count(t *layer.Turn) {
	st.BufferTokens = 0
	for _, h := range st.Buffer {
		st.BufferTokens += t.Count(h.Text)
	}
}

// dated is a fact and its time.
type dated struct {
	at, fact string
	from     []string
}

func (d dated) String() string { return "[" + d.at + "] " + d.fact }

// list returns all facts, oldest first; facts of the same time in the order in which they were added.
func (st *state) list() []dated {
	var all []dated
	for _, at := range slices.Sorted(maps.Keys(st.Facts)) {
		for _, f := range st.Facts[at] {
			all = append(all, dated{at, f.Text, f.From})
		}
	}
	return all
}

// merge adds unknown facts and keeps the newest.
func (st *state) merge(facts []dated, limit int) {
	all := st.list()
	for _, f := range facts {
		i := slices.IndexFunc(all, func(known dated) bool { return known.at == f.at && known.fact == f.fact })
		if i < 0 {
			all = append(all, f)
			continue
		}
		for _, session := range f.from {
			if !slices.Contains(all[i].from, session) && len(all[i].from) < maxFrom {
				all[i].from = append(slices.Clip(all[i].from), session)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b dated) int { return cmp.Compare(a.at, b.at) })
	all = layer.Tail(all[max(0, len(all)-limit):], maxFactBytes, func(f dated) int { return len(f.at) + len(f.fact) })
	st.Facts = map[string][]fact{}
	for _, f := range all {
		st.Facts[f.at] = append(st.Facts[f.at], fact{f.fact, f.from})
	}
}
