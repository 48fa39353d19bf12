package stitch

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"remora/wire"
)

// list takes the output that the terminal event lists. Items that no event has shown are judged like any other.
func (r *responses) list(raw []byte) {
	i := 0
	for p := range wire.Parts(raw) {
		if p.Name != nil || i == maxCalls {
			break
		}
		it := r.match(i, p.Value)
		i++
		if it == nil {
			continue
		}
		r.learn(it, p.Value)
		it.final, it.done, r.listed = p.Value, nil, true
	}
}

// match finds the item that is listed as the i-th: by its id, or else by its place.
func (r *responses) match(i int, raw []byte) *item {
	id := wire.Text(wire.Member(raw, "id"))
	k := slices.IndexFunc(r.items, func(it *item) bool { return it.final == nil && id != "" && it.id == id })
	if k < 0 {
		k = slices.IndexFunc(r.items, func(it *item) bool {
			return it.final == nil && it.index == i && (it.id == "" || id == "" || it.id == id)
		})
	}
	if k < 0 {
		return r.begin(maxCalls + i) // no event names such an index
	}
	return r.items[k]
}

func (r *responses) end() {
	for i, b := range r.s.terminal {
		if i > 0 || opaque(b.data) {
			if i > 0 || !r.ours {
				r.s.pass(b) // else it may list what the client must not see
			}
			continue
		}
		r.s.send(b, wire.Edit(b.data, func(_ int, p wire.Part) ([]byte, bool) {
			switch string(p.Name) {
			case "sequence_number":
				return with(b.data, p, r.number(p.Value)), true
			case "response":
				return with(b.data, p, r.whole(p.Value)), true
			}
			return b.data[p.Start:p.End], true
		}))
	}
	r.held = nil
}

// whole writes the response object of the terminal event: what the client saw, and the usage of all answers.
func (r *responses) whole(raw []byte) []byte {
	moved := r.ours || r.later()
	return wire.Edit(raw, func(_ int, p wire.Part) ([]byte, bool) {
		switch {
		case string(p.Name) == "usage":
			return with(raw, p, addUsage(r.prior, p.Value)), true
		case string(p.Name) == "output" && moved && r.listed && p.Value[0] == '[':
			seen := append(slices.Clone(r.shown), r.collect()...)
			slices.SortStableFunc(seen, func(a, b output) int { return cmp.Compare(a.place, b.place) })
			return with(raw, p, rewriteList(p.Value, seen)), true
		}
		return with(raw, p, r.identity(p)), true
	})
}

// rewriteList is the list that holds these elements, as it is if it does already.
func rewriteList(list []byte, elements []output) []byte {
	i, same := 0, true
	for p := range wire.Parts(list) {
		same = same && i < len(elements) && bytes.Equal(p.Value, elements[i].raw)
		i++
	}
	if same && i == len(elements) {
		return list
	}
	out := []byte{'['}
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e.raw...)
	}
	return append(out, ']')
}

// collect returns what the client has seen of this answer's output.
func (r *responses) collect() []output {
	var out []output
	for _, it := range r.items {
		raw := it.final
		if raw == nil {
			raw = it.done
		}
		if raw == nil || it.fate != passed {
			continue
		}
		place := it.out
		if place < 0 {
			place = math.MaxInt // listed, but never streamed: it must not take the place of one that will be
		}
		out = append(out, output{place, raw})
	}
	return out
}
