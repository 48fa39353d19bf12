package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/storetest"
	"remora/test/kit"
)

// waitLimit bounds every wait. It is long because tests share few cores.
const waitLimit = 2 * time.Minute

func commitErr(c context.Context, s cache.Store, b cache.Batch) error {
	return s.Commit(c, []cache.Batch{b})[0].Err
}

func TestRedisRestartKeepsCommitted(t *testing.T) {
	srv := kit.StartRedis(t, kit.AppendOnly()...)
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	for n := range 50 {
		mustCommit(t, s, put("o", strconv.Itoa(n), storetest.Record(n)))
	}
	srv.Restart() // kills it
	kit.Eventually(t, func() error { return s.Ping(ctx()) })
	for n := range 50 {
		if got := read(t, s, "o", strconv.Itoa(n)); string(got) != string(storetest.Record(n)) {
			t.Fatalf("record %d reads %.20q", n, got)
		}
	}
}

// TestRedisReadAfterRestart: connections closed by a restart do not fail the first read after it.
func TestRedisReadAfterRestart(t *testing.T) {
	srv := kit.StartRedis(t, kit.AppendOnly()...)
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "a", []byte("1")))
	srv.Restart()
	if got := read(t, s, "o", "a"); string(got) != "1" {
		t.Fatalf("the first read after a restart: %q", got)
	}
}

// TestRedisHangReleasesCallers: a call returns when its context ends, although the store would wait for the server much longer.
func TestRedisHangReleasesCallers(t *testing.T) {
	srv := kit.StartRedis(t)
	s := open(t, srv.URL(), cache.Options{OpTimeout: time.Hour})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "a", []byte("1")))
	srv.Pause()
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			c, end := context.WithTimeout(ctx(), 150*time.Millisecond)
			want := context.DeadlineExceeded
			if i%2 == 0 { // cancelled, without a deadline
				c, end = context.WithCancel(ctx())
				time.AfterFunc(150*time.Millisecond, end)
				want = context.Canceled
			}
			defer end()
			err := commitErr(c, s, put("o", "b", []byte("1")))
			if !errors.Is(err, want) {
				t.Errorf("commit to a hung server: %v, want %v", err, want)
			}
		})
	}
	gone := make(chan struct{})
	go func() { wg.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(waitLimit):
		t.Errorf("callers were kept for %s", waitLimit)
	}
	srv.Resume()
	<-gone
	kit.Eventually(t, func() error { return commitErr(ctx(), s, put("o", "a", []byte("2"))) })
	if got := read(t, s, "o", "a"); string(got) != "2" {
		t.Fatalf("after the hang: %q", got)
	}
}

// TestRedisForgetsScripts flushes the scripts continuously: every commit must be written exactly once.
func TestRedisForgetsScripts(t *testing.T) {
	const writers, each, atLeast = 12, 40, 3
	srv := kit.StartRedis(t)
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	var left, flushes atomic.Int32
	left.Store(writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			defer left.Add(-1)
			version := uint64(0)
			for i := 0; i < each || flushes.Load() < atLeast; i++ {
				b := put("o", strconv.Itoa(w), []byte("x"))
				b.Expect, b.Listed = version, true
				out := s.Commit(ctx(), []cache.Batch{b})[0]
				if out.Err != nil {
					t.Errorf("commit %d: %v", i, out.Err)
					return
				}
				version = out.Version
			}
		})
	}
	for ; left.Load() > 0; flushes.Add(1) {
		if _, err := srv.Do("SCRIPT", "FLUSH"); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

// TestRedisLostReply closes the connection between a commit and its reply: Commit must return an error, and must not retry.
func TestRedisLostReply(t *testing.T) {
	srv := kit.StartRedis(t)
	var cut atomic.Bool
	s := open(t, "redis://"+cutter(t, srv.Addr(), &cut), cache.Options{})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "a", []byte("1"))) // and the script is loaded
	cut.Store(true)
	err := commitErr(ctx(), s, put("o", "a", []byte("2")))
	if err == nil || errors.Is(err, cache.ErrConflict) {
		t.Fatalf("commit with its reply lost: %v", err)
	}
	got, err := s.Read(ctx(), []cache.Query{{Group: cache.Group{Owner: "o", Name: "a"}, Names: []string{"n"}}})
	if err != nil {
		t.Fatal(err)
	}
	if string(got[0].Values[0]) != "2" {
		t.Fatalf("value %q, want that of the commit whose reply was lost", got[0].Values[0])
	}
}

