package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// link is a process's way to the store. What it holds back never arrives, as far as the process knows.
type link struct {
	cache.Store

	mu    sync.Mutex
	holds func(batches []cache.Batch) bool // commits that are not answered
	away  bool                             // nothing is answered
	full  bool                             // commits are refused
	reads [][]cache.Query
	slow  bool          // sessions are not read in time
	late  time.Duration // commits of sessions arrive after it, where it is not 0, and are not answered
	ahead time.Duration // how far the process's clock is ahead of the others'
}

func (s *link) setClock(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
}

// now is the time by the process's clock.
func (s *link) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

// arriveLate makes commits of sessions arrive after a time, without an answer; 0 for at once, with one.
func (s *link) arriveLate(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = after
}

func (s *link) lateness() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

func (s *link) hold(f func(batches []cache.Batch) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = f
}

func (s *link) cut(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *link) fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *link) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

func (s *link) readSlowly(slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = slow
}

// hangsFor reports whether a read gets no answer.
func (s *link) hangsFor(q []cache.Query) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, q)
	return s.away || s.slow && slices.ContainsFunc(q, func(q cache.Query) bool { return q.Group.Owner == scope.Tenant })
}

// took returns what was read since the last time.
func (s *link) took() [][]cache.Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads := s.reads
	s.reads = nil
	return reads
}

func (s *link) state() (func([]cache.Batch) bool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds, s.away
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return &cache.Error{Fault: cache.FaultTimeout, Err: ctx.Err()}
}

func (s *link) Ping(ctx context.Context) error {
	if _, away := s.state(); away {
		return hangs(ctx)
	}
	return s.Store.Ping(ctx)
}

func (s *link) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if s.hangsFor(q) {
		return nil, hangs(ctx)
	}
	return s.Store.Read(ctx, q)
}

func (s *link) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if _, away := s.state(); away {
		return nil, "", hangs(ctx)
	}
	return s.Store.List(ctx, owner, after, limit)
}

func (s *link) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	if s.isFull() {
		return cache.AllFailed(len(b), &cache.Error{Fault: cache.FaultStore, Err: errOutage})
	}
	after := s.lateness()
	late := after > 0 && ofSession(b)
	if late {
		sent := copied(b) // the caller reuses its bytes
		go func() {
			time.Sleep(after)
			s.Store.Commit(context.WithoutCancel(ctx), sent)
		}()
	}
	if holds, away := s.state(); away || holds != nil && holds(b) || late {
		return cache.AllFailed(len(b), hangs(ctx))
	}
	return s.Store.Commit(ctx, b)
}

func copied(batches []cache.Batch) []cache.Batch {
	out := slices.Clone(batches)
	for i := range out {
		out[i].Puts, out[i].Deletes = slices.Clone(out[i].Puts), slices.Clone(out[i].Deletes)
		for j := range out[i].Puts {
			p := &out[i].Puts[j]
			p.Name, p.Data = strings.Clone(p.Name), slices.Clone(p.Data)
		}
		for j := range out[i].Deletes {
			out[i].Deletes[j] = strings.Clone(out[i].Deletes[j])
		}
	}
	return out
}

// ofSession reports whether a commit writes a session, rather than what processes say of themselves.
func ofSession(batches []cache.Batch) bool { return batches[0].Group.Owner == scope.Tenant }

// answers reports whether a commit writes the answer of a turn, rather than that the turn is open.
func answers(batches []cache.Batch) bool {
	for _, p := range batches[0].Puts {
		if strings.HasPrefix(p.Name, "t") && !strings.Contains(string(p.Data), `"open":true`) {
			return true
		}
	}
	return false
}

// replica is one of the processes that share a store.
type replica struct {
	*lab
	link *link
}

// withReplicas runs f in a world where time is virtual, with so many processes on one store.
func withReplicas(t *testing.T, n int, f func(r []*replica)) {
	t.Helper()
	// The timers of a bubble share one context of the race detector, which crashes where two processors run them at once (Go 1.26).
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		store, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var list []*replica
		for range n {
			list = append(list, startReplica(t, store, &link{Store: store}, &queue{}))
		}
		synctest.Wait()
		time.Sleep(3500 * time.Millisecond) // they have heard of each other twice
		f(list)
		for _, r := range list {
			r.m.Close()
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// startReplica starts a process on a store, with what is on its disk.
func startReplica(t *testing.T, store cache.Store, way *link, disk *queue) *replica {
	t.Helper()
	m := memory.New(way, disk, memory.Options{Shared: true, Log: slog.New(slog.DiscardHandler), Now: way.now})
	return &replica{&lab{t: t, m: m, store: store, spool: disk}, way}
}

// startProcess starts a process with a way of its own to a store that others use, too.
func startProcess(t *testing.T, store, way cache.Store, disk *queue) *lab {
	t.Helper()
	return startProcessAt(t, "", store, way, disk)
}

// startProcessAt starts a process in a place, "" for an unknown one.
func startProcessAt(t *testing.T, place string, store, way cache.Store, disk *queue) *lab {
	t.Helper()
	m := memory.New(way, disk, memory.Options{Shared: true, Place: place, Log: slog.New(slog.DiscardHandler)})
	return &lab{t: t, m: m, store: store, spool: disk}
}

// open sends a request to upstream, and returns its turn, which waits for the answer.
func (r *replica) open(words string) *memory.Turn {
	r.t.Helper()
	turn := r.begin(memory.Call{Scope: scope}, words)
	turn.Forwarded()
	synctest.Wait()
	return turn
}

// ask sends only new items, and returns the view and the status of X-Memory.
func (r *replica) ask(words, reply string) (view string, status memory.Status) {
	r.t.Helper()
	turn := r.open(words)
	turn.Commit(answer(r.t, reply))
	return told(r.t, turn.View), turn.Summary.Status
}

func (r *replica) wantAnswer(words, reply, view string, status memory.Status) {
	r.t.Helper()
	got, is := r.ask(words, reply)
	if got != view || is != status {
		r.t.Errorf("asked %q: the model saw %q (%s), want %q (%s)", words, got, is, view, status)
	}
}

// TestLateCommitOfAnotherProcess: a turn whose end the client has seen is in the next view of any process, or that view
// is degraded; and the transcript has the order of the client.
func TestLateCommitOfAnotherProcess(t *testing.T) {
	for name, first := range map[string]int{"of a session that another process wrote last": 1, "of its own session": 0} {
		t.Run(name, func(t *testing.T) {
			withReplicas(t, 2, func(r []*replica) {
				a, b := r[0], r[1]
				r[first].wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
				a.link.hold(answers)
				a.wantAnswer("u:2", "a:2", "u:1 a:1 u:2", memory.StatusOK)
				b.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusDegraded)
				b.wantAnswer("u:4", "a:4", "u:1 a:1 u:3 a:3 u:4", memory.StatusDegraded)
				a.link.hold(nil)
				time.Sleep(10 * time.Second)
				b.wantAnswer("u:5", "a:5", "u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5", memory.StatusOK)
				a.wantLine(scope, "u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5 a:5")
			})
		})
	}
}

// TestFirstTurnIsLate: nothing of the session is answered yet, as far as the others see.
func TestFirstTurnIsLate(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		a.link.hold(answers)
		a.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		b.wantAnswer("u:2", "a:2", "u:2", memory.StatusDegraded)
		a.link.hold(nil)
		time.Sleep(10 * time.Second)
		b.wantAnswer("u:3", "a:3", "u:1 a:1 u:2 a:2 u:3", memory.StatusOK)
	})
}

