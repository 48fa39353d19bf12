package memory_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	bolt "go.etcd.io/bbolt"

	"remora/cache"
	"remora/cache/spool"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/historymanager"
	"remora/memory/layers/observational"
	"remora/memory/past"
	"remora/memory/pipeline"
	"remora/memory/session"
	"remora/memory/view"
	"remora/test/kit"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// scanBolt is all that a bbolt file holds: names and live values.
func scanBolt(t *testing.T, path string) string {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // it was only read
	var all strings.Builder
	var walk func(b *bolt.Bucket) error
	walk = func(b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			all.Write(k)
			all.Write(v)
			if v == nil {
				return walk(b.Bucket(k))
			}
			return nil
		})
	}
	if err := db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return walk(b) })
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// scanRedis is all that a Redis holds: keys and values.
func scanRedis(t *testing.T, addr string) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }() // it was only read
	var all strings.Builder
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		var value any
		switch typ := c.Type(t.Context(), k).Val(); typ {
		case "hash":
			value = c.HGetAll(t.Context(), k).Val()
		case "string":
			value = c.Get(t.Context(), k).Val()
		case "zset":
			value = c.ZRange(t.Context(), k, 0, -1).Val()
		case "set":
			value = c.SMembers(t.Context(), k).Val()
		default:
			t.Fatalf("a key of type %s", typ)
		}
		fmt.Fprintln(&all, k, value)
	}
	return all.String()
}

// scanFiles is all that the files below a folder hold.
func scanFiles(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// holds reports whether all contains a canary, plain or as base64.
func holds(all, canary string) bool {
	if strings.Contains(all, canary) {
		return true
	}
	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, shift), canary...))
		if strings.Contains(all, encoded[4:len(encoded)-4]) {
			return true
		}
	}
	return false
}

