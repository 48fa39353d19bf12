package view

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// till prices items by their name in the notation of items: 10 tokens unless listed.
type till map[string]int

func (p till) tokens(it wire.Item) int {
	if n, ok := p[notation([]wire.Item{it})]; ok {
		return n
	}
	return 10
}

func (p till) atMost(it wire.Item) int { return 3 * p.tokens(it) }

// keysOf names items as a transcript does.
func keysOf(all []wire.Item) []wire.Hash {
	keys := make([]wire.Hash, len(all))
	var last wire.Hash
	for i, it := range all {
		last = wire.Chain(last, it.ContentHash())
		keys[i] = last
	}
	return keys
}

// session sends one request after the other under a window, and keeps the cut between them.
type session struct {
	w       *Window
	prices  till
	context int
	hidden  []bool
	resends bool
	cut     WindowStart
}

func (s *session) send(all []wire.Item, cold bool) View {
	r := Request{Items: all, Window: s.w, WindowInput: WindowInput{
		Context: s.context, Tokens: s.prices.tokens, AtMost: s.prices.atMost, Previous: s.cut, Cold: cold,
		Keys: func() []wire.Hash { return keysOf(all) },
	}}
	if s.hidden != nil {
		r.Hidden = s.hidden[:len(all)]
	}
	if s.resends {
		r.Own = all
	}
	v := Assemble(r)
	s.cut = DecodeWindowStart(v.Start.Encode())
	return v
}

func tokenWindow(limit int, inFlight string) Window {
	return Window{MaxTokens: limit, EvictShare: 0.5, InFlight: inFlight}
}

