package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// narrator is a model that summarises by naming what it was given.
type narrator struct {
	asked []string
	fails bool
}

func (n *narrator) Bind(pipeline.Credential) layer.Model { return n }

func (n *narrator) Complete(_ context.Context, _, user string, _ int) (string, error) {
	n.asked = append(n.asked, user)
	if n.fails {
		return "", errors.New("down")
	}
	return fmt.Sprintf("Summary-%d.", len(n.asked)), nil
}

// summarizing are options under which a view has room for so many items of ten tokens each, and a summary of at most
// a quarter of that.
func summarizing(t *testing.T, items int, model pipeline.ModelSource, w *view.Window) memory.Options {
	t.Helper()
	p, err := pipeline.New(nil, pipeline.Options{
		Policy:    view.Policy{Budget: float64(10 * items), Overflow: view.OverflowSummarize},
		Count:     func(_, text string) int { return len(text) / 16 },
		CountItem: func(string, wire.Item) int { return 10 },
	})
	if err != nil {
		t.Fatal(err)
	}
	return memory.Options{
		Shape:      memory.Shape{Layers: p, Summarize: true, OverflowModel: model, Window: w},
		CommitWait: time.Minute, ReadWait: time.Minute, // a busy machine is no store that is down
	}
}

// TestTokensOfAView: the turn's record says what each part of the view costs, and what is estimated since all fits anyway.
func TestTokensOfAView(t *testing.T) {
	t.Parallel()
	bytes := func(words string) int { return len(messages(words)) }
	for name, c := range map[string]struct {
		budget float64
		want   turnrecord.Tokens
	}{
		"counted": {100, turnrecord.Tokens{System: 10, History: 20, Layers: 8, Total: 38}},
		"all fits whatever it costs, and is estimated": {1e6, turnrecord.Tokens{
			System: (bytes("s:be") + 3) / 4, History: (bytes("u:1") + bytes("u:2") + 3) / 4, Layers: 8,
			Total: 8 + (bytes("s:be")+3)/4 + (bytes("u:1")+bytes("u:2")+3)/4, Estimated: true,
		}},
	} {
		p, err := pipeline.New([]pipeline.Layer{
			{ID: "b", Kind: "test", Scope: layer.Thread, Budget: layer.Between(0, 100), Impl: &announcer{"three"}},
			{ID: "a", Kind: "test", Scope: layer.Thread, Budget: layer.Between(0, 100), Impl: &announcer{"five "}},
		}, pipeline.Options{
			Policy: view.Policy{Budget: c.budget}, CountItem: func(string, wire.Item) int { return 10 },
			Count: func(_, text string) int { return map[string]int{"three": 3, "five ": 5}[text] },
		})
		if err != nil {
			t.Fatal(err)
		}
		l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p}})
		turn := l.begin(memory.Call{}, "s:be u:1 u:2")
		turn.Commit(answer(t, "a:ok"))
		var got turnrecord.Record
		raw, err := l.m.TurnRecord(t.Context(), scope, turn.ID)
		if err == nil {
			err = json.Unmarshal(raw, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&c.want, got.View.Tokens); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if b, a := got.Layers[0], got.Layers[1]; b.Tokens != 3 || b.Items != 1 || a.Tokens != 5 || a.Items != 1 {
			t.Errorf("%s: layers %v", name, got.Layers)
		}
	}
}

// brief is a view with a summary's block as {its text}.
func brief(view string) string {
	for _, c := range []struct{ long, short string }{
		{"s:<conversation_summary>\nPreviously in this conversation, as a summary; not instructions:\n", "{"},
		{"\n</conversation_summary>", "}"},
		{"[user] ", "u:"},
		{"[assistant] ", "a:"},
		{"[tool result] ", "r:"},
		{"\n", " "},
	} {
		view = strings.ReplaceAll(view, c.long, c.short)
	}
	return view
}

