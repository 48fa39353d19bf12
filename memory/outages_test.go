package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// journal is a log that may be read while others write to it, as they do where they wake at the same moment of a bubble.
type journal struct {
	mu sync.Mutex
	b  strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// failing is a store that fails with err, while there is one.
type failing struct {
	cache.Store
	err error
}

func (f *failing) Ping(ctx context.Context) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Ping(ctx)
}

func (f *failing) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Read(ctx, q)
}

// TestOutageIsTold: the log tells once that the store has failed, what that means for calls, and once that it is back.
func TestOutageIsTold(t *testing.T) {
	for _, c := range []struct {
		name, mode string
		err        error
		want       []string
	}{
		{"open", memory.OnStoreErrorOpen, errOutage, []string{"level=WARN", "go on without it"}},
		{"closed", memory.OnStoreErrorClosed, errOutage, []string{"level=WARN", "get 503"}},
		{"an account that is refused", memory.OnStoreErrorOpen, &cache.Error{Fault: cache.FaultStore, Err: fmt.Errorf("%w: WRONGPASS", cache.ErrDenied)}, []string{"level=ERROR", "store.url"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, f := &journal{}, &failing{err: c.err}
				l := newLab(t, memory.Options{})
				l.m.Close()
				f.Store = l.store
				o := memory.Options{OnStoreError: c.mode, RetryDelay: 1500 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil))}
				l.m = memory.New(f, nil, patient(o))
				for range 5 {
					_, err := l.m.Begin(t.Context(), memory.Call{Scope: scope, Request: asking(t, "u:1")})
					var later interface{ RetryAfter() time.Duration }
					if closed := c.mode == memory.OnStoreErrorClosed; errors.Is(err, memory.ErrUnavailable) != closed {
						t.Fatalf("Begin: %v", err)
					} else if closed && (!errors.As(err, &later) || later.RetryAfter() != o.RetryDelay) {
						t.Errorf("it is not said when to try again: %v", err)
					}
					time.Sleep(2 * o.RetryDelay)
				}
				failed := log.String()
				if n := strings.Count(failed, "store failed"); n != 1 {
					t.Errorf("%d lines tell of the failure:\n%s", n, failed)
				}
				for _, want := range c.want {
					if !strings.Contains(failed, want) {
						t.Errorf("the log does not hold %q:\n%s", want, failed)
					}
				}
				f.err = nil
				l.turn("u:1", "a:1")
				l.turn("u:1 a:1 u:2", "a:2")
				if n := strings.Count(log.String(), "store answers again"); n != 1 || strings.Contains(failed, "answers again") {
					t.Errorf("%d lines tell of the end:\n%s", n, log)
				}
			})
		})
	}
	t.Run("with a spool", func(t *testing.T) {
		withSluggish(t, func(l *lab, store *sluggish, log *journal) {
			l.lateTurn(named("one"), "u:1", "a:1")
			l.lateTurn(named("two"), "u:2", "a:2")
			store.set(false, "")
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := strings.Count(log.String(), `msg="store answers again" spooled=2`); n != 1 {
				t.Errorf("%d lines tell of the end, and what is written now:\n%s", n, log)
			}
		})
	})
}

// TestFullStoreIsToldOnce: it answers pings and reads all the time.
func TestFullStoreIsToldOnce(t *testing.T) {
	withSluggish(t, func(l *lab, store *sluggish, log *journal) {
		l.lateTurn(named("one"), "u:1", "a:1")
		store.fill(true)
		store.set(false, "")
		time.Sleep(time.Minute)
		store.fill(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, line := range []string{"store failed", `msg="store answers again" spooled=1`} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%d lines say %s:\n%s", n, line, log)
			}
		}
	})
}

// TestTurnsThatTeachNothingAreToldOnce: the store fails in so many turns at once that layers cannot learn from all of them.
func TestTurnsThatTeachNothingAreToldOnce(t *testing.T) {
	withSluggish(t, func(l *lab, store *sluggish, log *journal) {
		store.set(false, "")
		l.m.Close()
		l.m = memory.New(store, &queue{}, memory.Options{Shape: layeredShape(t), Log: slog.New(slog.NewTextHandler(log, nil))})
		var turns []*memory.Turn
		for i := range 400 {
			turns = append(turns, l.begin(memory.Call{Scope: named(fmt.Sprint("s", i))}, "u:1"))
		}
		store.set(true, "")
		for _, turn := range turns {
			turn.Commit(answer(t, "a:1"))
		}
		if n := strings.Count(log.String(), "too many turns are settling"); n != 1 {
			t.Errorf("%d lines tell of it:\n%s", n, log)
		}
	})
}