// TestOpenTurnOfAnotherProcessIsWaitedFor within read_wait, also if the session has not left its process for a long time.
func TestOpenTurnOfAnotherProcessIsWaitedFor(t *testing.T) {
	for _, earlier := range []int{1, 12} {
		t.Run(fmt.Sprint("after ", earlier), func(t *testing.T) {
			withReplicas(t, 2, func(r []*replica) {
				a, b := r[0], r[1]
				line := ""
				for n := range earlier {
					q, reply := fmt.Sprint("u:", n), fmt.Sprint("a:", n)
					b.wantAnswer(q, reply, line+q, memory.StatusOK)
					line += q + " " + reply + " "
				}
				turn := a.open("u:open")
				time.AfterFunc(100*time.Millisecond, func() { turn.Commit(answer(t, "a:open")) })
				b.wantAnswer("u:next", "a:next", line+"u:open a:open u:next", memory.StatusOK)
				a.wantLine(scope, line+"u:open a:open u:next a:next")
			})
		})
	}
}

// TestOthersAreReadBeforeTheSession, in the same round trip: of a turn that another process writes in between, one of the two
// tells.
func TestOthersAreReadBeforeTheSession(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		a.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		b.link.took()
		b.wantAnswer("u:2", "a:2", "u:1 a:1 u:2", memory.StatusOK)
		reads := b.link.took()
		first := reads[0]
		if len(first) < 3 || first[0].Group.Owner == scope.Tenant || first[1].Group.Owner == scope.Tenant || first[len(first)-1].Group != scope.Group() {
			t.Errorf("read %v", first)
		}
		for _, q := range reads[1:] {
			if q[0].Group.Owner != scope.Tenant {
				t.Errorf("others are read again: %v", q)
			}
		}
	})
}

// TestResendingClientsWaitForNothing: a client that resends its history does not wait for open turns of other
// processes.
func TestResendingClientsWaitForNothing(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		turn := a.begin(memory.Call{Scope: scope}, "u:1 a:1 u:2")
		turn.Forwarded()
		time.Sleep(time.Second)
		began := time.Now()
		b.wantAnswer("u:1 a:1 u:3", "a:3", "u:1 a:1 u:3", memory.StatusOK)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		turn.Commit(answer(t, "a:2"))
	})
}

// TestTurnsOfADeadProcess are waited for until it is known to have ended.
func TestTurnsOfADeadProcess(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		turn := a.open("u:2")
		a.link.cut(true) // as if it were killed
		b.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusDegraded)
		time.Sleep(20 * time.Second)
		b.wantAnswer("u:4", "a:4", "u:1 a:1 u:3 a:3 u:4", memory.StatusOK)
		turn.Commit(memory.Answer{Aborted: memory.AbortedByUpstream})
	})
}

// TestProcessThatHasJustStarted: others wait for its first turn.
func TestProcessThatHasJustStarted(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		old := r[0]
		old.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		young := startReplica(t, old.store, &link{Store: old.store}, &queue{})
		defer young.m.Close()
		time.Sleep(700 * time.Millisecond) // the old one has seen it once
		turn := young.open("u:2")
		old.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusDegraded)
		turn.Commit(answer(t, "a:2"))
		synctest.Wait()
		old.wantLine(scope, "u:1 a:1 u:2 a:2 u:3 a:3")
	})
}

// TestProcessThatHasJustStartedWaits for the open turns of processes in other places, which may be alive, from its first request
// on. One that was in its own place has ended.
func TestProcessThatHasJustStartedWaits(t *testing.T) {
	for place, want := range map[string]memory.Status{"there": memory.StatusDegraded, "here": memory.StatusOK} {
		withReplicas(t, 1, func(r []*replica) {
			other := replica{startProcessAt(t, place, r[0].store, r[0].store, &queue{}), nil}
			defer other.m.Close()
			other.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
			turn := other.open("u:2")
			time.Sleep(time.Second / 2) // between two heartbeats
			young := replica{startProcessAt(t, "here", r[0].store, r[0].store, &queue{}), nil}
			defer young.m.Close()
			young.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", want)
			turn.Commit(answer(t, "a:2"))
		})
	}
}

// TestProcessThatIsReplaced: once its successor speaks in its place, others no longer wait for what a killed process had under way.
func TestProcessThatIsReplaced(t *testing.T) {
	for place, want := range map[string]memory.Status{"there": memory.StatusDegraded, "here": memory.StatusOK} {
		withReplicas(t, 1, func(r []*replica) {
			killed := replica{nil, &link{Store: r[0].store}}
			killed.lab = startProcessAt(t, "here", r[0].store, killed.link, &queue{})
			defer killed.m.Close()
			time.Sleep(3 * time.Second)
			killed.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
			turn := killed.open("u:2")
			defer turn.Commit(answer(t, "a:2"))
			time.Sleep(time.Second)
			killed.link.cut(true)

			successor := startProcessAt(t, place, r[0].store, r[0].store, &queue{})
			defer successor.m.Close()
			time.Sleep(5 * time.Second)
			r[0].wantAnswer("u:3", "a:3", "u:1 a:1 u:3", want)
			killed.link.cut(false)
		})
	}
}

// TestTurnOfAProcessThatHasJustStarted: a turn that waits on its disk is known to the others before they have looked for new
// processes.
func TestTurnOfAProcessThatHasJustStarted(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		old := r[0]
		old.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		young := startReplica(t, old.store, &link{Store: old.store}, &queue{})
		defer young.m.Close()
		young.link.hold(ofSession)
		turn := young.open("u:2")
		time.Sleep(300 * time.Millisecond) // its question is on disk
		turn.Commit(answer(t, "a:2"))
		old.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusDegraded)
		young.link.hold(nil)
		time.Sleep(10 * time.Second)
		old.wantAnswer("u:4", "a:4", "u:1 a:1 u:2 a:2 u:3 a:3 u:4", memory.StatusOK)
	})
}

// TestStoreIsAwayAtTheStart: until a process has looked for others, its views may miss turns that they hold.
func TestStoreIsAwayAtTheStart(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		old := r[0]
		old.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		old.link.hold(answers)
		old.wantAnswer("u:2", "a:2", "u:1 a:1 u:2", memory.StatusOK)
		way := &link{Store: old.store, away: true}
		young := startReplica(t, old.store, way, &queue{})
		defer young.m.Close()
		way.cut(false)
		young.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusDegraded)
		old.link.hold(nil)
		time.Sleep(10 * time.Second)
		old.wantLine(scope, "u:1 a:1 u:2 a:2 u:3 a:3")
	})
}

// TestKilledProcessIsStartedAgain: it does not wait for its predecessor's open turn.
func TestKilledProcessIsStartedAgain(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		dead := r[0]
		dead.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		turn := dead.open("u:2")
		time.Sleep(time.Second)
		dead.link.cut(true)
		next := startReplica(t, dead.store, &link{Store: dead.store}, &queue{})
		defer next.m.Close()
		began := time.Now()
		next.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusOK)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		turn.Commit(memory.Answer{Aborted: memory.AbortedByUpstream})
	})
}