// Limits by tokens alone and with each other option.
func TestTokenWindow(t *testing.T) {
	f := func(name string, d wire.Dialect, w Window, p till, history, want string) {
		t.Helper()
		if errs := w.Validate(); errs != nil {
			t.Fatal(errs)
		}
		s := session{w: &w, prices: p, context: 120}
		got := s.send(items(t, d, history), false)
		if want = strings.Join(strings.Fields(want), " "); notation(got.Items) != want {
			t.Errorf("%s: %s\n got %s\nwant %s", name, history, notation(got.Items), want)
		}
		if v := wiretest.Check(d, got.Items); len(v) > 0 {
			t.Errorf("%s: %v", name, v)
		}
	}
	with := func(w Window, change func(w *Window)) Window { change(&w); return w }
	keep, window := tokenWindow(60, InFlightKeep), tokenWindow(60, InFlightWindow)
	chat := "u1 a1 u2 a2 u3 a3 u4"

	f("as much as the limit", dialects.Chat, keep, nil, "u1 a1 u2 a2 u3 a3", "u1 a1 u2 a2 u3 a3")
	f("more than the limit: half of it", dialects.Chat, keep, nil, chat, "u3 a3 u4")
	f("evict_share", dialects.Chat, with(keep, func(w *Window) { w.EvictShare = 0.2 }), nil, chat, "a2 u3 a3 u4")
	f("evict_share 0 slides", dialects.Chat, with(keep, func(w *Window) { w.EvictShare = 0 }), nil, chat, "a1 u2 a2 u3 a3 u4")
	f("keep leaves the run whole", dialects.Responses, keep, nil, "u1 a1 u2"+pairs(1, 9), "u2"+pairs(1, 9))
	f("window pins its user message", dialects.Responses, window, nil, "u1 a1 u2"+pairs(1, 9), "u2"+pairs(9, 9))
	f("the run within max_expansion", dialects.Responses, with(keep, func(w *Window) { w.MaxExpansion = 2 }), nil,
		"u1 a1 u2"+pairs(1, 5), "u2"+pairs(1, 5))
	f("the run beyond max_expansion", dialects.Responses, with(keep, func(w *Window) { w.MaxExpansion = 2 }), nil,
		"u1 a1 u2"+pairs(1, 6), "u2"+pairs(5, 6))
	f("a run that is over keeps its user message", dialects.Responses, window, nil, "u1"+pairs(1, 2)+" a1 u2", "u1 a1 u2")
	f("a run that is over, with keep", dialects.Responses, keep, nil, "u1"+pairs(1, 2)+" a1 u2", "a1 u2")
	f("fewer items than tokens allow", dialects.Chat, with(keep, func(w *Window) { w.MaxItems, w.EvictBatch = 3, 1 }), nil,
		"u1 a1 u2 a2 u3", "u2 a2 u3")
	f("fewer tokens than items allow", dialects.Chat, with(keep, func(w *Window) { w.MaxItems, w.EvictBatch, w.MaxTokens = 6, 1, 50 }), nil, chat, "a3 u4")
	f("fewer items are few enough tokens", dialects.Chat, with(keep, func(w *Window) { w.MaxItems, w.EvictBatch = 6, 1 }), nil, chat, "a1 u2 a2 u3 a3 u4")
	f("no minimum exchange above the limit", dialects.Chat, keep, till{"a1": 70}, "u1 a1 u2", "u2")
	f("parallel calls stay together", dialects.Chat, window, nil, "u1 a1[1,2] fo1 fo2 [3,4] fo3 fo4", "u1 [3,4] fo3 fo4")
	f("reasoning stays with its call", dialects.Responses, window, nil, "u1 fc1 fo1 r2 fc2 fo2 r3 fc3 fo3", "u1 r3 fc3 fo3")
	f("the last group stays whatever it costs", dialects.Responses, window, till{"fo2": 500}, "u1"+pairs(1, 2), "u1"+pairs(2, 2))
	wide := tokenWindow(200, InFlightWindow)
	f("a large result that was just asked for", dialects.Responses, wide, till{"fo4": 120}, "u1"+pairs(1, 5), "u1"+pairs(4, 5))
	f("a large result that does not fit either", dialects.Responses, wide, till{"fo4": 180}, "u1"+pairs(1, 5), "u1"+pairs(5, 5))
	const unread = "what the model has not seen stays, before what the user wrote meanwhile"
	two := with(window, func(w *Window) { w.MaxItems, w.EvictBatch = 2, 1 })
	f(unread, dialects.Chat, keep, till{"fo2": 500}, "u1 a1 u2 [1,2] fo1 fo2 u3", "[1,2] fo1 fo2 u3")
	f(unread, dialects.Chat, two, nil, "u1 a1 u2 [1] fo1 [2,3] fo2 fo3 s1", "u2 [2,3] fo2 fo3 s1")
	f(unread, dialects.Responses, window, till{"fo2": 500}, "u1"+pairs(0, 0)+" r1 fc1 fc2 fo1 fo2 u2 u3", "u1 r1 fc1 fc2 fo1 fo2 u2 u3")
	f(unread, dialects.Responses, window, till{"po1": 500}, "u1 a1 u2 p1 po1 u3", "u2 p1 po1 u3")
	f(unread, dialects.Responses, keep, nil, "u1 a1 u2 fc1 u3 fo1", "u1 a1 u2 fc1 u3 fo1")
	f(unread, dialects.Responses, keep, till{"fo1": 500}, "u1 a1 u2 fc1 u3 fo1", "fc1 u3 fo1")
	f(unread, dialects.Responses, window, till{"fo1": 500}, "u1 a1 u2 r1 fc1 fc2 u3 fo1 u4 fo2", "u2 r1 fc1 fc2 u3 fo1 u4 fo2")
	f("and goes when it has answered", dialects.Chat, window, till{"fo2": 500}, "u1 [1,2] fo1 fo2 u2 a2 u3", "u2 a2 u3")
	share := Window{MaxShare: 0.5, EvictShare: 0.5, InFlight: InFlightKeep}
	f("a share of the model's context", dialects.Chat, share, nil, chat, "u3 a3 u4")
	f("the smaller of both limits", dialects.Chat, with(share, func(w *Window) { w.MaxTokens = 40 }), nil, "u1 a1 u2 a2 u3", "a2 u3")
}

