package memory_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache"
	"remora/memory"
	"remora/memory/view"
	"remora/wire"
)

// trips counts the round trips to a store.
type trips struct {
	cache.Store
	n atomic.Int32
}

func (s *trips) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	s.n.Add(1)
	return s.Store.Read(ctx, q)
}

func (s *trips) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	s.n.Add(1)
	return s.Store.Commit(ctx, b)
}

func (s *trips) List(ctx context.Context, owner, after string, limit int) ([]string, string, error) {
	s.n.Add(1)
	return s.Store.List(ctx, owner, after, limit)
}

// A client that resends its history and stays with one replica costs a commit and no read after its first turn; wherever the session
// may be another than the replica wrote, it is read.
func TestNextTurnNeedsNoRead(t *testing.T) {
	t.Run("nothing kept for the next view", func(t *testing.T) { nextTurnNeedsNoRead(t, memory.Shape{}) })
	t.Run("the default configuration", func(t *testing.T) {
		nextTurnNeedsNoRead(t, shippedShape(t, func(_ string, it wire.Item) int { return len(it.Raw) }))
	})
	t.Run("a window that moves", func(t *testing.T) {
		nextTurnNeedsNoRead(t, memory.Shape{Window: &view.Window{MaxItems: 4, EvictBatch: 2, InFlight: view.InFlightWindow}})
	})
}

func nextTurnNeedsNoRead(t *testing.T, shape memory.Shape) {
	t.Helper()
	o := memory.Options{Shape: shape}
	l := newLab(t, o)
	counted := &trips{Store: l.store}
	here, there := memory.New(counted, nil, patient(o)), memory.New(l.store, nil, patient(o))
	defer here.Close()
	defer there.Close()
	f := func(at *memory.Memory, want int32, c memory.Call, words, reply string) {
		t.Helper()
		before := counted.n.Load()
		l.m, l.counts = at, true
		l.turnOf(c, words, reply)
		if got := counted.n.Load() - before; got != want {
			t.Errorf("turn %q took %d round trips, want %d", words, got, want)
		}
	}
	f(here, 2, memory.Call{}, "u:1", "c:x")
	f(here, 1, memory.Call{}, "u:1 c:x r:x", "a:1")
	f(here, 1, memory.Call{}, "s:new u:1 c:x r:x a:1 u:2", "a:2")
	f(there, 0, memory.Call{}, "u:1 c:x r:x a:1 u:2 a:2 u:3", "a:3")
	// An answer that was given elsewhere is in the request, so that nothing is tried.
	f(here, 2, memory.Call{}, "u:1 c:x r:x a:1 u:2 a:2 u:3 a:3 u:4", "a:4")
	f(here, 1, memory.Call{}, "u:1 c:x r:x a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5", "a:5")
	// A client that sends only new items must see the turns of other processes.
	f(here, 4, memory.Call{History: memory.HistoryServer}, "u:6", "a:6")
	l.wantTranscript("u:1 c:x r:x a:1 u:2 a:2 u:3 a:3 u:4 a:4 u:5 a:5 u:6 a:6", 14)
}

// A question of a client that sends only new items costs a read of the session, one of its history and a commit. Only a message that
// may have the history as text costs another read.
func TestQuestionNeedsFewReads(t *testing.T) {
	prompt := "Answer_in_a_friendly_way:_" + strings.Repeat("so_that_this_is_a_long_question_", 8)
	for _, test := range []struct {
		name, question string
		trips          int32
	}{
		{"short", "u:3", 3},
		{"long", "u:" + prompt, 3},
		{"short, of two lines", "u:3¶", 3},
		{"long, of two lines", "u:" + prompt + "¶", 4},
	} {
		o := memory.Options{}
		l := newLab(t, o)
		counted := &trips{Store: l.store}
		l.m, l.counts = memory.New(counted, nil, patient(o)), true
		defer l.m.Close()
		l.turnOf(memory.Call{}, "u:1", "a:1")
		l.turnOf(memory.Call{}, "u:2", "a:2")
		before := counted.n.Load()
		l.turnOf(memory.Call{}, test.question, "a:3")
		if got := counted.n.Load() - before; got != test.trips {
			t.Errorf("%s: %d round trips, want %d", test.name, got, test.trips)
		}
	}
}