// learners are the layers that keep something of sessions for their resource.
func learners(t *testing.T) *pipeline.Pipeline {
	t.Helper()
	o, err := observational.New(observational.Options{Inputs: "all"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := historymanager.New(historymanager.Options{EnableSummarization: true, EnableLongTermMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	return layersOf(t,
		notebook(t, layer.Resource),
		pipeline.Layer{ID: "o", Kind: "observational_memory", Slot: 200, Scope: layer.Resource, Budget: observational.Defaults(observational.Options{}).Budget, Impl: o},
		pipeline.Layer{ID: "h", Kind: "history_manager", Slot: 300, Scope: layer.Resource, Impl: h},
	)
}

// converse plays a session of four turns with a canary in what the user says, what a tool returns and what the model says.
func converse(t *testing.T, m *memory.Memory, session, canary string) {
	t.Helper()
	for i := range 4 {
		body := fmt.Sprintf(`{"model":"m","messages":[
			{"role":"user","content":"My name is Ana %[1]s and I live at number %[2]d."},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c%[2]d","type":"function","function":{"name":"f","arguments":"{\"q\":\"%[1]s\"}"}}]},
			{"role":"tool","tool_call_id":"c%[2]d","content":"The order %[1]s was shipped on %[2]d March."},
			{"role":"user","content":"Thanks %[1]s, that is number %[2]d."}]}`, canary, i+1)
		req := wiretest.Request(t, dialects.Chat, body)
		turn, err := m.Begin(context.Background(), memory.Call{
			Scope: memory.Scope{Tenant: "tenant", Session: session, Resource: "ada"}, Request: req, History: memory.HistoryServer,
		})
		if err != nil {
			t.Fatal(err)
		}
		said := wiretest.Parse(t, dialects.Chat, `{"role":"assistant","content":"The parcel of `+canary+` arrives on 5 March."}`)
		turn.Commit(memory.Answer{HTTPStatus: 200, Reply: wire.Reply{
			Complete: true, ID: fmt.Sprintf("resp-%s-%d", session, i), Finish: "stop", Choices: [][]wire.Item{{said}},
		}})
	}
}

// TestNothingIsLeftOfWhatIsForgotten puts canaries wherever content goes and looks at everything that is stored, and at
// the files of the spool, after a session was deleted and after its resource was forgotten.
func TestNothingIsLeftOfWhatIsForgotten(t *testing.T) {
	t.Parallel()
	const first, second, spooled, noted = "CANARYFIRST", "CANARYSECOND", "CANARYSPOOLED", "CANARYNOTED"
	for _, kind := range []string{"bolt", "redis"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			file, spoolDir := filepath.Join(t.TempDir(), "remora.db"), filepath.Join(t.TempDir(), "spool")
			url := "bolt:" + file
			var addr string
			if kind == "redis" {
				srv := kit.StartRedis(t)
				url, addr = srv.URL(), srv.Addr()
			}
			options := func() memory.Options {
				return patient(memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 4, EvictBatch: 1}, Layers: learners(t)}})
			}
			// with opens everything, as a process does, and closes it again.
			with := func(spooled bool, down bool, use func(l *lab)) string {
				store, err := stores.Open(url, cache.Options{})
				if err != nil {
					t.Fatal(err)
				}
				away := &outage{Store: store, down: down}
				var disk memory.Spool
				closeSpool := func() error { return nil }
				if spooled {
					s, err := spool.Open(spoolDir, 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					disk, closeSpool = s, s.Close
				}
				m := memory.New(away, disk, options())
				use(&lab{t: t, m: m, store: store})
				if spooled && !down {
					for n, _ := disk.Len(); n > 0; n, _ = disk.Len() {
						if t.Context().Err() != nil {
							t.Fatal("the spool is not emptied")
						}
					}
				}
				m.Close()
				if err := closeSpool(); err != nil {
					t.Fatal(err)
				}
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				if addr != "" {
					return scanRedis(t, addr)
				}
				return scanBolt(t, file)
			}

			held := with(false, false, func(l *lab) {
				converse(t, l.m, "two", second) // first: what a session was told of another stays in its own records
				converse(t, l.m, "one", first)
			})
			for _, canary := range []string{first, second} {
				if strings.Count(held, canary) < 8 {
					t.Fatalf("%s is in %d places only", canary, strings.Count(held, canary))
				}
			}
			held = with(false, false, func(l *lab) {
				if err := l.m.Delete(t.Context(), memory.Scope{Tenant: "tenant", Session: "one"}); err != nil {
					t.Fatal(err)
				}
			})
			if strings.Contains(held, first) || !strings.Contains(held, second) {
				i := max(0, strings.Index(held, first))
				t.Errorf("after the session was deleted: %d of it, %d of the other: %q", strings.Count(held, first), strings.Count(held, second), held[max(0, i-200):min(len(held), i+200)])
			}

			with(false, false, func(l *lab) { l.update(in("three", "ada"), `{"note":"`+noted+`"}`) })
			with(true, true, func(l *lab) { converse(t, l.m, "four", spooled) })
			if !holds(scanFiles(t, spoolDir), spooled) {
				t.Fatal("nothing was spooled")
			}
			with(false, false, func(l *lab) {
				if n, err := l.m.Forget(t.Context(), "tenant", "ada"); err != nil || n != 2 {
					t.Errorf("forgot %d sessions, %v", n, err)
				}
			})
			held = with(true, false, func(*lab) {}) + scanFiles(t, spoolDir)
			for _, canary := range []string{first, second, spooled, noted} {
				if holds(held, canary) {
					i := max(0, strings.Index(held, canary))
					t.Errorf("after the resource was forgotten: %s in %q", canary, held[max(0, i-200):min(len(held), i+100)])
				}
			}

			again := with(false, false, func(l *lab) { converse(t, l.m, "four", second) })
			if !strings.Contains(again, second) {
				t.Error("a session that begins after its resource was forgotten is not kept")
			}
		})
	}
}

// TestExpiredSessionsAreForgotten: what came from an expired session alone goes with the resource's next write, or with the
// sweep, and layers are told of the end of the session.
func TestExpiredSessionsAreForgotten(t *testing.T) {
	t.Parallel()
	for _, sweep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, err := stores.Open("memory:", cache.Options{Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			ended := 0
			o := patient(memory.Options{SessionTTL: 10 * time.Hour, Now: time.Now, Shape: memory.Shape{Layers: layersOf(t,
				observer(t, layer.Resource), pipeline.Layer{ID: "farewell", Kind: "test", Scope: layer.Thread, Impl: farewell{&ended}})}})
			m := memory.New(store, nil, o)
			l := &lab{t: t, m: m, store: store}

			l.turnOf(in("one", "ada"), "u:hello", "a:hi")
			time.Sleep(6 * time.Hour)
			l.turnOf(in("two", "ada"), "u:hello", "a:hi")
			time.Sleep(6 * time.Hour) // one has expired, two has not
			if sweep {
				time.Sleep(13 * time.Hour) // the day is over, and two has expired as well
			} else {
				l.turnOf(in("two", "ada"), "u:more", "a:hi")
			}
			synctest.Wait()

			r, err := store.Read(t.Context(), []cache.Query{{Group: cache.Group{Owner: "tenant", Name: "u:ada"}, Names: []string{"lobservational-memory"}}})
			if err != nil {
				t.Fatal(err)
			}
			var st struct {
				Observations []struct {
					From []struct{ Session string }
				}
			}
			if err := json.Unmarshal(append([]byte(nil), r[0].Values[0]...), &st); err != nil && r[0].Values[0] != nil {
				t.Fatal(err)
			}
			for _, s := range st.Observations {
				if s.From[0].Session == layer.Digest("one") || sweep {
					t.Errorf("sweep %v: a statement of an expired session is kept", sweep)
				}
			}
			if !sweep && len(st.Observations) != 2 {
				t.Errorf("%d statements of the session that lives, want 2", len(st.Observations))
			}
			if want := map[bool]int{false: 1, true: 2}[sweep]; ended != want {
				t.Errorf("sweep %v: disposed %d times, want %d", sweep, ended, want)
			}
			m.Close()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestForgetDisposes: layers are told of the end of each session of a resource that is forgotten, and of no other.
func TestForgetDisposes(t *testing.T) {
	t.Parallel()
	ended := 0
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "farewell", Kind: "test", Scope: layer.Thread, Impl: farewell{&ended}})}})
	for _, c := range []memory.Call{in("one", "ada"), in("two", "ada"), in("three", "bob")} {
		l.turnOf(c, "u:hello", "a:hi")
	}
	if n, err := l.m.Forget(t.Context(), "tenant", "ada"); err != nil || n != 2 || ended != 2 {
		t.Errorf("forgot %d sessions and disposed %d times, want 2 of both: %v", n, ended, err)
	}
}

