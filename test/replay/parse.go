package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"remora/memory"
	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
)

type rawMessage = json.RawMessage

// maxLine is the longest line of a recording, in bytes.
const maxLine = 16 << 20

// record distinguishes the kinds of lines. The rest of a line is parsed by its kind.
type record struct {
	Session, Item, Turn, Block rawMessage
	SystemPrompt               rawMessage `json:"system_prompt"`
	Type, Role                 rawMessage
	ToolCalls                  rawMessage `json:"tool_calls"`
}

// heading begins a session.
type heading struct {
	Instructions string `json:"instructions"`
	Tools        []tool `json:"tools"`
}

// note is a call of a layer's tool.
type note struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// parse reads a recording in the format of README.md. Its errors name the line and the field, and never quote content. name is
// the name of a session without a heading.
func parse(r io.Reader, name string) ([]*session, error) {
	p := &parser{name: name}
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for in.Scan() {
		n++
		if line := bytes.TrimSpace(in.Bytes()); len(line) > 0 {
			if err := p.line(line); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: longer than %d bytes", n+1, maxLine)
	} else if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	p.close()
	for i, s := range p.sessions {
		if len(s.steps) == 0 {
			return nil, fmt.Errorf("session %d of %d: no answer of a model", i+1, len(p.sessions))
		}
	}
	if len(p.sessions) == 0 {
		return nil, errors.New("line 1: no session")
	}
	return p.sessions, nil
}

// parser builds sessions from lines.
type parser struct {
	name     string
	sessions []*session
	now      *session
	next     step // the step being read
	answered bool // next has an answer, which may continue
}

func (p *parser) line(line []byte) error {
	var rec record
	if err := decode(line, &rec); err != nil {
		return err
	}
	kind := wire.Text(rec.Type)
	switch {
	case rec.Session != nil:
		return p.open(rec.Session, line)
	case rec.Item != nil:
		return p.exported(rec.Item)
	case rec.Turn != nil, rec.SystemPrompt != nil, rec.Block != nil:
		return nil // another line of an exported transcript
	case kind == "client_compaction":
		return p.compaction(line)
	case kind == "layer_call":
		return p.note(line)
	}
	d := dialects.Responses
	if role := wire.Text(rec.Role); kind == "" && (role == "tool" || role == "function" || rec.ToolCalls != nil) {
		d = dialects.Chat
	}
	return p.items(d, line)
}

// decode parses an object. Its errors name a field and quote nothing.
func decode(line []byte, into any) error {
	err := json.Unmarshal(line, into)
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return fmt.Errorf("%s: want another type than %s", mismatch.Field, mismatch.Value)
	}
	return errors.New("want a JSON object")
}

// open begins a session.
func (p *parser) open(name rawMessage, line []byte) error {
	p.close()
	var h heading
	if err := decode(line, &h); err != nil {
		return err
	}
	for i := range h.Tools {
		if h.Tools[i].Name == "" {
			return fmt.Errorf("tools[%d].name: missing", i)
		}
		if params := h.Tools[i].Parameters; len(params) > 0 && params[0] != '{' {
			return fmt.Errorf("tools[%d].parameters: want an object", i)
		}
	}
	p.begin(wire.Text(name)) // in an exported transcript it is an object
	p.now.instructions, p.now.tools = h.Instructions, h.Tools
	return nil
}

func (p *parser) begin(name string) {
	if name == "" && len(p.sessions) > 0 {
		name = fmt.Sprintf("%s-%d", p.name, len(p.sessions)+1)
	}
	p.now = &session{name: cmp.Or(name, p.name)}
	p.sessions = append(p.sessions, p.now)
}

// close ends the current session.
func (p *parser) close() {
	if p.answered {
		p.now.steps = append(p.now.steps, p.next)
	}
	p.now, p.next, p.answered = nil, step{}, false
}

// exported adds an item of `remora transcript`.
func (p *parser) exported(item []byte) error {
	var it memory.ExportedItem
	if err := decode(item, &it); err != nil {
		return fmt.Errorf("item: %w", err)
	}
	if !it.OnHead || it.Partial || it.Side || it.Hidden || it.Summary {
		return nil
	}
	d, err := dialects.Parse(it.Dialect)
	if err != nil {
		return errors.New("item.dialect: want chat or responses")
	}
	return p.items(d, it.Bytes())
}

