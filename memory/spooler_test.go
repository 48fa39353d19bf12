package memory_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/spool"
	"remora/cache/stores"
	"remora/memory"
)

func named(session string) memory.Scope {
	return memory.Scope{Tenant: "tenant", Session: session}
}

// lateTurn plays a turn while the store is down.
func (l *lab) lateTurn(s memory.Scope, words, reply string) {
	l.t.Helper()
	turn := l.begin(memory.Call{Scope: s}, words)
	if turn.Summary.Status != memory.StatusDegraded {
		l.t.Errorf("status %s during the outage", turn.Summary.Status)
	}
	turn.Commit(answer(l.t, reply))
}

func (l *lab) wantLine(s memory.Scope, want string) {
	l.t.Helper()
	if got, _ := l.transcript(s); got != want {
		l.t.Errorf("session %q: got %q, want %q", s.Session, got, want)
	}
}

// Session and tenant may be any bytes; the spool must not mix up those that are not UTF-8.
func TestSpoolKeepsScopesOfAnyBytesApart(t *testing.T) {
	l, store := newOutage(t)
	store.set(true)
	one := memory.Scope{Tenant: "\xff", Session: "\xff1", Resource: "\xff1", Execution: "\xff1", Parent: "\xff0"}
	two := memory.Scope{Tenant: "\xff", Session: "\xfe1", Resource: "\xfe1", Execution: "\xfe1", Parent: "\xfe0"}
	l.lateTurn(one, "u:1", "a:1")
	l.lateTurn(two, "u:2", "a:2")
	store.over()
	l.wantView(l.turnOf(memory.Call{Scope: one}, "u:3", "a:3"), "u:1 a:1 u:3")
	l.wantView(l.turnOf(memory.Call{Scope: two}, "u:4", "a:4"), "u:2 a:2 u:4")
}

func TestRecordSetAsideDoesNotBlockItsSession(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(head, body string) string
	}{
		{"request can't be read", func(head, _ string) string { return head + "\n{" }},
		{"session is missing", func(head, body string) string { return strings.Replace(head, `"session"`, `"none"`, 1) + "\n" + body }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, store := newOutage(t)
			spool := &queue{}
			l.m.Close()
			l.m = memory.New(store, spool, patient(memory.Options{RetryDelay: time.Second, Now: store.clock}))
			store.set(true)
			l.lateTurn(scope, "u:1", "a:1")
			spool.mu.Lock()
			head, body, _ := strings.Cut(string(spool.recs[0]), "\n")
			spool.recs[0] = []byte(c.harm(head, body))
			spool.mu.Unlock()
			store.over()
			l.wantView(l.turn("u:2", "a:2"), "u:2")
			if len(spool.aside) != 1 {
				t.Errorf("%d records are set aside, want 1", len(spool.aside))
			}
		})
	}
}

// keyless is a store that cannot read one session, and a spool that cannot read its first records.
type keyless struct {
	cache.Store
	queue   // the spool
	session string
	bad     int
}

func (k *keyless) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	for _, one := range q {
		if k.session != "" && strings.HasSuffix(one.Group.Name, k.session) {
			return nil, fmt.Errorf("read: %w", cache.ErrUnreadable)
		}
	}
	return k.Store.Read(ctx, q)
}

func (k *keyless) Drain(ctx context.Context, f func([][]byte) (int, error)) error {
	return k.queue.Drain(ctx, func(recs [][]byte) (int, error) {
		if k.bad > 0 {
			k.bad--
			return 0, cache.ErrUnreadable
		}
		return f(recs)
	})
}

// Len returns the length of the spool.
func (k *keyless) Len() (records int, size int64) { return k.queue.Len() }

func (k *keyless) Max() int64 { return k.queue.Max() }

