package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// With returns the body with its items replaced and with tools, definitions as the dialect spells them, after the ones
// that it offers. Unchanged items and no tools give Body itself. Otherwise only the list is written anew: all other
// bytes are the client's, and so is each element that is kept, with the space between elements that stay neighbours.
//
// Items of the other dialect are converted (see Convert). An item or a part of a content without a counterpart is left out
// without an error, such as reasoning in Chat. If a call or a result has none, both are left out. In Chat the results then
// stand directly after the message that made their calls.
//
// A string input becomes an array, an absent one is added at the end of the object. No items at all make an empty
// array, except that an absent list stays absent. Absent tools are added after the list; null counts as absent, and
// any other value than an array is an error.
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
	items = ConvertAll(items, r.Dialect)
	// All bytes between elements are written once at most, and after each item at most a comma that was not there.
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
		out = append(AppendString(out, r.Dialect.Rules().List), ':')
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
	case IsNull(r.of(r.members[i].value)):
		at, text = r.members[i].value, append(append([]byte{'['}, text...), ']')
	case r.Body[r.members[i].value.start] == '[':
		start := r.members[i].value.start
		behind := start + 1
		for p := range Children(r.of(r.members[i].value)) {
			behind = start + p.End
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

// appendPoint returns where a member can be added after the last one.
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
		for k < len(own) && budget > 0 && !SameBytes(own[k].Raw, it.Raw) {
			k++
			budget--
		}
		found := k < len(own) && SameBytes(own[k].Raw, it.Raw)
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

// same reports whether both lists hold the same elements of the same body.
func same(a, b []Item) bool {
	return slices.EqualFunc(a, b, func(a, b Item) bool { return a.Dialect == b.Dialect && SameBytes(a.Raw, b.Raw) })
}
