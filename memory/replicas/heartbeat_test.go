package replicas

import (
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory/turnrecord"
)

// TestHeldSessions: each session is told with the beginning of its earliest turn, until all of its turns have ended.
func TestHeldSessions(t *testing.T) {
	h, _ := New(Options{Shared: true})
	began := time.UnixMilli(1_700_000_000_000)
	a, b := cache.Group{Owner: "o", Name: "a"}, cache.Group{Owner: "o", Name: "b"}
	ids := map[string]time.Duration{}
	for _, after := range []time.Duration{2 * time.Second, time.Second, 3 * time.Second} {
		id := turnrecord.NewID(began.Add(after))
		ids[id] = after
		h.AddTurn(a, id, true)
	}
	h.AddTurn(b, turnrecord.NewID(began), true)
	for want := time.Second; want <= 3*time.Second; want += time.Second {
		held := h.heldSessions()
		if at := uint64(began.Add(want).UnixMilli()); held[sessionKey(a)] != at || held[sessionKey(b)] != uint64(began.UnixMilli()) {
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

// TestOwnTurnsOfManySessionsAreHeld: a heartbeat does not list the sessions of a process that has turns of too many, but the process
// itself knows each.
func TestOwnTurnsOfManySessionsAreHeld(t *testing.T) {
	store, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	h, peers := New(Options{Store: store, Shared: true, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	h.Begin(t.Context())
	began := time.Unix(1_700_000_000, 0)
	group := func(n int) cache.Group { return cache.Group{Owner: "tenant", Name: fmt.Sprint("s:", n)} }
	for n := range 2 * maxHeld {
		h.AddTurn(group(n), turnrecord.NewID(began), true)
	}
	missed := 0
	for n := range 2 * maxHeld {
		held, err := peers.Holding(t.Context(), group(n))
		if err != nil {
			t.Fatal(err)
		}
		if held.any || held.Before(turnrecord.NewID(began)) {
			t.Fatalf("session %d: held is %+v", n, held)
		}
		if !held.Before(turnrecord.NewID(began.Add(time.Second))) {
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("%d turns of this process are not known to it", missed)
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