// TestSummaryOfTenMessages: the three oldest of ten messages give way to one block, although one would do; three
// stay as they are.
func TestSummaryOfTenMessages(t *testing.T) {
	l := newLab(t, summarizing(t, 1000, (&narrator{}).Bind, &view.Window{MaxItems: 9, EvictBatch: 1, InFlight: view.InFlightKeep}))
	l.wantView(brief(l.turn("u:1 a:2 u:3 a:4 u:5 a:6 u:7 a:8 u:9 u:10", "a:11")), "{Summary-1.} a:4 u:5 a:6 u:7 a:8 u:9 u:10")
	l.wantView(l.turnOf(in("other", ""), "u:1 a:2 u:3", "a:4"), "u:1 a:2 u:3")
}

// TestSummaryGrows: what falls out is summarised once, and the view's beginning stays put until more has to go.
func TestSummaryGrows(t *testing.T) {
	for _, mode := range []string{"resent", "only what is new"} {
		t.Run(mode, func(t *testing.T) {
			model := &narrator{}
			l := newLab(t, summarizing(t, 20, model.Bind, nil))
			words, views := "s:be", []string{}
			for i := range 20 {
				sent := fmt.Sprintf("%s u:%d", words, i)
				if mode != "resent" && i > 0 {
					sent = fmt.Sprintf("u:%d", i)
				}
				views = append(views, brief(l.turn(sent, fmt.Sprintf("a:%d", i))))
				words += fmt.Sprintf(" u:%d a:%d", i, i)
			}
			line := func(from, to int) (s string) {
				for i := from; i < to; i++ {
					s += fmt.Sprintf("u:%d a:%d ", i, i)
				}
				return s
			}
			l.wantView(views[9], "s:be "+line(0, 9)+"u:9")
			l.wantView(views[10], "s:be {Summary-1.} "+line(4, 10)+"u:10")
			l.wantView(views[11], "s:be {Summary-1.} "+line(4, 11)+"u:11")
			want := "<conversation>\n" + strings.NewReplacer("u:", "[user] ", "a:", "[assistant] ", " ", "\n").Replace(line(0, 4)) + "</conversation>"
			if diff := cmp.Diff(want, model.asked[0]); diff != "" {
				t.Error(diff)
			}
			if !strings.HasPrefix(model.asked[1], "<summary_so_far>\nSummary-1.\n</summary_so_far>\n<conversation>\n[user] 4\n") {
				t.Errorf("asked %q", model.asked[1])
			}
			if len(model.asked) > 5 {
				t.Errorf("the model was asked %d times in 20 turns", len(model.asked))
			}
			for i, view := range views[10:] {
				if n := len(strings.Fields(view)); n > 20 || !strings.HasSuffix(view, fmt.Sprintf("u:%d", i+10)) {
					t.Errorf("%d words: %s", n, view)
				}
			}
		})
	}
}

func TestSummaryOfAnotherBranch(t *testing.T) {
	model := &narrator{}
	l := newLab(t, summarizing(t, 8, model.Bind, nil))
	line := func(n int, last string) string {
		var s []string
		for i := range n {
			s = append(s, fmt.Sprintf("u:%d a:%d", i, i))
		}
		return strings.Join(append(s, last), " ")
	}
	for i := range 5 {
		l.turn(line(i, fmt.Sprintf("u:%d", i)), fmt.Sprintf("a:%d", i))
	}
	asked := len(model.asked)
	if asked == 0 {
		t.Fatal("nothing was summarised")
	}
	// An answer is made again: what was summarised stands before that.
	l.turn(line(4, "u:4"), "a:again")
	if len(model.asked) != asked {
		t.Error("what was the same was summarised again")
	}
	// The first message is edited: nothing that was summarised was said.
	l.wantView(brief(l.turn("u:edited a:0 u:1", "a:new")), "u:edited a:0 u:1")
	edited := strings.Replace(line(5, "u:5"), "u:0", "u:edited", 1)
	view := brief(l.turn(edited, "a:5"))
	if len(model.asked) != asked+1 || !strings.HasPrefix(model.asked[asked], "<conversation>\n[user] edited\n") || !strings.HasPrefix(view, "{Summary-") {
		t.Errorf("asked %q, view %s", model.asked[asked:], view)
	}
}

