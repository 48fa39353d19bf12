package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"remora/test/scripted"
	"remora/wire"
)

// player is the client of the story: it sends the user's messages, runs the tools that the model calls, and records the
// conversation, with which the store is compared.
type player struct {
	http  *http.Client
	url   string // of the running proxy
	model *scripted.Server

	talks []*talk
	turns []turn // of all talks
	now   chapter
	talk  *talk                       // of the chapter
	since int                         // number of turns before the chapter
	asked int                         // number of requests that the model got so far
	crash func(context.Context) error // kills and restarts the proxy, for act.killAfter
}

// talk is one session, as its client and the model know it.
type talk struct {
	session, resource string
	// line is the conversation, in order, including the entries that are hidden from the client.
	line   []entry
	ids    map[string]bool // of the calls that the client got
	resend []wire.Item     // the client's history
}

// begin begins a chapter.
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

// add records items that the client has sent or got.
func (tk *talk) add(items []wire.Item) []entry {
	added := entriesOf(items)
	for _, e := range added {
		if e.who == "call" {
			tk.ids[e.id] = true
		}
	}
	tk.line, tk.resend = append(tk.line, added...), append(tk.resend, items...)
	return added
}

// visible returns the number of entries that the client knows.
func (tk *talk) visible() int {
	n := 0
	for _, e := range tk.line {
		if !e.hidden {
			n++
		}
	}
	return n
}

// play sends the user's message, and answers the model's calls until there are none.
func (p *player) play(ctx context.Context, h habit, a act) error {
	fresh := userSays(h, a.user)
	for round := 1; ; round++ {
		answer, err := p.exchange(ctx, h, a, fresh)
		if err != nil {
			return fmt.Errorf("turn %d: %w", len(p.turns)+1, err)
		}
		if round == a.killAfter {
			if err := p.crash(ctx); err != nil {
				return err
			}
		}
		if fresh, err = runTools(answer); err != nil || len(fresh) == 0 {
			return err
		}
	}
}

func userSays(h habit, text string) []wire.Item {
	return []wire.Item{wire.NewMessage(h.dialect, wire.User, text)}
}

// runTools runs the calls of an answer and returns their results.
func runTools(answer []wire.Item) (results []wire.Item, err error) {
	for _, it := range answer {
		for i, c := range it.Calls() {
			out, err := runTool(c.Name, it.Input(i))
			if err != nil {
				return nil, err
			}
			results = append(results, wire.NewToolResult(c, it.Dialect, out))
		}
	}
	return results, nil
}

// exchange makes one call with the new items, and returns the items of the answer.
func (p *player) exchange(ctx context.Context, h habit, a act, fresh []wire.Item) ([]wire.Item, error) {
	tk := p.talk
	added := tk.add(fresh)
	at := len(p.turns)
	t := turn{
		talk: tk, act: a, fresh: len(added), client: fmt.Sprintf("%d new", len(added)),
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
	if err := p.readRequests(h, &t); err != nil {
		return nil, err
	}
	for _, e := range tk.add(answer) {
		if e.who == "call" {
			t.calls++
		}
	}
	t.heard = len(tk.line)
	p.turns = append(p.turns, t)
	return answer, nil
}

// call sends a request through the proxy and reads the whole answer.
func (p *player) call(ctx context.Context, h habit, sent []wire.Item, t *turn) ([]wire.Item, error) {
	asked, err := h.body(sent, t.streamed)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/"+h.path(), bytes.NewReader(asked))
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
	return readAnswer(h.dialect, body, t.streamed)
}

// readAnswer returns the items of an answer.
func readAnswer(d wire.Dialect, body []byte, streamed bool) ([]wire.Item, error) {
	var reply wire.Reply
	if streamed {
		folder := wire.NewFolder(d)
		folder.Write(body)
		reply = folder.Reply()
	} else {
		var err error
		if reply, err = wire.FoldBody(d, body); err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
	}
	if !reply.Complete || len(reply.Choices) != 1 {
		return nil, fmt.Errorf("read answer: want one choice and its end, have %d: %s", len(reply.Choices), cut(string(body), 300))
	}
	return reply.Choices[0], nil
}

// body returns a request in the client's dialect. A client that sends only new items sends no system prompt.
func (h habit) body(items []wire.Item, stream bool) ([]byte, error) {
	var tools [][]byte
	for _, name := range toolNames() {
		tools = append(tools, wire.FunctionTool(h.dialect, name, "", []byte(`{"type":"object"}`)))
	}
	empty, err := wire.Parse(h.dialect, fmt.Appendf(nil, `{"model":"gpt-5","stream":%t,%q:[]}`, stream, h.dialect.Rules().List))
	if err != nil {
		return nil, err
	}
	if h.whole {
		items = slices.Concat([]wire.Item{wire.NewMessage(h.dialect, wire.System, systemPrompt)}, items)
	}
	return empty.With(items, tools...)
}

// readRequests reads the requests that the model got for the turn: several if the proxy answered a call itself.
func (p *player) readRequests(h habit, t *turn) error {
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
		t.talk.insertHidden(saw)
		if i > 0 {
			continue
		}
		t.saw, t.said = saw, len(t.talk.line)
		if n := len(p.turns); n > 0 && p.turns[n-1].talk == t.talk {
			p.turns[n-1].heard += t.said - before // part of the answer before
		}
	}
	p.asked = len(all)
	return nil
}

// insertHidden adds the hidden entries that the model saw to the line, at the place where it saw them.
func (tk *talk) insertHidden(saw []entry) {
	at := len(tk.line)
	for _, e := range slices.Backward(saw) {
		i := at - 1 // texts are not unique: take the last equal one
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