// TestInputThatADeadProcessLeft: another process finds it on the disk, and does not wait for the answer, which never
// comes.
func TestInputThatADeadProcessLeft(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		a.link.hold(ofSession)
		turn := a.open("u:2")
		time.Sleep(10 * time.Second)
		a.link.cut(true) // as if it were killed
		left := &queue{recs: a.spool.recs}
		if len(left.recs) != 1 {
			t.Fatalf("%d records are left, want the input", len(left.recs))
		}
		time.Sleep(20 * time.Second)

		next := startReplica(t, b.store, &link{Store: b.store}, left)
		defer next.m.Close()
		time.Sleep(5 * time.Second)
		if n, _ := left.Len(); n > 0 {
			t.Errorf("%d records wait still", n)
		}
		began := time.Now()
		b.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusOK)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		turn.Commit(memory.Answer{Aborted: memory.AbortedByUpstream})
	})
}

// TestProcessThatCannotReachTheStore: others say degraded as soon as it is silent, without a wait, and the turns that it kept follow
// when it is back.
func TestProcessThatCannotReachTheStore(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		a.link.cut(true)
		a.wantAnswer("u:2", "a:2", "u:2", memory.StatusDegraded)
		time.Sleep(5 * time.Second)
		began := time.Now()
		b.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusDegraded)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		a.link.cut(false)
		time.Sleep(10 * time.Second)
		b.wantAnswer("u:4", "a:4", "u:1 a:1 u:3 a:3 u:2 a:2 u:4", memory.StatusOK)
		if got, all := b.transcript(scope); all != 8 {
			t.Errorf("%d items are stored: %s", all, got)
		}
	})
}

// TestLongOutageDelaysNoCall: while the store is away or takes no writes, the calls of a session whose turns wait on disk go on at
// once, however long that is. Nothing writes these turns before this process and the others have announced theirs.
func TestLongOutageDelaysNoCall(t *testing.T) {
	for name, change := range map[string]func(l *link, broken bool){
		"it does not answer": (*link).cut,
		"it takes no writes": (*link).fill,
	} {
		t.Run(name, func(t *testing.T) {
			withReplicas(t, 2, func(r []*replica) {
				for _, one := range r {
					change(one.link, true)
				}
				for i := range 3 {
					r[0].ask(fmt.Sprint("u:", i), fmt.Sprint("a:", i))
					time.Sleep(5 * time.Second) // its heartbeats have failed
				}
				for i := range 100 {
					began := time.Now()
					if _, status := r[0].ask(fmt.Sprint("u:", i), fmt.Sprint("a:", i)); status != memory.StatusDegraded {
						t.Errorf("call %d is %s", i, status)
					}
					if waited := time.Since(began); waited > 0 {
						t.Errorf("call %d waits for %s", i, waited)
						break
					}
					time.Sleep(700 * time.Millisecond)
				}
				for _, one := range r {
					change(one.link, false)
				}
			})
		})
	}
}

// TestProcessThatCannotAnnounceItself: its calls do not wait for others, which cannot announce their turns either, and do not look at
// them again and again.
func TestProcessThatCannotAnnounceItself(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		var refuses atomic.Bool // entries of an index, as a Redis whose account may not use ZADD
		link := &link{Store: r[0].store}
		way := &tapped{Store: link, onCommit: func(_ context.Context, b []cache.Batch) error {
			if refuses.Load() && slices.ContainsFunc(b, func(b cache.Batch) bool { return b.Listed }) {
				return &cache.Error{Fault: cache.FaultStore, Err: cache.ErrDenied}
			}
			return nil
		}}
		one := &replica{startProcess(t, r[0].store, way, &queue{}), link}
		defer one.m.Close()
		time.Sleep(3500 * time.Millisecond)
		scopes := make([]memory.Scope, 10)
		for i := range scopes {
			scopes[i] = named(fmt.Sprint("s", i))
			one.turnOf(memory.Call{Scope: scopes[i]}, "u:1", "a:1")
		}
		refuses.Store(true)
		time.Sleep(5 * time.Second)
		for _, s := range scopes {
			one.link.took()
			began := time.Now()
			turn := one.begin(memory.Call{Scope: s}, "u:2")
			if took, reads := time.Since(began), len(one.link.took()); took > 0 || reads > 4 || turn.Summary.Status != memory.StatusDegraded {
				t.Errorf("a call is %s after %s and %d reads", turn.Summary.Status, took, reads)
			}
			turn.Commit(answer(t, "a:2"))
		}
		refuses.Store(false)
		time.Sleep(30 * time.Second)
		for _, s := range scopes {
			one.wantLine(s, "u:1 a:1 u:2 a:2")
		}
	})
}

// TestSteadyClientAfterAnOutage: a session whose client does not pause is served with memory again soon after the outage.
func TestSteadyClientAfterAnOutage(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		line := ""
		n := 0
		ask := func() memory.Status {
			n++
			q, reply := fmt.Sprint("u:", n), fmt.Sprint("a:", n)
			_, status := a.ask(q, reply)
			line += " " + q + " " + reply
			time.Sleep(500 * time.Millisecond)
			return status
		}
		ask()
		a.link.cut(true)
		b.link.cut(true)
		for range 10 {
			ask()
		}
		a.link.cut(false)
		b.link.cut(false)
		began := time.Now()
		for ask() != memory.StatusOK {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("it is served without memory still")
			}
		}
		b.wantLine(scope, line[1:])
	})
}

// TestOrderAfterAnOutage: each process has turns on its disk, and they are written in the order in which they began, however long
// ago that was.
func TestOrderAfterAnOutage(t *testing.T) {
	for _, lasts := range []time.Duration{0, 10 * time.Minute} {
		t.Run(lasts.String(), func(t *testing.T) {
			withReplicas(t, 3, func(r []*replica) {
				r[0].wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
				for _, one := range r {
					one.link.cut(true)
				}
				for i, n := range []int{2, 1, 0, 1, 2, 0} {
					q := fmt.Sprint("u:", i+2)
					r[n].wantAnswer(q, fmt.Sprint("a:", i+2), q, memory.StatusDegraded)
					time.Sleep(time.Second)
				}
				time.Sleep(lasts)
				for _, n := range []int{1, 2, 0} { // they notice it one after the other
					r[n].link.cut(false)
					time.Sleep(300 * time.Millisecond)
				}
				time.Sleep(30 * time.Second)
				r[1].wantAnswer("u:8", "a:8", "u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5 a:5 u:6 a:6 u:7 a:7 u:8", memory.StatusOK)
				if got, all := r[2].transcript(scope); all != 16 {
					t.Errorf("%d items are stored: %s", all, got)
				}
			})
		})
	}
}

