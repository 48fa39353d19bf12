package view

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"remora/wire"
)

// items builds a history from the notation of SEMANTICS 1.3: u, a, s, d are user, assistant, system and developer
// messages, fcN and foN call N and its result, r is reasoning. The number of a message only tells it from others.
func items(t *testing.T, dialect wire.Dialect, notation string) []wire.Item {
	t.Helper()
	var out []wire.Item
	for word := range strings.FieldsSeq(notation) {
		raw := respItem(t, word)
		if dialect == wire.Chat {
			raw = chatItem(t, word)
		}
		it, err := wire.ParseItem(dialect, []byte(raw))
		if err != nil {
			t.Fatalf("item %s: %v", word, err)
		}
		out = append(out, it)
	}
	return out
}

var roles = map[byte]string{'u': "user", 'a': "assistant", 's': "system", 'd': "developer"}

func respItem(t *testing.T, word string) string {
	t.Helper()
	switch {
	case strings.HasPrefix(word, "fc"):
		return fmt.Sprintf(`{"type":"function_call","call_id":"c%s","name":"f","arguments":"{}"}`, word[2:])
	case strings.HasPrefix(word, "fo"):
		return fmt.Sprintf(`{"type":"function_call_output","call_id":"c%s","output":"ok"}`, word[2:])
	case word[0] == 'r':
		return fmt.Sprintf(`{"type":"reasoning","id":"rs_%s","summary":[]}`, word[1:])
	}
	return fmt.Sprintf(`{"role":%q,"content":%q}`, roles[word[0]], word)
}

// chatItem also knows [x,y] for an assistant message without text that makes calls x and y, and a1[x,y] with text.
func chatItem(t *testing.T, word string) string {
	t.Helper()
	if strings.HasPrefix(word, "fo") {
		return fmt.Sprintf(`{"role":"tool","tool_call_id":"c%s","content":"ok"}`, word[2:])
	}
	text, calls, ok := strings.Cut(strings.TrimSuffix(word, "]"), "[")
	if strings.HasPrefix(word, "fc") {
		text, calls, ok = "", word[2:], true
	}
	if !ok {
		return fmt.Sprintf(`{"role":%q,"content":%q}`, roles[word[0]], word)
	}
	content := "null"
	if text != "" {
		content = fmt.Sprintf("%q", text)
	}
	var list []string
	for id := range strings.SplitSeq(calls, ",") {
		list = append(list, fmt.Sprintf(`{"id":"c%s","type":"function","function":{"name":"f","arguments":"{}"}}`, id))
	}
	return fmt.Sprintf(`{"role":"assistant","content":%s,"tool_calls":[%s]}`, content, strings.Join(list, ","))
}

// notation is the inverse of items.
func notation(all []wire.Item) string {
	var words []string
	for _, it := range all {
		switch {
		case len(it.Calls) > 0 && it.Kind == wire.ToolCall:
			words = append(words, "f"+it.Calls[0].ID)
		case len(it.Calls) > 0:
			var ids []string
			for _, c := range it.Calls {
				ids = append(ids, strings.TrimPrefix(c.ID, "c"))
			}
			text := ""
			if it.HasText {
				text = it.Text()
			}
			words = append(words, text+"["+strings.Join(ids, ",")+"]")
		case it.Kind == wire.ToolResult:
			words = append(words, "fo"+strings.TrimPrefix(it.Answers.ID, "c"))
		case it.Kind == wire.Reasoning:
			words = append(words, "r"+strings.TrimPrefix(it.ID, "rs_"))
		default:
			words = append(words, it.Text())
		}
	}
	return strings.Join(words, " ")
}

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

