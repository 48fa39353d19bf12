package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// With returns the body with its items replaced and with tools, definitions as the dialect spells them, behind the ones
// that it offers. Unchanged items and no tools give Body itself. Otherwise only the list is written anew: all other
// bytes are the client's, and so is each element that is kept, with the space between elements that stay neighbours.
//
// Items of the other dialect are converted (see Convert). What of them has no counterpart is left out and no error: an
// item, a part of a content, the reasoning in Chat, and of a pair both halves, whichever has none. In Chat the results
// then stand directly behind the message that made their calls.
//
// A string input becomes an array, an absent one is added at the end of the object. No items at all make an empty
// array, except that an absent list stays absent. Absent tools are added behind the list; null counts as absent, and
// anything else that is no array is an error.
func (r *Request) With(items []Item, tools ...[]byte) ([]byte, error) {
	room := len(`,"tools":[]`)
	for _, tool := range tools {
		room += len(tool) + 1
	}
	if same(items, r.Items()) {
		if len(tools) == 0 {
			return r.Body, nil
		}
		return r.withTools(append(make([]byte, 0, len(r.Body)+room), r.Body...), tools)
	}
	items = convertAll(items, r.Dialect)
	// All bytes between elements are written once at most, and behind each item at most a comma that was not there.
	size := len(r.Body) + len(`,"input":[]`) + room
	for _, e := range r.elements {
		size -= e.end - e.start
	}
	for i, it := range items {
		if len(it.Raw) == 0 {
			return nil, fmt.Errorf("encode item %d: no bytes", i)
		}
		size += len(it.Raw) + 1
	}
	at, out := r.list, make([]byte, 0, size)
	if at.end == 0 {
		var err error
		if at, err = r.appendPoint(); err != nil {
			return nil, err
		}
		out = append(out, r.Body[:at.start]...)
		if len(r.members) > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, r.Dialect.listName()), ':')
	} else {
		out = append(out, r.Body[:at.start]...)
	}
	out = r.appendList(out, items)
	out = append(out, r.Body[at.end:]...)
	if len(tools) == 0 {
		return out, nil
	}
	return r.withTools(out, tools)
}

// withTools adds definitions to out, which is Body or Body with another list.
func (r *Request) withTools(out []byte, tools [][]byte) ([]byte, error) {
	end := r.list.end
	if end == 0 {
		point, err := r.appendPoint()
		if err != nil {
			return nil, err
		}
		end = point.end
	}
	at, text := span{end, end}, bytes.Join(tools, []byte{','})
	i := r.memberIndex("tools")
	switch {
	case i < 0:
		text = append(append([]byte(`,"tools":[`), text...), ']')
		if len(r.members) == 0 && len(out) == len(r.Body) {
			text = text[1:] // the first member
		}
	case isNull(r.of(r.members[i].value)):
		at, text = r.members[i].value, append(append([]byte{'['}, text...), ']')
	case r.Body[r.members[i].value.start] == '[':
		start := r.members[i].value.start
		behind := start + 1
		for p := range parts(r.of(r.members[i].value)) {
			behind = start + p.end
		}
		if behind > start+1 {
			text = append([]byte{','}, text...)
		}
		at = span{behind, behind}
	default:
		return nil, errors.New("encode tools: the tools of the request are no list")
	}
	if at.start >= end {
		shift := len(out) - len(r.Body)
		at.start, at.end = at.start+shift, at.end+shift
	}
	return slices.Replace(out, at.start, at.end, text...), nil
}

// appendPoint is where a member can be added behind the last one.
func (r *Request) appendPoint() (span, error) {
	if n := len(r.members); n > 0 {
		end := r.members[n-1].value.end
		return span{end, end}, nil
	}
	for i, c := range r.Body {
		if c == '{' {
			return span{i + 1, i + 1}, nil
		}
	}
	return span{}, errors.New("encode items: the request was not parsed")
}