// TestTurnsOfAnOutageAreWrittenOnce: the turns of sessions that alternate between two processes are written one after the other once
// the store is back. None is stored among those that wait for another, or goes to disk again, and a question is written with its
// answer.
func TestTurnsOfAnOutageAreWrittenOnce(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		const sessions, turns = 3, 30
		session := func(n int) memory.Scope { return named(fmt.Sprint("s", n)) }
		for _, one := range r {
			one.link.cut(true)
		}
		for i := range turns {
			for n := range sessions {
				one := r[(i+n)%2]
				turn := one.begin(memory.Call{Scope: session(n)}, fmt.Sprint("u:", i))
				turn.Forwarded()
				time.Sleep(300 * time.Millisecond) // its question is on disk
				turn.Commit(answer(t, fmt.Sprint("a:", i)))
			}
		}
		var mu sync.Mutex
		writes, parked := 0, 0
		for i, one := range r {
			one.link.hold(func(batches []cache.Batch) bool {
				mu.Lock()
				defer mu.Unlock()
				if ofSession(batches) {
					writes++
				}
				if slices.ContainsFunc(batches[0].Puts, func(p cache.Put) bool { return strings.HasPrefix(p.Name, "j") }) {
					parked++
				}
				return false
			})
			one.link.cut(false)
			time.Sleep(time.Duration(i) * 400 * time.Millisecond) // the other notices it later
		}
		began := time.Now()
		for waiting := 1; waiting > 0; time.Sleep(100 * time.Millisecond) {
			waiting = 0
			for _, one := range r {
				n, _ := one.spool.Len()
				waiting += n
			}
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		for n := range sessions {
			var want []string
			for i := range turns {
				want = append(want, fmt.Sprintf("u:%d a:%d", i, i))
			}
			r[0].wantLine(session(n), strings.Join(want, " "))
		}
		if appended := r[0].spool.appended() + r[1].spool.appended(); writes > sessions*turns*11/10 || parked > 0 || appended > 2*sessions*turns {
			t.Errorf("%d turns: %d writes, %d of them of turns that wait, and %d records on disk", sessions*turns, writes, parked, appended)
		}
	})
}

// TestUnreadTurnWaits: a process that could not read the session writes its turn behind the parked ones.
func TestUnreadTurnWaits(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		first := a.open("u:2")
		b.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusDegraded) // parked
		b.link.readSlowly(true)
		turn := b.begin(memory.Call{Scope: scope}, "u:4")
		b.link.readSlowly(false)
		turn.Forwarded()
		turn.Commit(answer(t, "a:4"))
		first.Commit(answer(t, "a:2"))
		time.Sleep(10 * time.Second)
		b.wantAnswer("u:5", "a:5", "u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5", memory.StatusOK)
	})
}

// TestSpooledQuestionIsStoredOnce: the input was written while upstream worked, and the answer waits on disk while others
// move the head.
func TestSpooledQuestionIsStoredOnce(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		a.link.hold(answers)
		a.wantAnswer("u:2", "a:2", "u:1 a:1 u:2", memory.StatusOK)
		b.wantAnswer("u:1 a:1 u:3", "a:3", "u:1 a:1 u:3", memory.StatusOK) // its client resends, and moves the head
		a.link.hold(nil)
		time.Sleep(10 * time.Second)
		if got, all := b.transcript(scope); all != 6 || got != "u:1 a:1 u:3 a:3 u:2 a:2" {
			t.Errorf("%d items are stored: %s", all, got)
		}
	})
}

// TestSlowLinkIsToldOf: a process that reads too slowly to serve a turn from the store says so to the others beside the
// client's path.
func TestSlowLinkIsToldOf(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		a.link.hold(ofSession)
		a.link.readSlowly(true)
		a.wantAnswer("u:2", "a:2", "u:2", memory.StatusDegraded)
		b.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusDegraded)
	})
}

// TestFirstTurnsOfAnOutage: the session began in the outage, on three processes, and the questions were written to disk before
// their answers.
func TestFirstTurnsOfAnOutage(t *testing.T) {
	withReplicas(t, 3, func(r []*replica) {
		for _, one := range r {
			one.link.cut(true)
		}
		for i, n := range []int{2, 1, 0, 1} {
			turn := r[n].open(fmt.Sprint("u:", i+1))
			time.Sleep(2 * time.Second)
			turn.Commit(answer(t, fmt.Sprint("a:", i+1)))
		}
		for _, n := range []int{1, 0, 2} {
			r[n].link.cut(false)
			time.Sleep(3 * time.Second)
		}
		time.Sleep(30 * time.Second)
		r[0].wantAnswer("u:5", "a:5", "u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5", memory.StatusOK)
	})
}

// TestFirstTurnIsResentBeforeItIsStored: several clients that resend their histories begin one session. The first turn of one waits
// for that of another, and the client's next turn is written just before it, after its question, which was written ahead.
func TestFirstTurnIsResentBeforeItIsStored(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		other := a.open("u:0")
		first := b.open("u:1")
		first.Commit(answer(t, "a:1")) // waits for the other
		next := b.open("u:1 a:1 u:2")
		faster := sync.OnceFunc(func() { next.Commit(answer(t, "a:2")) })
		a.link.hold(func(batches []cache.Batch) bool {
			if slices.ContainsFunc(batches[0].Puts, func(p cache.Put) bool { return p.Name == "t"+first.ID }) {
				faster()
			}
			return false
		})
		other.Commit(answer(t, "a:0"))
		time.Sleep(10 * time.Second)
		b.wantAnswer("u:1 a:1 u:2 a:2 u:3", "a:3", "u:1 a:1 u:2 a:2 u:3", memory.StatusOK)
		if got, all := a.transcript(scope); all != 8 {
			t.Errorf("%d items are stored: %s", all, got)
		}
		b.wantLine(scope, "u:1 a:1 u:2 a:2 u:3 a:3")
	})
}

// TestSpooledFirstTurnIsResent: the question was written after another client's turn, as one of a client that sends only new items,
// before the client's next request showed that it resends its history. The answer waits on disk meanwhile.
func TestSpooledFirstTurnIsResent(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		other, first := b.begin(memory.Call{Scope: scope}, "u:0"), b.begin(memory.Call{Scope: scope}, "u:1")
		b.link.hold(ofSession)
		other.Commit(answer(t, "a:0"))
		first.Forwarded()
		synctest.Wait()
		b.link.hold(nil)
		time.Sleep(10 * time.Second)
		b.link.hold(ofSession)
		first.Commit(answer(t, "a:1"))
		a.wantAnswer("u:1 a:1 u:2", "a:2", "u:1 a:1 u:2", memory.StatusOK)
		b.link.hold(nil)
		time.Sleep(10 * time.Second)
		if got, all := a.transcript(scope); all != 6 {
			t.Errorf("%d items are stored: %s", all, got)
		}
		b.wantAnswer("u:1 a:1 u:2 a:2 u:3", "a:3", "u:1 a:1 u:2 a:2 u:3", memory.StatusOK)
		b.wantLine(scope, "u:1 a:1 u:2 a:2 u:3 a:3")
	})
}

// TestQuestionThatAnotherTurnRepeats: a question that was written ahead moves after later turns with its answer. It stays, too, where
// another turn has got an answer to the same question, which is not in the conversation any more.
func TestQuestionThatAnotherTurnRepeats(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		a.wantAnswer("u:0", "a:0", "u:0", memory.StatusOK)
		first := b.open("u:1")
		a.wantAnswer("u:0 a:0 u:1", "a:1", "u:0 a:0 u:1", memory.StatusOK)
		a.wantAnswer("u:0 a:0 u:2", "a:2", "u:0 a:0 u:2", memory.StatusOK)
		first.Commit(answer(t, "a:3"))
		if got, all := a.transcript(scope); got != "u:0 a:0 u:2 a:2 u:1 a:3" || all != 8 {
			t.Errorf("%d items are stored: %s", all, got)
		}
		a.wantAnswer("u:0 a:0 u:1 a:1 u:4", "a:4", "u:0 a:0 u:1 a:1 u:4", memory.StatusOK)
		a.wantLine(scope, "u:0 a:0 u:1 a:1 u:4 a:4")
	})
}

