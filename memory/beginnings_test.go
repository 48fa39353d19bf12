package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
)

// weather is a process's way to a store that fails in the ways that stores do. Answers take up to 2 ms.
type weather struct {
	cache.Store

	mu     sync.Mutex
	random *rand.Rand
	fault  string // see meet
}

func (w *weather) turn(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

// meet waits as long as an answer takes, or fails.
func (w *weather) meet(ctx context.Context, write bool) error {
	w.mu.Lock()
	fault, pause, tenth := w.fault, time.Duration(w.random.IntN(2000))*time.Microsecond, w.random.IntN(10) == 0
	w.mu.Unlock()
	switch {
	case fault == "dead" || fault == "full" && write:
		return &cache.Error{Fault: cache.FaultStore, Err: errOutage}
	case fault == "frozen":
		return hangs(ctx)
	case fault == "slow" || fault == "uneven" && tenth:
		pause += 400 * time.Millisecond
	}

	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return hangs(ctx)
	}
}

func (w *weather) Ping(ctx context.Context) error {
	if err := w.meet(ctx, false); err != nil {
		return err
	}
	return w.Store.Ping(ctx)
}

func (w *weather) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if err := w.meet(ctx, false); err != nil {
		return nil, err
	}
	return w.Store.Read(ctx, q)
}

func (w *weather) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := w.meet(ctx, false); err != nil {
		return nil, "", err
	}
	return w.Store.List(ctx, owner, after, limit)
}

// Commit is lost in one half of the failures by time, and only its answer in the other.
func (w *weather) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	w.mu.Lock()
	first := w.random.IntN(2) == 0 && (w.fault == "slow" || w.fault == "uneven")
	w.mu.Unlock()
	var out []cache.Outcome
	if first {
		out = w.Store.Commit(context.WithoutCancel(ctx), b)
	}
	err := w.meet(ctx, true)
	switch {
	case err != nil:
		out = cache.AllFailed(len(b), err)
	case !first:
		out = w.Store.Commit(ctx, b)
	}
	return out
}

// seen is a turn as its client saw it.
type seen struct {
	began  time.Duration // since the store failed
	turn   string
	view   string
	status memory.Status
}

// Times of a world: when sessions begin, and how many turns each has.
const (
	outageLasts = 4 * time.Second
	beginners   = 10
	turnsOfEach = 6
)

// beginInOutage lets sessions begin while the store fails, each request of one on any of three processes. It returns what
// clients saw, by session, and what is stored at last: the line of the conversation, and how many items there are.
func beginInOutage(t *testing.T, seed uint64, fault string) (all [beginners][]seen, lines [beginners]string, items [beginners]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var ways []*weather
		var processes []*lab
		for i := range 3 {
			w := &weather{Store: store, random: rand.New(rand.NewPCG(seed, uint64(i)))}
			ways, processes = append(ways, w), append(processes, startProcess(t, store, w, &queue{}))
		}
		time.Sleep(5 * time.Second) // they have heard of each other
		failed := time.Now()

		var work sync.WaitGroup
		work.Go(func() {
			random := rand.New(rand.NewPCG(seed, 10))
			for _, w := range ways {
				w.turn(fault)
			}
			time.Sleep(outageLasts)
			for _, w := range ways { // they do not notice it at once
				w.turn("")
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			}
		})
		for s := range beginners {
			random := rand.New(rand.NewPCG(seed, uint64(100+s)))
			pause := func(from, to int) { time.Sleep(time.Duration(from+random.IntN(to-from)) * time.Millisecond) }
			work.Go(func() {
				pause(0, int(outageLasts/time.Millisecond))
				for n := range turnsOfEach {
					one := seen{began: time.Since(failed), turn: fmt.Sprintf("u:%d a:%d", n, n)}
					words, reply, _ := strings.Cut(one.turn, " ")
					turn := processes[random.IntN(3)].begin(memory.Call{Scope: named(fmt.Sprint(s))}, words)
					turn.Forwarded()
					pause(300, 360) // longer than the question takes to be written: a mutex that is waited for stops virtual time
					turn.Commit(answer(t, reply))
					one.view, one.status = told(t, turn.View), turn.Summary.Status
					all[s] = append(all[s], one)
					pause(1, 300)
				}
			})
		}
		work.Wait()
		time.Sleep(2 * time.Minute)

		for s := range beginners {
			lines[s], items[s] = processes[0].transcript(named(fmt.Sprint(s)))
		}
		for _, p := range processes {
			p.m.Close()
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return all, lines, items
}

// TestSessionsThatBeginInAnOutage: nothing of them is lost or doubled, their turns are stored in the order in which their clients
// saw them, and views that miss one say degraded. Two gaps are left, as docs/reliability.md says: where processes cannot tell
// each other in time what they hold, which a store that takes no writes or is slow does not let them.
func TestSessionsThatBeginInAnOutage(t *testing.T) {
	const worlds = 6
	for _, c := range []struct {
		fault   string
		unaware time.Duration // for how long since the store failed views may miss a turn and not say so
		order   bool          // the order is that of the clients
	}{
		{"dead", 0, true},
		{"frozen", 0, true},
		{"full", 2 * time.Second, true},
		{"slow", time.Hour, false},
		{"uneven", time.Hour, false},
	} {
		t.Run(c.fault, func(t *testing.T) {
			for seed := range uint64(worlds) {
				all, lines, items := beginInOutage(t, seed, c.fault)
				for s, turns := range all {
					var before []string
					for _, one := range turns {
						whole := strings.Join(append(before, strings.Fields(one.turn)[0]), " ")
						if one.view != whole && one.status == memory.StatusOK && one.began >= c.unaware {
							t.Errorf("world %d, session %d: %s after the failure the model saw %q, and the client is told ok", seed, s, one.began, one.view)
						}
						before = append(before, one.turn)
					}
					if want := strings.Join(before, " "); lines[s] != want && c.order || items[s] != 2*turnsOfEach {
						t.Errorf("world %d, session %d: %d items are stored, the conversation is\n%s", seed, s, items[s], lines[s])
					}
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestReadyTurnsBeforeTheFirstAnswer: a view has the turns that are answered and wait for an earlier one, also where nothing is in
// the transcript yet, and with their questions, which were written before they waited.
func TestReadyTurnsBeforeTheFirstAnswer(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		first := a.open("u:1")
		second := b.open("u:2")
		second.Commit(answer(t, "a:2")) // waits for the first
		b.wantAnswer("u:3", "a:3", "u:2 a:2 u:3", memory.StatusDegraded)
		first.Commit(answer(t, "a:1"))
		time.Sleep(10 * time.Second)
		b.wantAnswer("u:4", "a:4", "u:1 a:1 u:2 a:2 u:3 a:3 u:4", memory.StatusOK)
		if got, all := a.transcript(scope); all != 8 {
			t.Errorf("%d items are stored: %s", all, got)
		}
	})
}
