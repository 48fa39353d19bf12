package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/redistest"
)

// eventually polls until f returns nil.
func eventually(t *testing.T, within time.Duration, f func() error) {
	t.Helper()
	deadline := time.After(within)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %s: %v", within, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func commitErr(c context.Context, s cache.Store, b cache.Batch) error {
	return s.Commit(c, []cache.Batch{b})[0].Err
}

func TestRedisRestartKeepsCommitted(t *testing.T) {
	srv := redistest.Start(t, redistest.AppendOnly())
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	for n := range 50 {
		mustCommit(t, s, put("o", strconv.Itoa(n), record(n)))
	}
	srv.Restart() // kills it
	eventually(t, 10*time.Second, func() error { return s.Ping(ctx()) })
	for n := range 50 {
		if got := read(t, s, "o", strconv.Itoa(n)); string(got) != string(record(n)) {
			t.Fatalf("record %d reads %.20q", n, got)
		}
	}
}

// TestRedisRestartIsSeenByReaders: the connections that a restart has cut must not fail the first call after it.
func TestRedisRestartIsSeenByReaders(t *testing.T) {
	srv := redistest.Start(t, redistest.AppendOnly())
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "a", []byte("1")))
	srv.Restart()
	if got := read(t, s, "o", "a"); string(got) != "1" {
		t.Fatalf("the first read after a restart: %q", got)
	}
}

func TestRedisHangKeepsNoCaller(t *testing.T) {
	srv := redistest.Start(t)
	s := open(t, srv.URL(), cache.Options{OpTimeout: 3 * time.Second})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "a", []byte("1")))
	srv.Pause()
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			began := time.Now()
			c, end := context.WithTimeout(ctx(), 150*time.Millisecond)
			want := context.DeadlineExceeded
			if i%2 == 0 { // ended by hand
				c, end = context.WithCancel(ctx())
				time.AfterFunc(150*time.Millisecond, end)
				want = context.Canceled
			}
			defer end()
			err := commitErr(c, s, put("o", "b", []byte("1")))
			if !errors.Is(err, want) {
				t.Errorf("commit to a hung server: %v, want %v", err, want)
			}
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("the caller was kept for %s", d)
			}
		})
	}
	wg.Wait()
	srv.Resume()
	eventually(t, 10*time.Second, func() error { return commitErr(ctx(), s, put("o", "a", []byte("2"))) })
	if got := read(t, s, "o", "a"); string(got) != "2" {
		t.Fatalf("after the hang: %q", got)
	}
}

// TestRedisForgetsScripts flushes the scripts all the time: every commit must be written once and only once.
func TestRedisForgetsScripts(t *testing.T) {
	const writers, each = 12, 40
	srv := redistest.Start(t)
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	var left atomic.Int32
	left.Store(writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			defer left.Add(-1)
			version := uint64(0)
			for i := range each {
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
	flushes := 0
	for ; left.Load() > 0; flushes++ {
		if _, err := srv.Do("SCRIPT", "FLUSH"); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if flushes < 3 {
		t.Fatalf("only %d flushes: the test proves nothing", flushes)
	}
}

// TestRedisLostReply cuts the connection between a commit and its reply: the caller must hear of it, and the commit
// must not be repeated.
func TestRedisLostReply(t *testing.T) {
	srv := redistest.Start(t)
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

// TestRedisNoVersionComesTwice takes the last commit back, as a failover to a replica that lags behind does. The next one
// must not be at the version of the one that was lost: who has read that would take it for the same.
func TestRedisNoVersionComesTwice(t *testing.T) {
	srv := redistest.Start(t)
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

// cutter forwards connections to addr. Once cut is set it closes a connection instead of passing the next reply on.
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
	srv := redistest.Start(t, redistest.Args("--requirepass", "hunter2/@"))
	s := open(t, "redis://:hunter2%2F%40@"+srv.Addr(), cache.Options{})
	mustCommit(t, s, put("o", "a", []byte("1")))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, "redis://:wrong-secret@"+srv.Addr(), cache.Options{})
	defer func() { _ = s.Close() }()
	err := commitErr(ctx(), s, put("o", "a", []byte("1")))
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Fatalf("commit with a wrong password: %v", err)
	}
}

// TestClusterMovesSlot moves the slots of all groups while commits go on: each must be written once, in order.
func TestClusterMovesSlot(t *testing.T) {
	c := redistest.Cluster(t)
	s := open(t, c.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var written [8]int
	for w := range written {
		wg.Go(func() {
			version := uint64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
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
	close(stop)
	wg.Wait()
	for w, n := range written {
		if got := read(t, s, "o", fmt.Sprint("group", w)); n == 0 || string(got) != strconv.Itoa(n-1) {
			t.Errorf("writer %d made %d commits and reads %q", w, n, got)
		}
	}
}

// TestClusterHungNodeHurtsOnlyItself: calls for other nodes never wait for the one that hangs.
func TestClusterHungNodeHurtsOnlyItself(t *testing.T) {
	c := redistest.Cluster(t)
	s := open(t, c.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	for n := range 30 {
		mustCommit(t, s, put("o", strconv.Itoa(n), []byte("1")))
	}
	c.Nodes[1].Pause()
	var ok, hung atomic.Int32
	var wg sync.WaitGroup
	for n := range 30 {
		wg.Go(func() {
			limit, end := context.WithTimeout(ctx(), time.Second)
			defer end()
			if err := commitErr(limit, s, put("o", strconv.Itoa(n), []byte("2"))); err != nil {
				hung.Add(1)
			} else {
				ok.Add(1)
			}
		})
	}
	wg.Wait()
	c.Nodes[1].Resume()
	if ok.Load() < 10 || hung.Load() < 3 {
		t.Fatalf("%d commits went through and %d hung; want about 20 and 10", ok.Load(), hung.Load())
	}
}

func TestSentinelFailover(t *testing.T) {
	srv := redistest.Sentinel(t)
	s := open(t, srv.URL(), cache.Options{})
	defer func() { _ = s.Close() }()
	mustCommit(t, s, put("o", "a", []byte("1")))
	eventually(t, 10*time.Second, func() error { // replicated
		if info, err := srv.Replica.Do("DBSIZE"); err != nil || info != "1" {
			return fmt.Errorf("replica holds %q keys, %w", info, err)
		}
		return nil
	})
	srv.Master.Kill()
	eventually(t, 30*time.Second, func() error {
		c, end := context.WithTimeout(ctx(), time.Second)
		defer end()
		return commitErr(c, s, put("o", "b", []byte("2")))
	})
	if got := read(t, s, "o", "a"); string(got) != "1" {
		t.Fatalf("after the failover: %q", got)
	}
}
