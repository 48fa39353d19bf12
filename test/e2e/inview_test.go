package e2e

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"remora/test/scripted"
)

// TestStatementsInTheViewAreNotRecalled: an observation is only recalled if its message is not in the request: in another
// session, and in its own once the window leaves the message out. Clients have both habits.
func TestStatementsInTheViewAreNotRecalled(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 4, evict_batch: 1}, {kind: observational_memory}]", scripted.Options{})
	const said, block = "I am allergic to walnuts.", "- user: I am allergic to walnuts."
	for _, d := range dialects {
		for name, resends := range map[string]bool{"what is new": false, "resent": true} {
			t.Run(d.String()+" "+name, func(t *testing.T) {
				var history []any
				told := func(session, text string) bool {
					t.Helper()
					history = append(history, map[string]any{"role": "user", "content": text})
					if !resends {
						history = history[len(history)-1:]
					}
					body := map[string]any{"model": "m", "stream": d.stream, "messages": history}
					if d.path == "responses" {
						body = map[string]any{"model": "m", "stream": d.stream, "store": false, "input": history}
					}
					r := g.ask(t, d.path, string(encode(t, body)), "X-Session-Id: "+session+" "+t.Name(), "X-Resource-Id: "+t.Name())
					if r.status != http.StatusOK {
						t.Fatalf("%q: status %d, %.500s", text, r.status, r.body)
					}
					history = append(history, map[string]any{"role": "assistant", "content": "You said: " + text})
					return strings.Contains(g.seen(t), block)
				}

				for i, text := range []string{said, "two", "three", "four"} {
					want := i >= 2 // four items are sent: the first message is cut off with the third
					if told("one", text) != want {
						t.Errorf("request %d: told %v, want %v: %s", i+1, !want, want, g.seen(t))
					}
				}

				history = nil
				if !told("two", "hello") {
					t.Errorf("another session is not told: %s", g.seen(t))
				}
				history = nil
				if told("three", said) {
					t.Errorf("told beside the same words: %s", g.seen(t))
				}
			})
		}
	}
	g.sound(t)
}

// TestResultsAreRecalledOnceTheWindowHasCutThem: tool_memory shows a result while the view lacks it, also inside the run whose
// window has cut it off, and with the layer's default scope.
func TestResultsAreRecalledOnceTheWindowHasCutThem(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"execution", "thread"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			g := startGate(t, "[{kind: history_window, max_items: 6, in_flight: window}, {kind: tool_memory, scope: "+scope+
				", tools: [{name: ls, keep: 1, template: 'listed: {result}'}]}]", scripted.Options{})
			message := map[string]any{"role": "user", "content": `CALL ls {"n":0};;LOOP 8 rm {"n":{{i}}};;SAY done`}
			for i := range 10 {
				b := map[string]any{"model": "m", "messages": []any{message}}
				r := g.ask(t, "chat/completions", string(encode(t, b)))
				if r.status != http.StatusOK {
					t.Fatalf("request %d: status %d, %.500s", i, r.status, r.body)
				}
				sent := g.seen(t)
				told, there := strings.Count(sent, "listed: result 0"), strings.Count(sent, `"content":"result 0"`)
				if i > 0 && told+there != 1 {
					t.Errorf("request %d has the result %d times in the block and %d times in the history", i, told, there)
				}
				if i == 9 {
					if told != 1 {
						t.Error("the last request does not have the block")
					}
					break
				}
				var answer struct {
					Choices []struct {
						Message struct {
							Calls []struct{ ID string } `json:"tool_calls"`
						}
					}
				}
				decode(t, []byte(r.body), &answer)
				message = map[string]any{"role": "tool", "tool_call_id": answer.Choices[0].Message.Calls[0].ID, "content": "result " + strconv.Itoa(i)}
			}
			g.say(t, dialects[0], "What was it?")
			if told := strings.Contains(g.seen(t), "listed: result 0"); told != (scope == "thread") {
				t.Errorf("the next run is told: %v", told)
			}
			g.sound(t)
		})
	}
}
