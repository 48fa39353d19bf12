package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func pairs(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, " fc%d fo%d", i, i)
	}
	return b.String()
}

func seed(maxItems int) *Window {
	return &Window{MaxItems: float64(maxItems), EvictBatch: 1, InFlight: InFlightKeep}
}

// The rules of docs/semantics.md#history-window, for a window that moves by one item.
func TestWindowConformance(t *testing.T) {
	f := func(name string, maxItems int, history, want string) {
		t.Helper()
		got := Assemble(Request{Items: items(t, dialects.Responses, history), Window: seed(maxItems)})
		if notation(got.Items) != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s: [%d] %s\n got %s\nwant %s", name, maxItems, history, notation(got.Items), want)
		}
	}
	f("fits to the item", 4, "u1 a1 u2 a2", "u1 a1 u2 a2")
	f("the newest exchanges stay", 4, "u1 a1 u2 a2 u3 a3", "u2 a2 u3 a3")
	f("ends with a question", 3, "u1 a1 u2 a2 u3", "u2 a2 u3")
	f("the last user message is drawn in", 2, "u1 a1 a2 a3 a4", "u1 a1 a2 a3 a4")
	f("the last answer is drawn in", 2, "u1 a1 u2 u3 u4", "a1 u2 u3 u4")
	f("no answer to draw in", 2, "u1 u2 u3 u4", "u3 u4")
	f("no user message to draw in", 2, "a1 a2 a3 a4", "a3 a4")
	f("four calls of the run do not hide its question", 2, "u1 a1"+pairs(1, 4), "u1 a1"+pairs(1, 4))
	f("three calls of the run do not either", 2, "u1 a1"+pairs(1, 3), "u1 a1"+pairs(1, 3))
	f("a result whose call is cut off goes", 4, "u1 fc1 fo1 a1 u2 a2", "a1 u2 a2")
	f("a result between exchanges goes too", 3, "u1 a1 fc1 fo1 u2 a2", "u2 a2")
	f("results of parallel calls go together", 5, "u1 fc1 fc2 fo1 fo2 a1 u2 a2", "a1 u2 a2")
	f("a call without result goes", 3, "u1 a1 u2 a2 u3 fc9", "a2 u3")
	f("a developer message within the history ages", 4, "d1 u1 a1 u2 a2 u3 a3", "u2 a2 u3 a3")
	f("a system message within the history ages", 3, "u1 a1 u2 a2 s5 u3 a3 u4 a4", "a3 u4 a4")
	f("a result before its call goes with it", 4, "u0 a0 fo1 fc1 u2 a2", "u2 a2")
	f("the run in flight stays, however many calls it has made", 4, "u1 a1 u2 a2 u9"+pairs(1, 15), "a2 u9"+pairs(1, 15))
	f("an answer stays with its reasoning", 3, "u1 a1 r1 fc1 fo1 r2 a2 u2 a3", "r2 a2 u2 a3")
	f("and with all of it", 3, "u1 a1 r1 r2 a2 u2 a3", "r1 r2 a2 u2 a3")
	f("a compaction stands for what was before it", 2, "k u1 a1 u2 a2 u3 a3", "k u3 a3")

	alternating := func(from, to int) string {
		var words []string
		for i := from; i <= to; i++ {
			words = append(words, fmt.Sprintf("%c%d", "au"[i%2], i))
		}
		return strings.Join(words, " ")
	}
	f("one more than the default", DefaultMaxItems, alternating(1, 41), alternating(2, 41))
	f("as many as the default", DefaultMaxItems, alternating(1, 40), alternating(1, 40))
}

// The system prompt is no history: system prompt neither count for the window nor leave it.
func TestLeadingItemsAreNotHistory(t *testing.T) {
	for _, system := range []string{"s1", "d1", "s1 d2 s3"} {
		got := Assemble(Request{System: items(t, dialects.Responses, system), Items: items(t, dialects.Responses, "u1 a1 u2 a2 u3 a3"), Window: seed(4)})
		if want := system + " u2 a2 u3 a3"; notation(got.Items) != want {
			t.Errorf("system %s: got %s, want %s", system, notation(got.Items), want)
		}
	}
}