// Cases 1 to 16 of SEMANTICS section 5, and the rows of its table in 1.3 that they leave out (w1 to w19, column A).
func TestWindowConformance(t *testing.T) {
	f := func(name string, maxItems int, history, want string) {
		t.Helper()
		got := Assemble(Request{Items: items(t, wire.Responses, history), Window: seed(maxItems)})
		if notation(got.Items) != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s: [%d] %s\n got %s\nwant %s", name, maxItems, history, notation(got.Items), want)
		}
	}
	f("case 1", 4, "u1 a1 u2 a2", "u1 a1 u2 a2")
	f("case 2", 4, "u1 a1 u2 a2 u3 a3", "u2 a2 u3 a3")
	f("case 3", 3, "u1 a1 u2 a2 u3", "u2 a2 u3")
	f("case 4", 2, "u1 a1 a2 a3 a4", "u1 a1 a2 a3 a4")
	f("case 5", 2, "u1 a1 u2 u3 u4", "a1 u2 u3 u4")
	f("case 6", 2, "u1 u2 u3 u4", "u3 u4")
	f("case 7", 2, "a1 a2 a3 a4", "a3 a4")
	f("case 8", 2, "u1 a1"+pairs(1, 4), "u1 a1"+pairs(1, 4))
	f("case 9", 2, "u1 a1"+pairs(1, 3), "u1 a1"+pairs(1, 3))
	f("case 10", 4, "u1 fc1 fo1 a1 u2 a2", "a1 u2 a2")
	f("case 11", 3, "u1 a1 fc1 fo1 u2 a2", "u2 a2")
	f("case 12", 5, "u1 fc1 fc2 fo1 fo2 a1 u2 a2", "a1 u2 a2")
	f("case 13", 3, "u1 a1 u2 a2 u3 fc9", "a2 u3")
	f("case 14", 4, "d1 u1 a1 u2 a2 u3 a3", "u2 a2 u3 a3")
	f("w17", 3, "u1 a1 u2 a2 s5 u3 a3 u4 a4", "a3 u4 a4")
	f("w15", 4, "u0 a0 fo1 fc1 u2 a2", "fo1 fc1 u2 a2")

	alternating := func(from, to int) string {
		var words []string
		for i := from; i <= to; i++ {
			words = append(words, fmt.Sprintf("%c%d", "au"[i%2], i))
		}
		return strings.Join(words, " ")
	}
	f("case 16, w20", DefaultMaxItems, alternating(1, 41), alternating(2, 41))
	f("case 16", DefaultMaxItems, alternating(1, 40), alternating(1, 40))
}

// Case 15 is era B's anchor; decision D2 goes further: what leads a conversation never enters the window.
func TestLeadingItemsAreNotHistory(t *testing.T) {
	for _, lead := range []string{"s1", "d1", "s1 d2 s3"} {
		got := Assemble(Request{Lead: items(t, wire.Responses, lead), Items: items(t, wire.Responses, "u1 a1 u2 a2 u3 a3"), Window: seed(4)})
		if want := lead + " u2 a2 u3 a3"; notation(got.Items) != want {
			t.Errorf("lead %s: got %s, want %s", lead, notation(got.Items), want)
		}
	}
}

// Case 17.
func TestWindowRefusesMaxItems(t *testing.T) {
	for _, v := range []float64{0, 1, -1, 1.5, math.NaN(), math.Inf(1), 10001} {
		errs := Window{MaxItems: v, EvictBatch: 1, InFlight: InFlightKeep}.Validate()
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "INVALID_HISTORY_WINDOW_MAX_ITEMS") {
			t.Errorf("max_items %v: got %v", v, errs)
		}
	}
	for _, v := range []float64{2, 10000} {
		if errs := (Window{MaxItems: v, EvictBatch: 1, InFlight: InFlightKeep}).Validate(); errs != nil {
			t.Errorf("max_items %v: got %v", v, errs)
		}
	}
}

func TestWindowRefusesOtherValues(t *testing.T) {
	f := func(w Window, key string) {
		t.Helper()
		if errs := w.Validate(); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), key+":") {
			t.Errorf("%+v: want one error about %s, have %v", w, key, errs)
		}
	}
	f(Window{MaxItems: 80, EvictBatch: 0, InFlight: InFlightKeep}, "evict_batch")
	f(Window{MaxItems: 80, EvictBatch: 80, InFlight: InFlightKeep}, "evict_batch")
	f(Window{MaxItems: 80, EvictBatch: 40, InFlight: "cut"}, "in_flight")
	f(Window{MaxItems: 80, EvictBatch: 40, InFlight: InFlightKeep, MaxExpansion: -1}, "max_expansion")
}

// Case 18: without a window everything is forwarded.
func TestNoWindow(t *testing.T) {
	long := "u1 a1" + pairs(1, 300)
	if got := Assemble(Request{Items: items(t, wire.Responses, long)}); notation(got.Items) != long || got.Windowed != 0 {
		t.Errorf("something was left out")
	}
}

// Case 20.
func TestRoundInFlightIsKept(t *testing.T) {
	round := "u9" + pairs(1, 15)
	got := Assemble(Request{Items: items(t, wire.Responses, "u1 a1 u2 a2 "+round), Window: seed(4)})
	if !strings.HasSuffix(notation(got.Items), round) {
		t.Errorf("got %s", notation(got.Items))
	}
}

