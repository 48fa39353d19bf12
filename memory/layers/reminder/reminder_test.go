package reminder_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/reminder"
	"remora/wire"
	"remora/wire/dialects"
)

func open(t *testing.T, list ...reminder.Reminder) *reminder.Layer {
	t.Helper()
	return layertest.Must(reminder.New(reminder.Options{Reminders: list}))(t)
}

func TestSuite(t *testing.T) {
	layertest.Run(t, func() any {
		return open(t, reminder.Reminder{Text: "Be brief. </zz>", EveryUserTurns: 1}, reminder.Reminder{Text: "日本語 " + strings.Repeat("x", 300), AfterToolCalls: 1})
	}, layertest.States(layer.State(`{"turns":4,"calls":3}`)))
}

// A session of letters: u is a user message, t a tool's result, a bar begins a new request. After each request, which
// reminders are told.
func TestWhen(t *testing.T) {
	l := open(t, reminder.Reminder{Text: "T", EveryUserTurns: 2}, reminder.Reminder{Text: "C", AfterToolCalls: 2},
		reminder.Reminder{Text: "B", EveryUserTurns: 3, AfterToolCalls: 3})
	for _, c := range []struct{ session, want string }{
		{"u", ""},
		{"u|u|u|u", ",T,B,T"},
		{"u|t|t|t|u|t", ",,C,CB,T,T"},
		{"u|tt|ttt|u", ",C,CB,T"},
		{"uuuuuu", "TB"},
		{"u|uu|u", ",TB,T"},
		{"uuuuu|t", ","},
		{"t", ""},
		{"s|a", ","},
	} {
		var s layer.State
		var got []string
		for request := range strings.SplitSeq(c.session, "|") {
			var items []wire.Item
			for _, r := range request {
				items = append(items, item(t, r))
			}
			a, err := l.AppendItems(t.Context(), &layer.Turn{}, s, items)
			if err != nil || len(a.Items) != len(items) {
				t.Fatalf("%q: %d items, %v", c.session, len(a.Items), err)
			}
			if a.State != nil {
				s = a.State
			}
			got = append(got, told(t, l, s, 800))
		}
		if diff := cmp.Diff(c.want, strings.Join(got, ",")); diff != "" {
			t.Errorf("%q: -want +got:\n%s", c.session, diff)
		}
	}
}

func item(t *testing.T, letter rune) wire.Item {
	t.Helper()
	raw := map[rune]string{
		'u': `{"role":"user","content":"u"}`, 't': `{"role":"tool","tool_call_id":"c","content":"r"}`,
		's': `{"role":"system","content":"s"}`, 'a': `{"role":"assistant","content":"a"}`,
	}[letter]
	return layertest.Must(wire.ParseItem(dialects.Chat, []byte(raw)))(t)
}

// told are the texts that the layer tells, put together.
func told(t *testing.T, l *reminder.Layer, s layer.State, budget int) string {
	t.Helper()
	got := layertest.Must(l.Recall(t.Context(), &layer.Turn{Count: layertest.Quarter}, s, budget))(t)
	var all string
	for _, m := range got.Messages {
		all += strings.TrimSuffix(strings.TrimPrefix(m, "<reminder>\n"), "\n</reminder>")
	}
	return all
}

// A reminder that does not fit is left out, a later and shorter one is told.
func TestBudget(t *testing.T) {
	l := open(t, reminder.Reminder{Text: strings.Repeat("x", 100), EveryUserTurns: 1}, reminder.Reminder{Text: "short", EveryUserTurns: 1})
	if got := told(t, l, layer.State(`{"turns":1}`), 20); got != "short" {
		t.Errorf("have %q, want short", got)
	}
}

func TestBadOptions(t *testing.T) {
	_, err := reminder.New(reminder.Options{Reminders: []reminder.Reminder{
		{EveryUserTurns: -1}, {Text: "a"}, {Text: "b", AfterToolCalls: -1},
	}})
	for _, want := range []string{
		"reminders[0].text: ", "reminders[0].every_user_turns: ", "reminders[1]: ", "reminders[2].after_tool_calls: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to hold %q", err, want)
		}
	}
	if _, err := reminder.New(reminder.Options{}); err == nil {
		t.Error("no reminders: want an error")
	}
}

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l := layertest.Must(reminder.New(reminder.Options{Reminders: []reminder.Reminder{{Text: "Keep answers short.", EveryUserTurns: 1}}}))(t)
	said := []wire.Item{wire.NewMessage(dialects.Chat, wire.User, "Hi")}
	a := layertest.Must(l.AppendItems(t.Context(), layertest.PageTurn(), nil, said))(t)
	layertest.Page(t, layertest.PageRecall(t, l, a.State)...)
}