// TestOrphans: what has no partner goes, with the reasoning that led to it.
func TestOrphans(t *testing.T) {
	f := func(name string, d wire.Dialect, history, want string) {
		t.Helper()
		got := Assemble(Request{Items: items(t, d, history)})
		if notation(got.Items) != want {
			t.Errorf("%s: %s\n got %s\nwant %s", name, history, notation(got.Items), want)
		}
		if v := wiretest.Check(d, got.Items); len(v) > 0 {
			t.Errorf("%s: %v", name, v)
		}
	}
	f("nothing, without a window", dialects.Responses, "u1 a1"+pairs(1, 300), "u1 a1"+pairs(1, 300))
	f("a call again without a result of its own", dialects.Responses, "fc1 fo1 fc2 fo3 r1 fc1", "fc1 fo1")
	f("a result before its call", dialects.Responses, "u1 fo1 fc1", "u1")
	f("a result apart from its call", dialects.Chat, "u1 [x] u2 fox", "u1 u2")
	f("more results than calls", dialects.Responses, "u1 fc1 fo1 a1 fo1 u2", "u1 fc1 a1 fo1 u2")
	f("a result on either side of its call", dialects.Responses, "u1 fo1 fc1 a1 fo1 u2", "u1 fc1 a1 fo1 u2")
	f("as many results as calls", dialects.Responses, "u1 fc1 fo1 a1 fc1 a2 fo1 a3", "u1 fc1 fo1 a1 fc1 a2 fo1 a3")
	f("one of two calls has no result", dialects.Chat, "u1 [x,y] fox a1", "u1 [x] fox a1")
	f("text beside a removed call stays", dialects.Chat, "u1 a1[x] u2", "u1 a1 u2")
	f("all calls removed, no text", dialects.Chat, "u1 [x,y] u2", "u1 u2")
	f("an id that comes back in a later run", dialects.Chat, "u1 [x] fox a1 u2 [x] u3", "u1 [x] fox a1 u2 u3")
	f("reasoning of a removed call goes with it", dialects.Responses, "u1 r1 fc1 u2", "u1 u2")
	f("reasoning of parallel calls stays while one does", dialects.Responses, "u1 r1 fc1 fc2 fo2 u2", "u1 r1 fc2 fo2 u2")
	f("reasoning at the end goes", dialects.Responses, "u1 fc7 u2 r1", "u1 u2")
	f("reasoning that led to nothing goes", dialects.Responses, "u1 r1 r2 u2 r3 a1 u3", "u1 u2 r3 a1 u3")
	f("reasoning before a result that goes, goes", dialects.Responses, "u1 r1 fo7 u2", "u1 u2")
	f("reasoning before a result goes", dialects.Responses, "u1 fc1 r1 fo1 u2", "u1 fc1 fo1 u2")
	f("reasoning before a result, and more of it behind", dialects.Responses, "u1 fc1 r1 fo1 r2 a1", "u1 fc1 fo1 r2 a1")
	f("reasoning again", dialects.Responses, "u1 r1 a1 u2 r1 a2", "u1 r1 a1 u2 a2")
	f("a request for approval again, with its answer", dialects.Responses, "u1 mq1 mr1 u2 mq1 mr1 u3", "u1 mq1 mr1 u2 u3")
}

