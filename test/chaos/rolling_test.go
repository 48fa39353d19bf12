package chaos

import (
	"sync"
	"testing"
	"time"

	"remora/test/kit"
)

const rollingRestart = "rolling restart of 3 replicas behind a load balancer, 200 clients streaming"

// underLoad starts the clients, and returns while the replica has at least this many answers in progress. load ends with the
// clients. On a slow machine the clients may finish before that; then they start again.
func underLoad(t *testing.T, clients *crowd, r *replica, atLeast int64) (load *sync.WaitGroup) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < kit.WaitLimit && !t.Failed(); {
		load, talked := new(sync.WaitGroup), make(chan struct{})
		load.Go(func() {
			defer close(talked)
			clients.talk(4)
		})
		for talking := true; talking; {
			if r.open.Load() >= atLeast {
				return load
			}
			select {
			case <-tick.C:
			case <-talked:
				talking = false
			}
		}
	}
	t.Fatalf("never %d answers of a replica under way", atLeast)
	return nil
}

// TestRollingRestart restarts three replicas one after the other while 200 clients stream: each gets SIGTERM with answers in
// progress, finishes them, and is started again.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const clientCount, atLeast = 200, 20
	redis := kit.StartRedis(t)
	up := newUpstream(t, func(string) time.Duration { return 300 * time.Millisecond })
	f := newFleet(t, 3, config(up.URL, redis.URL()))
	clients := newCrowd(f, clientCount)
	for _, c := range clients.now {
		c.stream = true
	}
	for range scale(1, 4) {
		for _, r := range f.replicas {
			load := underLoad(t, clients, r, atLeast)
			r.restart(t)
			load.Wait()
		}
	}
	f.drained()
	f.stop()
	clients.finish(rollingRestart, openArchive(t, "", redis.URL()))
}
