package temporal

import (
	"cmp"
	"maps"
	"slices"

	"remora/memory/layer"
	"remora/wire"
)

// state is the stored state. The keys of Facts are their times, in ISO 8601.
type state struct {
	Facts map[string][]fact `json:"facts"`
	layer.Buffer
	Version int `json:"version"`
}

// fact is a statement, and the digests of its source sessions.
type fact struct {
	Text string   `json:"text"`
	From []string `json:"from,omitempty"`
}

// read decodes a stored state. An unreadable one is empty.
func read(s layer.State) state {
	return layer.Decode(s, func(st *state) bool { return st.Tokens >= 0 && st.Version >= 0 })
}

// gather adds the texts of items to the buffer and reports whether there were any.
func (st *state) gather(t *layer.Turn, items []wire.Item, hears func(by string) bool) bool {
	found, _ := st.Add(t, items, maxBuffer, hears, func(wire.Item) layer.Heard { return layer.Heard{At: t.Now.UnixMilli()} })
	return found
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
