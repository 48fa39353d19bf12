package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/media"
	"remora/memory/session"
	"remora/wire/dialects"
)

// servers is a store of which some sessions are on a server of their own, named by the first letter of the session, and
// some sessions have a fault of their own.
type servers struct {
	cache.Store

	mu    sync.Mutex
	lost  string           // server that is away
	own   map[string]error // by session
	asked map[string]int   // calls by session
	hangs bool             // the lost server does not answer, rather than refuse
}

func sessionOf(g cache.Group) string { return strings.TrimPrefix(g.Name, "s:") }

func (s *servers) Shard(g cache.Group) string { return sessionOf(g)[:1] }

func (s *servers) lose(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = server
}

func (s *servers) calls(session string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[session]
}

func (s *servers) fault(ctx context.Context, g cache.Group) error {
	s.mu.Lock()
	s.asked[sessionOf(g)]++
	lost, own, hangs := s.lost == s.Shard(g), s.own[sessionOf(g)], s.hangs
	s.mu.Unlock()
	switch {
	case lost && hangs:
		<-ctx.Done()
		return &cache.Error{Fault: cache.FaultTimeout, Shards: []string{s.Shard(g)}, Err: ctx.Err()}
	case lost:
		return &cache.Error{Fault: cache.FaultShard, Shards: []string{s.Shard(g)}, Err: errors.New("connection refused")}
	}
	return own
}

func (s *servers) Ping(ctx context.Context) error {
	s.mu.Lock()
	lost, hangs := s.lost, s.hangs
	s.mu.Unlock()
	if lost == "" {
		return nil
	}
	if hangs {
		<-ctx.Done()
	}
	return &cache.Error{Fault: cache.FaultShard, Shards: []string{lost}, Err: errors.New("connection refused")}
}

func (s *servers) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if err := s.fault(ctx, q[0].Group); err != nil {
		return nil, err
	}
	return s.Store.Read(ctx, q)
}

func (s *servers) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	if err := s.fault(ctx, b[0].Group); err != nil {
		return []cache.Outcome{{Err: err}}
	}
	return s.Store.Commit(ctx, b)
}

