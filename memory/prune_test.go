package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// pruning are options under which a view has room for so many items of ten tokens each.
func pruning(t *testing.T, items int, p view.Policy) memory.Options {
	t.Helper()
	p.Budget = float64(10 * items)
	layers, err := pipeline.New(nil, pipeline.Options{
		Policy:    p,
		Count:     func(_, text string) int { return len(text) / 16 },
		CountItem: func(string, wire.Item) int { return 10 },
	})
	if err != nil {
		t.Fatal(err)
	}
	return memory.Options{
		Shape:      memory.Shape{Layers: layers, Summarize: p.Overflow == view.OverflowSummarize, ToolResult: p.ToolResult},
		CommitWait: time.Minute, ReadWait: time.Minute,
	}
}

// TestPrunedViews: each policy that leaves out history, through the whole of memory. Everything is stored.
func TestPrunedViews(t *testing.T) {
	const words = "s:0 u:1 a:2 u:3 c:x,y r:x r:y a:4 u:5 a:6 u:7"
	for _, c := range []struct {
		name   string
		room   int
		policy view.Policy
		want   string
	}{
		{"all fits", 11, view.Policy{Overflow: view.OverflowTurns, Turns: 1}, words},
		{"an exchange is too much", 10, view.Policy{Overflow: view.OverflowFIFO}, "s:0 u:3 c:x,y r:x r:y a:4 u:5 a:6 u:7"},
		{"calls with their results", 8, view.Policy{Overflow: view.OverflowFIFO}, "s:0 a:4 u:5 a:6 u:7"},
		{"pairs with tool items", 10, view.Policy{Overflow: view.OverflowTurns, Turns: 2}, "s:0 u:3 c:x,y r:x r:y a:4 u:5 a:6 u:7"},
		{"over the budget", 2, view.Policy{Overflow: view.OverflowFIFO, MinTurns: 2}, "s:0 u:3 c:x,y r:x r:y a:4 u:5 a:6 u:7"},
		{"by priority", 6, view.Policy{Overflow: view.OverflowPriority}, "s:0 u:1 u:3 u:5 a:6 u:7"},
		{"what must stay is too much", 1, view.Policy{Overflow: view.OverflowTurns, Turns: 1}, "s:0 u:7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, pruning(t, c.room, c.policy))
			l.wantView(l.turn(words, "a:8"), c.want)
			l.wantTranscript(strings.TrimPrefix(words, "s:0 ")+" a:8", 11)
		})
	}
}

// TestSummaryLeavesPairs: items that are never left out are not summarised either, though three tenths of the history
// would be two items more.
func TestSummaryLeavesPairs(t *testing.T) {
	var words []string
	for i := range 50 {
		words = append(words, fmt.Sprintf("u:%d a:%d", i, i))
	}
	words = append(words, "u:50")
	l := newLab(t, pruning(t, 100, view.Policy{Overflow: view.OverflowSummarize, MinTurns: 36}))
	_, rest, ok := strings.Cut(brief(l.turn(strings.Join(words, " "), "a:50")), "} ")
	if !ok {
		t.Fatal("nothing was summarised")
	}
	l.wantView(rest, strings.Join(words[14:], " "))
}

// TestToolResultsAreShortened: in the forwarded body alone, to the same bytes in every turn, and the turn can
// be shown as it was.
func TestToolResultsAreShortened(t *testing.T) {
	o := pruning(t, 1000, view.Policy{Overflow: view.OverflowTruncate, ToolResult: 2000})
	l := newLab(t, o)
	long := strings.Repeat("0123456789", 900)
	ask := func(more string) *memory.Turn {
		req := wiretest.Request(t, dialects.Chat, fmt.Sprintf(`{"model":"m","messages":[%s,{"role":"tool","tool_call_id":"x","content":%q}%s]}`,
			messages("u:1 c:x"), long, more))
		turn, err := l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req})
		if err != nil {
			t.Fatal(err)
		}
		return turn
	}
	first := ask("")
	first.Commit(answer(t, "a:2"))
	second := ask("," + messages("a:2 u:3"))
	second.Commit(answer(t, "a:4"))
	if n := len(first.View[2].Text()); n > 8000 || n < 7900 {
		t.Errorf("%d characters are sent", n)
	}
	if diff := cmp.Diff(string(first.View[2].Raw), string(second.View[2].Raw)); diff != "" {
		t.Errorf("the second turn sends another beginning:\n%s", diff)
	}
	again, err := l.m.TurnView(context.Background(), scope, first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(raws(first.View), raws(again)); diff != "" {
		t.Errorf("what was sent (-sent +shown):\n%s", diff)
	}
	stored := ""
	if err := l.m.Walk(context.Background(), scope, func(line memory.ExportLine) error {
		if line.Item != nil {
			stored += string(line.Item.Raw) + string(line.Item.JSON)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if strings.Count(stored, long) != 1 {
		t.Errorf("the whole result is stored %d times", strings.Count(stored, long))
	}
}