// TestStoresExpireSessions: bolt files and Redis expire a session by themselves, and a sweep finds what it has left behind.
func TestStoresExpireSessions(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"bolt", "redis"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const ttl = 10 * time.Hour
			var passed atomic.Int64 // sweeps read the clock, too
			clock := func() time.Time { return time.Date(2026, 3, 5, 9, 0, 0, 0, time.UTC).Add(time.Duration(passed.Load())) }
			later := func() { passed.Add(int64(6 * time.Hour)) }
			url := "bolt:" + filepath.Join(t.TempDir(), "remora.db")
			expire := later // the session two has half of its time left then
			if kind == "redis" {
				srv := kit.StartRedis(t)
				url = srv.URL()
				expire = func() { expireInRedis(t, srv.Addr(), in("one", "ada").Scope.Group().Name) }
			}
			store, err := stores.Open(url, cache.Options{Now: clock})
			if err != nil {
				t.Fatal(err)
			}
			ended := 0
			begin := func() *lab {
				return &lab{t: t, store: store, m: memory.New(store, nil, patient(memory.Options{SessionTTL: ttl, Now: clock, Shape: memory.Shape{Layers: layersOf(t,
					observer(t, layer.Resource), pipeline.Layer{ID: "farewell", Kind: "test", Scope: layer.Thread, Impl: farewell{&ended}})}}))}
			}
			l := begin()
			l.turnOf(in("one", "ada"), "u:hello", "a:hi")
			later()
			l.turnOf(in("two", "ada"), "u:hello", "a:hi")
			l.m.Close() // with it the sweeps that begin with a turn
			expire()

			l = begin()
			for session, want := range map[string]error{"one": memory.ErrNoSession, "two": nil} {
				if err := l.m.Walk(t.Context(), in(session, "ada").Scope, func(memory.ExportLine) error { return nil }); !errors.Is(err, want) {
					t.Errorf("session %s: %v, want %v", session, err, want)
				}
			}
			if err := l.m.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			text := l.stateOf("u:ada", "observational-memory")
			if strings.Contains(text, layer.Digest("one")) || !strings.Contains(text, layer.Digest("two")) {
				t.Errorf("statements after the sweep: %s", text)
			}
			if ended != 1 {
				t.Errorf("disposed %d times, want 1", ended)
			}
			l.m.Close()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// expireInRedis lets the keys of a group come to their end.
func expireInRedis(t *testing.T, addr, group string) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }() // every command has returned its error
	keys, err := c.Keys(t.Context(), "*:="+base64.RawURLEncoding.EncodeToString([]byte(group))+"}*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%d keys of %s: %v", len(keys), group, err)
	}
	for _, k := range keys {
		if left, err := c.PTTL(t.Context(), k).Result(); err != nil || left <= 0 {
			t.Errorf("%s does not expire: %s, %v", k, left, err)
		}
		if err := c.PExpire(t.Context(), k, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExpiredSessionsAreForgottenAfterAStart: a process that never runs for a day, and whose resource is not written again, removes
// what an expired session has left behind, too, some minutes after its start.
func TestExpiredSessionsAreForgottenAfterAStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := stores.Open("memory:", cache.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		left := func() bool { // a statement of the session one
			t.Helper()
			r, err := store.Read(t.Context(), []cache.Query{{Group: cache.Group{Owner: "tenant", Name: "u:ada"}, Names: []string{"lobservational-memory"}}})
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(r[0].Values[0]), layer.Digest("one"))
		}
		run := func(f func(m *memory.Memory)) {
			m := memory.New(store, nil, patient(memory.Options{SessionTTL: 10 * time.Hour, Now: time.Now, Shape: memory.Shape{Layers: layersOf(t, observer(t, layer.Resource))}}))
			f(m)
			m.Close()
		}
		run(func(m *memory.Memory) {
			l := &lab{t: t, m: m, store: store}
			l.turnOf(in("one", "ada"), "u:hello", "a:hi")
			time.Sleep(6 * time.Hour)
			l.turnOf(in("two", "ada"), "u:hello", "a:hi")
		})
		time.Sleep(5 * time.Hour)
		run(func(*memory.Memory) { time.Sleep(time.Minute) })
		if !left() {
			t.Error("a process sweeps at once: processes that start together would all do so")
		}
		run(func(*memory.Memory) { time.Sleep(20 * time.Minute) })
		if left() {
			t.Error("a statement of an expired session is kept")
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestTurnUnderWayIsForgotten: a turn whose session is deleted, or whose resource is forgotten, before its answer has ended leaves
// nothing. One whose session has vanished otherwise is kept.
func TestTurnUnderWayIsForgotten(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		remove func(l *lab) error
		want   string
	}{
		"session deleted": {func(l *lab) error { return l.m.Delete(t.Context(), in("one", "ada").Scope) }, ""},
		"resource forgotten": {func(l *lab) error {
			_, err := l.m.Forget(t.Context(), "tenant", "ada")
			return err
		}, ""},
		"session deleted, and begun again": {func(l *lab) error {
			err := l.m.Delete(t.Context(), in("one", "ada").Scope)
			l.turnOf(in("one", "ada"), "u:new", "a:new")
			return err
		}, "u:new a:new"},
		"evicted": {func(l *lab) error { return l.store.Delete(t.Context(), in("one", "ada").Scope.Group()) }, "u:two a:more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, recaller(t))}})
			l.turnOf(in("one", "ada"), "u:one", "a:ok")
			turn := l.begin(in("one", "ada"), "u:two")
			if err := tt.remove(l); err != nil {
				t.Fatal(err)
			}
			turn.Commit(answer(t, "a:more"))
			if tt.want != "" {
				l.wantLine(in("one", "ada").Scope, tt.want)
			} else if err := l.m.Walk(t.Context(), in("one", "ada").Scope, func(memory.ExportLine) error { return nil }); !errors.Is(err, memory.ErrNoSession) {
				t.Errorf("walk: %v, want no session", err)
			}
			if said := l.turnOf(in("two", "ada"), "u:What_was_two?", "a:x"); tt.want == "" && said != "u:What_was_two?" {
				t.Errorf("recalled: %s", said)
			}
		})
	}
}

// TestFirstTurnUnderWayIsForgotten: a session that is not stored yet is forgotten with its resource.
func TestFirstTurnUnderWayIsForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, recaller(t))}})
	turn := l.begin(in("one", "ada"), "u:one")
	if _, err := l.m.Forget(t.Context(), "tenant", "ada"); err != nil {
		t.Fatal(err)
	}
	turn.Commit(answer(t, "a:one"))
	if err := l.m.Walk(t.Context(), in("one", "ada").Scope, func(memory.ExportLine) error { return nil }); !errors.Is(err, memory.ErrNoSession) {
		t.Errorf("walk: %v, want no session", err)
	}
}

