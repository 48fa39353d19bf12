package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"remora/cache"
	"remora/memory"
	"remora/memory/budget"
	"remora/memory/pipeline"
	"remora/memory/tokens"
	"remora/memory/view"
	"remora/wire"
)

// BenchmarkTurn is Begin and Commit of one turn on the in-memory store, by the size of the request.
func BenchmarkTurn(b *testing.B) {
	for _, items := range []int{1, 20, 400} {
		b.Run(fmt.Sprintf("%d_items", items), func(b *testing.B) {
			store, err := cache.Open("memory:", cache.Options{})
			if err != nil {
				b.Fatal(err)
			}
			m := memory.New(store, nil, memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 80, EvictBatch: 40, InFlight: view.InFlightKeep}}})
			defer m.Close()
			text := strings.Repeat("All work and no play makes a dull proxy. ", 15)
			var list []string
			for i := range items {
				list = append(list, fmt.Sprintf(`{"role":%q,"content":"%d %s"}`, []string{"user", "assistant"}[i%2], i, text))
			}
			body := []byte(`{"model":"m","messages":[` + strings.Join(list, ",") + `]}`)
			reply, err := wire.FoldBody(wire.Chat, []byte(`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Fine."},"finish_reason":"stop"}]}`))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req, err := wire.Parse(wire.Chat, body)
				if err != nil {
					b.Fatal(err)
				}
				s := memory.Scope{Tenant: "t", Session: fmt.Sprint(i / 64)}
				turn, err := m.Begin(context.Background(), memory.Call{Scope: s, Request: req})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := req.With(turn.View); err != nil {
					b.Fatal(err)
				}
				turn.Commit(memory.Answer{HTTPStatus: 200, Reply: reply})
			}
		})
	}
}

// TestTurnTakesLittleMemory holds the ceiling of what a short conversation's turn allocates, from its body to its commit,
// where the window is all that is configured: 46, of which the body and the answer are 11, and up to 59 with what the
// race detector adds.
func TestTurnTakesLittleMemory(t *testing.T) {
	const ceiling = 70
	list := `{"role":"system","content":"You answer in one sentence."}`
	var bodies [][]byte
	for i := range 4 {
		list += fmt.Sprintf(`,{"role":"user","content":"Remember number %d for me, please."}`, i)
		bodies = append(bodies, []byte(`{"model":"m","messages":[`+list+`]}`))
		list += `,{"role":"assistant","content":"Fine."}`
	}
	answer := []byte(`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Fine."},"finish_reason":"stop"}],"usage":{"total_tokens":20}}`)
	store, err := cache.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := pipeline.New(nil, pipeline.Options{Policy: budget.Policy{Budget: 128000, Reserve: 4000, Overflow: budget.OverflowTruncate}})
	if err != nil {
		t.Fatal(err)
	}
	m := memory.New(store, nil, memory.Options{Shape: memory.Shape{
		Layers: layers, Window: &view.Window{MaxItems: 80, EvictBatch: 40, InFlight: view.InFlightKeep}, AtMost: tokens.AtMost,
		Price: func(_ string, it wire.Item) int { return len(it.Raw) },
	}})
	defer m.Close()
	n := 0
	got := testing.AllocsPerRun(400, func() {
		req, err := wire.Parse(wire.Chat, bodies[n%len(bodies)])
		if err != nil {
			t.Fatal(err)
		}
		reply, err := wire.FoldBody(wire.Chat, answer)
		if err != nil {
			t.Fatal(err)
		}
		s := memory.Scope{Tenant: "t", Session: fmt.Sprint("s", n/len(bodies))}
		turn, err := m.Begin(t.Context(), memory.Call{Scope: s, Request: req})
		if err != nil {
			t.Fatal(err)
		}
		turn.Commit(memory.Answer{HTTPStatus: 200, Reply: reply})
		n++
	})
	t.Logf("%.0f allocations", got)
	if got > ceiling {
		t.Errorf("a turn takes %.0f allocations, want %d at most", got, ceiling)
	}
}