// The cut moves in batches and stays put in between, wherever the client's own history begins.
func TestCutMovesInBatches(t *testing.T) {
	w := &Window{MaxItems: 8, EvictBatch: 4, InFlight: InFlightKeep}
	var history []string
	cuts := map[int]int{}
	for i := 1; i <= 40; i++ {
		history = append(history, fmt.Sprintf("%c%d", "au"[i%2], i))
		all := items(t, dialects.Responses, strings.Join(history, " "))
		cuts[i] = Assemble(Request{Items: all, Window: w}).From
		if trimmed := max(0, i-20); trimmed > 0 {
			got := Assemble(Request{Items: all[trimmed:], Window: w, Offset: trimmed}).From + trimmed
			if got != cuts[i] {
				t.Errorf("%d items of which the client sent 20: cut at %d, want %d", i, got, cuts[i])
			}
		}
	}
	moves := 0
	for i := 9; i <= 40; i++ {
		if kept := i - cuts[i]; kept > 8 || kept < 5 {
			t.Errorf("%d items: %d kept", i, kept)
		}
		if cuts[i] != cuts[i-1] {
			moves++
		}
	}
	if moves != 8 {
		t.Errorf("the cut moved %d times in 32 items, want 8", moves)
	}
}

// With in_flight: window the run in flight is cut too, between groups of calls and results; its user message stays.
func TestWindowInsideTheRound(t *testing.T) {
	f := func(d wire.Dialect, w Window, history, want string) {
		t.Helper()
		w.InFlight = InFlightWindow
		got := Assemble(Request{Items: items(t, d, history), Window: &w})
		if notation(got.Items) != want {
			t.Errorf("%s\n got %s\nwant %s", history, notation(got.Items), want)
		}
		if v := wiretest.Check(d, got.Items); len(v) > 0 {
			t.Errorf("%s: %v", history, v)
		}
	}
	four := Window{MaxItems: 4, EvictBatch: 1}
	f(dialects.Responses, four, "u1 a1 u2"+pairs(1, 6), "u2 fc5 fo5 fc6 fo6")
	f(dialects.Responses, four, "u2 fc1 fo1 fc2 fc3 fo2 fo3", "u2 fc2 fc3 fo2 fo3")
	f(dialects.Responses, four, "u2 fc1 fo1 r1 fc2 fc3 fc4 fo2 fo3 fo4", "u2 r1 fc2 fc3 fc4 fo2 fo3 fo4")
	f(dialects.Responses, four, "u2 fc0 fc1 fo1 fc2 fo2 fc3 fo3", "u2 fc2 fo2 fc3 fo3")
	f(dialects.Responses, four, "u2 r1 fc1 fo1 r2 fc2 fo2 r3 fc3 fo3", "u2 r3 fc3 fo3")
	f(dialects.Responses, four, "u2 r1 a1 fc1 fo1 fc2 fo2", "u2 fc2 fo2")
	f(dialects.Chat, four, "u2 [1] fo1 a1[2,3] fo2 fo3", "u2 a1[2,3] fo2 fo3")
	// A cut at a user message has nothing pinned before it, and reaches no further back for an answer of the run before.
	f(dialects.Responses, four, "u1 a1"+pairs(1, 4)+" u2 fc5 fo5 fc6", "u2 fc5 fo5")
	f(dialects.Chat, four, "u1 a1 [1] fo1 [2] fo2 u2 [3] fo3 [4]", "u2 [3] fo3")
	f(dialects.Responses, four, "a1 a2 a3 a4 a5 a6", "a3 a4 a5 a6")
	// Nor does the window begin between a program and the calls that it makes.
	three := Window{MaxItems: 3, EvictBatch: 1}
	f(dialects.Responses, three, "u1 fc1 fo1 p2 fc3 fo3 fc4 fo4", "u1 p2 fc3 fo3 fc4 fo4")
	f(dialects.Responses, three, "u1 fc1 fo1 p2 fc3 fo3 po2 fc4 fo4", "u1 fc4 fo4")
	f(dialects.Responses, three, "u1 fc1 fo1 mq2 mr2 fc4 fo4", "u1 fc4 fo4")
	// The next run leaves the cut and the user message before it where they are.
	batch := Window{MaxItems: 6, EvictBatch: 4}
	f(dialects.Responses, batch, "u1"+pairs(1, 4), "u1 fc3 fo3 fc4 fo4")
	f(dialects.Responses, batch, "u1"+pairs(1, 4)+" a1", "u1 fc3 fo3 fc4 fo4 a1")
	f(dialects.Responses, batch, "u1 fc1 fo1 fc2 fo2 fc3 fo3 a1 u2", "u1 fc3 fo3 a1 u2")
}