// TestClocksThatDiffer: a session that one replica deletes and another begins again keeps its first turn, although the clock of the
// other is behind. A turn that was under way is forgotten, whichever clock is behind.
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"ada", ""} {
		for _, skew := range []time.Duration{-time.Hour, time.Hour} {
			l := newLab(t, memory.Options{Shared: true})
			now := time.Now().Add(skew)
			other := &lab{t: t, store: l.store, m: memory.New(l.store, nil, patient(memory.Options{Shared: true, Now: func() time.Time { return now }}))}
			c := in("one", resource)
			l.begin(c, "u:one").Commit(answer(t, "a:one"))
			if err := l.m.Delete(t.Context(), c.Scope); err != nil {
				t.Fatal(err)
			}
			other.begin(c, "u:again").Commit(answer(t, "a:again"))
			other.wantLine(c.Scope, "u:again a:again")

			if resource != "" {
				c := in("two", resource)
				late := other.begin(c, "u:late")
				if _, err := l.m.Forget(t.Context(), "tenant", resource); err != nil {
					t.Fatal(err)
				}
				late.Commit(answer(t, "a:late"))
				if err := l.m.Walk(t.Context(), c.Scope, func(memory.ExportLine) error { return nil }); !errors.Is(err, memory.ErrNoSession) {
					t.Errorf("clock %s off: walk: %v, want no session", skew, err)
				}
			}
			other.m.Close()
		}
	}
}

