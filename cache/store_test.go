package cache_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/redistest"
	"remora/cache/storetest"
	"remora/leaktest"
)

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	os.Exit(leaktest.Run(m,
		// go-redis looks for a server that is away once more, a second after its pool was closed, and ends then.
		"github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// clock is a time that tests move.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMilli(1e12 + c.offset.Load()) }
func (c *clock) advance(d time.Duration) { c.offset.Add(d.Milliseconds()) }

// open opens a store that is patient with its server unless o says otherwise: a machine that is busy, or stands still for
// a moment, is no server that is away.
func open(tb testing.TB, url string, o cache.Options) cache.Store {
	tb.Helper()
	if o.OpTimeout == 0 {
		o.OpTimeout = patience
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = patience
	}
	s, err := cache.Open(url, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestMemoryStore(t *testing.T) {
	var c clock
	storetest.Run(t, storetest.Env{
		Open: func(t *testing.T) cache.Store {
			t.Helper()
			return open(t, "memory:", cache.Options{Now: c.now})
		},
		Advance: c.advance,
	})
}

func TestBoltStore(t *testing.T) {
	var c clock
	storetest.Run(t, storetest.Env{
		Open: func(t *testing.T) cache.Store {
			t.Helper()
			return open(t, "bolt:"+filepath.Join(t.TempDir(), "store.db"), cache.Options{Now: c.now})
		},
		Advance: c.advance,
	})
}

// wait lets the clock of a real server go on: nothing else moves it.
func wait(d time.Duration) { <-time.After(d) }

func redisEnv(url string) storetest.Env {
	return storetest.Env{
		Open: func(t *testing.T) cache.Store {
			t.Helper()
			return open(t, url, cache.Options{})
		},
		Advance: wait,
		TTL:     400 * time.Millisecond,
	}
}

func TestRedisStore(t *testing.T) {
	env := redisEnv(redistest.Start(t).URL())
	env.Kill = func(t *testing.T) cache.Store {
		t.Helper()
		s := redistest.Start(t)
		st := open(t, s.URL(), cache.Options{})
		if err := st.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		return st
	}
	storetest.Run(t, env)
}

func TestRedisClusterStore(t *testing.T) {
	env := redisEnv(redistest.Cluster(t).URL())
	env.Kill = func(t *testing.T) cache.Store {
		t.Helper()
		c := redistest.Cluster(t)
		st := open(t, c.URL(), cache.Options{})
		for _, n := range c.Nodes {
			n.Kill()
		}
		return st
	}
	storetest.Run(t, env)
}

func TestRedisSentinelStore(t *testing.T) {
	storetest.Run(t, redisEnv(redistest.Sentinel(t).URL()))
}
