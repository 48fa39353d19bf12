package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"remora/memory"
	"remora/wire"
	"remora/wire/dialects"
)

// raw plays one turn of a client that sends only new items: items and the answer's message are JSON. It returns the
// items that went upstream.
func (l *lab) raw(provider, items, message string) (turn *memory.Turn, sent string) {
	l.t.Helper()
	req, err := wire.Parse(dialects.Chat, []byte(`{"model":"m","messages":[`+items+`]}`))
	if err != nil {
		l.t.Fatal(err)
	}
	turn, err = l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req, Provider: provider})
	if err != nil {
		l.t.Fatal(err)
	}
	body, err := req.With(turn.View)
	if err != nil {
		l.t.Fatal(err)
	}
	l.replies++
	reply, err := wire.FoldBody(dialects.Chat, fmt.Appendf(nil, `{"id":"c%d","choices":[{"index":0,"finish_reason":"stop","message":%s}]}`, l.replies, message))
	if err != nil {
		l.t.Fatal(err)
	}
	turn.Commit(memory.Answer{HTTPStatus: 200, Reply: reply, Provider: provider})
	return turn, strings.TrimSuffix(strings.TrimPrefix(string(body), `{"model":"m","messages":[`), `]}`)
}

// TestRefusedAnswersAreNotPutBack: what upstream answers and refuses in a request is mended where the stored history goes
// before a request, and stays what it was in the transcript.
func TestRefusedAnswersAreNotPutBack(t *testing.T) {
	t.Parallel()
	const said = `{"role":"assistant","content":"hello"}`
	now := time.Unix(1_800_000_000, 0)
	sound := func(expires time.Duration) string {
		return fmt.Sprintf(`{"role":"assistant","content":null,"audio":{"id":"au","data":"QUE=","transcript":"hello","expires_at":%d}}`, now.Add(expires).Unix())
	}
	for _, tt := range []struct{ name, answer, next, back string }{
		{"cut before a word", `{"role":"assistant","content":null}`, "a", ""},
		{"a thought alone", `{"role":"assistant","content":null,"reasoning_content":"hm"}`, "a", ""},
		{"no calls", `{"role":"assistant","content":"hello","tool_calls":[]}`, "a", said},
		{"sound", sound(time.Hour), "a", `{"role":"assistant","content":null,"audio":{"id":"au"}}`},
		{"sound that is about to expire", sound(time.Second), "a", said},
		{"sound of another upstream", sound(time.Hour), "b", said},
		{"sound of nobody knows whom", sound(time.Hour), "", said},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, memory.Options{Now: func() time.Time { return now }})
			l.raw("a", say("u:1"), tt.answer)

			turn, sent := l.raw(tt.next, say("u:2"), said)
			want := say("u:1") + "," + tt.back + "," + say("u:2")
			if tt.back == "" {
				want = say("u:1") + "," + say("u:2")
			}
			l.wantView(sent, want)
			if line, all := l.stored(); all != 4 || line[1] != tt.answer {
				t.Errorf("%d items stored, line %s", all, line)
			}

			shown, err := l.m.TurnView(t.Context(), scope, turn.ID)
			if err != nil || len(shown) != len(turn.View) {
				t.Errorf("the view is shown as %d items, want %d: %v", len(shown), len(turn.View), err)
			}
		})
	}
}

// TestSoundOfTheSameUpstream: an audio id is sent only to the upstream that made it, even if others answered before.
func TestSoundOfTheSameUpstream(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	l := newLab(t, memory.Options{Now: func() time.Time { return now }})
	sound := func(id string) string {
		return fmt.Sprintf(`{"role":"assistant","content":null,"audio":{"id":%q,"data":"QUE=","transcript":"hello","expires_at":%d}}`, id, now.Add(time.Hour).Unix())
	}
	l.raw("a", say("u:1"), sound("of-a"))
	l.raw("b", say("u:2"), sound("of-b"))
	for _, provider := range []string{"b", "b", "a"} {
		turn, _ := l.raw(provider, say("u:next"), say("a:next"))
		view := ""
		for _, it := range turn.View {
			view += string(it.Raw)
		}
		if strings.Contains(view, "of-a") != (provider == "a") || strings.Contains(view, "of-b") != (provider == "b") {
			t.Errorf("%s is sent %s", provider, view)
		}
	}
}

// TestOwnAnswersAreNotMended: what the client itself sends is its own affair.
func TestOwnAnswersAreNotMended(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	const empty = `{"role":"assistant","content":null,"tool_calls":[]}`
	l.raw("a", say("u:1"), empty)
	items := say("u:1") + "," + empty + "," + say("u:2")
	_, sent := l.raw("a", items, say("a:2"))
	l.wantView(sent, items)
}