// TestDeletionThatCannotBeRead: a turn under way brings nothing of a deleted session back while the server of a cluster is lost that
// knows of the deletion. A session that was not deleted keeps its turn.
func TestDeletionThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := in("one", "ada")
	for name, tt := range map[string]struct {
		before string // an earlier turn, "" for none
		remove func(l *lab) error
		slow   bool // the layer learns after the client was served
		want   string
	}{
		"session deleted":                  {"u:one", func(l *lab) error { return l.m.Delete(context.Background(), c.Scope) }, false, ""},
		"resource forgotten":               {"u:one", forgetAda, false, ""},
		"before its first turn was stored": {"", forgetAda, false, ""},
		"while layers learn":               {"u:one", func(l *lab) error { return l.m.Delete(context.Background(), c.Scope) }, true, ""},
		"evicted":                          {"u:one", func(l *lab) error { return l.store.Delete(context.Background(), c.Scope.Group()) }, false, "u:two a:news"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mem, err := stores.Open("memory:", cache.Options{})
				if err != nil {
					t.Fatal(err)
				}
				var down atomic.Bool // what was deleted
				store := &tapped{Store: mem, onRead: func(q []cache.Query) error {
					if down.Load() && slices.ContainsFunc(q, func(q cache.Query) bool { return strings.HasPrefix(q.Group.Name, "d:") }) {
						return cache.OnShard("d", errors.New("connection refused"))
					}
					return nil
				}}
				var impl any = quick{}
				slow := learner{make(chan struct{}), make(chan struct{})}
				if tt.slow {
					impl = slow
				}
				o := memory.Options{Now: time.Now}
				l := &lab{t: t, store: store, m: memory.New(store, &queue{}, o)}
				if tt.before != "" {
					l.turnOf(c, tt.before, "a:ok")
				}
				l.m.Reshape(memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Resource, Impl: impl})})

				turn := l.begin(c, "u:two")
				if tt.slow {
					turn.Commit(answer(t, "a:news"))
					<-slow.begun
				}
				if err := tt.remove(l); err != nil {
					t.Fatal(err)
				}
				down.Store(true)
				if tt.slow {
					close(slow.may)
				} else {
					turn.Commit(answer(t, "a:news"))
				}
				time.Sleep(time.Minute)
				down.Store(false)
				time.Sleep(time.Minute)
				l.m.Close()

				if tt.want != "" {
					l.wantLine(c.Scope, tt.want)
				} else if err := l.m.Walk(t.Context(), c.Scope, func(memory.ExportLine) error { return nil }); !errors.Is(err, memory.ErrNoSession) {
					t.Errorf("walk: %v, want no session", err)
				}
				if stored := l.stateOf("u:ada", "a"); tt.want == "" && stored != "" && stored != "none" {
					t.Errorf("the resource has %s", stored)
				}
				if err := mem.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func forgetAda(l *lab) error {
	_, err := l.m.Forget(context.Background(), "tenant", "ada")
	return err
}

// TestSlowFirstTurnIsForgotten: the question of a session that is not stored yet when its resource is forgotten is not stored while
// upstream works on the answer.
func TestSlowFirstTurnIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, recaller(t))}, Now: time.Now})
		c := in("one", "ada")
		turn := l.begin(c, "u:one")
		if err := forgetAda(l); err != nil {
			t.Fatal(err)
		}
		turn.Forwarded()
		time.Sleep(time.Minute)
		for _, when := range []string{"before", "after"} {
			if err := l.m.Walk(t.Context(), c.Scope, func(memory.ExportLine) error { return nil }); !errors.Is(err, memory.ErrNoSession) {
				t.Errorf("%s the answer: walk: %v, want no session", when, err)
			}
			if when == "before" {
				turn.Commit(answer(t, "a:one"))
			}
		}
	})
}

