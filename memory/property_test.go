package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"remora/cache"
	"remora/cache/spool"
	"remora/cache/stores"
	"remora/memory"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// A client that resends its history, edits, regenerates, goes back to an older branch and trims: after every turn the
// head line is the client's own conversation, whole, and nothing that was ever said is lost or stored twice. Two replicas
// serve it by turns, each of which knows only what it wrote itself.
func TestAnyClientKeepsItsConversation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(t, memory.Options{})
		here, there := l.m, memory.New(l.store, nil, patient(memory.Options{}))
		defer func() {
			l.m = here
			there.Close()
		}()
		var branches [][]string // the client's conversations, as it knows them
		branches = append(branches, []string{})
		at := 0
		for turn := range rapid.IntRange(1, 12).Draw(rt, "turns") {
			if l.m = here; rapid.Bool().Draw(rt, "there") {
				l.m = there
			}
			before, conversation := at, branches[at]
			switch op := rapid.IntRange(0, 9).Draw(rt, "op"); {
			case op == 0 && len(conversation) >= 2: // edit
				cut := rapid.IntRange(0, len(conversation)/2-1).Draw(rt, "cut") * 2
				branches = append(branches, append([]string{}, conversation[:cut]...))
				at = len(branches) - 1
			case op == 1: // another branch
				at = rapid.IntRange(0, len(branches)-1).Draw(rt, "branch")
			case op == 2 && len(conversation) >= 2: // regenerate
				last := len(conversation) - 2
				branches = append(branches, append([]string{}, conversation[:last]...))
				at = len(branches) - 1
				branches[at] = append(branches[at], conversation[last])
			}
			conversation = branches[at]
			if len(conversation)%2 == 0 {
				conversation = append(conversation, fmt.Sprintf("u:q%d", turn))
			}
			sent := conversation
			if at == before && len(sent) > 5 && rapid.Bool().Draw(rt, "trim") {
				sent = sent[len(sent)-5:]
			}
			reply := fmt.Sprintf("a:r%d", rapid.IntRange(0, 3).Draw(rt, "reply")*100+turn)
			l.turnOf(memory.Call{History: memory.HistoryClient}, strings.Join(sent, " "), reply)
			branches[at] = append(append([]string{}, conversation...), reply)

			line, _ := l.transcript(scope)
			want := strings.Join(branches[at], " ")
			if line != want {
				rt.Fatalf("turn %d sent %v:\n got %s\nwant %s", turn, sent, line, want)
			}
			if n := len(l.records()); n != turn+1 {
				rt.Fatalf("turn %d sent %v: %d turns are exported", turn, sent, n)
			}
		}
	})
}

// A client that resends its whole history keeps it even if it and the model repeat the same words: a repetition is not
// taken for a trimmed history, and known history is stored once.
func TestWordsThatComeAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(t, memory.Options{})
		mode := rapid.SampledFrom([]memory.History{memory.HistoryAuto, memory.HistoryClient}).Draw(rt, "mode")
		word := func(who string) string {
			return who + rapid.SampledFrom([]string{"on", "more"}).Draw(rt, who)
		}
		var said []string // the conversation as the client has it
		known := map[string]bool{}
		for turn := range rapid.IntRange(1, 14).Draw(rt, "turns") {
			if op := rapid.IntRange(0, 5).Draw(rt, "op"); op == 0 && len(said) > 1 { // again, or another answer
				said = said[:len(said)-1]
			} else if op == 1 && len(said) > 2 { // edit
				said = append(said[:2*rapid.IntRange(1, len(said)/2-1).Draw(rt, "cut")], word("u:"))
			} else {
				said = append(said, word("u:"))
			}
			sent := strings.Join(said, " ")
			said = append(said, word("a:"))
			l.turnOf(memory.Call{History: mode}, sent, said[len(said)-1])
			for i := range said {
				known[strings.Join(said[:i+1], " ")] = true
			}
			if line, all := l.transcript(scope); line != strings.Join(said, " ") || all > len(known) {
				rt.Fatalf("turn %d sent %s:\n got %s, %d items in all\nwant %s, %d", turn, sent, line, all, strings.Join(said, " "), len(known))
			}
			if n := len(l.records()); n != turn+1 {
				rt.Fatalf("turn %d sent %s: %d turns are exported", turn, sent, n)
			}
		}
	})
}

