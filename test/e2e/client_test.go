package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"remora/test/scripted"
)

// client is a client of a gate with a conversation.
type client struct {
	g       *gate
	d       dialect
	session string // empty for String
	headers []string
	// members are added to each request. They replace model and stream.
	members map[string]any
	habit   habit
	// history is sent before new items, as edit returns it if that is set; history itself stays.
	history []json.RawMessage
	edit    func(history []json.RawMessage) []json.RawMessage
	// checked requires that upstream gets what the client sends.
	checked bool
	answers []reply
}

// habit says what a client adds to its history.
type habit string

const (
	onlyNew     habit = "only new" // nothing
	resendsText habit = "resends"  // its messages, and the text of answers
	resendsAll  habit = "agent"    // its items, and those of answers, which are not streamed
)

// clients returns clients of all dialects that make no calls.
func clients(g *gate) (all []*client) {
	for _, d := range dialects {
		for _, h := range []habit{resendsText, onlyNew} {
			all = append(all, &client{g: g, d: d, habit: h})
		}
	}
	return all
}

func (c *client) String() string {
	model, _ := c.members["model"].(scripted.Kind)
	return strings.TrimSpace(fmt.Sprint(model, " ", c.d, " ", c.habit))
}

// say sends a user message and returns the answer, which may be an error.
func (c *client) say(t *testing.T, text string) reply {
	t.Helper()
	return c.send(t, user(text))
}

// run sends a user message, and the result that work returns for the number of each call, until an answer has no calls. It
// returns the last fact of that answer.
func (c *client) run(t *testing.T, text string, work func(n int) string) string {
	t.Helper()
	next, n := []string{user(text)}, 0
	for {
		r := c.send(t, next...)
		if r.status != http.StatusOK {
			t.Fatalf("%s: status %d, %.500s", next, r.status, r.body)
		}
		next = nil
		facts := c.d.rawFacts(t, r)
		for _, f := range facts {
			if id := callOf(f); id != "" {
				n++
				next = append(next, c.d.result(id, work(n)))
			}
		}
		if len(next) == 0 {
			return facts[len(facts)-1]
		}
	}
}

// aFile is the result of every call of some clients.
func aFile(int) string { return "a file" }

// send sends items and returns the answer, which may be an error.
func (c *client) send(t *testing.T, items ...string) reply {
	t.Helper()
	history := slices.Clip(c.history)
	for _, it := range items {
		history = append(history, json.RawMessage(it))
	}
	sent := history
	if c.edit != nil {
		sent = c.edit(history)
	}
	body := map[string]any{"model": "m", "stream": c.d.stream, c.d.list(): sent}
	maps.Copy(body, c.members)
	request := encode(t, body)
	r := c.g.ask(t, c.d.path, string(request), append([]string{"X-Session-Id: " + cmp.Or(c.session, c.String())}, c.headers...)...)
	c.answers = append(c.answers, r)
	if r.status != http.StatusOK {
		return r
	}
	if c.checked {
		checkItems(t, fmt.Sprint(items), request, []byte(c.g.seen(t)), r.header.Get("X-Memory"))
	}

	switch c.habit {
	case onlyNew:
	case resendsText:
		text := ""
		for _, f := range c.d.facts(t, r) {
			if said, ok := strings.CutPrefix(f, "assistant "); ok {
				text += said
			}
		}
		c.history = append(history, json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":%q}`, text)))
	case resendsAll:
		var whole struct {
			Output  []json.RawMessage
			Choices []struct{ Message json.RawMessage }
		}
		decode(t, []byte(r.body), &whole)
		c.history = append(history, whole.Output...)
		for _, choice := range whole.Choices {
			c.history = append(c.history, choice.Message)
		}
	}
	return r
}
