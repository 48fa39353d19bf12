package chaos

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache/redistest"
	"remora/cmd/proxy/proxytest"
)

const (
	redisKilled = "Redis killed and started again"
	redisFrozen = "Redis frozen (SIGSTOP)"
	redisSlow   = "Redis slow: every answer takes 400 ms"
	redisFull   = "Redis full (`maxmemory`, `noeviction`)"
)

// TestRedisAway has Redis die, hang, crawl and run out of memory for ten seconds under load, less in the short form. No
// call fails, and nothing is lost afterwards.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario   string
		begin, end func(s *redistest.Server, way *slowPath)
	}{
		{redisKilled, func(s *redistest.Server, _ *slowPath) { s.Kill() }, func(s *redistest.Server, _ *slowPath) { s.Restart() }},
		{redisFrozen, func(s *redistest.Server, _ *slowPath) { s.Pause() }, func(s *redistest.Server, _ *slowPath) { s.Resume() }},
		{
			redisSlow, func(_ *redistest.Server, way *slowPath) { way.delay(400 * time.Millisecond) },
			func(_ *redistest.Server, way *slowPath) { way.delay(0) },
		},
		{redisFull, func(s *redistest.Server, _ *slowPath) { maxMemory(t, s, "1") }, func(s *redistest.Server, _ *slowPath) { maxMemory(t, s, "0") }},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t, redistest.AppendOnly())
			way := newSlowPath(t, redis.Addr())
			p := proxytest.Start(t, t.TempDir(), config(newUpstream(t).URL, "redis://"+way.addr()))
			trouble{
				scenario: c.scenario, during: scale(20, 100),
				begin: func() { c.begin(redis, way) }, end: func() { c.end(redis, way) },
			}.play(t, p, redis.URL())
		})
	}
}

// maxMemory sets how many bytes Redis may use; "0" is no limit.
func maxMemory(t *testing.T, s *redistest.Server, bytes string) {
	t.Helper()
	if _, err := s.Do("CONFIG", "SET", "maxmemory", bytes); err != nil {
		t.Error(err)
	}
	if info, err := s.Do("INFO", "memory"); err != nil || !strings.Contains(info, "maxmemory_policy:noeviction") {
		t.Errorf("Redis evicts: %q, %v", info, err)
	}
}

// slowPath is a way to a server on which answers can be held back.
type slowPath struct {
	ln   net.Listener
	to   string
	wait atomic.Int64 // nanoseconds
	work sync.WaitGroup
	end  chan struct{}
}

func newSlowPath(t *testing.T, to string) *slowPath {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowPath{ln: ln, to: to, end: make(chan struct{})}
	s.work.Go(s.serve)
	t.Cleanup(func() {
		close(s.end)
		_ = ln.Close()
		s.work.Wait()
	})
	return s
}

func (s *slowPath) addr() string { return s.ln.Addr().String() }

func (s *slowPath) delay(d time.Duration) { s.wait.Store(int64(d)) }

func (s *slowPath) serve() {
	for {
		client, err := s.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", s.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		s.work.Go(func() {
			<-s.end
			_, _ = client.Close(), server.Close()
		})
		s.work.Go(func() { s.carry(server, client, false) })
		s.work.Go(func() { s.carry(client, server, true) })
	}
}

// carry copies from one end to the other, each piece late if it is to be.
func (s *slowPath) carry(to, from net.Conn, late bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if wait := time.Duration(s.wait.Load()); late && wait > 0 {
			select {
			case <-time.After(wait):
			case <-s.end:
				return
			}
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
