package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"remora/test/scripted"
)

// player is the client's side of the story: it sends what its user says, runs the tools that the model calls, and keeps
// its own list of everything that was said, against which the store is checked.
type player struct {
	http  *http.Client
	url   string // of the proxy that runs now
	model *scripted.Server

	talks []*talk
	turns []turn // of all talks
	now   chapter
	talk  *talk                       // of the chapter
	since int                         // turns before the chapter
	asked int                         // requests that the model got so far
	crash func(context.Context) error // what act.killAfter asks for
}

// talk is one session as its client and the model know it.
type talk struct {
	session, resource string
	// line is everything that was said, in order, with what the model said to the proxy alone.
	line   []entry
	ids    map[string]bool   // of the calls that the client got
	resend []json.RawMessage // what a client resends
}

// begin turns to a chapter.
func (p *player) begin(c chapter) {
	p.now, p.since = c, len(p.turns)
	for _, tk := range p.talks {
		if p.talk = tk; tk.session == c.session {
			return
		}
	}
	p.talk = &talk{session: c.session, resource: c.resource, ids: make(map[string]bool)}
	p.talks = append(p.talks, p.talk)
}

// add takes over what the client has said or heard.
func (tk *talk) add(items []json.RawMessage) ([]entry, error) {
	added, err := entriesOfAll(items)
	for _, e := range added {
		if e.who == "call" {
			tk.ids[e.id] = true
		}
	}
	tk.line, tk.resend = append(tk.line, added...), append(tk.resend, items...)
	return added, err
}

// visible is how much of the line the client knows.
func (tk *talk) visible() int {
	n := 0
	for _, e := range tk.line {
		if !e.hidden {
			n++
		}
	}
	return n
}

// play lets a client say its user's line and answer the model's calls until the model has no more.
func (p *player) play(ctx context.Context, h habit, a act) error {
	fresh := userSays(a.user)
	for round := 1; ; round++ {
		answer, err := p.exchange(ctx, h, fresh, a.told)
		if err != nil {
			return fmt.Errorf("turn %d: %w", len(p.turns)+1, err)
		}
		if round == a.killAfter {
			if err := p.crash(ctx); err != nil {
				return err
			}
		}
		if fresh, err = runTools(h, answer); err != nil || len(fresh) == 0 {
			return err
		}
	}
}

func userSays(text string) []json.RawMessage {
	return []json.RawMessage{marshal(map[string]any{"role": "user", "content": text})}
}

// runTools answers every call of an answer.
func runTools(h habit, answer []json.RawMessage) ([]json.RawMessage, error) {
	var results []json.RawMessage
	for _, raw := range answer {
		var e element
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		if e.Type == "function_call" {
			e.ToolCalls = []toolCall{{ID: e.CallID, Function: function{e.Name, e.Arguments}}}
		}
		for _, c := range e.ToolCalls {
			out, err := runTool(c.Function.Name, c.Function.Arguments)
			if err != nil {
				return nil, err
			}
			results = append(results, h.result(c.ID, out))
		}
	}
	return results, nil
}

func (h habit) isChat() bool { return h.path == "chat/completions" }

// result is a tool's result in the client's dialect.
func (h habit) result(callID, out string) json.RawMessage {
	if h.isChat() {
		return marshal(map[string]any{"role": "tool", "tool_call_id": callID, "content": out})
	}
	return marshal(map[string]any{"type": "function_call_output", "call_id": callID, "output": out})
}

// exchange makes one call with the new items, and returns the items of the answer.
func (p *player) exchange(ctx context.Context, h habit, fresh []json.RawMessage, told string) ([]json.RawMessage, error) {
	tk := p.talk
	added, err := tk.add(fresh)
	if err != nil {
		return nil, err
	}
	at := len(p.turns)
	t := turn{
		talk: tk, told: told, fresh: len(added), client: fmt.Sprintf("%d new", len(added)),
		show: slices.Contains(p.now.show, at-p.since), streamed: at%2 == 1,
	}
	if at == p.since {
		t.title = p.now.title
	}
	sent := fresh
	if h.whole {
		sent, t.client = tk.resend, fmt.Sprintf("all %d", tk.visible())
	}
	answer, err := p.call(ctx, h, sent, &t)
	if err != nil {
		return nil, err
	}
	if err := p.look(h, &t); err != nil {
		return nil, err
	}
	heard, err := tk.add(answer)
	if err != nil {
		return nil, err
	}
	for _, e := range heard {
		if e.who == "call" {
			t.calls++
		}
	}
	t.heard = len(tk.line)
	p.turns = append(p.turns, t)
	return answer, nil
}

// call sends the request through the proxy and reads the answer to its end.
func (p *player) call(ctx context.Context, h habit, sent []json.RawMessage, t *turn) ([]json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/"+h.path, bytes.NewReader(h.body(sent, t.streamed)))
	if err != nil {
		return nil, fmt.Errorf("build request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Session-Id", h.session)
	req.Header.Set("X-Resource-Id", h.resource)
	if h.history != "" {
		req.Header.Set("X-History", h.history)
	}
	res, err := p.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call proxy: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("call proxy: status %d: %s", res.StatusCode, cut(string(body), 300))
	}
	t.id = res.Header.Get("X-Turn-Id")
	if t.report, err = readReport(res.Header.Get("X-Memory")); err != nil {
		return nil, err
	}
	switch {
	case h.isChat() && t.streamed:
		return chatStream(body)
	case h.isChat():
		return chatAnswer(body)
	case t.streamed:
		return responsesStream(body)
	}
	return responsesAnswer(body)
}

// body returns a request in the client's dialect. A client that sends only new items sends no instructions either.
func (h habit) body(items []json.RawMessage, stream bool) []byte {
	tools := make([]any, 0, len(toolNames()))
	for _, name := range toolNames() {
		f := map[string]any{"name": name, "parameters": map[string]any{"type": "object"}}
		if h.isChat() {
			tools = append(tools, map[string]any{"type": "function", "function": f})
		} else {
			f["type"] = "function"
			tools = append(tools, f)
		}
	}
	body := map[string]any{"model": "gpt-5", "stream": stream, "tools": tools}
	switch {
	case h.whole:
		body["messages"] = append([]json.RawMessage{marshal(map[string]any{"role": "system", "content": systemPrompt})}, items...)
	case h.isChat():
		body["messages"] = items
	default:
		body["input"] = items
	}
	return marshal(body)
}

// look reads what the model got for the turn: one request, or several where the proxy answered a call itself.
func (p *player) look(h habit, t *turn) error {
	all := p.model.Requests()
	if len(all) == p.asked {
		return errors.New("the upstream got no request")
	}
	for i, r := range all[p.asked:] {
		saw, err := t.read(h, r.Body)
		if err != nil {
			return err
		}
		before := len(t.talk.line)
		t.talk.reveal(saw)
		if i > 0 {
			continue
		}
		t.saw, t.said = saw, len(t.talk.line)
		if n := len(p.turns); n > 0 && p.turns[n-1].talk == t.talk {
			p.turns[n-1].heard += t.said - before // the model said it with the answer before
		}
	}
	p.asked = len(all)
	return nil
}

// reveal puts what the model has said to the proxy alone into the line, at the place where the model was sent it.
func (tk *talk) reveal(saw []entry) {
	at := len(tk.line)
	for _, e := range slices.Backward(saw) {
		i := at - 1 // texts are not unique: the last equal one is meant
		for i >= 0 && tk.line[i] != e {
			i--
		}
		switch {
		case i >= 0:
			at = i
		case e.hidden:
			tk.line = slices.Insert(tk.line, at, e)
		}
	}
}
