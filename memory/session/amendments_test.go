package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// say is a Chat message: "u:hello" is the user's, "a:", "s:" and "d:" are the assistant's and so on; "c:x,y" is an
// assistant message that calls x and y, "r:x" the result of x. "think:x" is reasoning, "call:x"
// and "out:x" are a call and its result, of the other dialect.
func say(tb testing.TB, word string) wire.Item {
	tb.Helper()
	kind, text, _ := strings.Cut(word, ":")
	role := map[string]string{"u": "user", "a": "assistant", "s": "system", "d": "developer"}[kind]
	raw, d := fmt.Sprintf(`{"role":%q,"content":%q}`, role, text), dialects.Chat
	switch kind {
	case "c":
		var calls []string
		for id := range strings.SplitSeq(text, ",") {
			calls = append(calls, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"f","arguments":"{}"}}`, id))
		}
		raw = fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[%s]}`, strings.Join(calls, ","))
	case "r":
		raw = fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"result of %s"}`, text, text)
	case "think":
		raw, d = fmt.Sprintf(`{"type":"reasoning","id":%q,"summary":[]}`, text), dialects.Responses
	case "call":
		raw, d = fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":"f","arguments":"{}"}`, text), dialects.Responses
	case "out":
		raw, d = fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"result of %s"}`, text, text), dialects.Responses
	}
	return wiretest.Parse(tb, d, raw)
}

func sayAll(tb testing.TB, words string) []wire.Item {
	tb.Helper()
	var items []wire.Item
	for w := range strings.FieldsSeq(words) {
		items = append(items, say(tb, w))
	}
	return items
}

// hear is the inverse of sayAll.
func hear(items []wire.Item) string {
	var words []string
	for _, it := range items {
		word := map[wire.Role]string{wire.User: "u", wire.Assistant: "a", wire.System: "s", wire.Developer: "d"}[it.Role] + ":" + it.Text()
		switch {
		case it.Kind == wire.Reasoning:
			word = "think:" + it.ID
		case it.Kind == wire.ToolResult:
			word = "r:" + it.Answers().ID
		case it.HasCalls():
			var ids []string
			for _, c := range it.Calls() {
				ids = append(ids, c.ID)
			}
			word = "c:" + strings.Join(ids, ",")
		}
		if it.Dialect == dialects.Responses {
			word = strings.Replace(strings.Replace(word, "c:", "call:", 1), "r:", "out:", 1)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func raws(items []wire.Item) [][]byte {
	out := make([][]byte, len(items))
	for i, it := range items {
		out[i] = it.Raw
	}
	return out
}

// chainOf are the chain hashes of a conversation that begins with items[0].
func chainOf(items []wire.Item) []wire.Hash {
	out := make([]wire.Hash, len(items))
	var at wire.Hash
	for i, it := range items {
		if it.Kind != wire.Reasoning {
			at = it.Meaning().After(at)
		}
		out[i] = at
	}
	return out
}

func TestApply(t *testing.T) {
	type hidden struct {
		after, next string // conversations
		replaces    bool
		items       string
		seen        string
	}
	for _, c := range []struct {
		name   string
		sent   string
		hidden []hidden
		want   string
	}{
		{"nothing hidden", "u:1 a:1", nil, "u:1 a:1"},
		{"behind its item", "u:1 a:1 u:2", []hidden{{after: "u:1", items: "c:x r:x"}}, "u:1 c:x r:x a:1 u:2"},
		{"at the end", "u:1", []hidden{{after: "u:1", items: "d:x"}}, "u:1 d:x"},
		{"before the first", "u:1 a:1", []hidden{{items: "d:x"}}, "d:x u:1 a:1"},
		{"before reasoning that comes first", "think:a u:1", []hidden{{items: "d:x"}}, "d:x think:a u:1"},
		{"of another branch", "u:1 a:2 u:2", []hidden{{after: "u:1 a:1", items: "d:x"}}, "u:1 a:2 u:2"},
		{"led to this answer", "u:1 a:1", []hidden{{after: "u:1", next: "u:1 a:1", items: "c:x r:x"}}, "u:1 c:x r:x a:1"},
		{"led to another answer", "u:1 a:2", []hidden{{after: "u:1", next: "u:1 a:1", items: "c:x r:x"}}, "u:1 a:2"},
		{"led to the answer that is to be made anew", "u:1", []hidden{{after: "u:1", next: "u:1 a:1", items: "c:x r:x"}}, "u:1"},
		{"instead", "u:1 a:1", []hidden{{after: "u:1", replaces: true, items: "u:one d:x"}}, "u:one d:x a:1"},
		{"removed", "u:1 a:1 u:2", []hidden{{after: "u:1 a:1", replaces: true}}, "u:1 u:2"},
		{"part of an answer", "u:1 c:y r:y", []hidden{{after: "u:1 c:y", replaces: true, items: "c:x,y r:x"}}, "u:1 c:x,y r:x r:y"},
		{
			"reasoning that was seen stays with its call", "u:1 think:a think:b a:1",
			[]hidden{{after: "u:1", items: "think:a call:x out:x", seen: "think:a"}},
			"u:1 think:a call:x out:x think:b a:1",
		},
		{"reasoning that the client left out", "u:1 a:1", []hidden{{after: "u:1", items: "think:a call:x out:x", seen: "think:a"}}, "u:1 think:a call:x out:x a:1"},
		{"two of one place", "u:1 a:1", []hidden{{after: "u:1", items: "d:x"}, {after: "u:1", items: "d:y"}}, "u:1 d:x d:y a:1"},
		{
			"echoed", "u:1 c:x r:x a:1 u:2",
			[]hidden{{after: "u:1", items: "c:x r:x"}, {after: "u:1 a:1", items: "d:y"}},
			"u:1 c:x r:x a:1 d:y u:2",
		},
		{"said again, not echoed", "u:1 a:x u:2", []hidden{{after: "u:1", items: "a:x d:again"}}, "u:1 a:x d:again a:x u:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := func(conversation string) (h wire.Hash) {
				if chain := chainOf(sayAll(t, conversation)); len(chain) > 0 {
					h = chain[len(chain)-1]
				}
				return h
			}
			var a Amendments
			for _, h := range c.hidden {
				x := Amendment{At: at(h.after), Replaces: h.replaces, Dialect: dialects.Chat, Items: raws(sayAll(t, h.items))}
				if strings.HasPrefix(h.items, "think") {
					x.Dialect = dialects.Responses
				}
				if h.next != "" {
					x.Next = at(h.next)
				}
				for _, it := range sayAll(t, h.seen) {
					x.Seen = append(x.Seen, it.ContentHash())
				}
				a = append(a, x)
			}
			items := sayAll(t, c.sent)
			got, from := a.apply(items, chainOf(items), wire.Item.Meaning, asTheyAre)
			if hear(got) != c.want {
				t.Errorf("got  %s\nwant %s", hear(got), c.want)
			}
			if unchanged := c.sent == c.want; unchanged != (from == nil) || unchanged && &got[0] != &items[0] {
				t.Errorf("from %v for a list that is the same: %t", from, unchanged)
			}
		})
	}
}

// Wherever something is hidden, the visible items that are not replaced stay in their order, every hidden one stands
// there once, and doing it again to what came out changes nothing.
func TestApplyKeepsOrderAndIsIdempotent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var items []wire.Item
		for i := range rapid.IntRange(1, 8).Draw(rt, "items") {
			kind := rapid.SampledFrom([]string{"u", "a", "think"}).Draw(rt, "kind")
			items = append(items, say(t, fmt.Sprintf("%s:%d", kind, i)))
		}
		chain := chainOf(items)
		places := append([]wire.Hash{{}}, chain...)
		var a Amendments
		hidden := 0
		for n := range rapid.IntRange(0, 4).Draw(rt, "amendments") {
			x := Amendment{At: rapid.SampledFrom(places).Draw(rt, "at"), Dialect: dialects.Chat}
			x.Replaces = x.At != wire.Hash{} && rapid.Bool().Draw(rt, "replaces")
			for i := range rapid.IntRange(0, 2).Draw(rt, "hidden") {
				x.Items = append(x.Items, say(t, fmt.Sprintf("d:h%d.%d", n, i)).Raw)
				hidden++
			}
			a = append(a, x)
		}
		out, from := a.apply(items, chain, wire.Item.Meaning, asTheyAre)
		if from == nil {
			if hidden > 0 {
				rt.Fatal("nothing was put anywhere")
			}
			return
		}
		again := make([]wire.Hash, len(out))
		last, shown := -1, 0
		for i, f := range from {
			if f < 0 {
				shown++
				again[i] = hiddenAt(a, out[i])
				continue
			}
			if f <= last {
				rt.Fatalf("%s became %s", hear(items), hear(out))
			}
			last, again[i] = f, chain[f]
		}
		if shown != hidden {
			rt.Fatalf("%d of %d hidden items in %s", shown, hidden, hear(out))
		}
		if twice, _ := a.apply(out, again, wire.Item.Meaning, asTheyAre); hear(twice) != hear(out) {
			rt.Fatalf("%s became %s and then %s", hear(items), hear(out), hear(twice))
		}
	})
}

func hiddenAt(a Amendments, it wire.Item) wire.Hash {
	i := slices.IndexFunc(a, func(x Amendment) bool {
		return slices.ContainsFunc(x.Items, func(raw []byte) bool { return string(raw) == string(it.Raw) })
	})
	return a[i].At
}

func TestAmendmentsAreBounded(t *testing.T) {
	entry := func(n, size int) Amendment {
		return Amendment{At: wire.Hash{byte(n), byte(n >> 8), 1}, Items: [][]byte{make([]byte, size)}}
	}
	for _, c := range []struct {
		name              string
		have, size, added int
		want              int
	}{
		{"few", 10, 100, 10, 11},
		{"too many", maxAmendments, 1, 1, maxAmendments},
		{"too large together", 10, maxAmendBytes / 10, 1000, 10},
		{"one is too large", 3, 10, maxAmendBytes, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a Amendments
			for n := range c.have {
				a = append(a, entry(n, c.size))
			}
			got := a.replace(nil, Amendments{entry(c.have, c.added)})
			if len(got) != c.want {
				t.Fatalf("%d are kept, want %d", len(got), c.want)
			}
			if c.added < maxAmendBytes && !got[len(got)-1].equal(&Amendment{At: entry(c.have, 0).At, Items: [][]byte{make([]byte, c.added)}}) {
				t.Error("the newest is not among them")
			}
			back, err := decodeAmendments(encode(&got))
			if diff := cmp.Diff([]Amendment(got), []Amendment(back)); err != nil || diff != "" && len(got) > 0 {
				t.Error(err, diff)
			}
		})
	}
}

// A turn that is retried or answered again does not show items twice.
func TestAmendmentsGiveWay(t *testing.T) {
	at, next := wire.Hash{1}, wire.Hash{2}
	item := func(s string) [][]byte { return [][]byte{[]byte(s)} }
	for _, c := range []struct {
		name           string
		have, old, now Amendments
		want           int
	}{
		{"the same again", Amendments{{At: at, Items: item("x")}}, nil, Amendments{{At: at, Items: item("x")}}, 1},
		{"another beside it", Amendments{{At: at, Items: item("x")}}, nil, Amendments{{At: at, Items: item("y")}}, 2},
		{"on the way to the same answer", Amendments{{At: at, Next: next, Items: item("x")}}, nil, Amendments{{At: at, Next: next, Items: item("y")}}, 1},
		{"written before the answer", Amendments{{At: at, Items: item("x")}}, nil, Amendments{{At: at, Next: next, Items: item("x")}}, 1},
		{"of the same item", Amendments{{At: at, Replaces: true}}, nil, Amendments{{At: at, Replaces: true, Items: item("y")}}, 1},
		{"the turn's own", Amendments{{At: at, Items: item("x")}}, Amendments{{At: at, Items: item("x")}}, Amendments{{At: next, Items: item("x")}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.have.replace(c.old, c.now); len(got) != c.want {
				t.Errorf("%d are kept, want %d", len(got), c.want)
			}
		})
	}
}

// Whatever stands in the store, reading it neither panics nor changes it.
func FuzzAmendments(f *testing.F) {
	f.Add(encode(&Amendments{}))
	f.Add(encode(&Amendments{{At: wire.Hash{1}, Next: wire.Hash{2}, Replaces: true, Items: [][]byte{[]byte(`{"role":"user"}`), {}}, Seen: []wire.Hash{{3}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAmendments(b)
		if err != nil {
			return
		}
		again, err := decodeAmendments(encode(&a))
		if err != nil || !slices.EqualFunc(a, again, func(x, y Amendment) bool { return x.equal(&y) }) {
			t.Errorf("amendments changed when they were written again: %v", err)
		}
		item := wiretest.Parse(t, dialects.Chat, `{"role":"user","content":"a"}`)
		a.apply([]wire.Item{item}, []wire.Hash{{1}}, wire.Item.Meaning, asTheyAre)
	})
}

// asTheyAre is for an upstream that accepts all items.
func asTheyAre(_ Origin, items []wire.Item) []*wire.Item {
	all := make([]*wire.Item, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