// Nobody knows how long the model's context is, or what items cost.
func TestTokenLimitsThatDoNotBind(t *testing.T) {
	all := items(t, dialects.Chat, "u1 a1 u2 a2")
	p := till{}
	share := &Window{MaxShare: 0.1, InFlight: InFlightKeep}
	if v := Assemble(Request{Items: all, Window: share, WindowInput: WindowInput{Tokens: p.tokens, AtMost: p.atMost}}); len(v.Items) != 4 {
		t.Errorf("without a context length: %s", notation(v.Items))
	}
	w := tokenWindow(5, InFlightKeep)
	if v := Assemble(Request{Items: all, Window: &w}); len(v.Items) != 4 {
		t.Errorf("without prices: %s", notation(v.Items))
	}
}

func TestCompactionsCountAgainstTheLimit(t *testing.T) {
	all := items(t, dialects.Responses, "k u1 a1 u2 a2 u3 a3")
	w := tokenWindow(60, InFlightKeep)
	s := session{w: &w}
	for _, more := range [][2]string{{"", "k u3 a3"}, {"u4 a4 u5", "k u3 a3 u4 a4 u5"}, {"a5", "k u5 a5"}} {
		all = append(all, items(t, dialects.Responses, more[0])...)
		if v := s.send(all, false); notation(v.Items) != more[1] {
			t.Errorf("then %s: got %s, want %s", more[0], notation(v.Items), more[1])
		}
	}
}

// grow plays a conversation, item by item, and counts how often the cut moved.
func grow(t *testing.T, s *session, history string) (moves int) {
	t.Helper()
	all := items(t, dialects.Responses, history)
	for n, from := 1, 0; n <= len(all); n++ {
		v := s.send(all[:n], false)
		if v.From != from {
			moves++
		}
		from = v.From
	}
	return moves
}

func TestTokenCutStaysPut(t *testing.T) {
	w := tokenWindow(200, InFlightWindow)
	s := &session{w: &w}
	// 90 groups of 20 tokens, and 10 for the user message: the tenth group is too much, and four stay then.
	if moves := grow(t, s, "u1"+pairs(1, 90)); moves != 14 {
		t.Errorf("the cut moved %d times, want 14", moves)
	}
	// A new run leaves it alone, and its user message too.
	all := items(t, dialects.Responses, "u1"+pairs(1, 90)+" a1 u2")
	before := s.cut
	if v := s.send(all, false); v.Start != before || v.Pinned != 0 {
		t.Errorf("cut %+v, pinned %d, want %+v and 0", v.Start, v.Pinned, before)
	}
}

// A cut is found by its key wherever its item is now, and not at all in another conversation.
func TestCutIsFoundByItsKey(t *testing.T) {
	w := tokenWindow(60, InFlightKeep)
	s := session{w: &w}
	history := "u1 a1 u2 a2 u3 a3 u4"
	all := items(t, dialects.Chat, history)
	keys := keysOf(all)
	v := s.send(all, false)
	if want := (WindowStart{Key: keys[4], Units: 4}); v.Start != want {
		t.Fatalf("cut %+v, want %+v", v.Start, want)
	}
	f := func(name string, r Request, want string) {
		t.Helper()
		p := till{}
		r.Window, r.Tokens, r.AtMost = &w, p.tokens, p.atMost
		if got := Assemble(r); notation(got.Items) != want {
			t.Errorf("%s: got %s, want %s", name, notation(got.Items), want)
		}
	}
	at := WindowInput{Previous: v.Start, Keys: func() []wire.Hash { return keys }}
	f("again", Request{Items: all, WindowInput: at}, "u3 a3 u4")
	f("the hint is wrong", Request{Items: all, WindowInput: WindowInput{Previous: WindowStart{Key: keys[4], Units: 1}, Keys: at.Keys}}, "u3 a3 u4")
	f("the client trimmed its history", Request{Items: all[2:], Offset: 2, WindowInput: WindowInput{Previous: v.Start, Keys: func() []wire.Hash { return keys[2:] }}}, "u3 a3 u4")
	f("the cut is before what is here", Request{Items: all[5:], Offset: 5, WindowInput: WindowInput{Previous: v.Start, Keys: func() []wire.Hash { return keys[5:] }}}, "a3 u4")
	edited := items(t, dialects.Chat, "u1 a1 u9 a2 u3 a3")
	f("an edit", Request{Items: edited, WindowInput: WindowInput{Previous: v.Start, Keys: func() []wire.Hash { return keysOf(edited) }}}, "u1 a1 u9 a2 u3 a3")
	f("nobody knows the names", Request{Items: all[:6], WindowInput: WindowInput{Previous: v.Start}}, "u1 a1 u2 a2 u3 a3")
	f("names that do not belong to the items", Request{Items: all[:6], WindowInput: at}, "u1 a1 u2 a2 u3 a3")
}

