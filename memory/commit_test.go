package memory_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/memory"
	"remora/wire"
)

// stuck is a store whose commits end only with their context.
type stuck struct{ cache.Store }

func (s stuck) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	<-ctx.Done()
	out := make([]cache.Outcome, len(b))
	for i := range out {
		out[i].Err = ctx.Err()
	}
	return out
}

// Promise 2: the end of an answer waits for its commit, but not longer than commit_wait.
func TestCommitWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := cache.Open("memory:", cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		spool := &queue{}
		m := memory.New(stuck{mem}, spool, memory.Options{CommitWait: 250 * time.Millisecond, RetryDelay: time.Hour})
		req, err := wire.Parse(wire.Chat, []byte(`{"messages":[`+say("u:1")+`]}`))
		if err != nil {
			t.Fatal(err)
		}
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

// ledger is a store that notes what is written.
type ledger struct {
	cache.Store
	ttl   time.Duration
	bytes int
}

func (l *ledger) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	for _, batch := range b {
		l.ttl = batch.TTL
		for _, p := range batch.Puts {
			l.bytes += len(p.Data)
		}
	}
	return l.Store.Commit(ctx, b)
}

func TestSessionTTLAndCompression(t *testing.T) {
	mem, err := cache.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := &ledger{Store: mem}
	l := &lab{t: t, store: store, m: memory.New(store, nil, memory.Options{SessionTTL: time.Hour})}
	long := strings.Repeat("word-", 4000)
	l.turn("u:"+long, "a:1")
	l.wantTranscript("u:"+long+" a:1", 2)
	if store.ttl != time.Hour {
		t.Errorf("session kept for %s", store.ttl)
	}
	if store.bytes > 4000 {
		t.Errorf("%d bytes stored for a message of %d that repeats itself", store.bytes, len(long))
	}
	l.m.Close()
	if err := mem.Close(); err != nil {
		t.Error(err)
	}
}