// Whatever two clients of one session do at once, each reads its own writes, and the transcript holds all of it once.
func TestManyClientsOnOneSession(t *testing.T) {
	for _, mode := range []memory.History{memory.HistoryClient, memory.HistoryServer} {
		l := newLab(t, memory.Options{OpenDelay: time.Microsecond})
		const clients, turns = 8, 12
		var wg sync.WaitGroup
		errs := make(chan error, clients)
		for c := range clients {
			wg.Go(func() {
				errs <- client(l, mode, c, turns)
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		_, all := l.transcript(scope)
		if all != clients*turns*2 {
			t.Errorf("mode %d: %d items stored, want %d", mode, all, clients*turns*2)
		}
	}
}

// client talks to the session and checks that each of its turns is in the view of its next one.
func client(l *lab, mode memory.History, id, turns int) error {
	var history []string
	for n := range turns {
		ask, reply := fmt.Sprintf("u:%d-%d", id, n), fmt.Sprintf("a:%d-%d", id, n)
		history = append(history, ask)
		sent := history
		if mode == memory.HistoryServer {
			sent = history[len(history)-1:]
		}
		req, err := wire.Parse(dialects.Chat, []byte(`{"messages":[`+messages(strings.Join(sent, " "))+`]}`))
		if err != nil {
			return err
		}
		turn, err := l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req, History: mode})
		if err != nil {
			return err
		}
		turn.Forwarded()
		if turn.Summary.Status != memory.StatusOK {
			return errors.New("degraded")
		}
		view := " " + told(l.t, turn.View) + " "
		for _, w := range history {
			if strings.Count(view, " "+w+" ") != 1 {
				return fmt.Errorf("turn %d-%d does not see %s once: %s", id, n, w, view)
			}
		}
		turn.Commit(answer(l.t, reply))
		history = append(history, reply)
	}
	return nil
}

// outage is a store that can be made to fail.
type outage struct {
	cache.Store
	mu   sync.Mutex
	down bool
	// lost makes the next commit happen although its caller is told that it failed.
	lost bool
	// now is the memory's clock; it stands still unless it is moved.
	now time.Time
}

func (o *outage) clock() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

// over ends the outage and lets the time pass for which a store that failed is left alone.
func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down, o.now = false, o.now.Add(time.Minute)
}

var errOutage = &cache.Error{Fault: cache.FaultStore, Err: errors.New("connection refused")}

func (o *outage) set(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
}

func (o *outage) isDown() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.down
}

func (o *outage) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if o.isDown() {
		return nil, errOutage
	}
	return o.Store.Read(ctx, q)
}

func (o *outage) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	if o.isDown() {
		return cache.AllFailed(len(b), errOutage)
	}
	o.mu.Lock()
	lost := o.lost
	o.lost = false
	o.mu.Unlock()
	out := o.Store.Commit(ctx, b)
	if lost {
		return cache.AllFailed(len(b), errOutage)
	}
	return out
}

func (o *outage) Ping(ctx context.Context) error {
	if o.isDown() {
		return errOutage
	}
	return o.Store.Ping(ctx)
}

// queue is a spool that is not durable.
type queue struct {
	mu    sync.Mutex
	recs  [][]byte
	aside [][]byte // what could not be read

	adopted bool // it was told of what was there at first
	full    bool // it takes nothing
	taken   int  // records so far
}

// appended returns how many records the spool has taken.
func (q *queue) appended() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}

// fill makes the spool refuse records from now on, or take them again.
func (q *queue) fill(full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = full
}

func (q *queue) copied() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.recs)
}

func (q *queue) Append(rec []byte) error {
	q.mu.Lock()
	full := q.full
	q.mu.Unlock()
	if full {
		return spool.ErrFull
	}
	return q.Move(rec)
}

func (q *queue) Move(rec []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recs = append(q.recs, rec)
	q.taken++
	return nil
}

func (q *queue) Adopt(f func(rec []byte)) (spool.Adopted, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.adopted {
		for _, rec := range q.recs {
			f(rec)
		}
	}
	q.adopted = true
	return spool.Adopted{}, nil
}

func (q *queue) Drain(_ context.Context, f func([][]byte) (int, error)) error {
	for {
		q.mu.Lock()
		if len(q.recs) == 0 {
			q.mu.Unlock()
			return nil
		}
		recs := slices.Clone(q.recs)
		q.mu.Unlock()
		done, err := f(recs)
		unreadable := errors.Is(err, cache.ErrUnreadable)
		q.mu.Lock()
		if done > 0 {
			q.recs = q.recs[done:]
		}
		if unreadable {
			q.aside, q.recs = append(q.aside, q.recs[0]), q.recs[1:]
		}
		q.mu.Unlock()
		if err != nil && !unreadable {
			return err
		}
	}
}