// appendList writes the array. The elements' own order is the usual one, so that a cursor finds each kept element at
// once, or a few elements on; the searches of one call together are bounded, and what they miss is a matter of white
// space only.
func (r *Request) appendList(out []byte, items []Item) []byte {
	own := r.items
	if len(r.elements) == 0 {
		own = nil // a string input: its only item was built
	}
	out = append(out, '[')
	last := -1 // index of the element written last, -1 for something else
	cursor, budget := 0, 4*len(own)
	for i, it := range items {
		k := cursor
		for k < len(own) && budget > 0 && !sameBytes(own[k].Raw, it.Raw) {
			k++
			budget--
		}
		found := k < len(own) && sameBytes(own[k].Raw, it.Raw)
		switch {
		case found && k == last+1 && (i == 0 || last >= 0):
			start := r.list.start + 1
			if k > 0 {
				start = r.elements[k-1].end
			}
			out = append(out, r.Body[start:r.elements[k].start]...)
		case i > 0:
			out = append(out, ',')
		}
		out = append(out, it.Raw...)
		last = -1
		if found {
			last, cursor = k, k+1
		}
	}
	if last >= 0 && last == len(own)-1 {
		return append(out, r.Body[r.elements[last].end:r.list.end]...)
	}
	return append(out, ']')
}

// converted is an item in the request's dialect; foreign tells that it came from the other one.
type converted struct {
	Item
	foreign bool
}

// key is what a call and its result share within one dialect.
func (c Call) key() string {
	if c.ID == "" {
		return c.Family + "\x00" + c.Name
	}
	return c.ID
}

// pairs tells which result belongs to which call: results[i][k] is the index of the item that answers call k of item
// i, -1 for none.
type pairs struct {
	results  [][]int
	answered []bool // by index of the result
}

// settle leaves out the converted calls and results that have no partner, and what lost its partner by conversion. In
// Chat it moves the results behind the message of their calls.
func (c *converter) settle(items []converted) []Item {
	p := pair(items)
	out := make([]Item, 0, len(items))
	for i, it := range items {
		if it.Kind == ToolResult {
			gone := !p.answered[i] && (it.foreign || c.lost[it.Answers.key()])
			moved := p.answered[i] && c.to == Chat
			if !gone && !moved {
				out = append(out, it.Item)
			}
			continue
		}
		rest, ok := it.Item, true
		if len(it.Calls) > 0 {
			rest, ok = it.withoutUnanswered(p.results[i], c.lost)
		}
		if ok {
			out = append(out, rest)
		}
		for _, at := range p.results[i] {
			if at >= 0 && c.to == Chat {
				out = append(out, items[at].Item)
			}
		}
	}
	return out
}

func (it converted) withoutUnanswered(results []int, lost map[string]bool) (Item, bool) {
	gone := func(k int) bool { return results[k] < 0 && (it.foreign || lost[it.Calls[k].key()]) }
	if it.Kind == ToolCall {
		return it.Item, !gone(0)
	}
	return it.WithoutCalls(gone)
}

// pair gives each result to the latest call before it that is still open. What is left over goes to calls behind it.
func pair(items []converted) pairs {
	type place struct{ item, call int }
	p := pairs{results: make([][]int, len(items)), answered: make([]bool, len(items))}
	open := make(map[string][]place)
	var early []int
	for i, it := range items {
		for k, call := range it.Calls {
			p.results[i] = append(p.results[i], -1)
			open[call.key()] = append(open[call.key()], place{i, k})
		}
		if it.Kind != ToolResult {
			continue
		}
		key := it.Answers.key()
		n := len(open[key])
		if n == 0 {
			early = append(early, i)
			continue
		}
		last := open[key][n-1]
		p.results[last.item][last.call], p.answered[i], open[key] = i, true, open[key][:n-1]
	}
	for _, i := range early {
		key := items[i].Answers.key()
		if calls := open[key]; len(calls) > 0 {
			p.results[calls[0].item][calls[0].call], p.answered[i], open[key] = i, true, calls[1:]
		}
	}
	return p
}

// same tells that both lists hold the same elements of the same body.
func same(a, b []Item) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Dialect != b[i].Dialect || !sameBytes(a[i].Raw, b[i].Raw) {
			return false
		}
	}
	return true
}