// TestRedisVersionsAreUnique reverts the last commit, as a failover to a lagging replica does. The next commit must get another
// version: a reader of the lost one would take both for the same.
func TestRedisVersionsAreUnique(t *testing.T) {
	srv := kit.StartRedis(t)
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	commit := func(expect uint64) uint64 {
		b := put("o", "a", []byte("1"))
		b.Expect = expect
		out := s.Commit(ctx(), []cache.Batch{b})[0]
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		return out.Version
	}
	kept := commit(0)
	lost := commit(kept)
	if _, err := srv.Do("HSET", "r1:{o:a}", "v", strconv.FormatUint(kept, 10)); err != nil {
		t.Fatal(err)
	}
	if again := commit(kept); again <= lost {
		t.Errorf("version %d comes after %d, which was lost", again, lost)
	}
}

// cutter forwards connections to addr. Once cut is set, it closes a connection instead of forwarding the next reply.
func cutter(t *testing.T, addr string, cut *atomic.Bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	forward := func(client net.Conn) {
		server, err := net.Dial("tcp", addr)
		if err != nil {
			_ = client.Close()
			return
		}
		wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		buf := make([]byte, 1<<16)
		for {
			n, err := server.Read(buf)
			if err != nil || cut.CompareAndSwap(true, false) {
				break
			}
			if _, err := client.Write(buf[:n]); err != nil {
				break
			}
		}
		_ = client.Close()
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { forward(c) })
		}
	})
	return l.Addr().String()
}

func TestRedisPassword(t *testing.T) {
	srv := kit.StartRedis(t, "--requirepass", "hunter2/@")
	s := open(t, "redis://:hunter2%2F%40@"+srv.Addr(), cache.Options{})
	mustCommit(t, s, put("o", "a", []byte("1")))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, "redis://:wrong-secret@"+srv.Addr(), cache.Options{})
	defer func() { _ = s.Close() }()
	err := commitErr(ctx(), s, put("o", "a", []byte("1")))
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "WRONGPASS") || !errors.Is(err, cache.ErrDenied) {
		t.Fatalf("commit with a wrong password: %v", err)
	}
	for i, out := range s.Commit(ctx(), []cache.Batch{put("o", "a", []byte("1")), put("o", "b", []byte("1"))}) { // in one round trip
		if !errors.Is(out.Err, cache.ErrDenied) {
			t.Errorf("commit of batch %d of two with a wrong password: %v", i, out.Err)
		}
	}
}

