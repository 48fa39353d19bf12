package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

// chatAgent is a Chat Completions agent that resends its history, as frameworks do.
type chatAgent struct {
	g        *gate
	session  string
	messages []string
	forgets  bool     // it begins every run with only the new message; otherwise upstream gets what it sends
	turns    []string // ids of its turns
	memory   string   // X-Memory of the last one
}

func (g *gate) agent(session, instructions string) *chatAgent {
	return &chatAgent{g: g, session: session, messages: []string{fmt.Sprintf(`{"role":"system","content":%q}`, instructions)}}
}

func (a *chatAgent) body(messages []string) string {
	return `{"model":"m","messages":[` + strings.Join(messages, ",") + `]}`
}

// step sends the history as changed by edit, and returns the id of the answer's call, or its text.
func (a *chatAgent) step(t *testing.T, edit func([]string) []string) (call, text string) {
	t.Helper()
	request := a.body(edit(a.messages))
	r := a.g.ask(t, "chat/completions", request, "X-Session-Id: "+a.session)
	if r.status != http.StatusOK {
		t.Fatalf("%s: status %d, %.500s", a.messages[len(a.messages)-1], r.status, r.body)
	}
	if !a.forgets {
		checkItems(t, a.messages[len(a.messages)-1], []byte(request), []byte(a.g.seen(t)), r.header.Get("X-Memory"))
	}
	var body struct {
		Choices []struct{ Message any }
	}
	decode(t, []byte(r.body), &body)
	a.messages = append(a.messages, string(encode(t, body.Choices[0].Message)))
	a.turns, a.memory = append(a.turns, r.header.Get("X-Turn-Id")), r.header.Get("X-Memory")
	d := dialect{path: "chat/completions"}
	e := exchange{req: message{start: "POST /v1/" + d.path + " HTTP/1.1"}, resp: message{body: []byte(r.body)}}
	e.resp.headers = []string{"Content-Type: " + r.header.Get("Content-Type")}
	for _, f := range answer(t, e)[0] {
		if kind, rest, _ := strings.Cut(f, " "); kind == "call" {
			call, _, _ = strings.Cut(rest, " ")
		} else {
			text = f
		}
	}
	return call, text
}

