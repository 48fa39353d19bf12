package temporal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
	"remora/wire/dialects"
)

func turn(ask layer.Model) *layer.Turn {
	return &layer.Turn{Now: time.Date(2026, 3, 5, 9, 7, 0, 0, time.UTC), Dialect: dialects.Chat, Count: layertest.Quarter, Ask: ask}
}

type model func(system, user string) (string, error)

func (m model) Complete(_ context.Context, system, user string, _ int) (string, error) {
	return m(system, user)
}

func newLayer(t *testing.T, o Options) *Layer {
	t.Helper()
	return layertest.Must(New(o))(t)
}

func recall(t *testing.T, l *Layer, s layer.State, budget int) string {
	t.Helper()
	got := layertest.Must(l.Recall(t.Context(), turn(nil), s, budget))(t)
	return strings.Join(got.Messages, "|")
}

// stored is the state after one answer that fills the buffer.
func stored(t *testing.T, l *Layer, s layer.State, answer string) layer.State {
	t.Helper()
	said := &layer.Response{Items: []wire.Item{wire.NewMessage(dialects.Chat, wire.Assistant, "</transcript> enough to be distilled")}}
	return layertest.Must(layertest.Learn(t.Context(), l, turn(model(func(string, string) (string, error) { return answer, nil })), s, said))(t)
}

func TestGrounding(t *testing.T) {
	l := newLayer(t, Options{TimeZone: "UTC"})
	t.Run("the first line", func(t *testing.T) {
		lines := strings.Split(recall(t, l, nil, 200), "\n")
		if lines[0] != "<current_datetime>" || lines[1] != "Now: 2026/03/05 (Thu) 09:07" || lines[len(lines)-1] != "</current_datetime>" {
			t.Errorf("have %q", lines)
		}
		if len(lines) != 7 {
			t.Errorf("%d lines, want the time, four of guidance and two tags", len(lines))
		}
	})
	t.Run("another zone", func(t *testing.T) {
		if text := recall(t, newLayer(t, Options{TimeZone: "Asia/Tokyo"}), nil, 200); !strings.Contains(text, "Now: 2026/03/05 (Thu) 18:07\n") {
			t.Errorf("have %q", text)
		}
	})
	t.Run("a small budget gets the time alone", func(t *testing.T) {
		if text := recall(t, l, nil, 20); text != "<current_datetime>\nNow: 2026/03/05 (Thu) 09:07\n</current_datetime>" {
			t.Errorf("have %q", text)
		}
	})
	t.Run("neither time nor ledger", func(t *testing.T) {
		if text := recall(t, newLayer(t, Options{GroundDateTime: new(bool)}), nil, 200); text != "" {
			t.Errorf("have %q", text)
		}
	})
}

const fiveFacts = "2026-01-03 | f3\n- 2026-01-01 | f1\n2026-01-02 | f2\n2026-01-05 | f5\n2026-01-04 | f4\n2026-01-05 | f5\n"

func TestLedger(t *testing.T) {
	l := newLayer(t, Options{GroundDateTime: new(bool), InjectLedger: true, MaxFacts: 3, BufferThreshold: 1, Setup: layer.Setup{HasModel: true}})
	s := stored(t, l, stored(t, l, nil, fiveFacts), fiveFacts) // twice: no fact is repeated
	for _, tc := range []struct {
		budget int
		want   []string
	}{
		{41, []string{"- [2026-01-05] f5", "- [2026-01-04] f4", "- [2026-01-03] f3"}},
		{36, []string{"- [2026-01-05] f5", "- [2026-01-04] f4"}},
		{5, nil},
	} {
		want := ""
		if tc.want != nil {
			want = "<remembered_facts>\n" + intro + "\n" + strings.Join(tc.want, "\n") + "\n</remembered_facts>"
		}
		if diff := cmp.Diff(want, recall(t, l, s, tc.budget)); diff != "" {
			t.Errorf("budget %d:\n%s", tc.budget, diff)
		}
	}
	t.Run("behind the time", func(t *testing.T) {
		text := recall(t, newLayer(t, Options{TimeZone: "UTC", InjectLedger: true}), s, 800)
		if !strings.Contains(text, "</current_datetime>\n\n<remembered_facts>\n"+intro+"\n- [2026-01-05] f5\n") {
			t.Errorf("have %q", text)
		}
	})
	t.Run("searchMemory", func(t *testing.T) {
		got, next, err := l.Tools()[0].Run(t.Context(), turn(nil), s, []byte(`{"query":"x"}`))
		if err != nil || string(next) != string(s) {
			t.Errorf("the state changed, or %v", err)
		}
		if want := `{"facts":["[2026-01-03] f3","[2026-01-04] f4","[2026-01-05] f5"]}`; got != want {
			t.Errorf("have %s", got)
		}
	})
}

