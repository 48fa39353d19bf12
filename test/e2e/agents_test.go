package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

// agent returns a Chat Completions agent that resends its history, as frameworks do.
func (g *gate) agent(session, instructions string) *client {
	system := json.RawMessage(fmt.Sprintf(`{"role":"system","content":%q}`, instructions))
	return &client{g: g, d: dialect{path: "chat/completions"}, session: session, habit: resendsAll, checked: true, history: []json.RawMessage{system}}
}

// TestAgentAsATool: an agent that runs as a tool of another agent's first turn, in the same session, is a separate branch,
// however many calls it makes: it gets nothing of the conversation, which is unaffected.
func TestAgentAsATool(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	chief := g.agent("s", "You are the chief.")
	var workers []*client
	text := chief.run(t, "LOOP 3 ask {}", func(n int) string {
		w := g.agent("s", "You are a worker.")
		workers = append(workers, w)
		return w.run(t, fmt.Sprintf("LOOP 2 ls {\"n\":%d}", n), func(int) string { return "file" })
	})
	if want := "assistant Done. Tool results: 3, the last: assistant Done. Tool results: 2, the last: file"; text != want {
		t.Errorf("the chief says %q, want %q", text, want)
	}
	for _, w := range workers {
		if memory := w.answers[len(w.answers)-1].header.Get("X-Memory"); !strings.HasPrefix(memory, "ok;items=6;sent=6;") {
			t.Errorf("X-Memory of a worker: %s", memory)
		}
	}
	chief.run(t, "Bye", nil)
	g.sound(t)
	g.proxy.Stop()
	var line []json.RawMessage
	for _, it := range g.proxy.transcript(t, "s") {
		if it.OnHead {
			line = append(line, it.JSON)
		}
	}
	if diff := cmp.Diff(factsOf(t, chief.history[1:]), factsOf(t, line)); diff != "" {
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
	a.edit = func(history []json.RawMessage) []json.RawMessage {
		out := slices.Clone(history)
		left := keep
		for i := len(out) - 1; i >= 0; i-- {
			if !bytes.Contains(out[i], []byte(`"tool_call_id"`)) {
				continue
			}
			if left--; left < 0 {
				out[i] = bytes.Replace(out[i], []byte(`"content":"result`), []byte(`"content":"[cleared] result`), 1)
			}
		}
		return out
	}
	a.run(t, fmt.Sprintf("LOOP %d ls {}", steps), func(n int) string { return fmt.Sprint("result ", n) })
	last := factsOf(t, a.edit(a.history[:len(a.history)-1])[1:])
	g.sound(t)
	g.proxy.Stop()
	if got, most := len(g.proxy.transcript(t, "s")), 2*len(a.history); got > most {
		t.Errorf("%d messages are stored as %d items, want at most %d", len(a.history), got, most)
	}
	for i, r := range a.answers {
		if i%5 != 0 && i != len(a.answers)-1 {
			continue
		}
		view := g.proxy.view(t, r)
		if i == len(a.answers)-1 {
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
	a.checked = false
	whole := a.history[:1:1]
	for _, question := range []string{"My name is Ada", "LOOP 2 add {\"a\":1}", "CALL add {\"a\":2}", "Bye"} {
		a.history = a.history[:1]
		a.run(t, question, func(n int) string {
			said := append(slices.Clip(whole), a.history[1:len(a.history)-1]...)
			if diff := cmp.Diff(factsOf(t, said), sent(t, g.seen(t))); diff != "" {
				t.Errorf("%s, request %d: upstream sees (-want +got):\n%s", question, n, diff)
			}
			return fmt.Sprint("result ", n)
		})
		whole = append(whole, a.history[1:]...)
		if diff := cmp.Diff(factsOf(t, whole[:len(whole)-1]), sent(t, g.seen(t))); diff != "" {
			t.Errorf("%s: upstream sees (-want +got):\n%s", question, diff)
		}
	}
	g.sound(t)
	g.proxy.Stop()
	if got, want := len(g.proxy.transcript(t, "s")), len(whole)-1; got != want {
		t.Errorf("%d items are stored, want %d", got, want)
	}
	view := g.proxy.view(t, a.answers[2])
	if diff := cmp.Diff(factsOf(t, whole[:6]), factsOf(t, view)); diff != "" {
		t.Errorf("the view of a run's second request (-want +got):\n%s", diff)
	}
}

// view returns what upstream was sent in the turn of an answer. The proxy must be stopped.
func (p *proxy) view(t *testing.T, r reply) (items []json.RawMessage) {
	t.Helper()
	for line := range strings.Lines(p.transcriptOf(t, "--session", "s", "--turn", r.header.Get("X-Turn-Id"))) {
		items = append(items, json.RawMessage(line))
	}
	return items
}

// factsOf returns the facts of several items.
func factsOf(t *testing.T, items []json.RawMessage) (out []string) {
	t.Helper()
	for _, it := range items {
		out = append(out, facts(t, it)...)
	}
	return out
}