func (q *queue) Max() int64 { return 0 }

func (q *queue) Len() (records int, size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, rec := range q.recs {
		size += int64(len(rec))
	}
	return len(q.recs), size
}

func newOutage(t *testing.T) (*lab, *outage) {
	t.Helper()
	mem, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := &outage{Store: mem, now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}
	l := &lab{t: t, store: store}
	l.m = memory.New(store, &queue{}, patient(memory.Options{RetryDelay: time.Second, Now: store.clock}))
	t.Cleanup(func() {
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, store
}

func TestTurnsOfAnOutageAreReplayedInOrder(t *testing.T) {
	l, store := newOutage(t)
	l.turn("u:1", "a:1")
	store.set(true)
	for i, words := range []string{"u:1 a:1 u:2", "u:1 a:1 u:2 a:2 u:3"} {
		turn := l.begin(memory.Call{}, words)
		// The first one uses the state that this process wrote, so the outage has not been noticed yet.
		if want := [...]memory.Status{memory.StatusOK, memory.StatusDegraded}[i]; turn.Summary.Status != want {
			t.Errorf("status %s of turn %d during the outage, want %s", turn.Summary.Status, i, want)
		}
		turn.Commit(answer(t, fmt.Sprintf("a:%d", i+2)))
	}
	store.over()
	l.wantView(l.turnOf(memory.Call{History: memory.HistoryServer}, "u:4", "a:4"), "u:1 a:1 u:2 a:2 u:3 a:3 u:4")
	l.wantTranscript("u:1 a:1 u:2 a:2 u:3 a:3 u:4 a:4", 8)
	degraded := 0
	for _, record := range l.records() {
		if record.Degraded {
			degraded++
		}
	}
	if degraded != 1 { // as its client was told; the other one had its whole view before it waited in the spool
		t.Errorf("the records of %d turns are degraded, want 1", degraded)
	}
}

// TestCloseEmptiesTheSpool: what waits on local disk may be gone with the machine, so a process that stops writes it first.
func TestCloseEmptiesTheSpool(t *testing.T) {
	for name, back := range map[string]bool{"the store is back": true, "the store is away": false} {
		l, store := newOutage(t)
		l.turn("u:1", "a:1")
		store.set(true)
		turn := l.begin(memory.Call{}, "u:1 a:1 u:2")
		turn.Commit(answer(t, "a:2"))
		if n, _ := l.m.Spooled(); n == 0 {
			t.Fatal("nothing waits in the spool")
		}
		if back {
			store.over()
		}
		l.m.Close()
		if n, _ := l.m.Spooled(); n == 0 != back {
			t.Errorf("%s: %d records wait in the spool", name, n)
		}

		store.over()
		l.m = memory.New(store, &queue{}, patient(memory.Options{RetryDelay: time.Second, Now: store.clock}))
		if back {
			l.wantTranscript("u:1 a:1 u:2 a:2", 4)
		} else {
			l.wantTranscript("u:1 a:1", 2)
		}
	}
}

func TestCommitWhoseReplyGotLostIsWrittenOnce(t *testing.T) {
	l, store := newOutage(t)
	l.turn("u:1", "a:1")
	turn := l.begin(memory.Call{}, "u:1 a:1 u:2")
	store.mu.Lock()
	store.lost = true
	store.mu.Unlock()
	turn.Commit(answer(t, "a:2"))
	store.over()
	l.wantView(l.turnOf(memory.Call{History: memory.HistoryServer}, "u:3", "a:3"), "u:1 a:1 u:2 a:2 u:3")
	l.wantTranscript("u:1 a:1 u:2 a:2 u:3 a:3", 6)
}

func TestClosedModeRefuses(t *testing.T) {
	mem, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := &outage{Store: mem, down: true}
	m := memory.New(store, nil, patient(memory.Options{OnStoreError: memory.OnStoreErrorClosed}))
	defer m.Close()
	req := wiretest.Request(t, dialects.Chat, `{"messages":[]}`)
	if _, err := m.Begin(context.Background(), memory.Call{Scope: scope, Request: req}); !errors.Is(err, memory.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