func withServers(t *testing.T, f func(l *lab, store *servers, log *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store, log := &servers{Store: mem, own: map[string]error{}, asked: map[string]int{}}, &journal{}
		l := &lab{t: t, store: store, spool: &queue{}}
		l.m = memory.New(store, l.spool, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		f(l, store, log)
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFaultOfOneSession: a fault in one session turns off memory for that session alone, for any number of calls, and
// is not logged as a fault of the store.
func TestFaultOfOneSession(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		aside bool // no waiting cures it, so that its turns leave the spool
	}{
		{"a value of a foreign type", &cache.Error{Fault: cache.FaultKey, Err: errors.New("WRONGTYPE")}, true},
		{"a key that the account may not use", &cache.Error{Fault: cache.FaultKey, Err: fmt.Errorf("%w: NOPERM", cache.ErrDenied)}, false},
		{"a key that no server serves", &cache.Error{Fault: cache.FaultKey, Err: fmt.Errorf("%w: TRYAGAIN", cache.ErrUnserved)}, false},
		{"a value under another key", fmt.Errorf("read: %w", cache.ErrUnreadable), true},
		{"damaged media", fmt.Errorf("item 3: %w: %w", session.ErrCorrupt, media.ErrCorrupt), true},
		{"something that makes no sense", errors.New("a number that is none"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			withServers(t, func(l *lab, store *servers, log *journal) {
				store.own["bad"] = c.err
				for i := range 20 {
					l.lateTurn(named("bad"), "u:1", "a:1")
					l.wantView(l.turnOf(memory.Call{Scope: named("good")}, fmt.Sprint("u:", i), "a:1"), strings.TrimSpace(said(i)))
				}
				if out := log.String(); strings.Contains(out, "store failed") || strings.Count(out, "a session cannot be read or written") != 1 {
					t.Errorf("log:\n%s", out)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				wait, aside := 20, 0
				if c.aside {
					wait, aside = 0, 20
				}
				if n, _ := l.spool.Len(); n != wait || len(l.spool.aside) != aside {
					t.Errorf("%d turns wait and %d are set aside, want %d and %d", n, len(l.spool.aside), wait, aside)
				}
			})
		})
	}
}

// TestFaultOfOneSessionSaysWhatItsCallsGet: as for the whole store, by memory.on_store_error.
func TestFaultOfOneSessionSaysWhatItsCallsGet(t *testing.T) {
	for mode, want := range map[string]string{
		memory.OnStoreErrorOpen:   `calls="go on without memory"`,
		memory.OnStoreErrorClosed: `calls="get 503 (memory.on_store_error: closed)"`,
	} {
		withServers(t, func(l *lab, store *servers, log *journal) {
			l.m.Close()
			l.m = memory.New(store, l.spool, memory.Options{OnStoreError: mode, Log: slog.New(slog.NewTextHandler(log, nil))})
			store.own["bad"] = &cache.Error{Fault: cache.FaultKey, Err: errors.New("WRONGTYPE")}
			turn, err := l.m.Begin(t.Context(), memory.Call{Scope: named("bad"), Request: asking(t, "u:1")})
			if closed := mode == memory.OnStoreErrorClosed; errors.Is(err, memory.ErrUnavailable) != closed {
				t.Errorf("%s: Begin: %v", mode, err)
			}
			if err == nil {
				turn.Commit(answer(t, "a:1"))
			}
			if out := log.String(); !strings.Contains(out, want) {
				t.Errorf("%s: want %s, log:\n%s", mode, want, out)
			}
		})
	}
}

// said is the conversation of a client that has sent u:0 to u:n, one at a time, and got a:1 each time.
func said(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "u:%d a:1 ", i)
	}
	fmt.Fprintf(&b, "u:%d", n)
	return b.String()
}

// TestLostServer: while one server of the store refuses or hangs, its own sessions go on without memory and without
// waiting, and others as usual. Spooled turns of the others do not wait after turns of its sessions, and in the end
// all are stored in order.
func TestLostServer(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprintf("hangs %t", hangs), func(t *testing.T) {
			withServers(t, func(l *lab, store *servers, log *journal) {
				store.hangs = hangs
				a, b := named("a1"), named("b1")
				l.turnOf(memory.Call{Scope: a}, "u:1", "a:1")
				l.turnOf(memory.Call{Scope: b}, "u:1", "a:1")
				// A turn that began while all was well ends in the spool, as does one of another server that was lost before.
				store.lose("b")
				l.lateTurn(b, "u:2", "a:2")
				store.lose("a")
				for i := range 3 {
					l.lateTurn(a, fmt.Sprint("u:", i+2), fmt.Sprint("a:", i+2))
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				l.wantLine(b, "u:1 a:1 u:2 a:2")
				before, begun := store.calls("a1"), time.Now()
				for i := range 10 {
					l.lateTurn(a, fmt.Sprint("u:", i+5), fmt.Sprint("a:", i+5))
					l.turnOf(memory.Call{Scope: b}, fmt.Sprint("u:", i+3), fmt.Sprint("a:", i+3))
				}
				if n, waited := store.calls("a1")-before, time.Since(begun); n > 0 || waited > 0 {
					t.Errorf("a session of the lost server waited %s and had it asked %d times", waited, n)
				}
				store.lose("")
				time.Sleep(10 * time.Second)
				synctest.Wait()
				want := "u:1 a:1"
				for i := range 13 {
					want += fmt.Sprintf(" u:%d a:%d", i+2, i+2)
				}
				l.wantLine(a, want)
				l.turnOf(memory.Call{Scope: a}, "u:15", "a:15")
				if out := log.String(); strings.Contains(out, `msg="store failed"`) || !strings.Contains(out, "a server of the store failed") ||
					!strings.Contains(out, "are served again") || strings.Contains(out, "turn lost") {
					t.Errorf("log:\n%s", out)
				}
			})
		})
	}
}

