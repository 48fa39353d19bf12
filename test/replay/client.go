package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
)

// model is the agent's model. Its tokens are o200k's.
const model = "gpt-5"

// maxAnswer limits the bytes read of an answer.
const maxAnswer = 64 << 20

// agent is the client of one session. It resends its history with every request.
type agent struct {
	http    *http.Client
	url     string // of the proxy, without a path
	dialect wire.Dialect
	session *session
	cue     func(*step) // sets upstream's next answer
	own     ledger      // of the client's own requests

	head    []byte // of a body, up to the history
	history []entry
	answers int
	// Numbers of unexpected answers.
	refused, degraded, changed int
	reason                     string // of the first refusal
}

// entry is one element of the history, with the number of answers up to it.
type entry struct {
	raw    []byte
	answer int
}

// play sends every request of the session. It returns transport errors; other problems of answers are counted.
func (a *agent) play(ctx context.Context) error {
	a.head = a.opening()
	for i := range a.session.steps {
		st := &a.session.steps[i]
		for _, in := range st.input {
			if err := a.take(in); err != nil {
				return fmt.Errorf("session %s, request %d: %w", a.session.name, i+1, err)
			}
		}
		if err := a.ask(ctx, st); err != nil {
			return fmt.Errorf("session %s, request %d: %w", a.session.name, i+1, err)
		}
	}
	return nil
}

// opening returns the beginning of every body: agents send the same tools and instructions each time.
func (a *agent) opening() []byte {
	b := []byte(`{"model":"` + model + `","metadata":{"replay":`)
	b = append(wire.AppendString(b, a.session.name), '}')
	for i := range a.session.tools {
		if i == 0 {
			b = append(b, `,"tools":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, a.session.tools[i].define(a.dialect)...)
	}
	if len(a.session.tools) > 0 {
		b = append(b, ']')
	}
	if a.dialect == dialects.Chat {
		b = append(b, `,"messages":[`...)
		if a.session.instructions != "" {
			b = append(wire.AppendString(append(b, `{"role":"system","content":`...), a.session.instructions), "},"...)
		}
		return b
	}
	if a.session.instructions != "" {
		b = wire.AppendString(append(b, `,"instructions":`...), a.session.instructions)
	}
	return append(b, `,"store":false,"include":["reasoning.encrypted_content"],"input":[`...)
}

func (a *agent) body() []byte {
	size := len(a.head) + 2
	for _, e := range a.history {
		size += len(e.raw) + 1
	}
	b := append(make([]byte, 0, size), a.head...)
	for _, e := range a.history {
		b = append(append(b, e.raw...), ',')
	}
	b = bytes.TrimSuffix(b, []byte(","))
	return append(b, "]}"...)
}

// said returns the texts of the history's items.
func (a *agent) said(t *texts) []string {
	all := make([]string, len(a.history))
	for i, e := range a.history {
		all[i] = t.of(a.dialect, e.raw)
	}
	return all
}

// take applies a change to the history. An item is converted to the dialect.
func (a *agent) take(in input) error {
	if in.compact != nil {
		a.compact(in.compact)
		return nil
	}
	items, ok := in.item.Convert(a.dialect)
	if !ok {
		return fmt.Errorf("an item of kind %d has no counterpart in %s", in.item.Kind, a.dialect)
	}
	for _, it := range items {
		a.history = append(a.history, entry{raw: it.Raw, answer: a.answers})
	}
	return nil
}

func (a *agent) compact(c *compaction) {
	old := a.history
	a.history = nil
	if c.Prompts {
		for _, e := range old {
			if isPrompt(a.dialect, e.raw) && e.answer <= a.answers-c.Keep {
				a.history = append(a.history, e)
			}
		}
	}
	a.say(wire.User, c.Text)
	for _, e := range old {
		if e.answer > a.answers-c.Keep {
			a.history = append(a.history, e)
		}
	}
}

// isPrompt reports whether an element of the history is a user's message.
func isPrompt(d wire.Dialect, raw []byte) bool {
	it, err := wire.ParseItem(d, raw)
	return err == nil && it.Role == wire.User
}

func (a *agent) say(role wire.Role, text string) {
	a.history = append(a.history, entry{raw: wire.NewMessage(a.dialect, role, text).Raw, answer: a.answers})
}

// ask sends the history, and adds the answer to it unchanged.
func (a *agent) ask(ctx context.Context, st *step) error {
	a.cue(st)
	path := "/v1/responses"
	if a.dialect == dialects.Chat {
		path = "/v1/chat/completions"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(a.body()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer replay")
	req.Header.Set("X-Session-Id", a.session.name)
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}

	a.answers++
	if status := resp.Header.Get("X-Memory"); !strings.HasPrefix(status, "ok") {
		a.degraded++
	}
	if resp.StatusCode != http.StatusOK {
		if a.refused++; a.reason == "" {
			a.reason = fmt.Sprintf("status %d: %s", resp.StatusCode, wire.Text(wire.Member(wire.Member(body, "error"), "message")))
		}
		a.recall(st)
		return nil
	}

	reply, err := wire.FoldBody(a.dialect, body)
	if err != nil || len(reply.Choices) == 0 {
		return errors.Join(errors.New("read answer: no choice"), err)
	}
	if !same(reply.Choices[0], &st.answer) {
		a.changed++
	}
	for _, it := range reply.Choices[0] {
		a.history = append(a.history, entry{raw: it.Raw, answer: a.answers})
	}
	return nil
}

// recall adds the recorded answer, so that the session can continue without one.
func (a *agent) recall(st *step) {
	if st.answer.Text != "" || len(st.answer.Calls) == 0 {
		a.say(wire.Assistant, st.answer.Text)
	}
	if len(st.answer.Calls) == 0 {
		return
	}
	var calls []wire.SaidCall
	for _, c := range st.answer.Calls {
		calls = append(calls, wire.SaidCall{
			Custom: a.session.isCustom(c.Name), CallID: wire.AppendString(nil, c.ID),
			ToolName: wire.AppendString(nil, c.Name), Input: wire.AppendString(nil, c.Arguments),
		})
	}
	for _, raw := range a.dialect.Codec().MakeCalls(calls) {
		a.history = append(a.history, entry{raw: raw, answer: a.answers})
	}
}

// same reports whether the client got the model's text and calls, and nothing else.
func same(got []wire.Item, want *scripted.Answer) bool {
	var text strings.Builder
	calls := 0
	for _, it := range got {
		if it.Kind == wire.Message {
			text.WriteString(it.Text())
		}
		for i, c := range it.Calls() {
			if calls >= len(want.Calls) {
				return false
			}
			w := want.Calls[calls]
			if c.ID != w.ID || c.Name != w.Name || it.Input(i) != w.Arguments {
				return false
			}
			calls++
		}
	}
	return text.String() == want.Text && calls == len(want.Calls)
}
