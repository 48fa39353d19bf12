package main

import (
	"slices"

	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
)

// session is one recorded agent session. Its items are those of Responses, and are converted for Chat.
type session struct {
	name         string
	instructions string
	tools        []tool
	steps        []step
	// skipped is the number of items left out: hosted tools, references, the provider's compactions.
	skipped int
}

// step is one request: the client's additions to its history, and the model's answer.
type step struct {
	input []input
	// notes are calls of layers' tools that the model makes if it is offered them.
	notes  []scripted.Call
	answer scripted.Answer
}

// input is one change of the client's history: a new item, or a compaction.
type input struct {
	item    wire.Item // the zero value for a compaction
	compact *compaction
}

// compaction replaces a client's history by a summary, as a user message, and the last answers with the items after them. User
// messages before them may be kept.
type compaction struct {
	Text    string `json:"text"`
	Keep    int    `json:"keep"`    // answers
	Prompts bool   `json:"prompts"` // keep user messages, before the summary
}

// tool is a function or a custom tool that the client offers.
type tool struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Parameters  rawMessage `json:"parameters"`
	Custom      bool       `json:"custom"`
}

// define returns the definition of a tool in a dialect.
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

// items returns the number of items as the window counts them (texts, calls and results), of calls, and of user messages.
func (s *session) items() (items, calls, users int) {
	for i := range s.steps {
		st := &s.steps[i]
		for _, in := range st.input {
			items++
			if in.item.Role == wire.User {
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

// offer adds a called tool, unless the recording defines it.
func (s *session) offer(name string, custom bool) {
	if !slices.ContainsFunc(s.tools, func(t tool) bool { return t.Name == name }) {
		s.tools = append(s.tools, tool{Name: name, Custom: custom})
	}
}

// isCustom reports whether a tool takes free text.
func (s *session) isCustom(name string) bool {
	return slices.ContainsFunc(s.tools, func(t tool) bool { return t.Name == name && t.Custom })
}

// prompted reports whether the step begins with a user message: then time has passed.
func (s *step) prompted() bool {
	return slices.ContainsFunc(s.input, func(in input) bool {
		return in.item.Role == wire.User
	})
}