// TestFullSpoolBehindALostServer: turns of sessions whose server works do not wait after those of a lost one, however full the spool is.
func TestFullSpoolBehindALostServer(t *testing.T) {
	withServers(t, func(l *lab, store *servers, log *journal) {
		lost := 0
		l.m.Close()
		l.m = memory.New(store, l.spool, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil)), Lost: func(n int) { lost += n }})
		a, b := named("a1"), named("b1")
		l.turnOf(memory.Call{Scope: a}, "u:1", "a:1")
		l.turnOf(memory.Call{Scope: b}, "u:1", "a:1")
		store.lose("a")
		l.lateTurn(a, "u:2", "a:2")
		store.lose("b")
		l.lateTurn(b, "u:2", "a:2")
		store.lose("a")
		l.spool.fill(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantLine(b, "u:1 a:1 u:2 a:2")
		l.turnOf(memory.Call{Scope: b}, "u:3", "a:3")
		l.wantLine(b, "u:1 a:1 u:2 a:2 u:3 a:3")
		store.lose("")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantLine(a, "u:1 a:1 u:2 a:2")
		if n, _ := l.spool.Len(); lost > 0 || n > 0 {
			t.Errorf("%d turns are lost, and %d wait\n%s", lost, n, log)
		}
	})
}

// TestSessionOutlivesItsStreams: a session that expires lives for as long as an answer of it takes, and not much longer.
func TestSessionOutlivesItsStreams(t *testing.T) {
	for _, url := range []string{"memory:", "bolt:" + filepath.Join(t.TempDir(), "remora.db")} {
		testSessionOutlivesItsStreams(t, url)
	}
}

func testSessionOutlivesItsStreams(t *testing.T, url string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 2 * time.Second
		mem, err := stores.Open(url, cache.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		l := &lab{t: t, store: mem, m: memory.New(mem, nil, memory.Options{SessionTTL: ttl})}
		l.turn("u:1", "a:1")
		for i := range 2 {
			turn := l.begin(memory.Call{}, fmt.Sprintf("u:%d", i+2))
			turn.Forwarded()
			time.Sleep(5 * ttl)
			turn.Commit(answer(t, fmt.Sprintf("a:%d", i+2)))
		}
		// One that another replica answers meanwhile is as good.
		turn := l.begin(memory.Call{}, "u:4")
		turn.Forwarded()
		time.Sleep(5 * ttl)
		l.turn("u:side", "a:side")
		time.Sleep(5 * ttl)
		turn.Commit(answer(t, "a:4"))
		line, _ := l.transcript(scope)
		for _, want := range []string{"u:1 a:1 u:2 a:2 u:3 a:3", "u:4 a:4", "u:side a:side"} {
			if !strings.Contains(line, want) {
				t.Errorf("%q is not in %q", want, line)
			}
		}
		time.Sleep(ttl + time.Second)
		if err := l.m.Walk(t.Context(), scope, func(memory.ExportLine) error { return nil }); !errors.Is(err, memory.ErrNoSession) {
			t.Errorf("the session has not expired: %v", err)
		}
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestServerOfAnIndexIsLost: a turn is stored, and the groups that lead to its session are on a server that is away for a moment.
func TestServerOfAnIndexIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		response := session.ResponseGroup(scope.Tenant, "resp_1")
		var lost atomic.Bool
		lost.Store(true)
		log, store := &journal{}, &tapped{Store: mem, onBatch: func(b cache.Batch) error {
			if lost.Load() && b.Group == response {
				return cache.OnShard("a", errors.New("connection refused"))
			}
			return nil
		}}
		l := &lab{t: t, store: store, m: memory.New(store, nil, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})}
		l.ask(dialects.Responses, "| u:1 -> a:1")
		if out := log.String(); strings.Count(out, "\n") != 1 || !strings.Contains(out, "a server of the store failed") {
			t.Errorf("log:\n%s", out)
		}
		lost.Store(false)
		time.Sleep(time.Minute)
		if r, err := l.m.Response(t.Context(), scope.Tenant, "resp_1"); err != nil || r.Session != scope.Session {
			t.Errorf("the answer is in session %q, %v", r.Session, err)
		}
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}