// A cut inside a Chat message with parallel calls is found at the same call.
func TestCutInsideAMessage(t *testing.T) {
	w := Window{MaxItems: 12, EvictBatch: 5, InFlight: InFlightKeep, IdleReset: time.Minute}
	s := session{w: &w}
	all := items(t, dialects.Chat, "u1 a1[1,2,3,4] fo1 fo2 fo3 fo4 u2 a2 u3")
	for n := 8; n <= 9; n++ {
		v := s.send(all[:n], n == 8)
		if got := notation(v.Items); v.Start.Units != 4 || !strings.HasPrefix(got, "a1[3,4] fo3 fo4") {
			t.Errorf("%d items: got %s from entry %d, want it from call 3, unit 4", n, got, v.Start.Units)
		}
	}
}

// What the client does not see moves no cut.
func TestHiddenItemsCountAsNothing(t *testing.T) {
	w := &Window{MaxItems: 4, EvictBatch: 2, InFlight: InFlightKeep}
	cut := func(history string) string {
		var hidden []bool
		var plain []string
		for word := range strings.FieldsSeq(history) {
			name, hide := strings.CutSuffix(word, "*")
			plain, hidden = append(plain, name), append(hidden, hide)
		}
		v := Assemble(Request{Items: items(t, dialects.Responses, strings.Join(plain, " ")), Hidden: hidden, Window: w})
		return notation(v.Items)
	}
	if got, want := cut("u1 a1 u2 a2 u3 a3"), "u2 a2 u3 a3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := cut("u1 fc1* fo1* a1 fc2* fo2* u2 fc3* fo3* a2 u3 a3"), "u2 fc3 fo3 a2 u3 a3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w = &Window{MaxTokens: 60, EvictShare: 0.3, InFlight: InFlightWindow}
	s := session{w: w, hidden: []bool{4: true, 6: false}}
	all := items(t, dialects.Responses, "u1 fc1 fo1 a1 d8 a2 a3")
	v := s.send(all, false) // d8 belongs to a1
	if got, want := notation(v.Items), "u1 a2 a3"; got != want || v.Start.Units != 4 {
		t.Errorf("got %s at %d, want %s at 4", got, v.Start.Units, want)
	}
}

// A large cut waits for a moment when the provider's cache is cold anyway.
func TestIdleReset(t *testing.T) {
	f := func(name string, w Window, history, want, later string) {
		t.Helper()
		w.IdleReset = time.Minute
		s := session{w: &w}
		all := items(t, dialects.Chat, history)
		if v := s.send(all[:len(all)-2], false); v.From != 0 {
			t.Fatalf("%s: cut before the limit: %s", name, notation(v.Items))
		}
		if v := s.send(all[:len(all)-1], true); notation(v.Items) != want {
			t.Errorf("%s: cold: got %s, want %s", name, notation(v.Items), want)
		}
		if v := s.send(all, false); notation(v.Items) != later {
			t.Errorf("%s: after: got %s, want %s", name, notation(v.Items), later)
		}
	}
	f("tokens", tokenWindow(80, InFlightKeep), "u1 a1 u2 a2 u3 a3 u4", "u2 a2 u3 a3", "u2 a2 u3 a3 u4")
	f("items", Window{MaxItems: 8, EvictBatch: 4, InFlight: InFlightKeep}, "u1 a1 u2 a2 u3 a3 u4 a4", "u2 a2 u3 a3 u4", "u2 a2 u3 a3 u4 a4")
	f("below the target", tokenWindow(160, InFlightKeep), "u1 a1 u2 a2 u3 a3", "u1 a1 u2 a2 u3", "u1 a1 u2 a2 u3 a3")
}

