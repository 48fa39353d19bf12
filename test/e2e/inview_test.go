package e2e

import (
	"net/http"
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
