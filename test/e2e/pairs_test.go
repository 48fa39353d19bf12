package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
)

// TestPairsApart: calls and results in an order that upstream refuses are reordered, and those that do not fit are left out. A
// request without a session is forwarded unchanged, and upstream refuses it.
func TestPairsApart(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	for _, c := range []struct{ name, sent, chat, responses string }{
		{"in order", "u1 c1 r1 u2", "", ""},
		{"a user message between", "u1 c1 u2 r1", "u1 c1 r1 u2", ""},
		{"a system message between", "u1 c1 s2 r1 u3", "u1 c1 r1 s2 u3", ""},
		{"an assistant message between", "u1 c1 a2 r1 u3", "u1 c1 r1 a2 u3", ""},
		{"far behind", "u1 c1 u2 a2 u3 a3 r1 u4", "u1 c1 r1 u2 a2 u3 a3 u4", ""},
		{"before its call", "u1 r1 c1 u2", "u1 c1 r1 u2", "u1 c1 r1 u2"},
		{"two callers, then two results", "u1 c1 c2 r1 r2 u2", "u1 c1 r1 c2 r2 u2", ""},
		{"two results", "u1 c1 r1 r1 u2", "u1 c1 r1 u2", "u1 c1 r1 u2"},                             //nolint:dupword // items
		{"one id twice", "u1 c1 c1 r1 u2", "u1 c1 r1 u2", "u1 c1 r1 u2"},                            //nolint:dupword // items
		{"one id twice, with two results", "u1 c1 c1 r1 r1 u2", "u1 c1 r1 c1 r1 u2", "u1 c1 r1 u2"}, //nolint:dupword // items
		{"an id that comes back", "u1 c1 r1 u2 c1 r1 u3", "", ""},
		{"a result of a run before", "u1 r1 u2 c1 r1 u3", "u1 u2 c1 r1 u3", "u1 u2 c1 r1 u3"},
		{"a call without a result", "u1 c1 u2", "u1 u2", "u1 u2"},
		{"a result without a call", "u1 r1 u2", "u1 u2", "u1 u2"},
	} {
		for _, d := range dialects {
			for _, before := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s stored=%v", c.name, d, before), func(t *testing.T) {
					session := "X-Session-Id: " + t.Name()
					want := c.chat
					if d.path == "responses" {
						want = c.responses
					}
					refused := want != ""
					if want == "" {
						want = c.sent
					}
					body := string(encode(t, d.request(spell(t, d, c.sent))))
					if before {
						g.say(t, d, "SAY Before.", session)
					}

					r := g.ask(t, d.path, body, session)
					if r.status != http.StatusOK {
						t.Errorf("%d %.300s", r.status, r.body)
					}
					if got := wordsOf(t, g.seen(t)); got != want {
						t.Errorf("%s\n got %s\nwant %s", c.sent, got, want)
					}
					if !refused && g.seen(t) != body {
						t.Errorf("upstream would have accepted it, and is sent %s", g.seen(t))
					}
					if memory := r.header.Get("X-Memory"); (count(t, memory, "repaired") > 0) != refused {
						t.Errorf("X-Memory is %q", memory)
					}

					// The next requests of both habits are valid too.
					g.say(t, d, "SAY Behind.", session)
					body = string(encode(t, d.request(append(spell(t, d, c.sent), spell(t, d, "a8 u9")...))))
					if r = g.ask(t, d.path, body, session); r.status != http.StatusOK {
						t.Errorf("resent: %d %.300s", r.status, r.body)
					}
				})
			}
		}
	}
	g.sound(t)

	for _, d := range dialects {
		body := string(encode(t, d.request(spell(t, d, "u1 r1 c1 u2"))))
		r := g.ask(t, d.path, body, "X-Session-Id: ")
		if r.status != http.StatusBadRequest || g.seen(t) != body {
			t.Errorf("%s without a session: %d, sent as %s", d, r.status, g.seen(t))
		}
	}
}