// TestUnreadableRecordsHoldUpNobody: neither records that an earlier process wrote under another key, nor turns of a
// session that cannot be read, keep other sessions from their memory. The log names the session, not its content.
func TestUnreadableRecordsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		log := &journal{}
		k := &keyless{Store: mem, bad: 2, queue: queue{recs: [][]byte{[]byte("sealed 1"), []byte("sealed 2")}}}
		store := &sluggish{Store: k}
		l := &lab{t: t, store: store, m: memory.New(store, k, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})}
		l.wantView(l.turnOf(memory.Call{Scope: named("lost")}, "u:1", "a:1"), "u:1")
		l.wantView(l.turnOf(memory.Call{Scope: named("good")}, "u:2", "a:2"), "u:2")
		k.session = "lost"
		l.lateTurn(named("lost"), "u:3", "a:3")
		store.set(true, "")
		l.lateTurn(named("good"), "u:4", "a:4")
		store.set(false, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantLine(named("good"), "u:2 a:2 u:4 a:4")
		if n, _ := k.Len(); n > 0 || len(k.aside) < 3 {
			t.Errorf("%d records wait, and %d are set aside, want 0 and 3", n, len(k.aside))
		}
		if !strings.Contains(log.String(), "level=WARN msg=\"a session cannot be read") || strings.Contains(log.String(), "lost") {
			t.Errorf("log:\n%s", log)
		}
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// jammed is a spool whose disk cannot quarantine records.
type jammed struct{ queue }

func (q *jammed) Drain(context.Context, func([][]byte) (int, error)) error { return errOutage }

// TestSpoolThatFailsIsTold: what keeps the spool from being emptied is said once, where it is not the store.
func TestSpoolThatFailsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		log := &journal{}
		m := memory.New(mem, &jammed{queue{recs: [][]byte{[]byte("x")}}}, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(time.Minute)
		synctest.Wait()
		m.Close()
		if n := strings.Count(log.String(), "level=WARN msg=\"spool cannot be emptied"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log)
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// sluggish is a store that is down, or answers all but the commits of one session.
type sluggish struct {
	cache.Store
	mu   sync.Mutex
	down bool
	full bool // it takes no writes
	slow string
	pace time.Duration // what a commit of the slow session takes; 0 is longer than anybody waits
}

func (s *sluggish) set(down bool, slow string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.slow = down, slow
}

func (s *sluggish) fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *sluggish) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

func (s *sluggish) state() (slow string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return "", errOutage
	}
	return s.slow, nil
}

func (s *sluggish) Ping(context.Context) error {
	_, err := s.state()
	return err
}

func (s *sluggish) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if _, err := s.state(); err != nil {
		return nil, err
	}
	return s.Store.Read(ctx, q)
}

func (s *sluggish) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	slow, err := s.state()
	if s.isFull() {
		err = errOutage
	}
	if err == nil && slow != "" && strings.HasSuffix(b[0].Group.Name, slow) {
		var done <-chan time.Time
		if s.pace > 0 {
			done = time.After(s.pace)
		}
		select {
		case <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return cache.AllFailed(len(b), err)
	}
	return s.Store.Commit(ctx, b)
}