// Case 21.
func TestOrphansUnderTheCap(t *testing.T) {
	got := Assemble(Request{Items: items(t, wire.Responses, "u1 fc1 fo2 a1 u2"), Window: seed(40)})
	if notation(got.Items) != "u1 a1 u2" || got.Orphans != 2 || got.Windowed != 0 {
		t.Errorf("got %s, %d orphans", notation(got.Items), got.Orphans)
	}
}

// Cases 22 to 24, and the decisions on orphans of DESIGN section 4.
func TestOrphans(t *testing.T) {
	f := func(name string, d wire.Dialect, history, want string) {
		t.Helper()
		got := Assemble(Request{Items: items(t, d, history)})
		if notation(got.Items) != want {
			t.Errorf("%s: %s\n got %s\nwant %s", name, history, notation(got.Items), want)
		}
		if v := wire.Check(d, got.Items); name != "case 22" && name != "case 23" && len(v) > 0 {
			t.Errorf("%s: %v", name, v)
		}
	}
	f("case 22", wire.Responses, "fc1 fo1 fc2 fo3 r1 fc1", "fc1 fo1 r1 fc1")
	f("case 23", wire.Responses, "u1 fo1 fc1", "u1 fo1 fc1")
	f("more results than calls", wire.Responses, "u1 fc1 fo1 a1 fo1 u2", "u1 fc1 fo1 a1 u2")
	f("a result on either side of its call", wire.Responses, "u1 fo1 fc1 a1 fo1 u2", "u1 fc1 a1 fo1 u2")
	f("as many results as calls", wire.Responses, "u1 fc1 a1 fc1 fo1 a2 fo1 a3 fo1", "u1 fc1 a1 fc1 fo1 a2 fo1 a3")
	f("case 24", wire.Chat, "u1 [x,y] fox a1", "u1 [x] fox a1")
	f("text beside a removed call stays", wire.Chat, "u1 a1[x] u2", "u1 a1 u2")
	f("all calls removed, no text", wire.Chat, "u1 [x,y] u2", "u1 u2")
	f("an id that comes back in a later round", wire.Chat, "u1 [x] fox a1 u2 [x] u3", "u1 [x] fox a1 u2 u3")
	f("reasoning of a removed call goes with it", wire.Responses, "u1 r1 fc1 u2", "u1 u2")
	f("reasoning of parallel calls stays while one does", wire.Responses, "u1 r1 fc1 fc2 fo2 u2", "u1 r1 fc2 fo2 u2")
	f("reasoning at the end stays", wire.Responses, "u1 fc7 u2 r1", "u1 u2 r1")
	f("reasoning that led to nothing goes", wire.Responses, "u1 r1 r2 u2 r3 a1 u3", "u1 u2 r3 a1 u3")
	f("reasoning before a result that goes, goes", wire.Responses, "u1 r1 fo7 u2", "u1 u2")
}