// TestApprovalsAndPrograms: a window does not separate an approval from its request, or a program from its calls and output, and
// leaves out incomplete pairs. A client that sends only new items sends only the approval.
func TestApprovalsAndPrograms(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 6, evict_batch: 1, in_flight: window}]", scripted.Options{})
	for _, stream := range []bool{false, true} {
		d := dialect{"responses", stream}
		for n := 1; n < 14; n++ { // the window starts at each of them
			items := spell(t, d, "u1 c1 r1")
			items = append(items,
				map[string]any{"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "s"},
				map[string]any{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true},
				map[string]any{"type": "program", "id": "prog_1", "call_id": "call_p", "code": "f()"})
			items = append(items, spell(t, d, "c2 r2")...)
			items = append(items, map[string]any{"type": "program_output", "id": "pout_1", "call_id": "call_p", "result": "x", "status": "completed"})
			items = append(items, spell(t, d, strings.Repeat(" c3 r3", n))...)
			for _, part := range [][]any{items, items[min(4, len(items)):], items[min(8, len(items)):]} { // the client itself shortens its history
				session := fmt.Sprint("X-Session-Id: ", t.Name(), stream, n, len(part))
				if r := g.ask(t, d.path, string(encode(t, d.request(part))), session); r.status != http.StatusOK {
					t.Errorf("%d items: %d %.300s", len(part), r.status, r.body)
				}
			}
		}

		session := fmt.Sprint("X-Session-Id: new ", stream)
		request := append(spell(t, d, "u1"), map[string]any{"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "s"})
		g.ask(t, d.path, string(encode(t, d.request(request))), session)
		answer := []any{map[string]any{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true}}
		if r := g.ask(t, d.path, string(encode(t, d.request(answer))), session); r.status != http.StatusOK || !strings.Contains(g.seen(t), "mcpr_1") {
			t.Errorf("only what is new: %d %.300s; sent %s", r.status, r.body, g.seen(t))
		}
	}
	g.sound(t)
}

// request returns a request with these items.
func (d dialect) request(items []any) map[string]any {
	list := "messages"
	if d.path == "responses" {
		list = "input"
	}
	return map[string]any{"model": "m", "stream": d.stream, list: items}
}

// spell returns the items of words: u, a and s are messages of the user, the assistant and the system, cN and rN are call N and
// its result.
func spell(t *testing.T, d dialect, words string) (items []any) {
	t.Helper()
	roles := map[byte]string{'u': "user", 'a': "assistant", 's': "system"}
	for word := range strings.FieldsSeq(words) {
		id := "call_" + word[1:]
		var it map[string]any
		switch {
		case roles[word[0]] != "":
			it = map[string]any{"role": roles[word[0]], "content": word}
		case word[0] == 'c' && d.path == "responses":
			it = map[string]any{"type": "function_call", "call_id": id, "name": "ls", "arguments": "{}"}
		case word[0] == 'c':
			call := map[string]any{"id": id, "type": "function", "function": map[string]any{"name": "ls", "arguments": "{}"}}
			it = map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{call}}
		case d.path == "responses":
			it = map[string]any{"type": "function_call_output", "call_id": id, "output": "ok"}
		default:
			it = map[string]any{"role": "tool", "tool_call_id": id, "content": "ok"}
		}
		items = append(items, it)
	}
	return items
}

// wordsOf is the inverse of spell for the body of a request. It ignores items before the first word, and layers' blocks.
func wordsOf(t *testing.T, body string) string {
	t.Helper()
	var words []string
	for _, raw := range listed(t, []byte(body)) {
		var it struct {
			Role, Type, Content string
			CallID              string                `json:"call_id"`
			ToolCallID          string                `json:"tool_call_id"`
			ToolCalls           []struct{ ID string } `json:"tool_calls"`
		}
		_ = json.Unmarshal(raw, &it) // content in parts is ignored
		number := func(id string) string { return strings.TrimPrefix(id, "call_") }
		switch {
		case it.Type == "function_call":
			words = append(words, "c"+number(it.CallID))
		case it.Type == "function_call_output":
			words = append(words, "r"+number(it.CallID))
		case it.ToolCallID != "":
			words = append(words, "r"+number(it.ToolCallID))
		case len(it.ToolCalls) > 0:
			words = append(words, "c"+number(it.ToolCalls[0].ID))
		case len(it.Content) == 2:
			words = append(words, it.Content)
		}
	}
	return strings.Join(words, " ")
}