// Nothing is counted that bounds settle, and nothing before the item that exceeds the limit.
func TestTokensAreCountedSparingly(t *testing.T) {
	long := items(t, dialects.Responses, "u1"+pairs(1, 500)+" u2 a2")
	f := func(limit, atMost, most int) {
		t.Helper()
		w := tokenWindow(limit, InFlightWindow)
		counted := 0
		Assemble(Request{Items: long, Window: &w, WindowInput: WindowInput{
			Tokens: func(wire.Item) int { counted++; return 10 }, AtMost: func(wire.Item) int { return atMost },
		}})
		if counted > most {
			t.Errorf("limit %d, bound %d: %d items counted, want at most %d", limit, atMost, counted, most)
		}
	}
	f(200_000, 100, 0)
	f(60_000, 100, 510) // half of them turn out cheap enough
	f(1000, 100, 110)
}

func TestWindowDefaults(t *testing.T) {
	f := func(w Window, given string, want Window) {
		t.Helper()
		w.Defaults(func(key string) bool { return slices.Contains(strings.Fields(given), key) })
		if w != want {
			t.Errorf("%s: got %+v, want %+v", given, w, want)
		}
	}
	f(Window{}, "", Window{MaxItems: 40, EvictBatch: 20, EvictShare: 0.5, InFlight: InFlightKeep})
	f(Window{MaxItems: 2}, "max_items", Window{MaxItems: 2, EvictBatch: 1, EvictShare: 0.5, InFlight: InFlightKeep})
	f(Window{MaxTokens: 9}, "max_tokens", Window{MaxTokens: 9, EvictBatch: 1, EvictShare: 0.5, InFlight: InFlightKeep})
	f(Window{MaxShare: 0.5, MaxItems: 80}, "max_share max_items",
		Window{MaxShare: 0.5, MaxItems: 80, EvictBatch: 40, EvictShare: 0.5, InFlight: InFlightKeep})
	f(Window{EvictBatch: 3, InFlight: InFlightWindow, MaxItems: 9}, "max_items evict_batch evict_share in_flight",
		Window{EvictBatch: 3, InFlight: InFlightWindow, MaxItems: 9})
}

// TestWindowRefusesValues: with a limit by tokens beside it, 0 is no limit by items.
func TestWindowRefusesValues(t *testing.T) {
	byItems := Window{MaxItems: 80, EvictBatch: 40, InFlight: InFlightKeep}
	byTokens := Window{MaxTokens: 1000, EvictShare: 0.5, InFlight: InFlightKeep}
	f := func(want string, w Window, change func(w *Window)) {
		t.Helper()
		change(&w)
		errs := w.Validate()
		if want == "" && errs != nil || want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want+":")) {
			t.Errorf("%+v: want an error about %q, have %v", w, want, errs)
		}
	}
	const maxItems = "max_items: INVALID_HISTORY_WINDOW_MAX_ITEMS"
	for _, n := range []float64{0, 1, -1, 1.5, math.NaN(), math.Inf(1), 10001} {
		f(maxItems, byItems, func(w *Window) { w.MaxItems, w.EvictBatch = n, 1 })
	}
	f("", byItems, func(w *Window) { w.MaxItems, w.EvictBatch = 2, 1 })
	f("", byItems, func(w *Window) { w.MaxItems = 10000 })
	f("evict_batch", byItems, func(w *Window) { w.EvictBatch = 0 })
	f("evict_batch", byItems, func(w *Window) { w.EvictBatch = 80 })
	f("in_flight", byItems, func(w *Window) { w.InFlight = "cut" })
	f("max_expansion", byItems, func(w *Window) { w.MaxExpansion = -1 })

	f("", byTokens, func(*Window) {})
	f("", byTokens, func(w *Window) { w.MaxItems, w.EvictBatch = 80, 40 })
	f("", byTokens, func(w *Window) { w.MaxTokens, w.MaxShare = 0, 1 })
	f(maxItems, byTokens, func(w *Window) { w.MaxItems, w.EvictBatch = 1, 1 })
	f(maxItems, byTokens, func(w *Window) { w.MaxTokens, w.EvictBatch = 0, 1 })
	f("evict_batch", byTokens, func(w *Window) { w.EvictBatch = 5 })
	f("max_tokens", byTokens, func(w *Window) { w.MaxTokens = -1 })
	f("max_share", byTokens, func(w *Window) { w.MaxShare = 1.1 })
	f("evict_share", byTokens, func(w *Window) { w.EvictShare = 1 })
	f("idle_reset", byTokens, func(w *Window) { w.IdleReset = -1 })
}