// TestDeleteAgain: a deletion that has failed in the middle can be repeated, whatever it has not reached.
func TestDeleteAgain(t *testing.T) {
	t.Parallel()
	c := in("one", "ada")
	for _, kept := range []cache.Group{c.Scope.Group(), session.ResponseGroup("tenant", "resp_1"), past.VectorsGroup("tenant", "one")} {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		willing := true
		store := &tapped{Store: mem, onDelete: func(g cache.Group) error {
			if !willing && g == kept {
				return errors.New("no")
			}
			return nil
		}}
		m := memory.New(store, nil, patient(memory.Options{}))
		l := &lab{t: t, m: m, store: store}
		turn := l.begin(c, "u:one")
		a := answer(t, "a:one")
		a.Reply.ID = "resp_1"
		turn.Commit(a)
		for _, g := range []cache.Group{session.ResponseGroup("tenant", "resp_1"), past.VectorsGroup("tenant", "one")} {
			store.Commit(t.Context(), []cache.Batch{{Group: g, Expect: cache.AnyVersion, Puts: []cache.Put{{Name: "x", Data: []byte("x")}}}})
		}
		willing = false
		if err := m.Delete(t.Context(), c.Scope); err == nil {
			t.Errorf("%v: deleted", kept)
		}
		willing = true
		if err := m.Delete(t.Context(), c.Scope); err != nil {
			t.Errorf("%v: again: %v", kept, err)
		}
		for _, g := range []cache.Group{c.Scope.Group(), session.ResponseGroup("tenant", "resp_1"), past.VectorsGroup("tenant", "one")} {
			if r, err := mem.Read(t.Context(), []cache.Query{{Group: g}}); err != nil || r[0].Version != 0 {
				t.Errorf("%v failed: %v is left, %v", kept, g, err)
			}
		}
		m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestUnreadableSessionIsDeleted: a session that is damaged, or that another version of Remora wrote, can be deleted, alone and with
// its resource.
func TestUnreadableSessionIsDeleted(t *testing.T) {
	t.Parallel()
	c := in("one", "ada")
	for name, remove := range map[string]func(l *lab) error{
		"session":  func(l *lab) error { return l.m.Delete(t.Context(), c.Scope) },
		"resource": forgetAda,
	} {
		for _, head := range []string{"\x01", "damaged"} {
			l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Resource))}})
			l.turnOf(c, "u:one", "a:two")
			broken := []cache.Put{{Name: "head", Data: []byte(head)}}
			if out := l.store.Commit(t.Context(), []cache.Batch{{Group: c.Scope.Group(), Expect: cache.AnyVersion, Puts: broken}}); out[0].Err != nil {
				t.Fatal(out[0].Err)
			}
			if err := remove(l); err != nil {
				t.Errorf("%s, head %q: %v", name, head, err)
			}
			if r, err := l.store.Read(t.Context(), []cache.Query{{Group: c.Scope.Group()}}); err != nil || r[0].Version != 0 {
				t.Errorf("%s, head %q: version %d is left, %v", name, head, r[0].Version, err)
			}
		}
	}
}

// TestSessionConflictTeachesOnce: a turn whose session another turn has changed does not write again what it has written to the states
// of its resource: layers would learn twice from one turn.
func TestSessionConflictTeachesOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Resource, Impl: quick{}})}})
	c := in("one", "ada")
	l.turnOf(c, "u:one", "a:nothing")
	turn := l.begin(c, "u:two")
	title := c
	title.Side = "title"
	l.turnOf(title, "u:title?", "a:nothing")
	turn.Commit(answer(t, "a:news"))
	l.m.Close()
	if stored, want := l.stateOf("u:ada", "a"), fmt.Sprintf("[%q]", layer.Digest("one")); stored != want {
		t.Errorf("the resource has %s, want %s", stored, want)
	}
}

// lossy is a store that loses the reply to a number of writes of a group.
type lossy struct {
	cache.Store

	group cache.Group
	loses atomic.Int32
}

func (s *lossy) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	out := s.Store.Commit(ctx, b)
	for i := range b {
		if b[i].Group == s.group && out[i].Err == nil && s.loses.Add(-1) >= 0 {
			out[i] = cache.Outcome{Err: &cache.Error{Fault: cache.FaultShard, Shards: []string{"x"}, Err: errors.New("connection reset")}}
		}
	}
	return out
}

// TestLostReplyTeachesOnce: a state of the resource that was written, as its process does not know, is not changed again by the same
// turn: by its commit, and by the write after a conflict with another session.
func TestLostReplyTeachesOnce(t *testing.T) {
	t.Parallel()
	for name, conflict := range map[string]bool{"with the answer": false, "after a conflict": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, memory.Options{})
			store := &lossy{Store: l.store, group: cache.Group{Owner: "tenant", Name: "u:ada"}}
			m := memory.New(store, nil, patient(memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Resource, Impl: quick{}})}}))
			l.m, l.store = m, store
			var want []string
			turn := l.begin(in("one", "ada"), "u:one")
			if conflict {
				l.turnOf(in("two", "ada"), "u:hi", "a:news")
				want = append(want, layer.Digest("two"))
			}
			store.loses.Store(1)
			turn.Commit(answer(t, "a:news"))
			m.Close()
			want = append(want, layer.Digest("one"))
			if stored, all := l.stateOf("u:ada", "a"), string(layerState(t, want)); stored != all {
				t.Errorf("the resource has %s, want %s", stored, all)
			}
		})
	}
}