// TestSpooledQuestionOfATrimmedHistory: the client resends its history, which the transcript has in the middle of another, and its
// next turn is stored before the one whose answer waits on disk.
func TestSpooledQuestionOfATrimmedHistory(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		a.wantAnswer("u:0", "a:0", "u:0", memory.StatusOK)
		a.wantAnswer("u:1", "a:1", "u:0 a:0 u:1", memory.StatusOK)
		turn := b.open("u:1 a:1 u:2")
		time.Sleep(time.Second) // its question is written
		b.link.hold(answers)
		turn.Commit(answer(t, "a:2"))
		a.wantAnswer("u:1 a:1 u:2 a:2 u:3", "a:3", "u:1 a:1 u:2 a:2 u:3", memory.StatusOK)
		b.link.hold(nil)
		time.Sleep(10 * time.Second)
		if got, all := a.transcript(scope); got != "u:0 a:0 u:1 a:1 u:2 a:2 u:3 a:3" || all != 8 {
			t.Errorf("%d items are stored: %s", all, got)
		}
	})
}

// TestParkedTurnOfASilentStore: a parked turn is being written when the store stops to answer. It does not keep the session's
// other turns from being written when the store is back.
func TestParkedTurnOfASilentStore(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		a.link.arriveLate(time.Millisecond)
		first := a.open("u:1")
		time.Sleep(300 * time.Millisecond)
		first.Commit(answer(t, "a:1"))
		b.link.cut(true)
		next := startReplica(t, b.store, &link{Store: b.store}, &queue{}) // the turn waits until it is known
		defer next.m.Close()
		second := a.open("u:2")
		time.Sleep(20 * time.Second)
		second.Commit(answer(t, "a:2"))
		a.link.arriveLate(0)
		time.Sleep(20 * time.Second)
		a.wantLine(scope, "u:1 a:1 u:2 a:2")
	})
}

// TestWaitingTurnThatCannotBeRead: the record is set aside, and the turns after it are stored.
func TestWaitingTurnThatCannotBeRead(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		first := a.open("u:1")
		time.Sleep(300 * time.Millisecond) // its question is stored
		second := ""                       // the name of its record
		b.link.hold(func(batches []cache.Batch) bool {
			if p := batches[0].Puts; ofSession(batches) && second == "" && strings.HasPrefix(p[0].Name, "j") {
				second = strings.Clone(p[0].Name)
			}
			return false
		})
		b.wantAnswer("u:2", "a:2", "u:2", memory.StatusDegraded)
		b.link.hold(nil)
		b.wantAnswer("u:3", "a:3", "u:2 a:2 u:3", memory.StatusDegraded)
		read := func(name string) []byte {
			t.Helper()
			res, err := a.store.Read(context.Background(), []cache.Query{{Group: scope.Group(), Names: []string{name}}})
			if err != nil {
				t.Fatal(err)
			}
			return res[0].Values[0]
		}
		nonsense := []byte(`{"turn":7}`)
		a.store.Commit(context.Background(), []cache.Batch{{Group: scope.Group(), Expect: cache.AnyVersion, Puts: []cache.Put{{Name: second, Data: nonsense}}}})
		first.Commit(answer(t, "a:1"))
		time.Sleep(10 * time.Second)
		a.wantLine(scope, "u:1 a:1 u:3 a:3")
		if kept := read("jaside " + strings.TrimPrefix(second, "j")); !bytes.Equal(kept, nonsense) || read(second) != nil {
			t.Errorf("%q is set aside", kept)
		}
		b.wantAnswer("u:4", "a:4", "u:1 a:1 u:3 a:3 u:4", memory.StatusOK)
	})
}

// TestWaitingTurnsOfManySessions: the waiting turns of a session are not written after those of all other sessions.
func TestWaitingTurnsOfManySessions(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		const sessions = 40
		for i := range sessions {
			a.begin(memory.Call{Scope: named(fmt.Sprint(i))}, "u:1").Forwarded()
		}
		time.Sleep(300 * time.Millisecond) // the questions are stored
		for i := range sessions {
			for _, n := range []string{"2", "3"} {
				turn := b.begin(memory.Call{Scope: named(fmt.Sprint(i))}, "u:"+n)
				turn.Forwarded()
				turn.Commit(answer(t, "a:"+n))
			}
		}
		a.link.cut(true) // as if it were killed

		var mu sync.Mutex
		var first, last time.Time
		b.link.hold(func(batches []cache.Batch) bool {
			if !slices.ContainsFunc(batches[0].Deletes, func(name string) bool { return strings.HasPrefix(name, "j") }) {
				return false
			}
			mu.Lock()
			if last = time.Now(); first.IsZero() {
				first = last
			}
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return false
		})
		time.Sleep(time.Minute)
		mu.Lock()
		took := last.Sub(first)
		mu.Unlock()
		if took > 2*time.Second {
			t.Errorf("they are written within %s", took)
		}
		for i := range sessions {
			b.wantLine(named(fmt.Sprint(i)), "u:2 a:2 u:3 a:3")
		}
	})
}

// TestNoRoomToWait: a turn that can wait for an earlier one neither in its session nor in the spool is stored at once.
func TestNoRoomToWait(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		a := r[0]
		b := startReplica(t, a.store, &link{Store: a.store}, &queue{full: true})
		defer b.m.Close()
		time.Sleep(3500 * time.Millisecond)
		first := a.open("u:0")
		time.Sleep(300 * time.Millisecond) // its question is stored
		const turns = 20
		for n := range turns {
			b.ask(fmt.Sprint("u:", n+1), "a:1")
		}
		first.Commit(answer(t, "a:0"))
		time.Sleep(30 * time.Second)
		line, _ := a.transcript(scope)
		for n := range turns {
			if question := fmt.Sprintf("u:%d a:1", n+1); strings.Count(line+" ", question+" ") != 1 {
				t.Errorf("%q is stored %d times", question, strings.Count(line+" ", question+" "))
			}
		}
	})
}

// TestImportOfASessionWithWaitingTurns: the turns that wait for an earlier one are not exported, so nothing waits for them in the copy.
func TestImportOfASessionWithWaitingTurns(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:0", "a:0", "u:0", memory.StatusOK)
		first := a.open("u:1")
		time.Sleep(300 * time.Millisecond) // its question is stored
		b.wantAnswer("u:2", "a:2", "u:0 a:0 u:2", memory.StatusDegraded)
		var exported bytes.Buffer
		if err := b.m.Export(context.Background(), scope, &exported); err != nil {
			t.Fatal(err)
		}
		copied := memory.Scope{Tenant: scope.Tenant, Session: "copy"}
		if err := b.m.Import(context.Background(), copied, &exported); err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			began := time.Now()
			b.turnOf(memory.Call{Scope: copied}, fmt.Sprint("u:", n), "a:ok")
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("a turn of the copy waited for %s", took)
			}
		}
		first.Commit(answer(t, "a:1"))
		time.Sleep(10 * time.Second)
		a.wantLine(scope, "u:0 a:0 u:1 a:1 u:2 a:2")
	})
}