func TestReach(t *testing.T) {
	f := func(w *Window, cut WindowStart, behind, want uint64) {
		t.Helper()
		if got := w.Reach(cut, behind); got != want {
			t.Errorf("%+v, %d entries: %d, want %d", cut, behind, got, want)
		}
	}
	tokens := &Window{MaxTokens: 1}
	f(nil, WindowStart{}, 5, MaxItems)
	f(&Window{MaxItems: 80}, WindowStart{Units: 3}, 500, 80)
	f(tokens, WindowStart{}, 500, MaxItems)
	f(tokens, WindowStart{Units: 400}, 500, 101)
	f(tokens, WindowStart{Units: 900}, 500, MaxItems)
	f(tokens, WindowStart{Units: 1}, 50_000, MaxItems)
}

func FuzzDecodeWindowStart(f *testing.F) {
	f.Add(WindowStart{Key: wire.Hash{1, 2}, Units: 7}.Encode())
	f.Add([]byte(`{"key":"zz","entries":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := DecodeWindowStart(b)
		enc := c.Encode()
		if again := DecodeWindowStart(enc); again != c || len(enc) > maxStored {
			t.Fatalf("%+v, then %+v from %d bytes", c, again, len(enc))
		}
	})
}

// conversation is n items as a coding agent has them: runs of 50 tool calls, results of some kilobytes.
func conversation(tb testing.TB, n int) []wire.Item {
	tb.Helper()
	all := make([]wire.Item, 0, n)
	text := strings.Repeat("line of a file that was read ", 60)
	for i := 0; len(all) < n; i++ {
		raw := []string{
			fmt.Sprintf(`{"type":"function_call","call_id":"c%d","name":"f","arguments":"{\"path\":\"src/%d.go\"}"}`, i, i),
			fmt.Sprintf(`{"type":"function_call_output","call_id":"c%d","output":%q}`, i, text),
		}
		if i%50 == 0 {
			raw = []string{fmt.Sprintf(`{"role":"user","content":"task %d"}`, i)}
		}
		for _, r := range raw {
			all = append(all, wiretest.Parse(tb, dialects.Responses, r))
		}
	}
	return all[:n]
}

// BenchmarkAssemble must be linear in items, and take 2 ms at most for 2,000.
func BenchmarkAssemble(b *testing.B) {
	windows := map[string]*Window{
		"items":  {MaxItems: 80, EvictBatch: 40, InFlight: InFlightWindow},
		"tokens": {MaxTokens: 100_000, EvictShare: 0.5, InFlight: InFlightWindow},
		"whole":  {MaxTokens: 10_000_000, EvictShare: 0.5, InFlight: InFlightWindow},
	}
	for _, n := range []int{500, 2000, 8000} {
		all := conversation(b, n)
		keys := keysOf(all)
		for _, name := range []string{"items", "tokens", "whole"} {
			for _, when := range []string{"cut", "stays", "replayed"} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, when, n), func(b *testing.B) {
					r := Request{Items: all, Window: windows[name], WindowInput: WindowInput{
						Tokens: func(it wire.Item) int { return len(it.Raw) / 4 },
						AtMost: func(it wire.Item) int { return len(it.Raw) },
						Keys:   func() []wire.Hash { return keys },
					}}
					if when == "stays" {
						r.Previous = Assemble(r).Start
					}
					r.Apart = when == "replayed"
					b.ReportAllocs()
					for b.Loop() {
						Assemble(r)
					}
				})
			}
		}
	}
}

// Without a stored cut, a conversation is cut where it would have been with one.
func TestCutIsReplayed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		w := Window{MaxTokens: 60 + rng.IntN(200), EvictShare: float64(rng.IntN(10)) / 10, InFlight: InFlightWindow}
		if rng.IntN(3) == 0 {
			w.InFlight = InFlightKeep
		}
		prices := till{}
		s := session{w: &w, prices: prices, resends: true}
		var words []string
		say := func(word string) {
			words = append(words, word)
			prices[word] = 1 + rng.IntN(40)
		}
		for n, call := 0, 0; n < 60; n++ { // a request for each
			if n == 0 || rng.IntN(6) == 0 {
				for more := range 1 + rng.IntN(3) {
					say(fmt.Sprint("u", n, "c", more))
				}
			}
			all := items(t, dialects.Responses, strings.Join(words, " "))
			want := s.send(all, false)
			got := Assemble(Request{Items: all, Own: all, Window: &w, WindowInput: WindowInput{
				Tokens: prices.tokens, AtMost: prices.atMost, Keys: func() []wire.Hash { return keysOf(all) }, Apart: true,
			}})
			if notation(got.Items) != notation(want.Items) || got.Start != want.Start {
				t.Fatalf("%+v: %s\n got %s\nwant %s", w, strings.Join(words, " "), notation(got.Items), notation(want.Items))
			}
			if rng.IntN(8) == 0 {
				say(fmt.Sprint("a", n))
				say(fmt.Sprint("u", n, "b"))
				continue
			}
			first := call
			for range 1 + rng.IntN(3) {
				say(fmt.Sprint("fc", call))
				call++
			}
			for ; first < call; first++ {
				say(fmt.Sprint("fo", first))
			}
		}
	}
}

// Replayed cuts cost what one cut costs for each part of the history, whatever a caller sends, and count each item once.
func TestReplayIsLinear(t *testing.T) {
	const n = 100_000
	group := func(notation string) []wire.Item {
		part := items(t, dialects.Responses, notation)
		return slices.Repeat(part, n/len(part))
	}
	first := items(t, dialects.Responses, "u1")
	for _, w := range []Window{
		{MaxTokens: 100, EvictShare: 0.5, InFlight: InFlightWindow},
		{MaxTokens: 20_000, EvictShare: 0.5, InFlight: InFlightWindow},
		{MaxTokens: 20_000, InFlight: InFlightWindow},
		{MaxTokens: 100, EvictShare: 0.5, InFlight: InFlightKeep},
		{MaxTokens: 20_000, InFlight: InFlightKeep},
		{MaxTokens: 20_000, InFlight: InFlightKeep, MaxExpansion: 2},
	} {
		for name, all := range map[string][]wire.Item{
			"one run": slices.Concat(first, group("fc1 fo1")), "questions": group("u1 a1"), "runs": group("u1 r1 fc1 fo1 a1"),
			"calls, then results": slices.Concat(first, group("fc1")[:n/2], group("fo1")[:n/2], group("a1 u1")),
			"results only":        group("fo1"), "a large message first": slices.Concat(items(t, dialects.Responses, "u2"), group("fc1 fo1")),
		} {
			counted := 0
			inTime(t, fmt.Sprintf("%s, %+v", name, w), func() {
				counted = 0
				Assemble(Request{Items: all, Window: &w, WindowInput: WindowInput{Apart: true, AtMost: func(wire.Item) int { return 100 }, Tokens: func(it wire.Item) int {
					if counted++; it.Role == wire.User && it.Text() == "u2" {
						return 50_000
					}
					return 1
				}}})
			})
			if counted > len(all) {
				t.Errorf("%s, %+v: %d items counted of %d", name, w, counted, len(all))
			}
		}
	}
}
