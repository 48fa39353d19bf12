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
	// mostBreakpoints is how many breakpoints providers take in a request.
	mostBreakpoints = 4

	memberName = "cache_control"
	breakpoint = `,"` + memberName + `":{"type":"ephemeral"}`
)

// Cache returns the body of a request with breakpoints, at most four, as providers take. It is Body itself in Responses, which has
// none, and where there is nothing to mark: a compressed body then stays as it came.
//
// Where the client has set breakpoints, they stay, and one is added before what layers say behind a user message, like the
// client's next one: that text goes on to the next user message, and the client's breakpoints move with the end of the conversation, so
// that none of them may be near enough to find the cache of what was before. Otherwise the breakpoints are those of places.
//
// A breakpoint needs a text part. So that an item is the same in every request wherever the breakpoints are, the content
// of every system, developer, user and tool message that is a string becomes a list of one text part; white space alone
// does not, since no provider takes a part of it. In requests with breakpoints of the client, its items stay as they are but for that
// one. All other bytes stay. The result depends on Body alone, and on told: the indices of items that layers say in the user's role.
func Cache(r *wire.Request, told ...int) []byte {
	if !r.Dialect.Rules().Breakpoints {
		return r.Body
	}
	items := r.Items()
	f := finder{items: items, takes: make([]bool, len(items)), told: told}
	for i, it := range items {
		f.takes[i] = takes(it)
	}

	marks := marksOf(r)
	if len(marks) == 0 {
		if !slices.Contains(f.takes, true) {
			return r.Body
		}
		at := f.places()
		return edit(r, f.takes, func(i int) []byte {
			if slices.Contains(at, i) {
				return []byte(breakpoint)
			}
			return nil
		})
	}

	at := f.unchanged(f.round())
	next := slices.IndexFunc(marks, func(m mark) bool { return m.item >= at })
	if len(marks) >= mostBreakpoints || at < 0 || !f.takes[at] || next < 0 || marks[next].item == at {
		return r.Body
	}
	only := make([]bool, len(items))
	only[at] = true
	return edit(r, only, func(int) []byte { return slices.Concat([]byte(`,"`+memberName+`":`), marks[next].value) })
}

// edit returns the body of a request with the content of some items as a list of parts, and members after their last text.
func edit(r *wire.Request, which []bool, members func(i int) []byte) []byte {
	name := r.Dialect.Rules().List
	return wire.ReplaceMember(r.Body, name, wire.Edit(r.Member(name), func(i int, p wire.Child) ([]byte, bool) {
		if !which[i] {
			return p.Value, true
		}
		return wire.EditMember(p.Value, "content", func(value []byte) []byte { return content(value, members(i)) }), true
	}))
}

// mark is a breakpoint of the client.
type mark struct {
	item  int // the index of its item, -1 for that of a tool or of the whole body
	value []byte
}

// marksOf returns the breakpoints of a request: of the whole body, on tools, and on items and their parts.
func marksOf(r *wire.Request) (marks []mark) {
	if !bytes.Contains(r.Body, []byte(memberName)) {
		return nil
	}
	add := func(item int, object []byte) {
		if v := wire.Member(object, memberName); v != nil {
			marks = append(marks, mark{item, v})
		}
	}
	if v := r.Member(memberName); v != nil {
		marks = append(marks, mark{-1, v})
	}
	for tool := range wire.Children(r.Member("tools")) {
		add(-1, tool.Value)
		add(-1, wire.Member(tool.Value, "function"))
	}
	for i, it := range r.Items() {
		for part := range wire.Children(wire.Member(it.Raw, "content")) {
			add(i, part.Value)
		}
		add(i, it.Raw)
	}
	return marks
}

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
	_, text := wire.Inside(value)
	return text && !wire.Blank(value)
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

// content returns the content of an item that takes a breakpoint, with that member, or without one.
func content(value, member []byte) []byte {
	if speaks(value) {
		return slices.Concat([]byte(`[{"type":"text","text":`), value, member, []byte("}]"))
	}
	if member == nil {
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
		return slices.Concat(p.Value[:end], member, p.Value[end:]), true
	})
}