// TestQuestionIsAskedAgainBesideAnother: two clients begin a session, and one sends its question to another process, too, before it has an
// answer. All that was answered is in the conversation.
func TestQuestionIsAskedAgainBesideAnother(t *testing.T) {
	for again, other := range map[string]string{"u:1": "u:2", "u:2": "u:1"} {
		withReplicas(t, 2, func(r []*replica) {
			a, b := r[0], r[1]
			second := a
			if again == "u:1" {
				second = b
			}
			turns := map[string]*memory.Turn{"u:1": a.open("u:1")}
			time.Sleep(10 * time.Millisecond)
			turns["u:2"] = second.open("u:2")
			time.Sleep(10 * time.Millisecond)
			repeated := b.open(again)

			turns[other].Commit(answer(t, "a:other"))
			repeated.Commit(answer(t, "a:again"))
			turns[again].Commit(memory.Answer{Aborted: memory.AbortedByClient})
			time.Sleep(30 * time.Second)
			if line, _ := a.transcript(scope); !strings.Contains(line, "a:other") || !strings.Contains(line, "a:again") {
				t.Errorf("%s is asked again: the line is %s", again, line)
			}
		})
	}
}

// TestRetryOfAnOpenQuestion: its client says that it is one. The question is stored once.
func TestRetryOfAnOpenQuestion(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		a.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		first := a.open("u:2")
		time.Sleep(10 * time.Millisecond)
		again := b.begin(memory.Call{Scope: scope, Retry: true}, "u:2")
		again.Forwarded()
		synctest.Wait()
		again.Commit(answer(t, "a:2"))
		first.Commit(memory.Answer{Aborted: memory.AbortedByClient})
		time.Sleep(30 * time.Second)
		if line, all := a.transcript(scope); line != "u:1 a:1 u:2 a:2" || all != 4 {
			t.Errorf("%d items are stored: %s", all, line)
		}
	})
}

// TestRetryThatWaits: a retry is stored once, even if it waits on disk, or for an earlier turn of another process.
func TestRetryThatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		earlier, again, line string
		all                  int
		history              memory.History
		waits                func(a, b *replica) (begun, ended func())
	}{
		"on disk": {"u:2", "u:2", "u:1 a:1 u:2 a:new", 5, memory.HistoryAuto, func(a, _ *replica) (begun, ended func()) {
			return func() { a.link.hold(answers) }, func() { a.link.hold(nil) }
		}},
		"results, on disk": {"r:x", "r:x", "u:1 c:x r:x a:new", 5, memory.HistoryAuto, func(a, _ *replica) (begun, ended func()) {
			return func() { a.link.hold(answers) }, func() { a.link.hold(nil) }
		}},
		"unread": {"u:2", "u:2", "u:1 a:1 u:2 a:new", 5, memory.HistoryAuto, func(a, _ *replica) (begun, ended func()) {
			a.link.readSlowly(true)
			return func() { a.link.readSlowly(false); a.link.hold(ofSession) }, func() { a.link.hold(nil) }
		}},
		"not at all": {"u:2", "u:2", "u:1 a:1 u:2 a:new", 5, memory.HistoryServer, func(_, _ *replica) (begun, ended func()) {
			return func() {}, func() {}
		}},
		"for another": {"u:2", "u:2", "u:1 a:1 u:2 a:new", 8, memory.HistoryAuto, func(_, b *replica) (begun, ended func()) {
			other := b.open("u:other")
			return func() {}, func() {
				b.wantAnswer("u:3", "a:3", "u:1 a:1 u:2 a:new u:3", memory.StatusOK)
				other.Commit(memory.Answer{Aborted: memory.AbortedByClient})
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withReplicas(t, 2, func(r []*replica) {
				a, b := r[0], r[1]
				first := "a:1"
				if c.again == "r:x" {
					first = "c:x"
				}
				a.wantAnswer("u:1", first, "u:1", memory.StatusOK)
				a.wantAnswer(c.earlier, "a:2", "u:1 "+first+" "+c.earlier, memory.StatusOK)
				time.Sleep(10 * time.Millisecond)
				begun, ended := c.waits(a, b)
				turn := a.begin(memory.Call{Scope: scope, Retry: true, History: c.history}, c.again)
				begun()
				turn.Forwarded()
				synctest.Wait()
				turn.Commit(answer(t, "a:new"))
				ended()
				time.Sleep(2 * time.Minute)
				line, all := b.transcript(scope)
				if line = strings.TrimSuffix(line, " u:3 a:3"); line != c.line || all != c.all {
					t.Errorf("%d items are stored: %s, want %d: %s", all, line, c.all, c.line)
				}
			})
		})
	}
}

// TestLostTurnIsNotWaitedFor: neither the store nor the disk took the answer of a turn that is listed as open.
func TestLostTurnIsNotWaitedFor(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		turn := a.open("u:2")
		a.link.fill(true)
		a.spool.full = true
		turn.Commit(answer(t, "a:2"))
		a.link.fill(false)
		time.Sleep(30 * time.Second)
		b.wantAnswer("u:3", "a:3", "u:1 a:1 u:3", memory.StatusOK)
	})
}

// TestUnreadAnswerThatWaits: the question of an answer that was too large to be read stays in the conversation, even if the turn
// waits on disk.
func TestUnreadAnswerThatWaits(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		a := r[0]
		a.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		turn := a.open("u:2")
		a.link.hold(ofSession)
		turn.Commit(memory.Answer{HTTPStatus: 200, Reply: wire.Reply{Truncated: true}})
		a.link.hold(nil)
		time.Sleep(time.Minute)
		a.wantLine(scope, "u:1 a:1 u:2")
	})
}

// TestSpooledTurnIsRecordedAsPlaced: its record says how the request was placed when it came.
func TestSpooledTurnIsRecordedAsPlaced(t *testing.T) {
	tools := `[{"type":"function","function":{"name":"f"}}]`
	for _, c := range []struct{ request, tools, rule, side string }{
		{"u:2", tools, "only_new", ""},
		{"u:1 a:1 u:2", tools, "known_history", ""},
		{titles + " u:1", "", "helper_prompt", "title"},
	} {
		withReplicas(t, 1, func(r []*replica) {
			a := r[0]
			for _, words := range []string{"u:0", "u:1"} {
				turn := a.beginWith(memory.Call{Scope: scope}, words, tools)
				turn.Forwarded()
				turn.Commit(answer(t, "a:1"))
				time.Sleep(10 * time.Millisecond)
			}
			a.link.hold(ofSession)
			turn := a.beginWith(memory.Call{Scope: scope}, c.request, c.tools)
			turn.Forwarded()
			turn.Commit(answer(t, "a:2"))
			a.link.hold(nil)
			time.Sleep(time.Minute)
			records := a.records()
			if last := records[len(records)-1]; last.Rule != c.rule || last.Side != c.side {
				t.Errorf("%s: rule %q, side %q, want %q and %q", c.request, last.Rule, last.Side, c.rule, c.side)
			}
		})
	}
}

