package chaos

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/memory"
	"remora/proxy"
	"remora/test/kit"
)

const (
	redisWell           = "Redis well"
	redisKilled         = "Redis killed and started again"
	redisFrozen         = "Redis frozen (SIGSTOP)"
	redisSlow           = "Redis slow: every answer takes 400 ms"
	redisUneven         = "Redis uneven: every tenth answer takes 400 ms"
	redisFull           = "Redis full (`maxmemory`, `noeviction`)"
	slotsMoved          = "Redis Cluster: slots of sessions moved, one after the other"
	replicaKilledUneven = "one of the replicas killed (SIGKILL), again and again, and Redis uneven"
	replicaKilled       = "one of the replicas killed (SIGKILL), again and again"
	replicaCutOff       = "one of the replicas cut off from Redis, silently"
	replicaEnded        = "one of the replicas stopped (SIGTERM), again and again"
)

// TestReplicas runs three replicas on one Redis and a busy machine, with the default waits. Requests of a session go to any of
// them, with and without failures of Redis and of replicas.
func TestReplicas(t *testing.T) {
	if !full() { // in full, scenarios run alone: only pressure keeps the machine busy
		t.Parallel()
	}
	pressure(t, scale(3, 8))
	for _, c := range []struct {
		scenario   string
		begin, end func(s *kit.Redis, way *slowPath)
	}{
		{redisWell, nil, nil},
		{redisKilled, func(s *kit.Redis, _ *slowPath) { s.Kill() }, func(s *kit.Redis, _ *slowPath) { s.Restart() }},
		{redisFrozen, func(s *kit.Redis, _ *slowPath) { s.Pause() }, func(s *kit.Redis, _ *slowPath) { s.Resume() }},
		{
			redisSlow, func(_ *kit.Redis, way *slowPath) { way.delay(400*time.Millisecond, 1) },
			func(_ *kit.Redis, way *slowPath) { way.delay(0, 1) },
		},
		{
			redisUneven, func(_ *kit.Redis, way *slowPath) { way.delay(400*time.Millisecond, 10) },
			func(_ *kit.Redis, way *slowPath) { way.delay(0, 1) },
		},
		{redisFull, func(s *kit.Redis, _ *slowPath) { maxMemory(t, s, "1") }, func(s *kit.Redis, _ *slowPath) { maxMemory(t, s, "0") }},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			if !full() {
				t.Parallel()
			}
			redis := kit.StartRedis(t, kit.AppendOnly()...)
			way := newSlowPath(t, redis.Addr())
			x := trouble{scenario: c.scenario, during: scale(15, 60)}
			if c.begin != nil {
				x.begin, x.end = func() { c.begin(redis, way) }, func() { c.end(redis, way) }
			}
			x.play(newFleet(t, 3, config(newUpstream(t, unevenly).URL, "redis://"+way.addr())), redis.URL())
		})
	}
	kill := func(_ *testing.T, r *replica) { r.kill(); r.Restart() }
	for _, c := range []struct {
		scenario string
		end      func(*testing.T, *replica)
		late     time.Duration // every tenth answer of Redis
	}{
		{replicaKilled, kill, 0},
		{replicaKilledUneven, kill, 400 * time.Millisecond},
		{replicaEnded, func(t *testing.T, r *replica) { t.Helper(); r.restart(t) }, 0},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			if !full() {
				t.Parallel()
			}
			redis := kit.StartRedis(t, kit.AppendOnly()...)
			way := newSlowPath(t, redis.Addr())
			f := newFleet(t, 3, config(newUpstream(t, unevenly).URL, "redis://"+way.addr()))
			random := rand.New(rand.NewPCG(seed, 1))
			x := trouble{scenario: c.scenario, during: scale(15, 60)}
			if c.late > 0 {
				x.begin, x.end = func() { way.delay(c.late, 10) }, func() { way.delay(0, 1) }
			}
			x.meanwhile = func() {
				time.Sleep(time.Duration(random.IntN(100_000)) * time.Microsecond) // the random moment
				c.end(t, f.replicas[random.IntN(len(f.replicas))])
			}
			x.play(f, redis.URL())
		})
	}
	t.Run(slotsMoved, func(t *testing.T) {
		if !full() {
			t.Parallel()
		}
		cluster := kit.StartCluster(t, kit.AppendOnly()...)
		f := newFleet(t, 3, config(newUpstream(t, unevenly).URL, cluster.URL()))
		x := trouble{scenario: slotsMoved, during: scale(15, 60)}
		next := 0
		x.meanwhile = func() {
			cluster.MoveSlotOf(t, sessionKey(fmt.Sprintf("s%d", next%crowdSize()), "key"))
			next++
		}
		x.play(f, cluster.URL())
	})
}

// TestReplicaCutOff cuts one of three replicas off from Redis: its packets are lost. The others cannot know at once of turns
// that only this replica has, so some of their views may lack a turn without being degraded. They must find out soon.
func TestReplicaCutOff(t *testing.T) {
	if !full() {
		t.Parallel()
	}
	redis := kit.StartRedis(t, kit.AppendOnly()...)
	way := newSlowPath(t, redis.Addr())
	up := newUpstream(t, unevenly)
	well := config(up.URL, redis.URL())
	f := newMixedFleet(t, []string{config(up.URL, "redis://"+way.addr()), well, well})
	var mend func()
	trouble{
		scenario: replicaCutOff, during: scale(100, 200), alone: true,
		begin: func() { mend = way.cutOff() }, end: func() { mend() },
	}.play(f, redis.URL())
}

// sessionKey returns the key of a session in Redis.
func sessionKey(session, key string) string {
	group := memory.Scope{Tenant: new(proxy.SessionOptions).Tenant([]byte(key)), Session: session}.Group()
	return fmt.Sprintf("r1:{%s:%s}", group.Owner, group.Name)
}

// maxMemory sets Redis' maxmemory; "0" is no limit.
func maxMemory(t *testing.T, s *kit.Redis, bytes string) {
	t.Helper()
	if _, err := s.Do("CONFIG", "SET", "maxmemory", bytes); err != nil {
		t.Error(err)
	}
	if info, err := s.Do("INFO", "memory"); err != nil || !strings.Contains(info, "maxmemory_policy:noeviction") {
		t.Errorf("Redis evicts: %q, %v", info, err)
	}
}

// slowPath is a relay to a server that can delay answers and block all traffic.
type slowPath struct {
	ln   net.Listener
	to   string
	work sync.WaitGroup
	end  chan struct{}

	mu      sync.Mutex
	wait    time.Duration // delay of answers,
	nth     int           // of every nth one
	answers int
	cut     chan struct{} // nil, or closed when traffic passes again
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

// delay delays every nth answer.
func (s *slowPath) delay(d time.Duration, nth int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait, s.nth = d, nth
}

// cutOff blocks both directions until mend is called.
func (s *slowPath) cutOff() (mend func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := make(chan struct{})
	s.cut = cut
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(cut)
		s.cut = nil
	}
}

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

// carry copies from one connection to the other. hold delays each piece.
func (s *slowPath) carry(to, from net.Conn, answers bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		s.hold(answers)
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// hold waits until a piece may be forwarded.
func (s *slowPath) hold(answer bool) {
	s.mu.Lock()
	cut, wait := s.cut, time.Duration(0)
	if answer && s.wait > 0 {
		if s.answers++; s.answers%s.nth == 0 {
			wait = s.wait
		}
	}
	s.mu.Unlock()

	if cut != nil {
		select {
		case <-cut:
		case <-s.end:
		}
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-s.end:
		}
	}
}
