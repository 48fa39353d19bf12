package proxy

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/memory"
	"remora/wire"
)

// steerer is a memory whose layers have a say in answers.
type steerer struct {
	*book
	tools    [][]byte
	steering *memory.Steering
	review   func(r wire.Reply) memory.Next
}

func (s *steerer) Review(_ context.Context, r wire.Reply) memory.Next { return s.review(r) }
func (s *steerer) LastRound() bool                                    { return false }

func (s *steerer) begin(ctx context.Context, c memory.Call) (*turn, error) {
	t, err := s.book.begin(ctx, c)
	t.tools, t.judge = s.tools, s
	if s.steering != nil {
		t.steering, t.steered = *s.steering, true
	}
	return t, err
}

// TestToolless: a model that refuses tools is offered none for an hour, but only to the tenant that it refused them, and
// not because of tools of a client's own.
func TestToolless(t *testing.T) {
	const own = `{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"hi"}]}`
	var mu sync.Mutex
	offered := 0
	now := time.Now()
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	addr := answering(t, func(_ *http.Request, body []byte) string {
		if strings.Contains(string(body), "mem_x") {
			mu.Lock()
			defer mu.Unlock()
			offered++
			return "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nno tools!"
		}
		return sized(chatAnswer)
	})
	m := &steerer{book: newBook(), tools: [][]byte{[]byte(`{"type":"function","function":{"name":"mem_x"}}`)}}
	r := start(t, rigOptions{upstream: addr, memory: m.begin, now: clock})
	for _, step := range []struct {
		name, body, key string
		after           time.Duration
		want            int
	}{
		{"tools of the client's own", own, "k", 0, 1},
		{"none of its own", chatBody, "k", 0, 1},
		{"remembered", chatBody, "k", 0, 0},
		{"another tenant", chatBody, "other", 0, 1},
		{"an hour later", chatBody, "k", time.Hour, 1},
	} {
		mu.Lock()
		offered, now = 0, now.Add(step.after)
		mu.Unlock()
		in := strings.Replace(chatIn("s", step.body, "Connection: close\r\n"), "Bearer k", "Bearer "+step.key, 1)
		if got := r.exchange(t, in); !strings.Contains(got, "hello") {
			t.Errorf("%s: %s", step.name, got)
		}
		mu.Lock()
		if offered != step.want {
			t.Errorf("%s: tools were offered %d times, want %d", step.name, offered, step.want)
		}
		mu.Unlock()
	}
}