// replaced is a store in which another program has replaced groups by something else.
type replaced struct {
	cache.Store

	mu    sync.Mutex
	bad   map[cache.Group]bool
	mends bool // what is deleted is no longer bad
}

func (s *replaced) replace(g cache.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad[g] = true
}

func (s *replaced) check(g cache.Group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad[g] {
		return &cache.Error{Fault: cache.FaultKey, Err: errors.New("WRONGTYPE")}
	}
	return nil
}

func (s *replaced) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	for _, query := range q {
		if err := s.check(query.Group); err != nil {
			return nil, err
		}
	}
	return s.Store.Read(ctx, q)
}

func (s *replaced) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	out := make([]cache.Outcome, len(b))
	for i := range b {
		if err := s.check(b[i].Group); err != nil {
			out[i].Err = err
			continue
		}
		out[i] = s.Store.Commit(ctx, b[i:i+1])[0]
	}
	return out
}

// Delete removes what the other program has stored, if mends.
func (s *replaced) Delete(ctx context.Context, g cache.Group) error {
	s.mu.Lock()
	if s.mends {
		delete(s.bad, g)
	}
	s.mu.Unlock()
	return s.Store.Delete(ctx, g)
}

func (s *replaced) replacedGroups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bad)
}

// TestForeignAnnouncementsAreReplaced: each process writes again what another program has put in the place of its announcements, on both
// boards, and so they know of each other's turns again.
func TestForeignAnnouncementsAreReplaced(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as in withReplicas
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store := &replaced{Store: mem, bad: map[cache.Group]bool{}, mends: true}
		a, b := startReplica(t, store, &link{Store: store}, &queue{}), startReplica(t, store, &link{Store: store}, &queue{})
		time.Sleep(3500 * time.Millisecond)
		for _, owner := range []string{cache.LowHalf + "processes", cache.HighHalf + "processes"} {
			names, _, err := mem.List(t.Context(), owner, "", 10)
			if err != nil || len(names) != 2 {
				t.Fatalf("processes %q, %v, want 2", names, err)
			}
			for _, name := range append(names, "starts") {
				store.replace(cache.Group{Owner: owner, Name: name})
			}
		}
		time.Sleep(5 * time.Second)
		if n := store.replacedGroups(); n > 0 {
			t.Errorf("%d announcements are still replaced", n)
		}
		a.open("u:1").Commit(answer(t, "a:1"))
		b.wantAnswer("u:2", "a:2", "u:1 a:1 u:2", memory.StatusOK)
		a.m.Close()
		b.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestForeignAnnouncements: what another program stores under the keys of processes on one board takes no session its memory.
func TestForeignAnnouncements(t *testing.T) {
	for _, n := range []int{1, 2} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as in withReplicas
		synctest.Test(t, func(t *testing.T) {
			mem, err := stores.Open("memory:", cache.Options{})
			if err != nil {
				t.Fatal(err)
			}
			store := &replaced{Store: mem, bad: map[cache.Group]bool{}}
			var list []*replica
			for range n {
				list = append(list, startReplica(t, store, &link{Store: store}, &queue{}))
			}
			time.Sleep(3500 * time.Millisecond)
			var groups []cache.Group
			const processes = cache.LowHalf + "processes"
			names, _, err := mem.List(t.Context(), processes, "", 10)
			if err != nil || len(names) != n {
				t.Fatalf("processes %q, %v, want %d", names, err, n)
			}
			for _, name := range append(names, "starts") {
				groups = append(groups, cache.Group{Owner: processes, Name: name})
			}

			view := ""
			for i, g := range groups {
				store.replace(g)
				time.Sleep(2500 * time.Millisecond)
				for j, r := range list {
					words := fmt.Sprintf("u:%d%d", i, j)
					view = strings.TrimSpace(view + " " + words)
					r.wantAnswer(words, "a:1", view, memory.StatusOK)
					view += " a:1"
				}
			}
			for _, r := range list {
				r.m.Close()
			}
			if err := mem.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// cluster is a store of two servers: one has all groups of [cache.LowHalf], the other all others. The first can be lost.
type cluster struct {
	cache.Store

	lost   atomic.Bool
	silent bool // calls of a lost server hang
}

func (s *cluster) Shard(g cache.Group) string {
	if strings.HasPrefix(g.Owner, cache.LowHalf) {
		return "low"
	}
	return "high"
}

func (s *cluster) check(ctx context.Context, owner string) error {
	if !s.lost.Load() || s.Shard(cache.Group{Owner: owner}) != "low" {
		return nil
	}
	if s.silent {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		<-ctx.Done()
		return cache.OnShard("low", ctx.Err())
	}
	return cache.OnShard("low", errors.New("connection refused"))
}

func (s *cluster) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	for _, query := range q {
		if err := s.check(ctx, query.Group.Owner); err != nil {
			return nil, err
		}
	}
	return s.Store.Read(ctx, q)
}

func (s *cluster) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	out := make([]cache.Outcome, len(b))
	var wg sync.WaitGroup
	for i := range b {
		wg.Go(func() {
			if out[i].Err = s.check(ctx, b[i].Group.Owner); out[i].Err == nil {
				out[i] = s.Store.Commit(ctx, b[i:i+1])[0]
			}
		})
	}
	wg.Wait()
	return out
}

func (s *cluster) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	if err := s.check(ctx, owner); err != nil {
		return nil, "", err
	}
	return s.Store.List(ctx, owner, after, limit)
}

// TestServerOfAnnouncementsIsLost: the sessions of a cluster's other servers keep their memory while one is lost on which processes
// announce their turns, and a turn that is not stored yet is still waited for.
func TestServerOfAnnouncementsIsLost(t *testing.T) {
	for _, silent := range []bool{false, true} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as in withReplicas
		synctest.Test(t, func(t *testing.T) {
			mem, err := stores.Open("memory:", cache.Options{})
			if err != nil {
				t.Fatal(err)
			}
			store := &cluster{Store: mem, silent: silent}
			var list []*replica
			for range 3 {
				l := &link{Store: store}
				list = append(list, startReplica(t, store, l, &queue{}))
			}
			time.Sleep(3500 * time.Millisecond)
			view := ""
			say := func(n int, status memory.Status) {
				t.Helper()
				words := fmt.Sprint("u:", n)
				view = strings.TrimSpace(view + " " + words)
				list[n%3].wantAnswer(words, "a:1", view, status)
				view += " a:1"
			}
			say(0, memory.StatusOK)
			for round := range 2 { // lost again after it was back
				store.lost.Store(true)
				if silent {
					time.Sleep(5 * time.Second) // until all have noticed
				}
				for n := range 6 {
					say(10*round+n+1, memory.StatusOK)
				}

				a, b := list[0], list[1]
				a.link.hold(ofSession)
				turn := a.open("u:1")
				time.Sleep(300 * time.Millisecond) // its question is on disk
				turn.Commit(answer(t, "a:1"))
				b.wantAnswer("u:2", "a:2", view+" u:2", memory.StatusDegraded)
				a.link.hold(nil)
				time.Sleep(10 * time.Second)
				view += " u:1 a:1 u:2 a:2"
				say(10*round+7, memory.StatusOK)

				store.lost.Store(false)
				time.Sleep(5 * time.Second)
				say(10*round+8, memory.StatusOK)
			}
			for _, r := range list {
				r.m.Close()
			}
			if err := mem.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// unready is a layer that judges, and that cannot begin.
type unready struct{ jailer }

func (unready) Init(context.Context, *layer.Turn, layer.State) (layer.State, error) {
	return nil, errors.New("no service")
}

// TestRefusedTurnIsNotWaitedFor: a turn that began without the store, and that a layer has refused, is over: the other processes do not
// wait for it.
func TestRefusedTurnIsNotWaitedFor(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		b.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		a.m.Reshape(memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "a", Kind: "test", Scope: layer.Thread, Impl: unready{}})})
		a.link.cut(true)
		req := wiretest.Request(t, dialects.Chat, `{"model":"m","messages":[`+messages("u:refused")+`]}`)
		if _, err := a.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req}); err == nil {
			t.Error("the turn has begun")
		}
		a.link.cut(false)
		time.Sleep(30 * time.Second)
		b.wantAnswer("u:2", "a:2", "u:1 a:1 u:2", memory.StatusOK)
	})
}

