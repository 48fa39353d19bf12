package memory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/layers/observational"
	"remora/memory/layers/working"
	"remora/memory/pipeline"
	"remora/memory/tokens"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// layeredShape is the default shape with two layers that take one line of configuration each.
func layeredShape(tb testing.TB) memory.Shape {
	tb.Helper()
	notes, err := working.New(working.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	seen, err := observational.New(observational.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	w, o, counter := working.Defaults(working.Options{}), observational.Defaults(observational.Options{}), tokens.New()
	opts := pipeline.Options{Count: counter.Count, CountItem: counter.CountItem}
	opts.Policy.Budget, opts.Policy.Reserve = 128_000, 4000
	p, err := pipeline.New([]pipeline.Layer{
		{ID: w.ID, Kind: "working_memory", Slot: w.Slot, Scope: w.Scope, Budget: w.Budget, Impl: notes},
		{ID: o.ID, Kind: "observational_memory", Slot: o.Slot, Scope: o.Scope, Budget: o.Budget, Impl: seen},
	}, opts)
	if err != nil {
		tb.Fatal(err)
	}
	c := view.DefaultPromptCache()
	return memory.Shape{
		Window: shippedWindow(), Layers: p, PromptCache: &c,
		Price: counter.CountItem,
	}
}

// exchange is the messages of client and model in one turn.
type exchange struct {
	body  []byte
	reply wire.Reply
}

// talk is a conversation of a client that sends its whole history each time. The first answer fills the working memory;
// one turn in four states a fact.
func talk(tb testing.TB, turns int) []exchange {
	tb.Helper()
	filler := strings.Repeat("could you say more about how all of this hangs together, please? ", 4)
	var out []exchange
	var history []string
	for i := range turns {
		text := fmt.Sprintf("And number %d, %s", i, filler)
		if i%4 == 1 {
			text = fmt.Sprintf("My contract %d ends on 3 May %d and I prefer to be told by letter. %s", i, 2027+i, filler)
		}
		history = append(history, fmt.Sprintf(`{"role":"user","content":%q}`, text))
		answer := fmt.Sprintf(`{"role":"assistant","content":"The answer to question %d is rather long. %s"}`, i, filler)
		if i == 0 {
			var notes []string
			for n := range 30 {
				notes = append(notes, fmt.Sprintf(`"topic %d":"what was said about it, and what is left to do by %d"`, n, n))
			}
			answer = fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"updateWorkingMemory","arguments":%q}}]}`,
				"{"+strings.Join(notes, ",")+"}")
		}
		reply, err := wire.FoldBody(dialects.Chat, []byte(`{"id":"x","choices":[{"index":0,"message":`+answer+`,"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":4000,"prompt_tokens_details":{"cached_tokens":3000}}}`))
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, exchange{[]byte(`{"model":"m","messages":[{"role":"system","content":"You are a clerk."},` + strings.Join(history, ",") + `]}`), reply})
		history = append(history, answer)
		if i == 0 {
			history = append(history, `{"role":"tool","tool_call_id":"c","content":"noted"}`)
		}
	}
	return out
}

// BenchmarkTurnWithLayers is Begin and Commit of one turn of a conversation, with the window, notes and observations. "alone"
// is one session after the other; "many" are 32 sessions that take turns.
func BenchmarkTurnWithLayers(b *testing.B) {
	const turns = 64
	said := talk(b, turns)
	for name, sessions := range map[string]int{"alone": 1, "many": 32} {
		b.Run(name, func(b *testing.B) {
			store, err := stores.Open("memory:", cache.Options{})
			if err != nil {
				b.Fatal(err)
			}
			m := memory.New(store, nil, memory.Options{Shape: layeredShape(b)})
			defer m.Close()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				x := said[i/sessions%turns]
				req, err := wire.Parse(dialects.Chat, slices.Clone(x.body))
				if err != nil {
					b.Fatal(err)
				}
				s := memory.Scope{Tenant: "t", Session: fmt.Sprint(i/sessions/turns, i%sessions)}
				turn, err := m.Begin(b.Context(), memory.Call{Scope: s, Request: req})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := req.With(turn.View); err != nil {
					b.Fatal(err)
				}
				turn.Commit(memory.Answer{HTTPStatus: 200, Reply: x.reply})
			}
		})
	}
}
