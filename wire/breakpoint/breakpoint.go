// Package breakpoint puts prompt cache breakpoints into requests of Chat Completions: "cache_control" on a text part, as
// Anthropic's API, OpenRouter and LiteLLM have it. The proxy calls it for providers that cache only up to such breakpoints.
//
// A provider writes its cache up to each breakpoint, and looks a few parts back from each one for an earlier cache. So the next
// request finds this one's cache if it has a breakpoint where this one had its last.
package breakpoint

import (
	"bytes"
	"slices"

	"remora/wire"
)

const (
	memberName = "cache_control"
	breakpoint = `,"` + memberName + `":{"type":"ephemeral"}`
)

// Cache returns the body of a request with breakpoints, at most four, as providers take. It is Body itself in Responses, which has none,
// where the client sets any itself, and where there is nothing to mark: a compressed body then stays as it came.
//
// A breakpoint needs a text part. So that an item is the same in every request wherever the breakpoints are, the content
// of every system, developer, user and tool message that is a string becomes a list of one text part; white space alone
// does not, since no provider takes a part of it. All other bytes stay. The result depends on Body alone, and on told: the
// indices of items that layers say in the user's role.
func Cache(r *wire.Request, told ...int) []byte {
	if !r.Dialect.Rules().Breakpoints || marked(r) {
		return r.Body
	}
	items := r.Items()
	f := finder{items: items, takes: make([]bool, len(items)), told: told}
	for i, it := range items {
		f.takes[i] = takes(it)
	}
	if !slices.Contains(f.takes, true) {
		return r.Body
	}
	at := f.places()

	name := r.Dialect.Rules().List
	return wire.ReplaceMember(r.Body, name, wire.Edit(r.Member(name), func(i int, p wire.Child) ([]byte, bool) {
		if !f.takes[i] {
			return p.Value, true
		}
		return wire.EditMember(p.Value, "content", func(value []byte) []byte {
			return content(value, slices.Contains(at, i))
		}), true
	}))
}

// marked reports whether a request has breakpoints: of the whole body, on tools, or on items and their parts.
func marked(r *wire.Request) bool {
	if !bytes.Contains(r.Body, []byte(memberName)) {
		return false
	}
	if r.Member(memberName) != nil {
		return true
	}
	for tool := range wire.Children(r.Member("tools")) {
		if has(tool.Value) || has(wire.Member(tool.Value, "function")) {
			return true
		}
	}
	return slices.ContainsFunc(r.Items(), func(it wire.Item) bool {
		if has(it.Raw) {
			return true
		}
		for part := range wire.Children(wire.Member(it.Raw, "content")) {
			if has(part.Value) {
				return true
			}
		}
		return false
	})
}

func has(object []byte) bool { return wire.Member(object, memberName) != nil }

// takes reports whether an item can have a breakpoint. Items of the model never get one: they keep their bytes.
func takes(it wire.Item) bool {
	switch {
	case it.Kind == wire.ToolResult:
		if it.Answers().Family == wire.FamilyLegacy {
			return false
		}
	case it.Role != wire.System && it.Role != wire.Developer && it.Role != wire.User:
		return false
	}
	content := wire.Member(it.Raw, "content")
	return speaks(content) || lastText(content) >= 0
}

// speaks reports whether a value is a string with more than white space.
func speaks(value []byte) bool {
	if len(value) < 2 || value[0] != '"' {
		return false
	}
	for rest := value[1 : len(value)-1]; len(rest) > 0; {
		switch {
		case rest[0] == ' ':
			rest = rest[1:]
		case rest[0] == '\\' && bytes.IndexByte([]byte("nrt"), rest[1]) >= 0:
			rest = rest[2:]
		default:
			return true
		}
	}
	return false
}

// lastText returns the index of the last text part of a list, -1 for none.
func lastText(content []byte) int {
	i, last := 0, -1
	for p := range wire.Children(content) {
		if string(wire.Member(p.Value, "type")) == `"text"` && speaks(wire.Member(p.Value, "text")) {
			last = i
		}
		i++
	}
	return last
}

// content returns the content of an item that takes a breakpoint, with it or without.
func content(value []byte, marks bool) []byte {
	if speaks(value) {
		out := append([]byte(`[{"type":"text","text":`), value...)
		if marks {
			out = append(out, breakpoint...)
		}
		return append(out, "}]"...)
	}
	if !marks {
		return value
	}
	last := lastText(value)
	return wire.Edit(value, func(i int, p wire.Child) ([]byte, bool) {
		if i != last {
			return p.Value, true
		}
		end := 0
		for member := range wire.Children(p.Value) {
			end = member.End
		}
		return slices.Concat(p.Value[:end], []byte(breakpoint), p.Value[end:]), true
	})
}
