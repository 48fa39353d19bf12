package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"remora/providers/scripted"
)

// player is the client's side of the conversation: it sends what its user says, runs the tools that the model calls,
// and keeps its own list of everything that was said, against which the store is checked.
type player struct {
	http  *http.Client
	url   string // of the proxy that runs now
	model *scripted.Server

	said   []entry
	resend []json.RawMessage // what a client resends
	turns  []turn
	now    chapter
	since  int                         // turns before the chapter
	crash  func(context.Context) error // what act.killAfter asks for
}

// turn is one call as its client, the model and X-Memory tell it. Counts are of entries, and without the instructions.
type turn struct {
	id       string // X-Turn-Id
	title    string // of the chapter that it begins
	show     bool   // to be printed in full
	client   string // what the client sent
	streamed bool
	said     int     // how much of player.said there was with the request
	heard    int     // the same with the answer
	fresh    int     // how many entries the request added
	saw      []entry // what the model got
	lead     int     // how many instructions it got before that
	report   report  // what X-Memory says
	calls    int     // tool calls in the answer
}

// left is how many entries the model did not get.
func (t *turn) left() int { return t.said - len(t.saw) }

// report is what X-Memory says of the items that were not sent.
type report struct{ windowed, orphans int }

// begin turns to a chapter.
func (p *player) begin(c chapter) { p.now, p.since = c, len(p.turns) }

// play lets a client say its user's line and answer the model's calls until the model has no more.
func (p *player) play(ctx context.Context, h habit, a act) error {
	fresh := []json.RawMessage{marshal(map[string]any{"role": "user", "content": a.user})}
	for round := 1; ; round++ {
		answer, err := p.exchange(ctx, h, fresh)
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

// exchange makes one call with what is new, and returns the items of the answer.
func (p *player) exchange(ctx context.Context, h habit, fresh []json.RawMessage) ([]json.RawMessage, error) {
	added, err := entriesOfAll(fresh)
	if err != nil {
		return nil, err
	}
	p.said = append(p.said, added...)
	p.resend = append(p.resend, fresh...)
	at := len(p.turns)
	t := turn{
		said: len(p.said), fresh: len(added), client: fmt.Sprintf("%d new", len(added)), show: at-p.since == p.now.show,
		streamed: at%2 == 1,
	}
	if at == p.since {
		t.title = p.now.title
	}
	sent := fresh
	if h.whole {
		sent, t.client = p.resend, fmt.Sprintf("all %d", len(p.said))
	}
	answer, err := p.call(ctx, h, sent, &t)
	if err != nil {
		return nil, err
	}
	if err := p.look(h, &t); err != nil {
		return nil, err
	}
	heard, err := entriesOfAll(answer)
	if err != nil {
		return nil, err
	}
	for _, e := range heard {
		if e.who == "call" {
			t.calls++
		}
	}
	p.said = append(p.said, heard...)
	t.heard = len(p.said)
	p.resend = append(p.resend, answer...)
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
	req.Header.Set("X-Session-Id", session)
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

// body is a request in the client's dialect. A client that sends only what is new sends no instructions either.
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

// look reads what the model got for the turn.
func (p *player) look(h habit, t *turn) error {
	all := p.model.Requests()
	if len(all) != len(p.turns)+1 {
		return fmt.Errorf("the upstream got %d requests for %d turns", len(all), len(p.turns)+1)
	}
	var got struct {
		Messages []json.RawMessage `json:"messages"`
		Input    []json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(all[len(all)-1].Body, &got); err != nil {
		return fmt.Errorf("read what the upstream got: %w", err)
	}
	list := got.Input
	if h.isChat() {
		list = got.Messages
	}
	saw, err := entriesOfAll(list)
	if err != nil {
		return err
	}
	for t.lead < len(saw) && saw[t.lead] == (entry{who: "system", text: systemPrompt}) {
		t.lead++
	}
	t.saw = saw[t.lead:]
	return nil
}

// reported finds the counts in X-Memory, a structured field such as ok;items=12;sent=9.
var reported = regexp.MustCompile(`;\s*(windowed|orphans)=(\d+)`)

func readReport(header string) (report, error) {
	if status, _, _ := strings.Cut(header, ";"); status != "ok" {
		return report{}, fmt.Errorf("memory did not serve the call: X-Memory is %q", header)
	}
	var r report
	for _, m := range reported.FindAllStringSubmatch(header, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return report{}, fmt.Errorf("read X-Memory %q: %w", header, err)
		}
		if m[1] == "windowed" {
			r.windowed = n
		} else {
			r.orphans = n
		}
	}
	return r, nil
}