func (p *parser) compaction(line []byte) error {
	var c compaction
	if err := decode(line, &c); err != nil {
		return err
	}
	switch {
	case c.Text == "":
		return errors.New("text: missing")
	case c.Keep < 0:
		return errors.New("keep: want 0 or more")
	}
	p.add(input{compact: &c})
	return nil
}

func (p *parser) note(line []byte) error {
	var n note
	if err := decode(line, &n); err != nil {
		return err
	}
	switch {
	case n.Name == "":
		return errors.New("name: missing")
	case !json.Valid([]byte(n.Arguments)):
		return errors.New("arguments: want a string of JSON")
	}
	p.flush()
	p.next.notes = append(p.next.notes, scripted.Call{Name: n.Name, Arguments: n.Arguments})
	return nil
}

// items adds one element of a history, which may be several items in Chat.
func (p *parser) items(d wire.Dialect, raw []byte) error {
	it, err := wire.ParseItem(d, bytes.Clone(raw))
	if err != nil {
		return errors.New("want a JSON object")
	}
	if it.Kind == wire.Other && d == dialects.Responses && wire.Member(raw, "type") == nil {
		return errors.New("type, role: want one of them")
	}
	list := []wire.Item{it}
	if d == dialects.Chat {
		var ok bool
		if list, ok = it.Convert(dialects.Responses); !ok { // no counterpart in Responses: count it as skipped
			p.skip()
			return nil
		}
	}
	for _, it := range list {
		if err := p.item(it); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) skip() {
	if p.now == nil {
		p.begin("")
	}
	p.now.skipped++
}

func (p *parser) item(it wire.Item) error {
	switch {
	case it.Kind == wire.Message && it.Role == wire.Assistant:
		return p.model(func(a *scripted.Answer) { a.Text = paragraphs(a.Text, it.Text()) })
	case it.Kind == wire.Reasoning:
		return p.model(func(a *scripted.Answer) { a.Reasoning = paragraphs(a.Reasoning, summary(it.Raw)) })
	case it.Kind == wire.ToolCall && (it.Parts[0].Call.Family == "function" || it.Parts[0].Call.Family == "custom_tool"):
		call := it.Parts[0].Call
		if call.Name == "" || call.ID == "" {
			return errors.New("name, call_id: missing")
		}
		return p.model(func(a *scripted.Answer) {
			a.Calls = append(a.Calls, scripted.Call{Name: call.Name, Arguments: it.Input(0), ID: call.ID})
			p.now.offer(call.Name, call.Family == "custom_tool")
		})
	case it.Kind == wire.Message, it.Kind == wire.ToolResult:
		if it.Role != wire.User && it.Kind == wire.Message && p.atHead() {
			p.now.instructions = paragraphs(p.now.instructions, it.Text())
			return nil
		}
		p.add(input{item: it})
		return nil
	}
	p.skip()
	return nil
}

// atHead opens a session if none is open, and reports whether it is empty.
func (p *parser) atHead() bool {
	if p.now == nil {
		p.begin("")
	}
	return len(p.now.steps) == 0 && !p.answered && len(p.next.input) == 0
}

// flush ends the step of the last answer.
func (p *parser) flush() {
	if p.atHead() || !p.answered {
		return
	}
	p.now.steps = append(p.now.steps, p.next)
	p.next, p.answered = step{}, false
}

func (p *parser) add(in input) {
	p.flush()
	p.next.input = append(p.next.input, in)
}

// model changes the current answer. A recording must begin with a user message, since an answer needs a request.
func (p *parser) model(change func(*scripted.Answer)) error {
	if p.atHead() {
		return errors.New("role: the first item must be a user message")
	}
	p.answered = true
	change(&p.next.answer)
	return nil
}

func paragraphs(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

// summary returns the text of a reasoning item.
func summary(raw []byte) string {
	var text string
	for part := range wire.Children(wire.Member(raw, "summary")) {
		text = paragraphs(text, wire.Text(wire.Member(part.Value, "text")))
	}
	return text
}