// Decision D16: the cut moves in batches and stays put in between, wherever the client's own history begins.
func TestCutMovesInBatches(t *testing.T) {
	w := &Window{MaxItems: 8, EvictBatch: 4, InFlight: InFlightKeep}
	var history []string
	cuts := map[int]int{}
	for i := 1; i <= 40; i++ {
		history = append(history, fmt.Sprintf("%c%d", "au"[i%2], i))
		all := items(t, wire.Responses, strings.Join(history, " "))
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

// Decision D15.
func TestWindowInsideTheRound(t *testing.T) {
	f := func(d wire.Dialect, w Window, history, want string) {
		t.Helper()
		w.InFlight = InFlightWindow
		got := Assemble(Request{Items: items(t, d, history), Window: &w})
		if notation(got.Items) != want {
			t.Errorf("%s\n got %s\nwant %s", history, notation(got.Items), want)
		}
		if v := wire.Check(d, got.Items); len(v) > 0 {
			t.Errorf("%s: %v", history, v)
		}
	}
	four := Window{MaxItems: 4, EvictBatch: 1}
	f(wire.Responses, four, "u1 a1 u2"+pairs(1, 6), "u2 fc5 fo5 fc6 fo6")
	f(wire.Responses, four, "u2 fc1 fo1 fc2 fc3 fo2 fo3", "u2 fc2 fc3 fo2 fo3")
	f(wire.Responses, four, "u2 fc1 fo1 r1 fc2 fc3 fc4 fo2 fo3 fo4", "u2 r1 fc2 fc3 fc4 fo2 fo3 fo4")
	f(wire.Responses, four, "u2 fc0 fc1 fo1 fc2 fo2 fc3 fo3", "u2 fc2 fo2 fc3 fo3")
	f(wire.Responses, four, "u2 r1 fc1 fo1 r2 fc2 fo2 r3 fc3 fo3", "u2 r3 fc3 fo3")
	f(wire.Responses, four, "u2 r1 a1 fc1 fo1 fc2 fo2", "u2 fc2 fo2")
	f(wire.Chat, four, "u2 [1] fo1 a1[2,3] fo2 fo3", "u2 a1[2,3] fo2 fo3")
	// The next round leaves the cut and the user message before it where they are.
	batch := Window{MaxItems: 6, EvictBatch: 4}
	f(wire.Responses, batch, "u1"+pairs(1, 4), "u1 fc3 fo3 fc4 fo4")
	f(wire.Responses, batch, "u1"+pairs(1, 4)+" a1", "u1 fc3 fo3 fc4 fo4 a1")
	f(wire.Responses, batch, "u1 fc1 fo1 fc2 fo2 fc3 fo3 a1 u2", "u1 fc3 fo3 a1 u2")
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
		it, err := wire.ParseItem(wire.Chat, []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, it)
	}
	if got := groupSplits(unitsOf(all, nil), 1); !slices.Equal(got, []bool{false, true, true, true}) {
		t.Errorf("splits %v", got)
	}
}

// Decision D1.
func TestMaxExpansion(t *testing.T) {
	w := &Window{MaxItems: 2, EvictBatch: 1, InFlight: InFlightKeep, MaxExpansion: 4}
	got := Assemble(Request{Items: items(t, wire.Responses, "u1 a1"+pairs(1, 4)), Window: w})
	if want := "u1" + pairs(1, 4); notation(got.Items) != want {
		t.Errorf("got %s, want %s", notation(got.Items), want)
	}
	// Calls that were made together stay, though the bound falls among their results, with the message that they are about.
	together := "u1 a1 fc1 fc2 fc3 fc4 fo1 fo2 fo3 fo4"
	got = Assemble(Request{Items: items(t, wire.Responses, together), Window: &Window{MaxItems: 2, EvictBatch: 1, InFlight: InFlightKeep, MaxExpansion: 2}})
	if want := "u1 fc1 fc2 fc3 fc4 fo1 fo2 fo3 fo4"; notation(got.Items) != want {
		t.Errorf("got %s, want %s", notation(got.Items), want)
	}
}

func TestWindowKeepsReasoningWithItsItem(t *testing.T) {
	got := Assemble(Request{Items: items(t, wire.Responses, "u1 a1 r1 fc1 fo1 r2 a2 u2 a3"), Window: seed(3)})
	if want := "r2 a2 u2 a3"; notation(got.Items) != want {
		t.Errorf("got %s, want %s", notation(got.Items), want)
	}
	got = Assemble(Request{Items: items(t, wire.Responses, "u1 a1 r1 r2 a2 u2 a3"), Window: seed(3)})
	if want := "r1 r2 a2 u2 a3"; notation(got.Items) != want {
		t.Errorf("got %s, want %s", notation(got.Items), want)
	}
}

// A compaction stands for all that came before it, so no window may lose it.
func TestCompactionIsNeverWindowedOut(t *testing.T) {
	all := items(t, wire.Responses, "u1 a1 u2 a2 u3 a3")
	c, err := wire.ParseItem(wire.Responses, []byte(`{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	all = append([]wire.Item{c}, all...)
	got := Assemble(Request{Items: all, Window: seed(2)})
	if len(got.Items) != 3 || got.Items[0].Kind != wire.Compaction {
		t.Errorf("got %d items", len(got.Items))
	}
}

func TestRegroup(t *testing.T) {
	f := func(history, want string) {
		t.Helper()
		if got := notation(Regroup(items(t, wire.Chat, history))); got != want {
			t.Errorf("%s\n got %s\nwant %s", history, got, want)
		}
	}
	f("u1 [x] fox a1", "u1 [x] fox a1")
	f("u1 [x,y] u2 a2 foy fox a1", "u1 [x,y] fox foy u2 a2 a1")
	f("u1 [x] fox u2 [x] u3 fox", "u1 [x] fox u2 [x] fox u3")
}