// Legacy calls of Chat have no id: their names tell them apart.
func TestLegacyCallsAreGroupedByName(t *testing.T) {
	var all []wire.Item
	for _, raw := range []string{
		`{"role":"user","content":"x"}`,
		`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`,
		`{"role":"assistant","content":null,"function_call":{"name":"g","arguments":"{}"}}`,
		`{"role":"function","name":"g","content":"ok"}`,
		`{"role":"function","name":"f","content":"ok"}`,
	} {
		all = append(all, wiretest.Parse(t, dialects.Chat, raw))
	}
	_, g := groupsOf(all)
	if got := g.splits(); !slices.Equal(got, []bool{false, false, true, true, true}) {
		t.Errorf("splits %v", got)
	}
}

// max_expansion bounds how far the window reaches back for the last exchange; the user message stays even then.
func TestMaxExpansion(t *testing.T) {
	w := &Window{MaxItems: 2, EvictBatch: 1, InFlight: InFlightKeep, MaxExpansion: 4}
	got := Assemble(Request{Items: items(t, dialects.Responses, "u1 a1"+pairs(1, 4)), Window: w})
	if want := "u1" + pairs(1, 4); notation(got.Items) != want {
		t.Errorf("got %s, want %s", notation(got.Items), want)
	}
	// Calls that were made together stay, though the bound falls among their results, with the message that they are about.
	together := "u1 a1 fc1 fc2 fc3 fc4 fo1 fo2 fo3 fo4"
	got = Assemble(Request{Items: items(t, dialects.Responses, together), Window: &Window{MaxItems: 2, EvictBatch: 1, InFlight: InFlightKeep, MaxExpansion: 2}})
	if want := "u1 fc1 fc2 fc3 fc4 fo1 fo2 fo3 fo4"; notation(got.Items) != want {
		t.Errorf("got %s, want %s", notation(got.Items), want)
	}
}

// ordered puts items into their Order, and returns where the moved ones are.
func ordered(d wire.Dialect, all []wire.Item) (out []wire.Item, moved []int) {
	order, moved := Order(d, all)
	if order == nil {
		return all, nil
	}
	for _, i := range order {
		out = append(out, all[i])
	}
	return out, moved
}

