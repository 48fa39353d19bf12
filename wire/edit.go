package wire

import (
	"bytes"
	"slices"
)

// SameBytes reports whether a and b are the same memory, not merely equal.
func SameBytes(a, b []byte) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// HasChildren reports whether an object or an array holds something.
func HasChildren(raw []byte) bool {
	for range Children(raw) {
		return true
	}
	return false
}

// Edit rewrites an object or an array: keep returns the value of its i-th child, or false to leave the child out. All other bytes
// stay. Any other value is returned unchanged.
func Edit(raw []byte, keep func(i int, p Child) ([]byte, bool)) []byte {
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		return raw
	}
	out := append(make([]byte, 0, len(raw)), raw[0])
	i, end, first, neighbour := 0, 1, true, true
	for p := range Children(raw) {
		before := raw[end:p.Start]
		v, ok := keep(i, p)
		if ok {
			if i > 0 && !neighbour {
				_, before, _ = bytes.Cut(before, []byte{','})
				if !first {
					out = append(out, ',')
				}
			}
			out = append(append(out, before...), raw[p.Start:p.End-len(p.Value)]...)
			out, first = append(out, v...), false
		}
		i, end, neighbour = i+1, p.End, ok
	}
	return append(out, raw[end:]...)
}

// EditElements rewrites the elements of a list. Any other value is returned unchanged.
func EditElements(list []byte, edit func(element []byte) []byte) []byte {
	if len(list) == 0 || list[0] != '[' {
		return list
	}
	return Edit(list, func(_ int, e Child) ([]byte, bool) { return edit(e.Value), true })
}

// EditMember rewrites an object with another value of a member, which edit makes of the old one. All other bytes stay.
func EditMember(raw []byte, name string, edit func(value []byte) []byte) []byte {
	return Edit(raw, func(_ int, p Child) ([]byte, bool) {
		if string(p.Name) == name {
			return edit(p.Value), true
		}
		return p.Value, true
	})
}

// ReplaceMember rewrites a body with another value of a member. All other bytes stay.
func ReplaceMember(body []byte, name string, value []byte) []byte {
	at := bytes.IndexByte(body, '{')
	if at < 0 {
		return body
	}
	return slices.Concat(body[:at], EditMember(body[at:], name, func([]byte) []byte { return value }))
}

// WithoutMember rewrites a body without a member. All other bytes stay.
func WithoutMember(body []byte, name string) []byte {
	at := bytes.IndexByte(body, '{')
	if at < 0 {
		return body
	}
	return slices.Concat(body[:at], WithoutMembers(body[at:], name))
}

// WithoutMembers rewrites an object without some members. All other bytes stay. Any other value is returned unchanged.
func WithoutMembers(raw []byte, names ...string) []byte {
	return Edit(raw, func(_ int, p Child) ([]byte, bool) {
		return p.Value, !slices.Contains(names, string(p.Name))
	})
}

// WithMember returns an object with a value of a member: in the place of the old one, or at the end. All other bytes stay.
func WithMember(raw []byte, name string, value []byte) []byte {
	found := false
	out := EditMember(raw, name, func([]byte) []byte {
		found = true
		return value
	})
	if found || len(raw) < 2 || raw[0] != '{' {
		return out
	}

	head := bytes.TrimRight(out[:len(out)-1], " \t\r\n")
	if HasChildren(raw) {
		head = append(slices.Clip(head), ',')
	}
	head = append(AppendString(slices.Clip(head), name), ':')
	return append(append(head, value...), '}')
}
