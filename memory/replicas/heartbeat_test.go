package replicas

import (
	"strconv"
	"testing"
	"time"

	"remora/cache"
	"remora/memory/turnrecord"
)

// TestHeldSessions: each session is told with the beginning of its earliest turn, until all of its turns have ended.
func TestHeldSessions(t *testing.T) {
	h, _ := New(Options{Shared: true})
	began := time.UnixMilli(1_700_000_000_000)
	a, b := cache.Group{Owner: "o", Name: "a"}, cache.Group{Owner: "o", Name: "b"}
	ids := map[string]time.Duration{}
	for _, after := range []time.Duration{2, 1, 3} {
		id := turnrecord.NewID(began.Add(after * time.Second))
		ids[id] = after
		h.AddTurn(a, id, true)
	}
	h.AddTurn(b, turnrecord.NewID(began), true)
	for want := time.Duration(1); want <= 3; want++ {
		held := h.heldSessions()
		if at := uint64(began.Add(want * time.Second).UnixMilli()); held[sessionKey(a)] != at || held[sessionKey(b)] != uint64(began.UnixMilli()) {
			t.Errorf("held %v, want a turn of a from %d on", held, at)
		}
		for id, after := range ids {
			if after == want {
				h.EndTurn(a, id)
			}
		}
	}
	if held := h.heldSessions(); len(held) != 1 {
		t.Errorf("held %v after all turns of a session have ended", held)
	}
}

// BenchmarkHeldSessions is a heartbeat in an outage, when each turn causes one.
func BenchmarkHeldSessions(b *testing.B) {
	h, _ := New(Options{Shared: true})
	for i := range 4000 {
		h.AddTurn(cache.Group{Owner: "o", Name: strconv.Itoa(i % 100)}, turnrecord.NewID(time.UnixMilli(int64(i))), true)
	}
	for b.Loop() {
		h.heldSessions()
	}
}