func layerState(t *testing.T, v any) layer.State {
	t.Helper()
	s, err := layer.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNamesOfDeletedSessionsAreForgotten: a session that another process deletes, and that goes on afterwards, is of its resource
// again. The process that it goes on in has entered it there before.
func TestNamesOfDeletedSessionsAreForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, recaller(t))}})
	other := memory.New(l.store, nil, patient(memory.Options{}))
	defer other.Close()

	l.turnOf(in("one", "ada"), "u:one", "a:ok")
	if err := other.Delete(t.Context(), in("one", "ada").Scope); err != nil {
		t.Fatal(err)
	}
	l.turnOf(in("one", "ada"), "u:again", "a:ok")
	if n, err := other.Forget(t.Context(), "tenant", "ada"); err != nil || n != 1 {
		t.Errorf("forgot %d sessions, %v, want 1", n, err)
	}
	if err := other.Walk(t.Context(), in("one", "ada").Scope, func(memory.ExportLine) error { return nil }); !errors.Is(err, memory.ErrNoSession) {
		t.Errorf("walk: %v, want no session", err)
	}
}

// learner notes for its scope what a session has said, slowly: once it may, after the client was served. Children give it back.
type learner struct {
	begun chan struct{} // it is about to
	may   chan struct{}
}

func (learner) Slow() bool { return true }

func (l learner) Store(ctx context.Context, _ *layer.Turn, _ layer.State, _ *layer.Response) (layer.State, error) {
	close(l.begun)
	select {
	case <-l.may:
		return layer.State(`{"said":"CANARY"}`), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestWhatIsLearntLateOfADeletedSession: a layer that still learns from a committed turn when its session is deleted, or its
// resource forgotten, brings nothing of it back.
func TestWhatIsLearntLateOfADeletedSession(t *testing.T) {
	t.Parallel()
	c := in("one", "ada")
	for name, remove := range map[string]func(m *memory.Memory) error{
		"deleted": func(m *memory.Memory) error { return m.Delete(t.Context(), c.Scope) },
		"forgotten": func(m *memory.Memory) error {
			_, err := m.Forget(t.Context(), "tenant", "ada")
			return err
		},
	} {
		for scope, group := range map[layer.Scope]string{layer.Thread: "s:one", layer.Resource: "u:ada"} {
			t.Run(name+" "+group, func(t *testing.T) {
				t.Parallel()
				slow := learner{make(chan struct{}), make(chan struct{})}
				l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: scope, Impl: slow})}})
				l.turnOf(c, "u:one", "a:ok")
				<-slow.begun
				if err := remove(l.m); err != nil {
					t.Fatal(err)
				}
				close(slow.may)
				l.m.Close()
				if stored := l.stateOf(group, "a"); stored != "" {
					t.Errorf("it is back: %s", stored)
				}
			})
		}
	}
}

// quick notes for its resource which sessions have been told something new, before the client is served.
type quick struct{}

func (quick) Store(_ context.Context, t *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	if r.Text != "news" {
		return s, nil
	}
	var all []string
	_ = json.Unmarshal(s, &all) // empty at first
	return layer.Encode(append(all, layer.Digest(t.Thread)))
}

func (quick) Forget(_ context.Context, _ *layer.Turn, s layer.State, gone func(string) bool) (layer.State, error) {
	var all []string
	_ = json.Unmarshal(s, &all)
	if all = slices.DeleteFunc(all, gone); len(all) == 0 {
		return nil, nil
	}
	return layer.Encode(all)
}

// talking is a layer in whose hook another turn of the session is committed.
type talking struct {
	quick
	talk func()
}

func (f talking) Forget(ctx context.Context, t *layer.Turn, s layer.State, gone func(string) bool) (layer.State, error) {
	f.talk()
	return f.quick.Forget(ctx, t, s, gone)
}

// TestForgettingLocksNoSession: layers may take long to forget what a turn under way has taught them of a deleted session. Others,
// which share its lock, are written meanwhile.
func TestForgettingLocksNoSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l *lab
		lost := 0
		talk := sync.OnceFunc(func() { l.turnOf(in("one", ""), "u:again", "a:fine") })
		f := talking{talk: func() { talk() }}
		l = newLab(t, memory.Options{
			Lost:  func(n int) { lost += n },
			Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Resource, Impl: f})},
		})
		c := in("one", "ada")
		l.turnOf(c, "u:one", "a:nothing")
		turn := l.begin(c, "u:two")
		talked := talk
		talk = func() {}
		if err := l.m.Delete(t.Context(), c.Scope); err != nil {
			t.Fatal(err)
		}
		talk = talked

		begun := time.Now()
		turn.Commit(answer(t, "a:news"))
		if took := time.Since(begun); took > 0 || lost > 0 {
			t.Errorf("it took %v, and %d turns were lost", took, lost)
		}
		line, _ := l.transcript(c.Scope)
		if line != "u:again a:fine" {
			t.Errorf("stored: %q", line)
		}
	})
}