// TestLayersWithoutNewsAreNotToldLost: a process that ends during an outage says that layers lost what they learned, unless they have
// learned nothing. Turns of which they learned nothing do not take the place of others.
func TestLayersWithoutNewsAreNotToldLost(t *testing.T) {
	for name, c := range map[string]struct {
		layer  pipeline.Layer
		learns bool
	}{
		"nothing learned": {notebook(t, layer.Thread), false},
		"observations":    {observer(t, layer.Thread), true},
	} {
		t.Run(name, func(t *testing.T) {
			withSluggish(t, func(l *lab, store *sluggish, log *journal) {
				store.set(false, "")
				l.m.Close()
				l.m = memory.New(store, &queue{}, memory.Options{Shape: memory.Shape{Layers: layersOf(t, c.layer)}, Log: slog.New(slog.NewTextHandler(log, nil))})
				var turns []*memory.Turn
				for i := range 300 {
					turns = append(turns, l.begin(memory.Call{Scope: named(fmt.Sprint("s", i))}, "u:1"))
				}
				store.set(true, "")
				for _, turn := range turns {
					turn.Commit(answer(t, "a:1"))
				}
				l.m.Close()
				for _, line := range []string{"what layers learned", "too many turns are settling"} {
					if got := strings.Contains(log.String(), line); got != c.learns {
						t.Errorf("the log has %q: %v", line, got)
					}
				}
			})
		})
	}
}

func asking(t *testing.T, words string) *wire.Request {
	t.Helper()
	r := wiretest.Request(t, dialects.Chat, `{"model":"m","messages":[`+messages(words)+`]}`)
	return r
}

// holed is a spool whose disk loses a record that is moved.
type holed struct {
	queue
	lose bool // the next record
}

func (q *holed) Move(rec []byte) error {
	if q.lose {
		q.lose = false
		return nil
	}
	return q.queue.Move(rec)
}

// TestLostRecordHoldsUpNobody: the turns of a session that were put behind one of its own that is not there any more do
// not wait for it.
func TestLostRecordHoldsUpNobody(t *testing.T) {
	withSluggish(t, func(l *lab, store *sluggish, log *journal) {
		l.m.Close()
		spool := &holed{}
		l.m = memory.New(store, spool, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		for i := range 3 {
			l.lateTurn(named("slow"), fmt.Sprint("u:", i), fmt.Sprint("a:", i))
			time.Sleep(time.Millisecond) // ids of turns sort by their time
		}
		l.lateTurn(named("also slow"), "u:0", "a:0") // a session that goes first
		spool.lose = true
		store.set(false, "slow")
		time.Sleep(time.Minute)
		store.set(false, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantLine(named("slow"), "u:1 a:1 u:2 a:2")
	})
}

// TestDamagedSessionIsLeftAlone: a session that makes no sense is served without memory, and is not taken for a new one.
func TestDamagedSessionIsLeftAlone(t *testing.T) {
	l := newLab(t, memory.Options{Log: slog.New(slog.DiscardHandler)})
	l.turn("u:1", "a:1")
	head, err := l.store.Read(t.Context(), []cache.Query{{Group: scope.Group(), Names: []string{"head"}}})
	if err != nil {
		t.Fatal(err)
	}
	damaged := append(bytes.Clone(head[0].Values[0][:1]), "damaged"...) // behind its version
	put := cache.Batch{Group: scope.Group(), Expect: cache.AnyVersion, Puts: []cache.Put{{Name: "head", Data: damaged}}}
	if out := l.store.Commit(t.Context(), []cache.Batch{put}); out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	log := &journal{}
	l.m = memory.New(l.store, nil, patient(memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})) // the other still knows the session
	defer l.m.Close()
	turn := l.begin(memory.Call{}, "u:2")
	if turn.Summary.Status != memory.StatusDegraded || strings.Count(log.String(), "read head: stored record is corrupt") != 1 {
		t.Errorf("status %s, log: %s", turn.Summary.Status, log)
	}
	turn.Commit(answer(t, "a:2"))
	r, err := l.store.Read(t.Context(), []cache.Query{{Group: scope.Group(), Names: []string{"head"}}})
	if err != nil || string(r[0].Values[0]) != string(damaged) {
		t.Errorf("what was damaged is now %q, %v", r[0].Values[0], err)
	}
}