// TestSessionThatBeginsWithAWaitingTurnIsListed: the first that is stored of it is the record of a turn that waits for an earlier one.
func TestSessionThatBeginsWithAWaitingTurnIsListed(t *testing.T) {
	withReplicas(t, 2, func(r []*replica) {
		a, b := r[0], r[1]
		a.link.hold(ofSession)
		turn := a.open("u:1")
		time.Sleep(300 * time.Millisecond) // its question is on disk
		turn.Commit(answer(t, "a:1"))
		b.wantAnswer("u:2", "a:2", "u:2", memory.StatusDegraded)
		a.link.hold(nil)
		time.Sleep(10 * time.Second)
		b.wantLine(scope, "u:1 a:1 u:2 a:2")
		if names, _, err := b.m.Sessions(context.Background(), scope.Tenant, "", 10); err != nil || !slices.Equal(names, []string{scope.Session}) {
			t.Errorf("listed are %q, %v", names, err)
		}
	})
}

// TestWaitingTurnIsNotForgotten: a turn whose record is being stored when its process looks for such turns is written once the process
// that it waits for is known to have ended.
func TestWaitingTurnIsNotForgotten(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		a := r[0]
		slowPark := &tapped{Store: a.store, onCommit: func(_ context.Context, b []cache.Batch) error {
			if slices.ContainsFunc(b[0].Puts, func(p cache.Put) bool { return strings.HasPrefix(p.Name, "j") }) {
				time.Sleep(200 * time.Millisecond)
			}
			return nil
		}}
		b := replica{startProcess(t, a.store, slowPark, &queue{}), nil}
		defer b.m.Close()
		time.Sleep(3900*time.Millisecond - 250*time.Millisecond) // a tenth of a second before it looks, when the read has waited
		a.wantAnswer("u:1", "a:1", "u:1", memory.StatusOK)
		a.open("u:2")
		a.link.cut(true) // as if it were killed
		turn := b.open("u:3")
		turn.Commit(answer(t, "a:3"))
		read := func(name string) bool {
			got, err := a.store.Read(context.Background(), []cache.Query{{Group: scope.Group(), Names: []string{name + turn.ID}}})
			if err != nil {
				t.Fatal(err)
			}
			return got[0].Values[0] != nil
		}
		if !read("j") {
			t.Error("the turn does not wait")
		}
		time.Sleep(time.Minute)
		if read("j") || !read("t") {
			t.Error("the turn still waits")
		}
	})
}

// TestClocksOfReplicas: turns that two replicas could not write are stored in the order in which they began, whatever their clocks say.
func TestClocksOfReplicas(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 10 * time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			withReplicas(t, 2, func(r []*replica) {
				r[1].link.setClock(ahead)
				time.Sleep(5 * time.Second)
				r[0].wantAnswer("u:0", "a:0", "u:0", memory.StatusOK)
				r[0].link.cut(true)
				r[1].link.cut(true)
				time.Sleep(5 * time.Second)
				for i, words := range []string{"u:1", "u:2", "u:3", "u:4"} {
					r[i%2].lateTurn(scope, words, "a"+words[1:])
					time.Sleep(100 * time.Millisecond)
				}
				r[1].link.cut(false)
				r[0].link.cut(false)
				time.Sleep(time.Minute)
				r[0].wantLine(scope, "u:0 a:0 u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4")
			})
		})
	}
}

// TestDeletionByAnotherClock: a turn that began before its session was deleted is not stored, and one that began after it is, although
// the clock of its replica differs from that of the one that has deleted the session.
func TestDeletionByAnotherClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			withReplicas(t, 2, func(r []*replica) {
				a, b := r[0], r[1]
				b.link.setClock(ahead)
				time.Sleep(5 * time.Second)
				for _, s := range []string{"under way", "before", "after"} {
					a.turnOf(memory.Call{Scope: named(s)}, "u:0", "a:0")
				}
				underWay := b.begin(memory.Call{Scope: named("under way")}, "u:1")
				underWay.Forwarded()
				time.Sleep(time.Second)
				if err := a.m.Delete(context.Background(), named("under way")); err != nil {
					t.Error(err)
				}
				underWay.Commit(answer(t, "a:1"))

				b.link.cut(true)
				time.Sleep(5 * time.Second)
				b.lateTurn(named("before"), "u:1", "a:1")
				time.Sleep(time.Second)
				for _, s := range []string{"before", "after"} {
					if err := a.m.Delete(context.Background(), named(s)); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Second)
				b.lateTurn(named("after"), "u:1", "a:1")
				b.link.cut(false)
				time.Sleep(time.Minute)
				for _, s := range []string{"under way", "before"} {
					if err := a.m.Walk(context.Background(), named(s), func(memory.ExportLine) error { return nil }); !errors.Is(err, memory.ErrNoSession) {
						t.Errorf("%s: walk: %v, want no session", s, err)
					}
				}
				a.wantLine(named("after"), "u:1 a:1")
			})
		})
	}
}

// TestTurnOfAClockThatWasAhead: a process whose clock was an hour ahead has died with a turn in its spool. The next one does not
// wait an hour, and the turns after it with it.
func TestTurnOfAClockThatWasAhead(t *testing.T) {
	withReplicas(t, 1, func(r []*replica) {
		ahead := func() time.Time { return time.Now().Add(time.Hour) }
		way, disk := &link{Store: r[0].store}, &queue{}
		m := memory.New(way, disk, memory.Options{Shared: true, Now: ahead})
		time.Sleep(5 * time.Second)
		way.cut(true)
		(&lab{t: t, m: m, store: r[0].store, spool: disk}).lateTurn(scope, "u:1", "a:1")
		m.Close()

		next := startReplica(t, r[0].store, &link{Store: r[0].store}, &queue{recs: disk.copied()})
		defer next.m.Close()
		time.Sleep(20 * time.Second)
		next.link.cut(true)
		next.lateTurn(named("other"), "u:1", "a:1")
		next.link.cut(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, _ := next.spool.Len(); n > 0 {
			t.Errorf("%d turns wait though the store works", n)
		}
	})
}