// sameBytes tells that a and b are the same memory, not merely equal.
func sameBytes(a, b []byte) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// WithoutCalls returns the item without the calls whose index in Calls drop names; all other bytes stay. It returns
// false when nothing remains that is worth sending: no call, and no text beside them. A tool_calls list that loses all
// its elements goes as a whole, since upstream refuses an empty one.
func (it Item) WithoutCalls(drop func(i int) bool) (Item, bool) {
	keep, kept := make([]bool, len(it.Calls)), 0
	for i := range keep {
		if !drop(i) {
			keep[i] = true
			kept++
		}
	}
	switch {
	case kept == len(keep):
		return it, kept > 0 || it.HasText || it.Kind != Message
	case kept == 0 && !it.HasText, it.Kind != Message:
		return Item{}, false
	}
	list, legacy := member(it.Raw, "tool_calls"), false
	n := len(keep)
	if it.Calls[n-1].Family == familyLegacy {
		n--
		legacy = keep[n]
	}
	calls := 0
	for _, k := range keep[:n] {
		if k {
			calls++
		}
	}
	raw := keepParts(it.Raw, func(_ int, p part) ([]byte, bool) {
		switch string(p.name) {
		case "function_call":
			return it.Raw[p.start:p.end], legacy
		case "tool_calls":
			if calls == 0 || !sameBytes(p.value, list) {
				return nil, false
			}
			out := append([]byte(nil), it.Raw[p.start:p.end-len(p.value)]...)
			return append(out, keepParts(list, func(i int, e part) ([]byte, bool) { return e.value, keep[i] })...), true
		}
		return it.Raw[p.start:p.end], true
	})
	dec := decoder{dialect: it.Dialect, calls: maxCalls}
	return dec.item(raw), true
}

// OnlyCalls returns the calls of the item whose index in Calls keep names, without anything that was said beside them.
// It returns false when none is kept.
func (it Item) OnlyCalls(keep func(i int) bool) (Item, bool) {
	if it.Kind != Message {
		return it, len(it.Calls) > 0 && keep(0)
	}
	out := []byte(`{"role":"assistant","content":null`)
	i, kept := 0, 0
	for p := range parts(member(it.Raw, "tool_calls")) {
		if i < len(it.Calls) && keep(i) {
			open := `,"tool_calls":[`
			if kept > 0 {
				open = ","
			}
			out = append(append(out, open...), p.value...)
			kept++
		}
		i++
	}
	if kept > 0 {
		out = append(out, ']')
	}
	if n := len(it.Calls) - 1; n >= 0 && it.Calls[n].Family == familyLegacy && keep(n) {
		out = append(append(out, `,"function_call":`...), member(it.Raw, "function_call")...)
		kept++
	}
	dec := decoder{dialect: it.Dialect, calls: maxCalls}
	return dec.item(append(out, '}')), kept > 0
}

// keepParts rewrites an object or an array with some of its parts, keeping the space before each one and behind the
// last one, and all of it between two neighbours that stay.
func keepParts(raw []byte, keep func(i int, p part) ([]byte, bool)) []byte {
	out := append(make([]byte, 0, len(raw)), raw[0])
	i, end, first, neighbour := 0, 1, true, true
	for p := range parts(raw) {
		before := raw[end:p.start]
		v, ok := keep(i, p)
		if ok {
			if i > 0 && !neighbour {
				_, before = cutComma(before)
				if !first {
					out = append(out, ',')
				}
			}
			out, first = append(append(out, before...), v...), false
		}
		i, end, neighbour = i+1, p.end, ok
	}
	return append(out, raw[end:]...)
}

// Edit rewrites an object or an array: keep gives the bytes that stand for its i-th part, from Start to End of it, or
// false to leave it out. All other bytes stay. Any other value is returned as it is.
func Edit(raw []byte, keep func(i int, p Part) ([]byte, bool)) []byte {
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		return raw
	}
	return keepParts(raw, func(i int, p part) ([]byte, bool) { return keep(i, Part{p.name, p.value, p.start, p.end}) })
}

// cutComma splits the bytes between two parts at their comma.
func cutComma(between []byte) (before, after []byte) {
	for i, c := range between {
		if c == ',' {
			return between[:i], between[i+1:]
		}
	}
	return between, nil
}