// A fact is not shown while the view has what it was extracted from.
func TestFactsInTheViewAreNotRepeated(t *testing.T) {
	l := newLayer(t, Options{GroundDateTime: new(bool), InjectLedger: true, BufferThreshold: 1, Setup: layer.Setup{HasModel: true}})
	said := wire.NewMessage(dialects.Chat, wire.User, "I moved to Bergen in March.")
	tu := turn(model(func(string, string) (string, error) { return "2026-03-01 | Ann moved to Bergen.", nil }))
	in := layertest.Must(l.AppendItems(t.Context(), tu, nil, []wire.Item{said}))(t)
	s := layertest.Must(layertest.Distil(t.Context(), l, tu, in.State))(t)
	for _, shown := range []bool{true, false} {
		view := *tu
		view.InView = func(content wire.Hash) bool { return shown && content == said.ContentHash() }
		got, err := l.Recall(t.Context(), &view, s, 800)
		if err != nil || (len(got.Messages) == 0) != shown || got.NoRoom {
			t.Errorf("in view %v: have %+v, %v", shown, got, err)
		}
	}
	if !l.OfView() || newLayer(t, Options{Setup: layer.Setup{HasModel: true}}).OfView() {
		t.Error("only the facts depend on the view")
	}
}

// TestToolsLeaveRoomForUsers: facts of tools, whatever their dates, fill a quarter of the ledger at most, unless there are no others.
func TestToolsLeaveRoomForUsers(t *testing.T) {
	var st state
	tools := make([]dated, 20)
	for i := range tools {
		tools[i] = dated{fmt.Sprintf("2027-01-%02d", i+1), fact{Text: "x", Tool: true}}
	}
	st.merge(tools, 8)
	if n := len(st.list()); n != 8 {
		t.Errorf("%d facts of tools alone", n)
	}
	st.merge([]dated{{"2020-01-01", fact{Text: "Ann moved."}}}, 8)
	st.merge(tools, 8)
	if have := fmt.Sprint(st.list()); have != "[[2020-01-01] Ann moved. [2027-01-19] x [2027-01-20] x]" {
		t.Errorf("have %s", have)
	}
}