// TestOrder: results stand where upstream takes them, and where that cannot be, the rest of the pair goes too.
func TestOrder(t *testing.T) {
	f := func(name string, d wire.Dialect, history, want string, moves int) {
		t.Helper()
		all, moved := ordered(d, items(t, d, history))
		got := Assemble(Request{Items: all, Own: all, Moved: moved})
		if notation(got.Items) != want || len(moved) != moves {
			t.Errorf("%s: %s\n got %s, %d moved\nwant %s, %d", name, history, notation(got.Items), len(moved), want, moves)
		}
		if errs := wiretest.Check(d, got.Items); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
	f("in order", dialects.Chat, "u1 [x] fox a1", "u1 [x] fox a1", 0)
	f("the client's order of parallel results", dialects.Chat, "u1 [x,y] foy fox a1", "u1 [x,y] foy fox a1", 0)
	f("a user message between", dialects.Chat, "u1 [x] u2 fox a1", "u1 [x] fox u2 a1", 1)
	f("a system message between", dialects.Chat, "u1 [x] s2 fox a1", "u1 [x] fox s2 a1", 1)
	f("an assistant message between", dialects.Chat, "u1 [x] a2 fox a1", "u1 [x] fox a2 a1", 1)
	f("far behind", dialects.Chat, "u1 [x,y] u2 a2 u3 foy fox a1", "u1 [x,y] foy fox u2 a2 u3 a1", 2)
	f("one of two apart", dialects.Chat, "u1 [x,y] fox u2 foy a1", "u1 [x,y] fox foy u2 a1", 1)
	f("behind an answer, at the end", dialects.Chat, "u1 [x] u2 a2 fox", "u1 u2 a2 [x] fox", 1)
	f("behind answers, at the end", dialects.Chat, "u1 [x] u2 [y] u3 a3 foy fox", "u1 u2 u3 a3 [x] fox [y] foy", 4)
	f("one of two behind an answer, at the end", dialects.Chat, "u1 [x,y] fox u2 a2 foy", "u1 u2 a2 [x,y] fox foy", 2)
	f("behind a question, at the end", dialects.Chat, "u1 [x] u2 fox", "u1 [x] fox u2", 1)
	f("two callers, then two results", dialects.Chat, "u1 [x] [y] fox foy a1", "u1 [x] fox [y] foy a1", 1)
	f("two callers of one id", dialects.Chat, "u1 [x] [x] fox fox a1", "u1 [x] fox [x] fox a1", 1) //nolint:dupword // items
	f("an id that comes back", dialects.Chat, "u1 [x] fox u2 [x] u3 fox", "u1 [x] fox u2 [x] fox u3", 1)
	f("an id that comes back behind an open call", dialects.Chat, "u1 [x] u2 [x] fox a1", "u1 u2 [x] fox a1", 0)
	f("before its call", dialects.Chat, "u1 fox [x] a1", "u1 [x] fox a1", 1)
	f("before its call, and behind it", dialects.Chat, "u1 fox [x] fox a1", "u1 [x] fox a1", 0)
	f("in the run before its call", dialects.Chat, "u1 fox u2 [x] a1", "u1 u2 a1", 0)
	f("one id twice in a message", dialects.Chat, "u1 [x,x] fox fox a1", "u1 [x] fox a1", 0) //nolint:dupword // items
	f("two results", dialects.Chat, "u1 [x] fox fox a1", "u1 [x] fox a1", 0)                 //nolint:dupword // items
	f("a result again in a later run", dialects.Chat, "u1 [x] fox a1 u2 fox a2", "u1 [x] fox a1 u2 a2", 0)

	f("anywhere behind its call", dialects.Responses, "u1 fc1 u2 a2 fo1 a1", "u1 fc1 u2 a2 fo1 a1", 0)
	f("before its call", dialects.Responses, "u1 fo1 fc1 a1", "u1 fc1 fo1 a1", 1)
	f("before parallel calls", dialects.Responses, "u1 fo1 r1 fc1 fc2 fo2 a1", "u1 r1 fc1 fc2 fo1 fo2 a1", 1)
	f("on either side of its call", dialects.Responses, "u1 fo1 fc1 a1 fo1 u2", "u1 fc1 a1 fo1 u2", 0)
	f("one id twice", dialects.Responses, "u1 fc1 fc1 fo1 a1", "u1 fc1 fo1 a1", 0)                       //nolint:dupword // items
	f("one id twice, with two results", dialects.Responses, "u1 fc1 fc1 fo1 fo1 a1", "u1 fc1 fo1 a1", 0) //nolint:dupword // items
	f("an id that comes back", dialects.Responses, "u1 fc1 fo1 u2 fc1 fo1 a1", "u1 fc1 fo1 u2 fc1 fo1 a1", 0)
	f("another result in the run", dialects.Responses, "u1 fc1 fo1 a1 fo1 a2", "u1 fc1 fo1 a1 a2", 1)
	f("two results", dialects.Responses, "u1 fc1 fo1 fo1 a1", "u1 fc1 fo1 a1", 0) //nolint:dupword // items
}

// TestApprovalsAndProgramsPair: upstream takes a request for approval and a program without an answer, and refuses an answer
// without them.
func TestApprovalsAndProgramsPair(t *testing.T) {
	f := func(maxItems int, history, want string) {
		t.Helper()
		all, _ := ordered(dialects.Responses, items(t, dialects.Responses, history))
		if got := Assemble(Request{Items: all, Window: seed(maxItems)}); notation(got.Items) != want {
			t.Errorf("[%d] %s\n got %s\nwant %s", maxItems, history, notation(got.Items), want)
		}
	}
	f(40, "u1 mq1 mr1 a1 u2", "u1 mq1 mr1 a1 u2")
	f(40, "u1 mq1 u2", "u1 mq1 u2")
	f(40, "u1 mr1 u2", "u1 u2")
	f(40, "u1 mr1 mq1 a1 u2", "u1 mq1 mr1 a1 u2")
	f(40, "u1 p1 fc2 fo2 po1 a1 u2", "u1 p1 fc2 fo2 po1 a1 u2")
	f(40, "u1 p1 fc2 fo2", "u1 p1 fc2 fo2")
	f(40, "u1 po1 u2", "u1 u2")
	f(3, "u1 mq1 mr1 a1 u2 a2", "a1 u2 a2")
	f(3, "u1 p1 po1 a1 u2 a2", "a1 u2 a2")
}

// TestTheLastResultStays: a client that sends a result again has a reason.
func TestTheLastResultStays(t *testing.T) {
	for d, history := range map[wire.Dialect][3]string{
		dialects.Chat: {
			`{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
			`{"role":"tool","tool_call_id":"x","content":"early"}`, `{"role":"tool","tool_call_id":"x","content":"late"}`,
		},
		dialects.Responses: {
			`{"type":"function_call","call_id":"x","name":"f","arguments":"{}"}`,
			`{"type":"function_call_output","call_id":"x","output":"early"}`, `{"type":"function_call_output","call_id":"x","output":"late"}`,
		},
	} {
		var all []wire.Item
		for _, raw := range history {
			all = append(all, wiretest.Parse(t, d, raw))
		}
		v := Assemble(Request{Items: all})
		if len(v.Items) != 2 || v.Items[1].Text() != "late" {
			t.Errorf("%s: %d items are sent, the last says %q", d, len(v.Items), v.Items[len(v.Items)-1].Text())
		}
	}
}

// TestCallsWithoutIDs: some servers give calls of Chat no id, or an empty one. Their results are known by their order.
func TestCallsWithoutIDs(t *testing.T) {
	parse := func(raw string) wire.Item { return wiretest.Parse(t, dialects.Chat, raw) }
	for _, id := range []string{"", `"id":"",`} {
		call := `{` + id + `"type":"function","function":{"name":"f","arguments":"{}"}}`
		result := parse(`{"role":"tool",` + strings.Replace(id, "id", "tool_call_id", 1) + `"content":"ok"}`)
		one := parse(`{"role":"assistant","content":null,"tool_calls":[` + call + `]}`)
		two := parse(`{"role":"assistant","content":null,"tool_calls":[` + call + `,` + call + `]}`)
		user := items(t, dialects.Chat, "u1")[0]
		for _, sent := range [][]wire.Item{{user, one, result}, {user, two, result, result, one, result, user}, {user, one, result, user, one, result}} {
			if v := Assemble(Request{Items: sent, Own: sent}); len(v.Items) != len(sent) || v.Repaired != 0 {
				t.Errorf("id %q: %d of %d items are sent, %d repaired", id, len(v.Items), len(sent), v.Repaired)
			}
			if order, _ := Order(dialects.Chat, sent); order != nil {
				t.Errorf("id %q: in the order %d", id, order)
			}
		}
		if v := Assemble(Request{Items: []wire.Item{user, two, result, user}}); v.Count().Orphans != 1 {
			t.Errorf("id %q: %d orphans of two calls and a result", id, v.Count().Orphans)
		}
	}
}

// TestRepaired: what the window made an orphan, and what was stored, is no fault of the client's.
func TestRepaired(t *testing.T) {
	f := func(dialect wire.Dialect, stored, sent string, maxItems, orphans, repaired int) {
		t.Helper()
		before, own := items(t, dialect, stored), items(t, dialect, sent)
		r := Request{Items: slices.Concat(before, own), Own: own}
		if maxItems > 0 {
			r.Window = seed(maxItems)
		}
		if v := Assemble(r); v.Count().Orphans != orphans || v.Repaired != repaired {
			t.Errorf("%s %q behind %q: %d orphans, %d repaired; want %d and %d", dialect, sent, stored, v.Count().Orphans, v.Repaired, orphans, repaired)
		}
	}
	for _, dialect := range []wire.Dialect{dialects.Chat, dialects.Responses} {
		f(dialect, "", "u1 fc1 fo1 u2", 0, 0, 0)
		f(dialect, "", "u1 fo1 u2", 0, 1, 1)
		f(dialect, "", "u1 fc1 u2", 0, 1, 1)
		f(dialect, "", "fo1", 0, 0, 0) // nothing else would be sent
		f(dialect, "", "fc1", 0, 0, 0)
		f(dialect, "u1", "fo1", 0, 1, 1)
		f(dialect, "", "u1 fc1 fo2 u2", 0, 2, 2)
		f(dialect, "u1 fc1", "u2", 0, 1, 0)             // stored
		f(dialect, "u1 fc1", "u2 fo7", 0, 2, 1)         // one of each
		f(dialect, "", "u1 fc1 fo1 a1 u2", 3, 1, 0)     // cut by the window
		f(dialect, "", "fo9 u1 fc1 a1 u2", 2, 0, 0)     // both faults are windowed
		f(dialect, "", "u1 fc1 fo1 fo9 a1 u2", 4, 2, 1) // the result that lost its call to the window, and one of no call
	}
	f(dialects.Chat, "", "u1 a1[1,2] fo1 u2", 0, 1, 1)
	f(dialects.Responses, "", "u1 r1 fc1 u2", 0, 2, 2)
	f(dialects.Responses, "", "u1 r1 u2", 0, 1, 1)
}

// What a client sends before its first question, with each request, is not cut.
func TestContextStays(t *testing.T) {
	f := func(name string, w Window, p till, history string, own int, want string) {
		t.Helper()
		all := items(t, dialects.Responses, history)
		r := Request{Items: all, Own: all[len(all)-own:], Window: &w, WindowInput: WindowInput{Tokens: p.tokens, AtMost: p.atMost}}
		if got := notation(Assemble(r).Items); got != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s: %s\n got %s\nwant %s", name, history, got, want)
		}
	}
	tokens, byItems := tokenWindow(100, InFlightWindow), Window{MaxItems: 8, EvictBatch: 4, InFlight: InFlightKeep}
	run := "u1 u2 u3" + pairs(1, 9)
	f("in a run", tokens, nil, run, 21, "u1 u2 u3"+pairs(9, 9))
	f("by items", byItems, nil, "u1 u2 u3 u4 a1 u5 a2 u6 a3 u7", 10, "u1 u2 a1 u5 a2 u6 a3 u7")
	f("after other questions", tokens, nil, "u1 u2 a1 u3 a2 u4 a3 u5 a4 u6 a5", 11, "u1 u5 a4 u6 a5")
	f("more than a quarter of the limit", tokens, till{"u2": 20}, "u1 u2 u3"+pairs(1, 9), 21, "u1 u3"+pairs(9, 9))
	f("from a client that sends only what is new", tokens, nil, "u1 u2 a1 u3 a2 u4 a3 u5 a4 u6 a5 u7", 1, "u5 a4 u6 a5 u7")
	f("a question that nothing stands before", tokens, nil, "u2 a1 u3 a2 u4 a3 u5 a4 u6 a5 u7", 11, "u5 a4 u6 a5 u7")
}
