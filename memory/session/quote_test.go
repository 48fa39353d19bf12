package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// TestArgumentsAreComparedWithinBounds: a caller decides how many texts the arguments of a call have, and how many messages a request
// has. Of both, the first and the newest are compared.
func TestArgumentsAreComparedWithinBounds(t *testing.T) {
	request := func(tool string, messages ...string) *wire.Request {
		for i, text := range messages {
			messages[i] = fmt.Sprintf(`{"role":"user","content":%q}`, text)
		}
		req := wiretest.Request(t, dialects.Chat, fmt.Sprintf(`{"model":"m","tools":[{"type":"function","function":{"name":%q}}],"messages":[%s]}`, tool, strings.Join(messages, ",")))
		return req
	}
	enter := func(l *lab, turn string, req *wire.Request) *Entry {
		e, _, err := l.log.Enter(t.Context(), turn, time.Unix(1, 0), Call{Scope: scope, Request: req}, Want{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	task := func(i int) string { return fmt.Sprintf("(%d) %s", i, strings.Repeat("find the cause of it. ", 2)) }

	for _, c := range []struct {
		name      string
		arguments int
		asks      []string
		works     bool
	}{
		{"the last of some", 100, []string{task(99)}, true},
		{"one of very many", 10 * quotedTries, []string{task(10*quotedTries - 1)}, false},
		{"the newest message", 1, []string{strings.Repeat("x", 2*quotedBytes), task(0)}, true},
		{"a message before very long ones", 1, []string{task(0), strings.Repeat("x", 2*quotedBytes), "go"}, false},
	} {
		l := newLab(t)
		arguments := make([]string, c.arguments)
		for i := range arguments {
			arguments[i] = task(i)
		}
		raw, err := json.Marshal(map[string]any{"tasks": arguments})
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Appendf(nil, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"ask","arguments":%q}}]},"finish_reason":"tool_calls"}]}`, raw)
		reply := wiretest.Answer(t, dialects.Chat, string(body))
		if err := commit(enter(l, "turn1", request("ask", "plan it")), &Answer{HTTPStatus: 200, Reply: reply}); err != nil {
			t.Fatal(err)
		}
		e := enter(l, "turn2", request("ls", c.asks...))
		_, asks, err := e.placement(&e.state, e.in, HistoryAuto).merge.openCall(context.Background())
		if err != nil || asks != c.works {
			t.Errorf("%s: %t, %v, want %t", c.name, asks, err, c.works)
		}
	}
}
