package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"remora/cache"
	"remora/memory"
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
