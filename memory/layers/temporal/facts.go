package temporal

import (
	"cmp"
	"maps"
	"slices"

	"remora/memory/layer"
)

// state is the stored state. The keys of Facts are their times, in ISO 8601.
type state struct {
	Facts map[string][]fact `json:"facts"`
	layer.Buffer
	Version int `json:"version"`
}

// fact is a statement, and the items that it comes from.
type fact struct {
	Text string        `json:"text"`
	From layer.Sources `json:"from,omitempty"`
	// Tool: a tool's result says so.
	Tool bool `json:"tool,omitempty"`
}

// read decodes a stored state. An unreadable one is empty.
func read(s layer.State) state {
	return layer.Decode(s, func(st *state) bool { return st.Tokens >= 0 && st.Version >= 0 })
}

// dated is a fact and its time.
type dated struct {
	at string
	fact
}

func (d dated) String() string { return "[" + d.at + "] " + d.Text }

// list returns all facts, oldest first; facts of the same time in the order in which they were added.
func (st *state) list() []dated {
	var all []dated
	for _, at := range slices.Sorted(maps.Keys(st.Facts)) {
		for _, f := range st.Facts[at] {
			all = append(all, dated{at, f})
		}
	}
	return all
}

// toolShare is the share of the facts that those of tools may have beside others: a long tool loop must not drive out what users
// said.
const toolShare = 4

// merge adds unknown facts and keeps the newest.
func (st *state) merge(facts []dated, limit int) {
	all := st.list()
	for _, f := range facts {
		if i := slices.IndexFunc(all, func(known dated) bool { return known.at == f.at && known.Text == f.Text }); i >= 0 {
			all[i].From = all[i].From.With(f.From)
		} else {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b dated) int { return cmp.Compare(a.at, b.at) })
	if slices.ContainsFunc(all, func(f dated) bool { return !f.Tool }) {
		all = layer.Limit(all, max(1, limit/toolShare), func(f dated) bool { return f.Tool })
	}
	all = layer.Tail(layer.Last(all, limit), maxFactBytes, func(f dated) int { return len(f.at) + len(f.Text) })
	st.Facts = map[string][]fact{}
	for _, f := range all {
		st.Facts[f.at] = append(st.Facts[f.at], f.fact)
	}
}
