package main

import (
	"cmp"

	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
)

// session is one recorded agent session, in neither dialect: items are those of Responses, and are converted for Chat.
type session struct {
	name         string
	instructions string
	tools        []tool
	steps        []step
	// skipped counts the items left out: of hosted tools, references, compactions of the provider.
	skipped int
}

// step is one request: what the client adds to its history before it, and what the model answers.
type step struct {
	input []input
	// notes are calls of layers' tools that the model makes if it is offered them.
	notes  []scripted.Call
	answer scripted.Answer
}

// input is one thing that happens to the client's history: an item behind it, or a compaction of it.
type input struct {
	item    wire.Item
	compact *compaction
}

// compaction is a client's own: its history becomes a summary, as a user message, and the last answers with what
// follows them, with or without what users have said before.
type compaction struct {
	Text    string `json:"text"`
	Keep    int    `json:"keep"`    // answers
	Prompts bool   `json:"prompts"` // users' messages stay, before the summary
}

// tool is a function, or a tool of free text, that the client offers.
type tool struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Parameters  rawMessage `json:"parameters"`
	Custom      bool       `json:"custom"`
}

// define spells a tool in a dialect.
func (t *tool) define(d wire.Dialect) []byte {
	if !t.Custom {
		return wire.FunctionTool(d, t.Name, t.Description, t.Parameters)
	}
	inner := append([]byte(`"name":`), wire.AppendString(nil, t.Name)...)
	inner = append(append(inner, `,"description":`...), wire.AppendString(nil, t.Description)...)
	if d == dialects.Chat {
		return []byte(`{"type":"custom","custom":{` + string(inner) + `}}`)
	}
	return []byte(`{"type":"custom",` + string(inner) + `}`)
}

// items counts what the window counts: texts of people and models, calls and results.
func (s *session) items() (items, calls, users int) {
	for i := range s.steps {
		st := &s.steps[i]
		for _, in := range st.input {
			items++
			if in.compact == nil && in.item.Kind == wire.Message && in.item.Role == wire.User {
				users++
			}
		}
		if st.answer.Text != "" {
			items++
		}
		items += len(st.answer.Calls)
		calls += len(st.answer.Calls)
	}
	return items, calls, users
}

// offer adds the tools that were called and that the recording does not define.
func (s *session) offer(name string, custom bool) {
	for i := range s.tools {
		if s.tools[i].Name == name {
			return
		}
	}
	s.tools = append(s.tools, tool{Name: name, Custom: custom})
}

// isCustom reports whether a tool takes free text.
func (s *session) isCustom(name string) bool {
	for i := range s.tools {
		if s.tools[i].Name == name {
			return s.tools[i].Custom
		}
	}
	return false
}

// title is the name under which a session is known, or one of its place.
func title(name, fallback string) string { return cmp.Or(name, fallback) }

// prompted reports whether somebody wrote a message before the step: then time has passed.
func (s *step) prompted() bool {
	for _, in := range s.input {
		if in.compact == nil && in.item.Kind == wire.Message && in.item.Role == wire.User {
			return true
		}
	}
	return false
}
