package cache_test

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/cache/storetest"
	"remora/test/kit"
)

func TestMain(m *testing.M) {
	if storetest.RunChild(openChild) {
		return
	}
	os.Exit(kit.RunWithoutLeaks(m,
		// go-redis dials an unavailable server once more, a second after its pool was closed.
		"github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// openChild opens the store that the child of a test writes to.
func openChild(path string) (write func(n int) error, err error) {
	s, err := stores.Open("bolt:"+path, cache.Options{})
	return func(n int) error {
		return s.Commit(ctx(), []cache.Batch{{
			Group: cache.Group{Owner: "o", Name: strconv.Itoa(n)}, Puts: []cache.Put{{Name: "n", Data: storetest.Record(n)}},
		}})[0].Err
	}, err
}

// clock is a settable clock.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMilli(1e12 + c.offset.Load()) }
func (c *clock) advance(d time.Duration) { c.offset.Add(d.Milliseconds()) }

// open opens a store with long timeouts unless o sets them: on a busy machine a server may be slow.
func open(tb testing.TB, url string, o cache.Options) cache.Store {
	tb.Helper()
	if o.OpTimeout == 0 {
		o.OpTimeout = waitLimit
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = waitLimit
	}
	s, err := stores.Open(url, o)
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

// wait advances the clock of a real server by waiting.
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

// planter returns a function that replaces a group by a Redis string, as another program might.
func planter(servers ...*kit.Redis) func(t *testing.T, g cache.Group) {
	return func(t *testing.T, g cache.Group) {
		t.Helper()
		for _, s := range servers {
			if _, err := s.Do("SET", "r1:{"+g.Owner+":"+g.Name+"}", "foreign"); err == nil {
				return
			}
		}
		t.Fatal("no server takes the key")
	}
}

func TestRedisStore(t *testing.T) {
	srv := kit.StartRedis(t)
	env := redisEnv(srv.URL())
	env.Foreign = planter(srv)
	env.Kill = func(t *testing.T) cache.Store {
		t.Helper()
		s := kit.StartRedis(t)
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
	all := kit.StartCluster(t)
	env := redisEnv(all.URL())
	env.Foreign = planter(all.Nodes...)
	env.Lose = func(t *testing.T) (s cache.Store, lose func() string, restore func()) {
		t.Helper()
		c := kit.StartCluster(t)
		lose = func() string {
			c.Nodes[1].Kill()
			return c.Nodes[1].Addr()
		}
		return open(t, c.URL(), cache.Options{}), lose, c.Nodes[1].Restart
	}
	env.Kill = func(t *testing.T) cache.Store {
		t.Helper()
		c := kit.StartCluster(t)
		st := open(t, c.URL(), cache.Options{})
		for _, n := range c.Nodes {
			n.Kill()
		}
		return st
	}
	storetest.Run(t, env)
}

func TestRedisSentinelStore(t *testing.T) {
	storetest.Run(t, redisEnv(kit.StartSentinel(t).URL()))
}
