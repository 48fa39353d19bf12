package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/pipeline"
	"remora/memory/tokens"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// shippedWindow is the history_window of config.yaml.
func shippedWindow() *view.Window {
	return &view.Window{MaxTokens: 64000, EvictShare: 0.5, InFlight: view.InFlightWindow}
}

// shippedShape is the default shape of the proxy.
func shippedShape(tb testing.TB, price func(string, wire.Item) int) memory.Shape {
	tb.Helper()
	layers, err := pipeline.New([]pipeline.Layer{lister(tb), recaller(tb)}, pipeline.Options{Policy: view.Policy{Budget: 128000, Reserve: 4000, Overflow: view.OverflowTruncate}})
	if err != nil {
		tb.Fatal(err)
	}
	c := view.DefaultPromptCache()
	return memory.Shape{Layers: layers, Window: shippedWindow(), PromptCache: &c, Price: price}
}

// BenchmarkTurn is Begin and Commit of one turn on the in-memory store, by the size of the request.
func BenchmarkTurn(b *testing.B) {
	counter := tokens.New()
	counter.Count("m", "") // loads the vocabulary
	for _, items := range []int{1, 20, 100, 400} {
		b.Run(fmt.Sprintf("%d_items", items), func(b *testing.B) {
			store, err := stores.Open("memory:", cache.Options{})
			if err != nil {
				b.Fatal(err)
			}
			m := memory.New(store, nil, memory.Options{Shape: shippedShape(b, counter.CountItem)})
			defer m.Close()
			text := strings.Repeat("All work and no play makes a dull proxy. ", 15)
			var list []string
			for i := range items {
				list = append(list, fmt.Sprintf(`{"role":%q,"content":"%d %s"}`, []string{"user", "assistant"}[i%2], i, text))
			}
			body := []byte(`{"model":"m","messages":[` + strings.Join(list, ",") + `]}`)
			reply, err := wire.FoldBody(dialects.Chat, []byte(`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Fine."},"finish_reason":"stop"}]}`))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req, err := wire.Parse(dialects.Chat, body)
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

// TestTurnTakesLittleMemory holds the ceilings of what a short conversation's turn allocates, from its body to its commit, of which
// the body and the answer are 11 allocations, and a few more with what the race detector adds. With a store that replicas share, what
// only a new session takes is in a quarter of the turns.
func TestTurnTakesLittleMemory(t *testing.T) {
	shipped := func(t *testing.T) memory.Shape {
		t.Helper()
		return shippedShape(t, func(_ string, it wire.Item) int { return len(it.Raw) })
	}
	for name, c := range map[string]struct {
		shape  func(*testing.T) memory.Shape
		shared bool
		allocs float64
		bytes  float64
	}{
		"shipped layers":         {shipped, false, 128, 17.1e3},
		"shipped layers, shared": {shipped, true, 132, 17.4e3},
		"no layer":               {noLayers, false, 80, 11.8e3},
		"no layer, shared":       {noLayers, true, 84, 12e3},
	} {
		t.Run(name, func(t *testing.T) {
			allocs, bytes := memoryOfTurn(t, c.shape(t), c.shared)
			t.Logf("%.0f allocations, %.0f bytes", allocs, bytes)
			if allocs > c.allocs || bytes > c.bytes {
				t.Errorf("a turn takes %.0f allocations and %.0f bytes, want %.0f and %.0f at most", allocs, bytes, c.allocs, c.bytes)
			}
		})
	}
}

// noLayers is a shape that only has a window and a budget.
func noLayers(t *testing.T) memory.Shape {
	t.Helper()
	none, err := pipeline.New(nil, pipeline.Options{Policy: view.Policy{Budget: 128000, Reserve: 4000, Overflow: view.OverflowTruncate}})
	if err != nil {
		t.Fatal(err)
	}
	return memory.Shape{Layers: none, Window: shippedWindow()}
}

// memoryOfTurn returns how many allocations, and bytes, a turn takes on average.
func memoryOfTurn(t *testing.T, shape memory.Shape, shared bool) (allocs, bytes float64) {
	t.Helper()
	list := `{"role":"system","content":"You answer in one sentence."}`
	var bodies [][]byte
	for i := range 4 {
		list += fmt.Sprintf(`,{"role":"user","content":"Remember number %d for me, please."}`, i)
		bodies = append(bodies, []byte(`{"model":"m","messages":[`+list+`]}`))
		list += `,{"role":"assistant","content":"Fine."}`
	}
	answer := []byte(`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"Fine."},"finish_reason":"stop"}],"usage":{"total_tokens":20}}`)
	store, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := memory.New(store, nil, memory.Options{Shared: shared, Shape: shape})
	defer m.Close()
	n := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	allocs = testing.AllocsPerRun(400, func() {
		req, err := wire.Parse(dialects.Chat, bodies[n%len(bodies)])
		if err != nil {
			t.Fatal(err)
		}
		reply, err := wire.FoldBody(dialects.Chat, answer)
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
	runtime.ReadMemStats(&after)
	return allocs, float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}
