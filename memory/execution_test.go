package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"remora/memory"
	"remora/memory/layer"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// run plays a turn and returns the name of the execution that it belongs to, as the turn's record has it.
func (l *lab) run(c memory.Call, words, reply string) string {
	l.t.Helper()
	if c.Scope.Session == "" {
		c.Scope = scope
	}
	turn := l.begin(c, words)
	turn.Commit(answer(l.t, reply))
	return l.execution(c.Scope, turn.ID)
}

func (l *lab) execution(s memory.Scope, turnID string) string {
	l.t.Helper()
	var r struct{ Execution string }
	record, err := l.m.TurnRecord(context.Background(), s, turnID)
	if err == nil {
		err = json.Unmarshal(record, &r)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return r.Execution
}

// An execution is one agent run, from a user message to the answer that ends its tool loop, however much of
// its history a client sends.
func TestExecutionIsTheRound(t *testing.T) {
	f := func(name, runs string, turns ...[2]string) {
		t.Helper()
		l, seen, got := newLab(t, memory.Options{}), map[string]rune{"": '-'}, ""
		for _, turn := range turns {
			run := l.run(memory.Call{}, turn[0], turn[1])
			if seen[run] == 0 {
				seen[run] = rune('A' + len(seen) - 1)
			}
			got += string(seen[run])
		}
		if got != runs {
			t.Errorf("%s: executions %s, want %s", name, got, runs)
		}
	}
	f("history resent", "AAAB", [2]string{"u:1", "c:x"}, [2]string{"u:1 c:x r:x", "c:y"}, [2]string{"u:1 c:x r:x c:y r:y", "a:1"},
		[2]string{"u:1 c:x r:x c:y r:y a:1 u:1", "a:2"})
	f("only what is new", "AAABB", [2]string{"u:1", "c:x"}, [2]string{"r:x", "c:y"}, [2]string{"r:y", "a:1"}, [2]string{"u:1", "c:z"},
		[2]string{"r:z", "a:2"})
	f("a result sent again", "AAAA", [2]string{"u:1", "c:x"}, [2]string{"r:x", "c:y"}, [2]string{"r:y", "a:1"}, [2]string{"r:y", "a:2"})
	f("an edited message", "AB", [2]string{"u:1", "c:x"}, [2]string{"u:2", "a:2"})
	history := "u:0 a:0 u:1 c:x r:x"
	f("trimmed by the client", "ABBBBC", [2]string{"u:0", "a:0"}, [2]string{"u:0 a:0 u:1", "c:x"}, [2]string{history, "c:y"},
		[2]string{"u:1 c:x r:x c:y r:y", "c:z"}, [2]string{"c:x r:x c:y r:y c:z r:z", "a:1"}, [2]string{"r:y c:z r:z a:1 u:2", "a:2"})
	f("compacted by the client", "AAA", [2]string{"u:1", "c:x"}, [2]string{"u:1 c:x r:x", "c:y"}, [2]string{"u:summary c:x r:x c:y r:y", "a:1"})

	l := newLab(t, memory.Options{})
	named := memory.Call{Scope: scope}
	named.Scope.Execution = "mine"
	if got := l.run(named, "u:1", "a:1"); got != "mine" {
		t.Errorf("X-Execution-Id: %q", got)
	}
}

// A client whose history upstream keeps sends only results.
func TestExecutionOfHeldConversations(t *testing.T) {
	l := newLab(t, memory.Options{})
	f := func(input, previous, output string) string {
		t.Helper()
		req := wiretest.Request(t, dialects.Responses, fmt.Sprintf(`{"model":"m","input":%s%s}`, input, previous))
		turn, err := l.m.Begin(t.Context(), memory.Call{Scope: scope, Request: req})
		if err != nil {
			t.Fatal(err)
		}
		l.replies++
		reply := wiretest.Answer(t, dialects.Responses, fmt.Sprintf(`{"id":"resp_%d","object":"response","status":"completed","output":[%s]}`, l.replies, output))
		turn.Commit(memory.Answer{HTTPStatus: 200, Reply: reply})
		return l.execution(scope, turn.ID)
	}
	one := f(`"hi"`, "", call1)
	two := f("["+result1+"]", `,"previous_response_id":"resp_1"`, done1)
	three := f(`"hi"`, `,"previous_response_id":"resp_2"`, done1)
	if one == "" || two != one || three == "" || three == one {
		t.Errorf("executions %q, %q, and of the next message %q", one, two, three)
	}
}

// Sessions that begin with the same words are different runs: what a layer has of one is not told in the other.
func TestExecutionIsOfOneSession(t *testing.T) {
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, observer(t, layer.Execution))}})
	other := memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: "other"}}
	one, two := l.run(memory.Call{}, "u:1", "c:x"), l.run(other, "u:1", "c:x")
	if one == two || one == "" || two == "" {
		t.Errorf("executions %q and %q", one, two)
	}
	if view := l.turnOf(memory.Call{}, "u:1 c:x r:x", "a:1"); !strings.Contains(view, "Processed") {
		t.Errorf("the state of the execution is lost: %s", view)
	}
	if view := l.turnOf(memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: "third"}}, "u:1", "a:1"); strings.Contains(view, "Processed") {
		t.Errorf("the state of another session's execution is seen: %s", view)
	}
}