// run asks a question, and answers every call with the result of work for its number, until the model makes no more calls.
func (a *chatAgent) run(t *testing.T, question string, edit func([]string) []string, work func(n int) string) (text string) {
	t.Helper()
	a.messages = append(a.messages, user(question))
	for n := 1; ; n++ {
		call, text := a.step(t, edit)
		if call == "" {
			return text
		}
		a.messages = append(a.messages, fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%q}`, call, work(n)))
	}
}

func unedited(messages []string) []string { return messages }

// TestAgentAsATool: an agent that runs as a tool of another agent's first turn, in the same session, is a separate branch,
// however many calls it makes: it gets nothing of the conversation, which is unaffected.
func TestAgentAsATool(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	chief := g.agent("s", "You are the chief.")
	var workers []*chatAgent
	text := chief.run(t, "LOOP 3 ask {}", unedited, func(n int) string {
		w := g.agent("s", "You are a worker.")
		workers = append(workers, w)
		return w.run(t, fmt.Sprintf("LOOP 2 ls {\"n\":%d}", n), unedited, func(int) string { return "file" })
	})
	if want := "assistant Done. Tool results: 3, the last: assistant Done. Tool results: 2, the last: file"; text != want {
		t.Errorf("the chief says %q, want %q", text, want)
	}
	for _, w := range workers {
		if !strings.HasPrefix(w.memory, "ok;items=6;sent=6;") {
			t.Errorf("X-Memory of a worker: %s", w.memory)
		}
	}
	chief.run(t, "Bye", unedited, nil)
	g.sound(t)
	g.proxy.Stop()
	var line []string
	for _, it := range g.proxy.in(t).transcript("s") {
		if it.OnHead {
			line = append(line, string(it.JSON))
		}
	}
	if diff := cmp.Diff(factsOf(t, chief.messages[1:]), factsOf(t, line)); diff != "" {
		t.Errorf("the conversation is not the chief's (-want +got):\n%s", diff)
	}
}

// TestOldResultsAreBlanked: if an agent blanks the results of old calls, one more in each step, each item is stored at most
// twice, as it was and blanked, and views can be shown.
func TestOldResultsAreBlanked(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	const steps, keep = 30, 2
	a := g.agent("s", "You work.")
	blank := func(messages []string) []string {
		out := append([]string(nil), messages...)
		left := keep
		for i := len(out) - 1; i >= 0; i-- {
			if !strings.Contains(out[i], `"tool_call_id"`) {
				continue
			}
			if left--; left < 0 {
				out[i] = strings.Replace(out[i], `"content":"result`, `"content":"[cleared] result`, 1)
			}
		}
		return out
	}
	a.run(t, fmt.Sprintf("LOOP %d ls {}", steps), blank, func(n int) string { return fmt.Sprint("result ", n) })
	last := factsOf(t, blank(a.messages[:len(a.messages)-1])[1:])
	g.sound(t)
	g.proxy.Stop()
	if got, most := len(g.proxy.in(t).transcript("s")), 2*len(a.messages); got > most {
		t.Errorf("%d messages are stored as %d items, want at most %d", len(a.messages), got, most)
	}
	for i, id := range a.turns {
		if i%5 != 0 && i != len(a.turns)-1 {
			continue
		}
		view := strings.Split(strings.TrimSpace(g.proxy.in(t).transcriptOf(t, "--session", "s", "--turn", id)), "\n")
		if i == len(a.turns)-1 {
			if diff := cmp.Diff(last, factsOf(t, view[1:])); diff != "" {
				t.Errorf("the last view (-want +got):\n%s", diff)
			}
		}
	}
}

// TestRunsWithoutAMemory: an agent that begins every run with only the new message (openai-agents without a session, LangGraph
// without a checkpointer) gets the earlier history with each request of a run, and nothing is stored twice.
func TestRunsWithoutAMemory(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	a := g.agent("s", "You work.")
	a.forgets = true
	whole := a.messages[:1:1]
	for _, question := range []string{"My name is Ada", "LOOP 2 add {\"a\":1}", "CALL add {\"a\":2}", "Bye"} {
		a.messages = a.messages[:1]
		a.run(t, question, unedited, func(n int) string {
			said := append(slices.Clip(whole), a.messages[1:len(a.messages)-1]...)
			if diff := cmp.Diff(factsOf(t, said), sent(t, g.seen(t))); diff != "" {
				t.Errorf("%s, request %d: upstream sees (-want +got):\n%s", question, n, diff)
			}
			return fmt.Sprint("result ", n)
		})
		whole = append(whole, a.messages[1:]...)
		if diff := cmp.Diff(factsOf(t, whole[:len(whole)-1]), sent(t, g.seen(t))); diff != "" {
			t.Errorf("%s: upstream sees (-want +got):\n%s", question, diff)
		}
	}
	g.sound(t)
	g.proxy.Stop()
	if got, want := len(g.proxy.in(t).transcript("s")), len(whole)-1; got != want {
		t.Errorf("%d items are stored, want %d", got, want)
	}
	view := strings.Split(strings.TrimSpace(g.proxy.in(t).transcriptOf(t, "--session", "s", "--turn", a.turns[2])), "\n")
	if diff := cmp.Diff(factsOf(t, whole[:6]), factsOf(t, view)); diff != "" {
		t.Errorf("the view of a run's second request (-want +got):\n%s", diff)
	}
}

// factsOf returns the facts of several items.
func factsOf(t *testing.T, items []string) (out []string) {
	t.Helper()
	for _, it := range items {
		out = append(out, facts(t, []byte(it))...)
	}
	return out
}
