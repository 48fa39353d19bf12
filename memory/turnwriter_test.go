package memory_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// The end of an answer waits for its commit, but not longer than commit_wait.
func TestCommitWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		spool := &queue{}
		stuck := &tapped{Store: mem, onCommit: func(ctx context.Context, _ []cache.Batch) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		m := memory.New(stuck, spool, memory.Options{CommitWait: 250 * time.Millisecond, RetryDelay: time.Hour})
		req := wiretest.Request(t, dialects.Chat, `{"messages":[`+say("u:1")+`]}`)
		turn, err := m.Begin(context.Background(), memory.Call{Scope: scope, Request: req})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		turn.Commit(answer(t, "a:1"))
		if waited := time.Since(begun); waited != 250*time.Millisecond {
			t.Errorf("waited %s", waited)
		}
		if n, _ := spool.Len(); n != 1 {
			t.Errorf("%d turns in the spool", n)
		}
		m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An input is written on its own once its answer has taken store.open_delay, or up to a quarter less, and
// only then, however many turns wait and whenever they began.
func TestOpenDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := memory.New(mem, nil, memory.Options{OpenDelay: 20 * time.Millisecond})
		durable := func(session string) bool {
			var out strings.Builder
			return m.Export(t.Context(), memory.Scope{Tenant: "tenant", Session: session}, &out) == nil
		}
		forward := func(session string) *memory.Turn {
			req := wiretest.Request(t, dialects.Chat, `{"messages":[`+say("u:1")+`]}`)
			turn, err := m.Begin(t.Context(), memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: session}, Request: req})
			if err != nil {
				t.Fatal(err)
			}
			turn.Forwarded()
			return turn
		}
		pass := func(ms int) {
			time.Sleep(time.Duration(ms) * time.Millisecond)
			synctest.Wait()
		}
		turns := []*memory.Turn{forward("first")}
		pass(7)
		turns = append(turns, forward("second"))
		pass(7) // 14 ms of the first, 7 of the second
		if durable("first") || durable("second") {
			t.Error("an input was written early")
		}
		pass(6) // 20 and 13
		if !durable("first") || durable("second") {
			t.Error("want the first input to be written and no other")
		}
		pass(7)
		if !durable("second") {
			t.Error("the second input was not written in time")
		}
		pass(1000)
		turns = append(turns, forward("third")) // after a time without any
		pass(20)
		if !durable("third") {
			t.Error("the third input was not written in time")
		}
		for _, turn := range turns {
			turn.Commit(answer(t, "a:1"))
		}
		m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSessionTTLAndCompression(t *testing.T) {
	mem, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var ttl time.Duration
	size := 0 // of what is written
	store := &tapped{Store: mem, onBatch: func(b cache.Batch) error {
		ttl = b.TTL
		for _, p := range b.Puts {
			size += len(p.Data)
		}
		return nil
	}}
	l := &lab{t: t, store: store, m: memory.New(store, nil, patient(memory.Options{SessionTTL: time.Hour}))}
	long := strings.Repeat("word-", 4000)
	l.turn("u:"+long, "a:1")
	l.wantTranscript("u:"+long+" a:1", 2)
	if ttl != time.Hour {
		t.Errorf("session kept for %s", ttl)
	}
	if size > 4000 {
		t.Errorf("%d bytes stored for a message of %d that repeats itself", size, len(long))
	}
	l.m.Close()
	if err := mem.Close(); err != nil {
		t.Error(err)
	}
}

// TestStatesOutlastTheStore: what layers learned in a turn that went to the spool is written after it, once, also where
// the commit had happened although it was said to have failed.
func TestStatesOutlastTheStore(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(o *outage){
		"store is down":   func(o *outage) { o.down = true },
		"reply is lost":   func(o *outage) { o.lost = true },
		"nothing happens": func(*outage) {},
	} {
		for _, s := range []layer.Scope{layer.Thread, layer.Resource} {
			plain := newLab(t, memory.Options{})
			store := &outage{Store: plain.store, now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}
			shape := memory.Shape{Layers: layersOf(t, observer(t, s))}
			m := memory.New(store, &queue{}, patient(memory.Options{RetryDelay: 10 * time.Millisecond, Now: store.clock, Shape: shape}))
			l := &lab{t: t, m: m, store: store}
			turn := l.begin(in("one", "ada"), "u:1")
			fail(store)
			turn.Commit(answer(t, "a:1"))
			store.over()
			m.Close()
			group := map[layer.Scope]string{layer.Thread: "s:one", layer.Resource: "u:ada"}[s]
			r, err := plain.store.Read(t.Context(), []cache.Query{{
				Group: cache.Group{Owner: "tenant", Name: group}, Names: []string{"lobservational-memory"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if state := string(r[0].Values[0]); !strings.Contains(state, `"version":1`) {
				t.Errorf("%s: group %s: state %s", name, group, state)
			}
			plain.wantLine(in("one", "ada").Scope, "u:1 a:1")
		}
	}
}

// TestTurnIDs: an id is a ULID, so that any tool for these reads its time.
func TestTurnIDs(t *testing.T) {
	l := newLab(t, memory.Options{})
	before := time.Now()
	turn := l.begin(memory.Call{}, "u:1")
	defer turn.Commit(memory.Answer{Aborted: memory.AbortedByClient})
	id := turn.ID
	var ms int64
	for _, c := range id[:10] {
		ms = ms<<5 | int64(strings.IndexRune("0123456789ABCDEFGHJKMNPQRSTVWXYZ", c))
	}
	if off := time.UnixMilli(ms).Sub(before); len(id) != 26 || id[0] > '7' || off < -time.Second || off > time.Minute {
		t.Errorf("%s was made at %s", id, time.UnixMilli(ms))
	}
}

// computing is a layer whose hooks run in the goroutine of Commit.
type computing struct{ quick }

func (computing) Inline() bool { return true }

// TestNothingIsWrittenAfterCommit: the memory of a request is used for another one as soon as Commit has returned, also where it
// has panicked.
func TestNothingIsWrittenAfterCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		panics := false
		p, err := pipeline.New([]pipeline.Layer{{ID: "a", Kind: "test", Scope: layer.Thread, Impl: computing{}}}, pipeline.Options{Now: func() time.Time {
			if panics {
				panic("BUG")
			}
			return time.Now()
		}})
		if err != nil {
			t.Fatal(err)
		}
		l := newLab(t, memory.Options{Shape: memory.Shape{Layers: p}})
		body := []byte(`{"model":"m","messages":[{"role":"user","content":"mine"}]}`)
		turn := l.beginBody(memory.Call{}, body)
		turn.Forwarded()

		panics = true
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Commit has not panicked")
				}
			}()
			turn.Commit(answer(t, "a:hi"))
		}()
		copy(body[bytes.Index(body, []byte("mine")):], "YOUR")
		time.Sleep(time.Minute) // virtual
		if n, err := l.tryTranscript(); n > 0 || err != nil && !errors.Is(err, memory.ErrNoSession) {
			t.Errorf("%d items are stored, %v", n, err)
		}
	})
}