// withSluggish runs f in a synctest bubble, with a lab whose store is down.
func withSluggish(t *testing.T, f func(l *lab, store *sluggish, log *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store, log := &sluggish{Store: mem, down: true}, &journal{}
		l := &lab{t: t, store: store}
		l.m = memory.New(store, &queue{}, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		f(l, store, log)
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// asked counts how often a store is asked whether it is there. One that is asked without end says yes at last.
type asked struct {
	*sluggish
	pings atomic.Int64
}

const endless = 1000

func (a *asked) Ping(ctx context.Context) error {
	if a.pings.Add(1) > endless {
		return nil
	}
	return a.sluggish.Ping(ctx)
}

// TestCallsOfAnOutageLeaveAskingToTheWorker: however long the store is away, a session with turns in the spool neither
// waits for it nor has it asked again and again.
func TestCallsOfAnOutageLeaveAskingToTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store := &asked{sluggish: &sluggish{Store: mem, down: true}}
		l := &lab{t: t, store: store, m: memory.New(store, &queue{}, memory.Options{})}
		l.lateTurn(scope, "u:1", "a:1")
		time.Sleep(time.Minute)
		synctest.Wait()
		before, begun := store.pings.Load(), time.Now()
		l.lateTurn(scope, "u:2", "a:2")
		if n, waited := store.pings.Load()-before, time.Since(begun); n > 1 || waited > 0 {
			t.Errorf("the call waited %s and had the store asked %d times", waited, n)
		}
		store.set(false, "")
		time.Sleep(time.Second)
		synctest.Wait()
		l.wantView(l.turn("u:3", "a:3"), "u:1 a:1 u:2 a:2 u:3")
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSlowRecordHoldsUpNobodyElse(t *testing.T) {
	withSluggish(t, func(l *lab, store *sluggish, log *journal) {
		l.lateTurn(named("slow"), "u:1", "a:1")
		l.lateTurn(named("fast"), "u:2", "a:2")
		store.set(false, "slow")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantLine(named("fast"), "u:2 a:2")
		l.wantView(l.turnOf(memory.Call{Scope: named("fast")}, "u:3", "a:3"), "u:2 a:2 u:3")
		l.wantView(l.turnOf(memory.Call{Scope: named("other")}, "u:4", "a:4"), "u:4")
		if n := strings.Count(log.String(), "other sessions go first"); n != 1 {
			l.t.Errorf("%d lines about the slow turn:\n%s", n, log)
		}
		if n := strings.Count(log.String(), "store failed"); n != 1 { // the outage
			l.t.Errorf("store counted as failed %d times:\n%s", n, log)
		}
		store.set(false, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantView(l.turnOf(memory.Call{Scope: named("slow")}, "u:5", "a:5"), "u:1 a:1 u:5")
	})
}

// TestSpoolOfManySessions: turns of different sessions are replayed at the same time, those of one session in order. One after the
// other, the spool of a busy process would never be empty: each of its sessions adds turns until all earlier ones are stored.
func TestSpoolOfManySessions(t *testing.T) {
	const sessions = 40
	withSluggish(t, func(l *lab, store *sluggish, _ *journal) {
		for turn := 1; turn <= 2; turn++ {
			for i := range sessions {
				l.lateTurn(named(fmt.Sprint(i, "-slow")), fmt.Sprint("u:", turn), fmt.Sprint("a:", turn))
			}
		}
		store.pace = 100 * time.Millisecond
		store.set(false, "-slow")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, _ := l.m.Spooled(); n > 0 {
			l.t.Errorf("%d turns are still in the spool", n)
		}
		for i := range sessions {
			l.wantLine(named(fmt.Sprint(i, "-slow")), "u:1 a:1 u:2 a:2")
		}
	})
}

// TestSlowRecordsKeepTheirOrder: whenever the store takes a session's turns again, they come in the order they were made.
func TestSlowRecordsKeepTheirOrder(t *testing.T) {
	for after := time.Second; after < time.Minute; after += 2 * time.Second {
		withSluggish(t, func(l *lab, store *sluggish, _ *journal) {
			l.lateTurn(named("slow"), "u:1", "a:1")
			l.lateTurn(named("also slow"), "u:1", "a:1")
			l.lateTurn(named("slow"), "u:2", "a:2")
			l.lateTurn(named("fast"), "u:4", "a:4")
			l.lateTurn(named("also slow"), "u:2", "a:2")
			store.set(false, "slow")
			for i := 3; i < 7; i++ { // while the worker has others go first
				time.Sleep(after / 2)
				for _, s := range []string{"slow", "also slow"} {
					l.lateTurn(named(s), fmt.Sprint("u:", i), fmt.Sprint("a:", i))
				}
			}
			time.Sleep(after)
			store.set(false, "")
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, s := range []string{"slow", "also slow"} {
				l.wantLine(named(s), "u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5 a:5 u:6 a:6")
			}
			l.wantLine(named("fast"), "u:4 a:4")
		})
	}
}

// tight is a spool of a bounded size.
type tight struct {
	queue
	room int64
}

func (q *tight) Append(rec []byte) error {
	if _, n := q.Len(); n+int64(len(rec)) > q.room {
		return spool.ErrFull
	}
	return q.queue.Append(rec)
}

// TestFullSpoolIsEmptied: turns that there is no room to move after a slow one of their session do not stay for ever.
func TestFullSpoolIsEmptied(t *testing.T) {
	withSluggish(t, func(l *lab, store *sluggish, log *journal) {
		l.m.Close()
		spool := &tight{room: 1 << 20}
		l.m = memory.New(store, spool, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		l.lateTurn(named("slow"), "u:1", "a:1")
		_, first := spool.Len()
		time.Sleep(time.Second) // ids of turns sort by their time
		l.lateTurn(named("slow"), "u:1 a:1 u:2", "a:2")
		l.lateTurn(named("also slow"), "u:1", "a:1") // a session that goes first
		_, all := spool.Len()
		spool.room = all + first // the second one is longer
		store.set(false, "slow")
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(log.String(), "other sessions go first") {
			l.t.Fatalf("the first turn was not moved:\n%s", log)
		}
		store.set(false, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, _ := spool.Len(); n > 0 {
			l.t.Fatalf("%d turns stay in the spool:\n%s", n, log)
		}
		l.wantLine(named("slow"), "u:1 a:1 u:2 a:2")
	})
}

// hung is a spool whose disk does not answer before it is told to.
type hung struct {
	queue
	answers chan struct{}
}

func (q *hung) Append(rec []byte) error {
	<-q.answers
	return q.queue.Append(rec)
}

// TestAHungDiskHoldsNoClient: while the store is down and the spool's disk hangs, the first client gets its end after commit_wait, and
// the others at once. The turns are stored when both are back.
func TestAHungDiskHoldsNoClient(t *testing.T) {
	withSluggish(t, func(l *lab, store *sluggish, log *journal) {
		l.m.Close()
		spool := &hung{answers: make(chan struct{})}
		l.m = memory.New(store, spool, memory.Options{CommitWait: time.Second, Log: slog.New(slog.NewTextHandler(log, nil))})
		for i, most := range []time.Duration{2 * time.Second, time.Second} { // the store's, and the disk's
			time.Sleep(time.Duration(i) * 10 * time.Second) // the disk is not only slow
			turn := l.begin(memory.Call{Scope: named(fmt.Sprint(i))}, "u:1")
			begun := time.Now()
			if turn.Commit(answer(l.t, "a:1")); time.Since(begun) > most {
				l.t.Errorf("turn %d: the client's end came after %s", i, time.Since(begun))
			}
		}
		if n := strings.Count(log.String(), "spool's disk does not take turns"); n != 1 || strings.Contains(log.String(), "turn lost") {
			l.t.Errorf("log:\n%s", log)
		}
		close(spool.answers)
		store.set(false, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantLine(named("0"), "u:1 a:1")
		l.wantLine(named("1"), "u:1 a:1")
	})
}

// crowded is a spool that counts how many records are added at once.
type crowded struct {
	queue
	inside, most atomic.Int64
}

func (q *crowded) Append(rec []byte) error {
	q.most.Store(max(q.most.Load(), q.inside.Add(1)))
	time.Sleep(time.Millisecond)
	q.inside.Add(-1)
	return q.queue.Append(rec)
}

// TestLargeTurnsAreSpooledAFewAtATime: adding a turn takes several times its memory, and a store that large turns slow down has
// many of them go to the spool.
func TestLargeTurnsAreSpooledAFewAtATime(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct{ words, reply string }{
		"requests": {"u:" + large, "a:1"},
		"answers":  {"u:1", "a:" + large},
	} {
		t.Run(name, func(t *testing.T) {
			withSluggish(t, func(l *lab, _ *sluggish, log *journal) {
				l.m.Close()
				spool := &crowded{}
				l.m = memory.New(l.store, spool, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
				const turns = 12
				var work sync.WaitGroup
				for i := range turns {
					turn := l.begin(memory.Call{Scope: named(fmt.Sprint(i))}, c.words)
					work.Go(func() { turn.Commit(answer(l.t, c.reply)) })
				}
				work.Wait()
				if n, most := len(spool.copied()), spool.most.Load(); n < turns || most > 4 {
					l.t.Errorf("%d records were added, up to %d at once", n, most)
				}
			})
		})
	}
}

// TestCloseEndsReplay: a store that answers and does not take a spooled turn does not keep a process from its end.
func TestCloseEndsReplay(t *testing.T) {
	withSluggish(t, func(l *lab, store *sluggish, log *journal) {
		l.lateTurn(named("slow"), "u:1", "a:1")
		store.set(false, "slow")
		time.Sleep(time.Second)
		synctest.Wait()
		begun := time.Now()
		l.m.Close()
		if waited := time.Since(begun); waited > 5*time.Second {
			l.t.Errorf("close took %s", waited)
		}
		if n := strings.Count(log.String(), "store failed"); n != 1 { // the outage
			l.t.Errorf("store counted as failed %d times:\n%s", n, log)
		}
	})
}

func TestReplayWaitFitsTheSize(t *testing.T) {
	withSluggish(t, func(l *lab, store *sluggish, log *journal) {
		long := "u:" + strings.Repeat("x", 6<<20)
		l.lateTurn(named("slow"), long, "a:1")
		store.pace = 5 * time.Second // twice what a small turn may take
		store.set(false, "slow")
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantLine(named("slow"), long+" a:1")
		if strings.Contains(log.String(), "other sessions go first") {
			l.t.Errorf("log:\n%s", log)
		}
	})
}

// TestBacklogIsItsSessionsOwn: a process that starts with turns in its spool has no memory for their sessions until they are
// written, and all others have theirs.
func TestBacklogIsItsSessionsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store, spool := &sluggish{Store: mem}, &queue{}
		start := func() *lab { return &lab{t: t, store: store, m: memory.New(store, spool, memory.Options{})} }

		l := start()
		l.turnOf(memory.Call{Scope: named("other")}, "u:1", "a:1")
		store.set(true, "")
		l.lateTurn(named("late"), "u:2", "a:2")
		l.m.Close()

		spool.adopted = false
		store.set(false, "late") // its turn stays in the spool
		l = start()
		l.wantView(l.turnOf(memory.Call{Scope: named("other")}, "u:3", "a:3"), "u:1 a:1 u:3")
		if s := l.begin(memory.Call{Scope: named("late")}, "u:4").Summary.Status; s != memory.StatusDegraded {
			t.Errorf("the session whose turn waits is %s", s)
		}
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionThatIsDamagedLeavesTheSpool: turns of a session whose head is damaged are quarantined. Otherwise they
// would fill the spool, and other sessions' turns would be lost although the store is up.
func TestSessionThatIsDamagedLeavesTheSpool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		spool, log := &queue{}, &journal{}
		l := &lab{t: t, store: mem, m: memory.New(mem, spool, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})}
		l.turnOf(memory.Call{Scope: named("damaged")}, "u:1", "a:1")
		l.m.Close()
		group := named("damaged").Group()
		if out := mem.Commit(t.Context(), []cache.Batch{{Group: group, Expect: cache.AnyVersion, Puts: []cache.Put{{Name: "head", Data: []byte("?")}}}}); out[0].Err != nil {
			t.Fatal(out[0].Err)
		}

		l.m = memory.New(mem, spool, memory.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		for range 5 {
			l.lateTurn(named("damaged"), "u:2", "a:2")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, _ := spool.Len(); n != 0 || len(spool.aside) != 5 {
			t.Errorf("%d turns wait, %d are set aside, want 0 and 5\n%s", n, len(spool.aside), log)
		}
		l.wantView(l.turnOf(memory.Call{Scope: named("other")}, "u:3", "a:3"), "u:3")
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}
