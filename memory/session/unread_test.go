package session

import (
	"testing"

	"remora/wire"
)

// TestQuestionsOfUnreadAnswersStay: if Remora could not read an answer that the client got, the question is part of the
// conversation; after an error it is not.
func TestQuestionsOfUnreadAnswersStay(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer Answer
		want   string
	}{
		{"unread", Answer{HTTPStatus: 200, Reply: wire.Reply{Truncated: true}}, "u:1 a:1 u:2 u:3"},
		{"refused", Answer{HTTPStatus: 429}, "u:1 a:1 u:3"},
		{"an error that is too large to be read", Answer{HTTPStatus: 500, Reply: wire.Reply{Truncated: true}}, "u:1 a:1 u:3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.sees(HistoryAuto, "u:1", "a:1")
			e := l.enter(HistoryAuto, "u:2")
			l.want("the question", l.view(e), "u:1 a:1 u:2")
			if err := commit(e, &c.answer); err != nil {
				t.Fatal(err)
			}
			l.want("only what is new", l.sees(HistoryAuto, "u:3", "a:3"), c.want)
			l.want("and then", l.sees(HistoryAuto, "u:4", "a:4"), c.want+" a:3 u:4")
		})
	}
}
