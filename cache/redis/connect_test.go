package redis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestReplacedLanesAreAwaited: calls to a server that left the cluster and came back meanwhile have ended before the store is closed.
func TestReplacedLanesAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := redis.NewClient(&redis.Options{Addr: "node:1"}), redis.NewClient(&redis.Options{Addr: "node:1"})
		var l lanes
		old, ended := l.to(before, "key"), false
		old.batcher.Run = func(context.Context, [][]redis.Cmder) {
			time.Sleep(time.Second)
			ended = true
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		if err := old.batcher.Do(ctx, nil, 1); err == nil {
			t.Error("the caller has waited for the server")
		}
		if now := l.to(after, "key"); now == old || now != l.to(after, "key") {
			t.Error("each client has one lane")
		}
		if l.wait(); !ended {
			t.Error("a call is still in flight")
		}
		l.to(before, "key")
		if l.to(after, "key"); len(l.replaced) != 1 {
			t.Errorf("%d lanes are kept, although all but the last have no calls", len(l.replaced))
		}
		for _, c := range []*redis.Client{before, after} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