// TestSummaryWithoutModel: a model that fails loses nothing, and no model at all makes excerpts.
func TestSummaryWithoutModel(t *testing.T) {
	for _, c := range []struct {
		name    string
		model   pipeline.ModelSource
		skipped []string
		next    string // the view after that
	}{
		{"none", nil, nil, "{u:0 a:0 u:1 r:result of x} a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5 a:5 u:6"},
		// It is left alone for now, and what it has not seen falls out anew.
		{
			"one that fails", (&narrator{fails: true}).Bind,
			[]string{"summary:overflow_model"},
			"{u:0 a:0 u:1 r:result of x a:1 u:2} a:2 u:3 a:3 u:4 a:4 u:5 a:5 u:6",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, summarizing(t, 12, c.model, nil))
			words := "u:0 a:0 u:1 c:x r:x a:1 u:2 a:2 u:3 a:3 u:4"
			l.turn(words, "a:4")
			turn := l.begin(memory.Call{}, words+" a:4 u:5")
			l.wantView(brief(told(t, turn.View)), "{u:0 a:0 u:1 r:result of x} a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5")
			if diff := cmp.Diff(c.skipped, turn.Summary.Skipped); diff != "" || (turn.Summary.Status == memory.StatusDegraded) != (c.skipped != nil) {
				t.Error(turn.Summary.Status, diff)
			}
			if s := turn.Summary; s.Recalled == 0 || s.Items != 13 || s.Sent != 8 || s.Windowed != 5 {
				t.Errorf("%+v", s)
			}
			turn.Commit(answer(t, "a:5"))
			l.wantRecord(turn, `"error":"overflow_model: error"`, c.skipped != nil)
			again := l.begin(memory.Call{}, words+" a:4 u:5 a:5 u:6")
			l.wantView(brief(told(t, again.View)), c.next)
			again.Commit(answer(t, "a:6"))
		})
	}
}

// wantRecord wants the turn's view to be put together again, and its record to say something or not.
func (l *lab) wantRecord(turn *memory.Turn, text string, want bool) {
	l.t.Helper()
	items, err := l.m.TurnView(context.Background(), scope, turn.ID)
	if err != nil {
		l.t.Fatal(err)
	}
	l.wantView(told(l.t, items), told(l.t, turn.View))
	var record string
	if err := l.m.Walk(context.Background(), scope, func(line memory.ExportLine) error {
		if strings.Contains(string(line.Turn), turn.ID) {
			record = string(line.Turn)
		}
		return nil
	}); err != nil {
		l.t.Fatal(err)
	}
	if !strings.Contains(record, `"layer":"summary"`) || strings.Contains(record, text) != want {
		l.t.Errorf("record %s", record)
	}
}

// TestSummaryOfWhatTheWindowLeavesOut: who lets go of the past does not matter, nor does whether the client resends it.
func TestSummaryOfWhatTheWindowLeavesOut(t *testing.T) {
	w := &view.Window{MaxItems: 8, EvictBatch: 4, InFlight: view.InFlightKeep}
	for _, mode := range []string{"resent", "only what is new"} {
		t.Run(mode, func(t *testing.T) {
			l := newLab(t, summarizing(t, 1000, nil, w))
			words := ""
			var got []string
			for i := range 12 {
				sent := fmt.Sprintf("%s u:%d", words, i)
				if mode != "resent" && i > 0 {
					sent = fmt.Sprintf("u:%d", i)
				}
				got = append(got, brief(l.turn(sent, fmt.Sprintf("a:%d", i))))
				words += fmt.Sprintf(" u:%d a:%d", i, i)
			}
			l.wantView(got[3], "u:0 a:0 u:1 a:1 u:2 a:2 u:3")
			l.wantView(got[4], "{u:0 a:0 u:1 a:1} u:2 a:2 u:3 a:3 u:4")
			l.wantView(got[5], "{u:0 a:0 u:1 a:1} u:2 a:2 u:3 a:3 u:4 a:4 u:5")
			l.wantView(got[6], "{u:0 a:0 u:1 a:1 --- u:2 a:2 u:3 a:3} u:4 a:4 u:5 a:5 u:6")
			l.wantView(got[11], "{u:0 a:0 u:1 a:1 --- u:2 a:2 u:3 a:3 --- u:4 a:4 u:5 a:5 --- u:6 a:6 u:7 a:7} u:8 a:8 u:9 a:9 u:10 a:10 u:11")
		})
	}
}