// TestRecallNeedsFewReads: with the default configuration, what a session with a resource costs more than one without is, where
// the user asks something, that other sessions are looked for: a list and their versions, at once. What was said there is read
// once; the session itself is not, while the model has all of it before it.
func TestRecallNeedsFewReads(t *testing.T) {
	o := memory.Options{Shape: shippedShape(t, func(_ string, it wire.Item) int { return len(it.Raw) })}
	l := newLab(t, o)
	for i := range 3 {
		l.turnOf(in(fmt.Sprint("other ", i), "ada"), fmt.Sprintf("u:My_parrot_number_%d_is_called_Polly%d", i, i), "a:ok")
	}
	counted := &trips{Store: l.store}
	l.m, l.counts = memory.New(counted, nil, patient(o)), true
	defer l.m.Close()
	const commit, deleted, look, read = 1, 1, 2, 3 // reading a session takes three: its head, items and turns
	for _, c := range []struct {
		session, resource, words, reply string
		trips                           int32
		told                            bool
	}{
		{"lone", "", "u:Hello", "a:hi", 1 + commit, false},
		{"lone", "", "u:Hello a:hi u:What_is_my_parrot_number_1_called?", "a:1", commit, false},
		{"ada's", "ada", "u:Hello", "a:hi", 1 + deleted + commit, false},
		{"ada's", "ada", "u:Hello a:hi u:What_is_my_parrot_number_1_called?", "c:x", look + 3*read + commit, true},
		{"ada's", "ada", "u:Hello a:hi u:What_is_my_parrot_number_1_called? c:x r:x", "a:2", commit, true},
		{"ada's", "ada", "u:Hello a:hi u:What_is_my_parrot_number_1_called? c:x r:x a:2 u:What_is_my_parrot_number_2_called?", "a:3", look + commit, true},
		{"ada's", "ada", "u:Hello a:hi u:What_is_my_parrot_number_1_called? c:x r:x a:2 u:What_is_my_parrot_number_2_called? a:3 u:Thanks!", "a:4", commit, false},
	} {
		before := counted.n.Load()
		sent := l.turnOf(in(c.session, c.resource), c.words, c.reply)
		if got := counted.n.Load() - before; got != c.trips {
			t.Errorf("%q in the session %s took %d round trips, want %d", c.words, c.session, got, c.trips)
		}
		wantTold(t, sent, "Polly", c.told)
	}
}

// Who trims a long history is recognised by what the head remembers of its end, without asking any index.
func TestTrimmedHistoryNeedsOneRead(t *testing.T) {
	l := newLab(t, memory.Options{})
	var history []string
	for i := range 80 {
		history = append(history, fmt.Sprintf("u:%d", i))
		l.turn(strings.Join(history, " "), fmt.Sprintf("a:%d", i))
		history = append(history, fmt.Sprintf("a:%d", i))
	}
	counted := &trips{Store: l.store}
	l.m = memory.New(counted, nil, patient(memory.Options{}))
	defer l.m.Close()
	l.counts = true
	l.turn(strings.Join(history[len(history)-10:], " ")+" u:next", "a:next")
	if got := counted.n.Load(); got != 2 {
		t.Errorf("%d round trips, want a read and a commit", got)
	}
	l.wantTranscript(strings.Join(history, " ")+" u:next a:next", 162)
}

// The session is gone, or another one under its name, when a turn goes on from what this process wrote.
func TestNextTurnOfDeletedSession(t *testing.T) {
	l := newLab(t, memory.Options{})
	other := memory.New(l.store, nil, patient(memory.Options{}))
	defer other.Close()
	here := l.m
	l.turn("u:1", "a:1")
	if err := l.store.Delete(context.Background(), scope.Group()); err != nil {
		t.Fatal(err)
	}
	turn := l.begin(memory.Call{}, "u:1 a:1 u:2")
	l.m = other
	l.turn("u:one", "a:one") // as many commits as the session that was deleted
	l.m = here
	turn.Commit(answer(t, "a:2"))
	l.wantTranscript("u:1 a:1 u:2 a:2", 6)
}

// TestStoreFailsBehindTheSession: the session was read, and what its view is made of was not. The turn goes on without
// memory, and is written as any other.
func TestStoreFailsBehindTheSession(t *testing.T) {
	l, store := newOutage(t)
	l.turn("u:1", "a:1")
	shape := shippedShape(t, func(_ string, it wire.Item) int { return len(it.Raw) })
	var reads atomic.Int32
	secondFails := &tapped{Store: store, onRead: func([]cache.Query) error {
		if reads.Add(1) == 2 {
			return errOutage
		}
		return nil
	}}
	m := memory.New(secondFails, &queue{}, patient(memory.Options{Shape: shape, RetryDelay: time.Second, Now: store.clock}))
	defer m.Close()
	l.m = m
	turn := l.begin(memory.Call{History: memory.HistoryServer}, "u:2")
	l.wantView(told(t, turn.View), "u:2")
	if turn.Summary.Status != memory.StatusDegraded {
		t.Errorf("status %s", turn.Summary.Status)
	}
	store.over() // the store is asked again by the time of the commit
	turn.Commit(answer(t, "a:2"))
	l.turnOf(memory.Call{History: memory.HistoryServer}, "u:3", "a:3")
	l.wantTranscript("u:1 a:1 u:2 a:2 u:3 a:3", 6)
}
