package memory_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"remora/memory"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// A client that resends its history may change its API with every request: what it resends is recognised in either, so that
// each item is stored once and nothing but what is new goes after the head.
func TestClientThatChangesItsAPI(t *testing.T) {
	item := func(d wire.Dialect, raw string) wire.Item { return wiretest.Parse(t, d, raw) }
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(t, memory.Options{})
		history := []wire.Item{item(dialects.Chat, `{"role":"system","content":"Be brief."}`)}
		calls, stored := 0, 0
		for turn := range rapid.IntRange(1, 8).Draw(rt, "turns") {
			chat := rapid.Bool().Draw(rt, "chat")
			d := dialects.Responses
			if chat {
				d = dialects.Chat
			}

			// What is new: the results of open calls, or else words, with a picture now and then.
			fresh := 0
			for _, it := range slices.Clone(history) {
				for _, call := range it.Calls() {
					if !slices.ContainsFunc(history, func(o wire.Item) bool { return o.Kind == wire.ToolResult && o.Answers().ID == call.ID }) {
						history = append(history, wire.NewToolResult(call, it.Dialect, "result of "+call.ID))
						fresh++
					}
				}
			}
			if fresh == 0 {
				said := fmt.Sprintf(`{"role":"user","content":"q%d"}`, turn)
				if rapid.Bool().Draw(rt, "picture") {
					said = fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":"q%d"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`, turn)
				}
				history = append(history, item(dialects.Chat, said))
				fresh = 1
			}

			sent := wire.ConvertAll(history, d)
			list := make([][]byte, len(sent))
			for i, it := range sent {
				list[i] = it.Raw
			}
			member := "input"
			if chat {
				member = "messages"
			}
			request := wiretest.Request(rt, d, fmt.Sprintf(`{"model":"m","%s":[%s]}`, member, bytes.Join(list, []byte(","))))
			begun, err := l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: request})
			if err != nil {
				rt.Fatal(err)
			}
			if len(begun.View) != len(sent) {
				rt.Fatalf("turn %d: %d items were sent, and %d go upstream", turn, len(sent), len(begun.View))
			}

			var answer []wire.Item
			words, n := fmt.Sprintf("a%d", turn), rapid.IntRange(0, 2).Draw(rt, "calls")
			call := func(form string) string {
				calls++
				return fmt.Sprintf(form, calls, calls)
			}
			if chat {
				raw := `{"role":"assistant","content":"` + words + `"}`
				if n > 0 {
					raw = `{"role":"assistant","content":"` + words + `","tool_calls":[` + call(`{"id":"c%d","type":"function","function":{"name":"f","arguments":"{\"x\": %d}"}}`)
					for range n - 1 {
						raw += "," + call(`{"id":"c%d","type":"function","function":{"name":"f","arguments":"{\"x\":%d}"}}`)
					}
					raw += `]}`
				}
				answer = append(answer, item(d, raw))
			} else {
				answer = append(answer, item(d, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"`+words+`","annotations":[]}]}`))
				for range n {
					answer = append(answer, item(d, call(`{"type":"function_call","call_id":"c%d","name":"f","arguments":"{\"x\":%d}"}`)))
				}
			}
			begun.Commit(memory.Answer{HTTPStatus: 200, Reply: wire.Reply{Complete: true, ID: fmt.Sprintf("id-%d", turn), Choices: [][]wire.Item{answer}}})
			history = append(history, answer...)

			stored += fresh + len(answer)
			if line, all := l.stored(); len(line) != stored || all != stored {
				rt.Fatalf("turn %d in %s: %d items are stored, %d of them on the head, want %d:\n%s", turn, d, all, len(line), stored, line)
			}
		}
		for i, r := range l.records() {
			if want := "continue"; i > 0 && r.Relation != want {
				rt.Fatalf("turn %d: relation %s, want %s", i, r.Relation, want)
			}
		}
	})
}