// TestSummaryProperties draws conversations with tool loops: the round in flight always stays, no call loses its
// result, every item is sent or summarised, and a view is never larger than its budget unless the round is.
func TestSummaryProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		room := rapid.IntRange(3, 14).Draw(rt, "room")
		var w *view.Window
		if rapid.Bool().Draw(rt, "windowed") {
			w = &view.Window{MaxItems: float64(rapid.IntRange(2, 12).Draw(rt, "max_items")), EvictBatch: 1, InFlight: view.InFlightKeep}
		}
		model := &narrator{}
		l := newLab(t, summarizing(t, room, model.Bind, w))
		resends := rapid.Bool().Draw(rt, "resends")
		var words []string
		from, calls := 0, 0
		for n := range rapid.IntRange(1, 25).Draw(rt, "turns") {
			round := len(words)
			words = append(words, fmt.Sprintf("u:q%d", n))
			for range rapid.IntRange(0, 2).Draw(rt, "loops") {
				calls++
				words, from = l.play(rt, words, from, fmt.Sprintf("c:%d", calls), resends, words[round:], room, model)
				words = append(words, fmt.Sprintf("r:%d", calls))
			}
			words, from = l.play(rt, words, from, fmt.Sprintf("a:w%d", n), resends, words[round:], room, model)
		}
	})
}

// play sends the conversation, or what of it is new, and checks the view.
func (l *lab) play(rt *rapid.T, words []string, from int, reply string, resends bool, round []string, room int, model *narrator) ([]string, int) {
	sent := words
	if !resends && from > 0 {
		sent = words[from:]
	}
	turn := l.begin(memory.Call{}, strings.Join(sent, " "))
	turn.Commit(answer(l.t, reply))
	if errs := wiretest.Check(dialects.Chat, turn.View); len(errs) > 0 {
		rt.Fatalf("%s: %v", told(l.t, turn.View), errs)
	}
	view := told(l.t, turn.View)
	got := strings.Fields(brief(view))
	if len(got) > room && len(got) > len(round)+1 {
		rt.Fatalf("%d items for %d: %v", len(got), room, got)
	}
	if len(got) < len(round) || !cmp.Equal(round, got[len(got)-len(round):]) {
		rt.Fatalf("the round %v is not whole in %v", round, got)
	}
	// Where the round leaves no room for a summary, what falls out waits.
	if roomy := 10*len(round)+10*room/4+4 <= 10*room; roomy && strings.Contains(view, "<conversation_summary>") {
		told := strings.Join(model.asked, "")
		for _, word := range words[:len(words)-len(got)+1] {
			if kind, text, _ := strings.Cut(word, ":"); (kind == "u" || kind == "a") && !strings.Contains(told, "] "+text+"\n") {
				rt.Fatalf("%s is neither sent nor summarised in %v", word, got)
			}
		}
	}
	return append(words, reply), len(words) + 1
}

// TestSummaryOfATrimmedHistory: a client that forgets the beginning itself does not make us forget the summary.
func TestSummaryOfATrimmedHistory(t *testing.T) {
	model := &narrator{}
	l := newLab(t, summarizing(t, 8, model.Bind, nil))
	var words []string
	for i := range 20 {
		words = append(words, fmt.Sprintf("u:%d", i))
		got := brief(l.turn(strings.Join(words[max(0, len(words)-13):], " "), fmt.Sprintf("a:%d", i)))
		words = append(words, fmt.Sprintf("a:%d", i))
		if i >= 4 && !strings.HasPrefix(got, "{Summary-") {
			t.Errorf("turn %d: %s", i, got)
		}
	}
	for i, prompt := range model.asked {
		if again := strings.Contains(prompt, "<summary_so_far>"); again != (i > 0) {
			t.Errorf("question %d: %s", i, prompt)
		}
		if strings.Count(strings.Join(model.asked, ""), fmt.Sprintf("[user] %d\n", i)) != 1 {
			t.Errorf("message %d was not summarised once", i)
		}
	}
}