// TestClusterMovesSlot moves the slots of all groups during commits: each must be written once, in order.
func TestClusterMovesSlot(t *testing.T) {
	c := kit.StartCluster(t)
	s := open(t, c.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	var stop atomic.Bool
	var wg sync.WaitGroup
	var written [8]int
	for w := range written {
		wg.Go(func() {
			version := uint64(0)
			for written[w] == 0 || !stop.Load() {
				b := put("o", fmt.Sprint("group", w), []byte(strconv.Itoa(written[w])))
				b.Expect = version
				out := s.Commit(ctx(), []cache.Batch{b})[0]
				if out.Err != nil {
					t.Errorf("writer %d, commit %d: %v", w, written[w], out.Err)
					return
				}
				version = out.Version
				written[w]++
			}
		})
	}
	for w := range written {
		c.MoveSlotOf(t, fmt.Sprintf("r1:{o:group%d}", w))
	}
	stop.Store(true)
	wg.Wait()
	for w, n := range written {
		if got := read(t, s, "o", fmt.Sprint("group", w)); n == 0 || string(got) != strconv.Itoa(n-1) {
			t.Errorf("writer %d made %d commits and reads %q", w, n, got)
		}
	}
}

// TestClusterServersDisagree: commits wait briefly while two servers take each other for the master of a slot, as they may
// after a move.
func TestClusterServersDisagree(t *testing.T) {
	c := kit.StartCluster(t)
	s := open(t, c.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	do := func(node int, args ...string) string {
		t.Helper()
		reply, err := c.Nodes[node].Do(args...)
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		return reply
	}
	const key, least, disagreeing = "r1:{o:group4}", 10, 500 * time.Millisecond
	moved := func(node int) int {
		_, count, _ := strings.Cut(do(node, "INFO", "errorstats"), "errorstat_MOVED:count=")
		count, _, _ = strings.Cut(count, "\r")
		n, _ := strconv.Atoi(count) // none yet
		return n
	}
	slot := do(0, "CLUSTER", "KEYSLOT", key)
	from := slices.IndexFunc(c.Nodes, func(n *kit.Redis) bool {
		_, err := n.Do("EXISTS", key)
		return err == nil
	})
	to := (from + 1) % len(c.Nodes)
	for begun := time.Now(); time.Since(begun) < waitLimit; from, to = to, from {
		before, target := moved(from), do(to, "CLUSTER", "MYID")
		since := time.Now()
		do(from, "CLUSTER", "SETSLOT", slot, "NODE", target)
		committed := make(chan error, 1)
		go func() { committed <- commitErr(ctx(), s, put("o", "group4", []byte("1"))) }()
		for len(committed) == 0 && moved(from)-before < least { // go-redis itself follows three times
			time.Sleep(time.Millisecond)
		}
		do(to, "CLUSTER", "SETSLOT", slot, "NODE", target)
		took := time.Since(since)
		err := <-committed
		if err == nil {
			return
		}
		if took < disagreeing {
			t.Fatalf("after %s: %v", took, err)
		}
		// The machine was slower than the wait of commits: repeat with the servers' roles swapped.
	}
	t.Fatal("the servers never agree in time")
}

// TestClusterHungNodeHurtsOnlyItself: calls to other nodes never wait for one that hangs.
func TestClusterHungNodeHurtsOnlyItself(t *testing.T) {
	const groups = 30
	c := kit.StartCluster(t)
	s := open(t, c.URL(), cache.Options{OpTimeout: time.Hour})
	defer func() { _ = s.Close() }()
	for n := range groups {
		mustCommit(t, s, put("o", strconv.Itoa(n), []byte("1")))
	}
	size, err := c.Nodes[1].Do("DBSIZE")
	if err != nil {
		t.Fatal(err)
	}
	there, err := strconv.Atoi(size) // a key is a group
	if err != nil || there < 3 || there > groups-10 {
		t.Fatalf("the node has %q of %d groups, %v; want about a third", size, groups, err)
	}
	c.Nodes[1].Pause()
	var done atomic.Int32
	var wg sync.WaitGroup
	for n := range groups {
		wg.Go(func() {
			if err := commitErr(ctx(), s, put("o", strconv.Itoa(n), []byte("2"))); err != nil {
				t.Errorf("commit %d: %v", n, err)
			}
			done.Add(1)
		})
	}
	defer wg.Wait()
	defer c.Nodes[1].Resume()
	kit.Eventually(t, func() error {
		if n := int(done.Load()); n != groups-there {
			return fmt.Errorf("%d commits went through; want %d, all but those of the node that hangs", n, groups-there)
		}
		return nil
	})
}

func TestSentinelFailover(t *testing.T) {
	srv := kit.StartSentinel(t)
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "a", []byte("1")))
	kit.Eventually(t, func() error { // replicated
		if info, err := srv.Replica.Do("DBSIZE"); err != nil || info != "1" {
			return fmt.Errorf("replica holds %q keys, %w", info, err)
		}
		return nil
	})
	srv.Master.Kill()
	kit.Eventually(t, func() error {
		c, end := context.WithTimeout(ctx(), 5*time.Second)
		defer end()
		return commitErr(c, s, put("o", "b", []byte("2")))
	})
	if got := read(t, s, "o", "a"); string(got) != "1" {
		t.Fatalf("after the failover: %q", got)
	}
}
