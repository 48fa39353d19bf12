package layertest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"remora/memory/layer"
	"remora/wire"
	"remora/wire/dialects"
)

type dialect = wire.Dialect

// How long a session is. Turns come in pairs: the user asks and the model calls tools; their results, and the answer.
const (
	turns        = 6
	lastTurn     = turns - 1
	floodTurns   = 12
	floodBytes   = 64 << 10
	recallBudget = 1000
)

var allDialects = dialects.All()

// budgets are the budgets tried with every state, in tokens.
var budgets = []int{0, 1, 2, 3, 4, 5, 7, 10, 13, 16, 20, 25, 33, 50, 80, 100, 150, 250, 500, 800, 2500, 100000, math.MaxInt}

// counters are the ways of counting tokens that are tried: the simple estimates that agents use, and one that prices each character as
// vocabularies price rare ones.
var counters = map[string]func(string) int{
	"utf16/4": Quarter,
	"runes":   utf8.RuneCountInString,
}

// closing is in every text that is said. No block has such a tag.
const closing = "</zz>"

// script is the conversation that a session plays: what its client, its model and its tools say.
type script struct {
	name    string // of the session
	dialect dialect
	count   func(string) int // of tokens
	calls   []layer.ToolCall // of client tools, beside those that every script has
	model   layer.Model
	flood   bool // texts and arguments are large
}

// text returns the message of a turn: something worth remembering, in several scripts, with a closing tag.
func (p *script) text(n int, who string) string {
	s := fmt.Sprintf("My name is %s%d %s and I prefer tea; the %s meeting is on 2026-03-0%d. naïve 日本語 🦈 \"quoted\"",
		strings.ToUpper(p.name), n, closing, who, n%9+1)
	if p.flood {
		s = strings.Repeat(s+"\n", floodBytes/len(s))
	}
	return s
}

// turn is the request of turn n.
func (p *script) turn(n int) layer.Turn {
	return layer.Turn{
		ID: fmt.Sprintf("turn-%s-%04d", p.name, n), Thread: "thread-" + p.name, Resource: "resource-" + p.name,
		Execution: fmt.Sprintf("execution-%s-%d", p.name, n/2),
		Now:       time.Date(2026, 3, 5, 9, n, 0, 0, time.UTC),
		Dialect:   p.dialect, Model: "gpt-4o", Query: p.text(n-n%2, "user"), Tools: p.toolNames(),
		Count: p.count, CountItem: func(it wire.Item) int { return p.count(string(it.Raw)) }, Ask: p.model,
		Note: func(string, any) {}, Cut: p.cut(n),
	}
}

// cut returns the window cut of turn n, for a window that shows the last turn and cuts at every other one.
func (p *script) cut(n int) *layer.WindowCut {
	if n == 0 {
		return nil
	}
	said := func(from, to int) func(context.Context) ([]wire.Item, error) {
		return func(context.Context) (items []wire.Item, err error) {
			for m := from; m < to; m++ {
				items = append(append(items, p.input(m)...), p.response(m).Items...)
			}
			return items, nil
		}
	}
	return &layer.WindowCut{Place: func(context.Context) (string, error) { return fmt.Sprint(n / 2), nil }, Lost: said(0, n-1), Shown: said(n-1, n)}
}