// TestWhatATurnUnderWayTeachesOfADeletedSession: the states of the resource are written beside the turn, which finds its session gone.
// It leaves nothing there, and what other sessions have said stays.
func TestWhatATurnUnderWayTeachesOfADeletedSession(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{false, true} {
		t.Run(fmt.Sprintf("others of the resource: %t", others), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Resource, Impl: quick{}})}})
			want := ""
			if others {
				l.turnOf(in("two", "ada"), "u:hi", "a:news")
				want = fmt.Sprintf("[%q]", layer.Digest("two"))
			}
			c := in("one", "ada")
			l.turnOf(c, "u:one", "a:nothing")
			turn := l.begin(c, "u:two")
			if err := l.m.Delete(t.Context(), c.Scope); err != nil {
				t.Fatal(err)
			}
			turn.Commit(answer(t, "a:news"))
			l.m.Close()
			if stored := l.stateOf("u:ada", "a"); stored != want && (want != "" || stored != "none") {
				t.Errorf("the resource has %s, want %s", stored, want)
			}
		})
	}
}

// TestTurnThatEndsWhileItsSessionIsDeleted: layers have forgotten the session, which is still there. What the turn teaches them stays
// nowhere.
func TestTurnThatEndsWhileItsSessionIsDeleted(t *testing.T) {
	t.Parallel()
	c := in("one", "ada")
	for name, late := range map[string]bool{"it began before": false, "it began meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, memory.Options{})
			store := &tapped{Store: l.store}
			m := memory.New(store, nil, patient(memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Resource, Impl: quick{}})}}))
			defer m.Close()
			l.m, l.store = m, store
			l.turnOf(c, "u:one", "a:news")
			var turn *memory.Turn
			begin := func() { turn = l.begin(c, "u:two") }
			if !late {
				begin()
			}
			store.onDelete = func(g cache.Group) error {
				if g != c.Scope.Group() {
					return nil
				}
				store.onDelete = nil
				if late {
					begin()
				}
				turn.Commit(answer(t, "a:news"))
				return nil
			}
			if err := m.Delete(t.Context(), c.Scope); err != nil {
				t.Fatal(err)
			}
			if stored := l.stateOf("u:ada", "a"); stored != "none" {
				t.Errorf("the resource has %s", stored)
			}
		})
	}
}

// stateOf returns the stored state of a layer; "none" where only the group is stored, empty where that is not.
func (l *lab) stateOf(group, id string) string {
	l.t.Helper()
	r, err := l.store.Read(l.t.Context(), []cache.Query{{Group: cache.Group{Owner: "tenant", Name: group}, Names: []string{"l" + id}}})
	switch {
	case err != nil:
		l.t.Fatal(err)
	case r[0].Version == 0:
		return ""
	case r[0].Values[0] == nil:
		return "none"
	}
	return string(r[0].Values[0])
}

// heir gives what a session has to its parent, fast.
type heir struct{}

func (heir) Store(context.Context, *layer.Turn, layer.State, *layer.Response) (layer.State, error) {
	return layer.State(`{"said":"CANARY"}`), nil
}

func (heir) Return(_ context.Context, _ *layer.Turn, _, child layer.State, _ layer.Outcome) (layer.State, error) {
	return child, nil
}

// TestNothingIsGivenBackToAParentThatIsNotStored: any name that a client sends as its parent would be a group of the store that
// no list names.
func TestNothingIsGivenBackToAParentThatIsNotStored(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: heir{}})}})
	l.turnOf(in("stored", ""), "u:hi", "a:ho")
	for parent, want := range map[string]string{"stored": `{"said":"CANARY"}`, "nobody": ""} {
		child := in("child of "+parent, "")
		child.Scope.Parent = parent
		l.turnOf(child, "u:one", "a:ok")
		if err := l.m.Complete(t.Context(), child.Scope, true); err != nil {
			t.Fatal(err)
		}
		if got := l.stateOf("s:"+parent, "a"); got != want {
			t.Errorf("parent %q has %q, want %q", parent, got, want)
		}
	}
}

// TestSessionInASpoolIsDeleted: a session that is only in a spool when it is deleted does not appear once the store is back.
func TestSessionInASpoolIsDeleted(t *testing.T) {
	t.Parallel()
	l, store := newOutage(t)
	store.set(true)
	l.lateTurn(scope, "u:1", "a:1")
	other := memory.New(store.Store, nil, patient(memory.Options{Now: store.clock}))
	defer other.Close()
	if err := other.Delete(t.Context(), scope); !errors.Is(err, memory.ErrNoSession) {
		t.Errorf("delete: %v, want no session", err)
	}
	store.over()
	l.wantView(l.turn("u:2", "a:2"), "u:2")
	l.wantLine(scope, "u:2 a:2")
}