func TestExtract(t *testing.T) {
	t.Run("no model, no facts, nothing gathered", func(t *testing.T) {
		l := newLayer(t, Options{BufferThreshold: 1})
		if l.Has(layer.HookStore) || l.Has(layer.HookAppendItems) || !l.Has(layer.HookRecall) {
			t.Error("want neither store nor on_item_append")
		}
		if !l.Stateless() || newLayer(t, Options{Setup: layer.Setup{HasModel: true}}).Stateless() || newLayer(t, Options{InjectLedger: true}).Stateless() {
			t.Error("only the time alone needs no state")
		}
	})
	l := newLayer(t, Options{TimeZone: "UTC", Setup: layer.Setup{HasModel: true}, BufferThreshold: 12})
	t.Run("the whole buffer, as data, with the time", func(t *testing.T) {
		var prompt string
		tu := turn(model(func(_, user string) (string, error) { prompt = user; return "Ann moved.\nNONE\n", nil }))
		said := wire.NewMessage(dialects.Chat, wire.User, "hi </transcript>")
		in, err := l.AppendItems(t.Context(), tu, nil, []wire.Item{
			said, wire.NewMessage(dialects.Chat, wire.System, "be brief"),
		})
		if err != nil || prompt != "" {
			t.Fatalf("asked %q, %v", prompt, err)
		}
		out := &layer.Response{Items: []wire.Item{wire.NewMessage(dialects.Chat, wire.Assistant, strings.Repeat("x", 40))}}
		s := layertest.Must(layertest.Learn(t.Context(), l, tu, in.State, out))(t)
		want := "<transcript>\n[Thu 2026-03-05T09:07:00Z] user: hi <\\/transcript>\n[Thu 2026-03-05T09:07:00Z] assistant: " + strings.Repeat("x", 40) + "\n</transcript>"
		if diff := cmp.Diff(want, prompt); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(state{Facts: map[string][]fact{"2026-03-05T09:07:00Z": {{Text: "Ann moved.", From: layer.Sources{{Session: layer.Digest(""), Item: layer.ItemName(out.Items[0])}}}}}, Buffer: layer.Buffer{Texts: []layer.Heard{}}, Version: 1}, read(s)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("dates are those of the texts, and tools are named", func(t *testing.T) {
		var prompts []string
		ask := model(func(_, user string) (string, error) {
			prompts = append(prompts, user)
			return `The visit is "moved".`, nil
		})
		monday, friday := turn(ask), turn(ask)
		friday.Now = monday.Now.AddDate(0, 0, 4)
		l := newLayer(t, Options{TimeZone: "Europe/Oslo", Setup: layer.Setup{HasModel: true}, BufferThreshold: 12})
		in, err := l.AppendItems(t.Context(), monday, nil, []wire.Item{
			wire.NewMessage(dialects.Chat, wire.User, "The dentist comes tomorrow."),
			wire.NewToolResult(wire.Call{ID: "c", Family: "function", Name: "f"}, dialects.Chat, "moved"),
		})
		if err != nil {
			t.Fatal(err)
		}
		out := &layer.Response{Items: []wire.Item{wire.NewMessage(dialects.Chat, wire.Assistant, strings.Repeat("x", 40))}}
		s := layertest.Must(layertest.Learn(t.Context(), l, friday, in.State, out))(t)
		want := []string{
			"<transcript>\n[Thu 2026-03-05T10:07:00+01:00] user: The dentist comes tomorrow.\n[Mon 2026-03-09T10:07:00+01:00] assistant: " + strings.Repeat("x", 40) + "\n</transcript>",
			"<transcript>\n[Thu 2026-03-05T10:07:00+01:00] tool: moved\n</transcript>",
		}
		if diff := cmp.Diff(want, prompts); diff != "" {
			t.Error(diff)
		}
		st := read(s)
		facts := fmt.Sprint(st.list())
		if !strings.Contains(facts, `[2026-03-05T09:07:00Z] a tool returned: "The visit is 'moved'."`) || !strings.Contains(facts, `[2026-03-09T09:07:00Z] The visit`) {
			t.Errorf("have %s", facts)
		}
	})
	t.Run("what was forgotten meanwhile makes no fact", func(t *testing.T) {
		tu := turn(model(func(string, string) (string, error) { return "Ann moved.", nil }))
		in := layertest.Must(l.AppendItems(t.Context(), tu, nil, []wire.Item{wire.NewMessage(dialects.Chat, wire.User, strings.Repeat("x", 100))}))(t)
		change := layertest.Must(l.Distil(t.Context(), tu, in.State))(t)
		if s, err := change(t.Context(), nil); err != nil || s != nil {
			t.Errorf("have %s, %v", s, err)
		}
	})
	t.Run("a model that fails", func(t *testing.T) {
		tu := turn(model(func(string, string) (string, error) { return "", errors.New("refused") }))
		out := &layer.Response{Items: []wire.Item{wire.NewMessage(dialects.Chat, wire.Assistant, strings.Repeat("x", 100))}}
		if s, err := layertest.Learn(t.Context(), l, tu, nil, out); err == nil || !strings.Contains(string(s), `"version":0`) || !strings.Contains(string(s), "xxx") {
			t.Errorf("have %s, %v", s, err)
		}
	})
}

func TestOptions(t *testing.T) {
	_, err := New(Options{TimeZone: "Mars/North", BufferThreshold: -1, MaxFacts: 501})
	for _, key := range []string{"time_zone: ", "buffer_threshold: ", "max_facts: "} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%q is not named in: %v", key, err)
		}
	}
	if d := Defaults(Options{InjectLedger: true, GroundDateTime: new(bool)}); d.Budget.Max() != 800 || d.Placement.Live() {
		t.Errorf("have %+v", d)
	}
	if d := Defaults(Options{}); d.Budget.Max() != 200 || !d.Placement.Live() {
		t.Errorf("have %+v", d)
	}
}

func TestContract(t *testing.T) {
	ledger := model(func(string, string) (string, error) { return "2026-01-01 | likes </zz> tea\nis Ann", nil })
	o := Options{TimeZone: "UTC", InjectLedger: true, Setup: layer.Setup{HasModel: true}, BufferThreshold: 10}
	layertest.Run(t, func() any { return newLayer(t, o) }, layertest.Model(ledger),
		layertest.States(layer.State(`{"facts":{"2026-01-01":[{"text":"a </zz>"},{"text":"b"}],"2026-01-02":[{"text":"c","from":[{"session":"s","item":"i"}]}]},"buffer":[{"text":"x","session":"s"}],"bufferTokens":1,"version":2}`)))
}

// FuzzParse: facts of any answer are bounded, have one line each, and sort by date.
func FuzzParse(f *testing.F) {
	f.Add(fiveFacts)
	f.Add("2026-01-01T00:00:00.5+01:00 | x\n\x00\xff | y\n" + strings.Repeat("long ", 500))
	f.Fuzz(func(t *testing.T, answer string) {
		facts := parse(answer, "2026-03-05T09:07:00Z", 7)
		if len(facts) > 7 {
			t.Fatalf("%d facts", len(facts))
		}
		for _, d := range facts {
			if d.Text == "" || len(d.Text) > 4*maxFact || strings.ContainsAny(fmt.Sprint(d), "\n\r\x00") {
				t.Fatalf("kept %q", d)
			}
		}
	})
}

func TestSecretsAreNotKept(t *testing.T) {
	l := newLayer(t, Options{Setup: layer.Setup{HasModel: true}, BufferThreshold: 40})
	var asked string
	ask := model(func(_, user string) (string, error) {
		asked = user
		return "2026-03-05 | The user moved to Oslo\n2026-03-05 | The wifi password is hunter2", nil
	})
	got := layertest.Must(l.AppendItems(t.Context(), turn(ask), nil, []wire.Item{wire.NewMessage(dialects.Chat, wire.User, "My wifi password is hunter2")}))(t)
	if strings.Contains(string(got.State), "hunter2") {
		t.Errorf("gathered: %s", got.State)
	}
	said := &layer.Response{Items: []wire.Item{wire.NewMessage(dialects.Chat, wire.Assistant, strings.Repeat("Noted, your password is hunter2. ", 10))}}
	s := layertest.Must(layertest.Learn(t.Context(), l, turn(ask), got.State, said))(t)
	if asked == "" || strings.Contains(asked, "hunter2") {
		t.Errorf("the model was asked %q", asked)
	}
	if strings.Contains(string(s), "hunter2") || !strings.Contains(string(s), "Oslo") {
		t.Errorf("kept: %s", s)
	}
}

// What comes from deleted sessions alone is forgotten; a fact that another session said as well stays.
func TestForget(t *testing.T) {
	l := newLayer(t, Options{})
	s := layer.State(`{"facts":{"2026-03-01 10:00":[{"text":"of a","from":[{"session":"a"}]},{"text":"of both","from":[{"session":"a"},{"session":"b"}]}],"2026-03-02 10:00":[{"text":"of none"}]},` +
		`"buffer":[{"text":"heard in a","session":"a"},{"text":"heard in b","session":"b"}],"bufferTokens":7,"version":2}`)
	tu := turn(nil)
	tu.Count = func(s string) int { return len(s) }
	left, err := l.Forget(t.Context(), tu, s, func(digest string) bool { return digest == "a" })
	want := `{"facts":{"2026-03-01 10:00":[{"text":"of both","from":[{"session":"b"}]}],"2026-03-02 10:00":[{"text":"of none"}]},` +
		`"buffer":[{"by":"","text":"heard in b","session":"b"}],"bufferTokens":10,"version":2}`
	if err != nil || string(left) != want {
		t.Errorf("left %s, %v\nwant %s", left, err, want)
	}
	if left, err = l.Forget(t.Context(), tu, s, func(string) bool { return true }); err != nil || !strings.Contains(string(left), "of none") || strings.Contains(string(left), "of both") {
		t.Errorf("left %s, %v, want what no session is named for", left, err)
	}
	alone := layer.State(`{"facts":{"2026-03-01 10:00":[{"text":"of a","from":[{"session":"a"}]}]},"buffer":[{"text":"heard in a","session":"a"}]}`)
	if left, err = l.Forget(t.Context(), tu, alone, func(string) bool { return true }); err != nil || left != nil {
		t.Errorf("left %s, %v, want no state", left, err)
	}
}

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l := layertest.Must(New(Options{TimeZone: "UTC"}))(t)
	layertest.Page(t, layertest.PageRecall(t, l, nil)...)
}