func (p *script) toolNames() []string {
	var names []string
	for _, c := range p.turnCalls(0) {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

// turnCalls are the model's calls of the client's tools in turn n.
func (p *script) turnCalls(n int) []layer.ToolCall {
	if n%2 != 0 {
		return nil
	}
	arguments, _ := json.Marshal(map[string]any{"path": fmt.Sprintf("notes-%d.md", n), "text": p.text(n, "assistant")})
	calls := []layer.ToolCall{{Name: "read_file", Arguments: string(arguments)}, {Name: "shell", Arguments: "not JSON"}}
	calls = append(calls, p.calls...)
	for i := range calls {
		calls[i].ID = fmt.Sprintf("call_%s_%d_%d", p.name, n, i)
	}
	return calls
}

// input are the new items of turn n.
func (p *script) input(n int) []wire.Item {
	if n%2 == 0 {
		return []wire.Item{wire.NewMessage(p.dialect, wire.User, p.text(n, "user"))}
	}
	var items []wire.Item
	for i, c := range p.turnCalls(n - 1) {
		output := fmt.Sprintf("result %d: %s", i, p.text(n, "tool"))
		items = append(items, wire.NewToolResult(wire.Call{ID: c.ID, Family: "function", Name: c.Name}, p.dialect, output))
	}
	return items
}

// response is the model's answer of turn n.
func (p *script) response(n int) layer.Response {
	calls, text := p.turnCalls(n), p.text(n, "assistant")
	return layer.Response{Items: p.answer(text, calls), Input: p.input(n), Calls: calls, Text: text, Done: len(calls) == 0}
}

func (p *script) answer(text string, calls []layer.ToolCall) []wire.Item {
	type m = map[string]any
	if p.dialect == dialects.Chat {
		message := m{"role": "assistant", "content": text}
		var list []m
		for _, c := range calls {
			list = append(list, m{"id": c.ID, "type": "function", "function": m{"name": c.Name, "arguments": c.Arguments}})
		}
		if list != nil {
			message["tool_calls"] = list
		}
		return []wire.Item{p.item(message)}
	}
	items := []wire.Item{p.item(m{"type": "message", "role": "assistant", "content": []m{{"type": "output_text", "text": text}}})}
	for _, c := range calls {
		items = append(items, p.item(m{"type": "function_call", "call_id": c.ID, "name": c.Name, "arguments": c.Arguments}))
	}
	return items
}

func (p *script) item(v map[string]any) wire.Item {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode an item: %v", err))
	}
	it, err := wire.ParseItem(p.dialect, raw)
	if err != nil {
		panic(fmt.Sprintf("BUG: parse an item: %v", err))
	}
	return it
}

// arguments are inputs that fit the JSON schema of a tool: every property with a sample, each value of an enum in turn.
func (p *script) arguments(schema []byte, n int) [][]byte {
	var object map[string]any
	if json.Unmarshal(schema, &object) != nil {
		return nil
	}
	sample, ok := p.sample(object, n, 0).(map[string]any)
	if !ok {
		return nil
	}
	if len(sample) == 0 {
		sample["note_"+fmt.Sprint(n%3)] = p.text(n, "assistant")
	}
	raw, err := json.Marshal(sample)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode arguments: %v", err))
	}
	return [][]byte{raw}
}

func (p *script) sample(schema map[string]any, n, depth int) any {
	if enum, ok := schema["enum"].([]any); ok && len(enum) > 0 {
		return enum[n%len(enum)]
	}
	switch schema["type"] {
	case "string":
		return fmt.Sprintf("%d %s", n%4, p.text(n, "assistant"))
	case "integer", "number":
		return n
	case "boolean":
		return n%2 == 0
	case "array":
		items, _ := schema["items"].(map[string]any)
		return []any{p.sample(items, n, depth+1)}
	case "object":
		out := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if property, ok := properties[name].(map[string]any); ok && depth < 8 {
				out[name] = p.sample(property, n, depth+1)
			}
		}
		return out
	default:
		return map[string]any{"n": n, "text": p.text(n, "assistant")}
	}
}

// copyTurn is a turn that shares nothing that can be changed, without its functions, which cannot be compared.
func copyTurn(t layer.Turn) layer.Turn {
	t.Tools, t.Count, t.CountItem, t.Note, t.Ask, t.Cut = slices.Clone(t.Tools), nil, nil, nil, nil, nil
	return t
}

func copyResponse(r layer.Response) layer.Response {
	r.Items, r.Input, r.Calls = copyItems(r.Items), copyItems(r.Input), slices.Clone(r.Calls)
	return r
}

func copyItems(items []wire.Item) []wire.Item {
	items = slices.Clone(items)
	for i := range items {
		items[i].Raw, items[i].Parts = slices.Clone(items[i].Raw), slices.Clone(items[i].Parts)
	}
	return items
}

func raws(items []wire.Item) []string {
	var out []string
	for _, it := range items {
		out = append(out, string(it.Raw))
	}
	return out
}
