package session

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// TestLateAnswerStandsOnTheLineOfItsQuestion, also where that is not the conversation.
func TestLateAnswerStandsOnTheLineOfItsQuestion(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryAuto, "u:1", "a:1")
	c := l.call(HistoryAuto, "u:title")
	c.Side = "title"
	e, _, err := l.log.Enter(t.Context(), "side", time.Unix(9, 0), c, Want{})
	if err != nil {
		t.Fatal(err)
	}
	l.view(e)
	if err := commit(e, &Answer{HTTPStatus: 200, Later: true, Reply: wire.Reply{ID: "resp"}}); err != nil {
		t.Fatal(err)
	}
	a := &Answer{HTTPStatus: 200, Reply: wire.Reply{ID: "resp", Complete: true, Choices: [][]wire.Item{sayAll(t, "a:Greetings")}}}
	if err := l.log.Later(t.Context(), scope, "side", "resp", a); err != nil {
		t.Fatal(err)
	}

	stored := l.log.transcript(scope)
	raw, err := stored.turn(t.Context(), "side")
	if err != nil {
		t.Fatal(err)
	}
	var r turnrecord.Record
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	items, err := stored.items(t.Context(), sequence(1, r.Output[0][0])...)
	if err != nil {
		t.Fatal(err)
	}
	question, late := items[r.Tip-1], items[len(items)-1]
	if question.Line == items[0].Line || late.Line != question.Line {
		t.Errorf("the conversation is line %d, the question is on %d, the answer on %d", items[0].Line, question.Line, late.Line)
	}
	st, _, err := stored.head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if end := st.head.Tails[len(st.head.Tails)-1]; end.Pos != late.Pos || end.Line != question.Line {
		t.Errorf("the end is at %d on line %d, want %d on %d", end.Pos.Seq, end.Line, late.Pos.Seq, question.Line)
	}
}

// ask begins a turn of Responses, with members of its body.
func (l *lab) ask(id, members string) *Entry {
	l.t.Helper()
	l.n++
	req, err := wire.Parse(dialects.Responses, []byte(`{"model":"m",`+members+`}`))
	if err != nil {
		l.t.Fatal(err)
	}
	e, _, err := l.log.Enter(l.t.Context(), id, time.Unix(int64(l.n), 0), Call{Scope: scope, Request: req}, Want{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.view(e)
	return e
}

// later stores the answer to a turn that was sent with background.
func (l *lab) later(id, reply, text string) {
	l.t.Helper()
	it, err := wire.ParseItem(dialects.Responses, []byte(`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"`+text+`"}]}`))
	if err != nil {
		l.t.Fatal(err)
	}
	a := &Answer{HTTPStatus: 200, Reply: wire.Reply{ID: reply, Complete: true, Choices: [][]wire.Item{{it}}}}
	if err := l.log.Later(l.t.Context(), scope, id, reply, a); err != nil {
		l.t.Fatal(err)
	}
}

// TestLateAnswerKeepsShownBlocks: upstream has the blocks that the turn showed.
func TestLateAnswerKeepsShownBlocks(t *testing.T) {
	l := newLab(t)
	e := l.ask("one", `"input":"1"`)
	e.Notes.Blocks = []view.Block{{Layer: "plan", Texts: []string{"the plan"}}}
	if err := commit(e, &Answer{HTTPStatus: 200, Later: true, Reply: wire.Reply{ID: "resp"}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if e := l.ask("two", `"input":"2","previous_response_id":"resp"`); !e.Shown("plan", []string{"the plan"}) {
			t.Error("the block is not known")
		}
		l.later("one", "resp", "answer")
	}
}

// TestLateAnswerOfAnEditedQuestion: the conversation has gone on without the question, so the answer stays after that.
func TestLateAnswerOfAnEditedQuestion(t *testing.T) {
	for next, want := range map[string]struct{ line, now string }{
		"u:0 a:0 u:edit":     {"u:0 a:0 u:edit a:next", "u:0 a:0 u:1 a:late u:2 a:2"},
		"u:0 a:0 u:1 u:more": {"u:0 a:0 u:1 u:more a:next a:late", "u:0 a:0 u:1 u:more a:next a:late u:2 a:2"},
	} {
		l := newLab(t)
		l.sees(HistoryAuto, "u:0", "a:0")
		e := l.enter(HistoryAuto, "u:0 a:0 u:1")
		l.view(e)
		if err := commit(e, &Answer{HTTPStatus: 200, Later: true, Reply: wire.Reply{ID: "resp"}}); err != nil {
			t.Fatal(err)
		}
		l.sees(HistoryAuto, next, "a:next")
		a := &Answer{HTTPStatus: 200, Reply: wire.Reply{ID: "resp", Complete: true, Choices: [][]wire.Item{sayAll(t, "a:late")}}}
		if err := l.log.Later(t.Context(), scope, "turn02", "resp", a); err != nil {
			t.Fatal(err)
		}
		l.want(next, l.headLine(), want.line)
		l.sees(HistoryAuto, strings.TrimSuffix(want.now, " a:2"), "a:2")
		l.want(next, l.headLine(), want.now)
	}
}
