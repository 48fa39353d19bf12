package chaos

import (
	"errors"
	"testing"

	"remora/test/kit"
)

const (
	sentinelFailover = "Redis Sentinel: master killed, replica promoted"
	sentinelFrozen   = "Redis Sentinel: master frozen, replica promoted, old master back"
	clusterFailover  = "Redis Cluster: one of three masters killed, replica promoted"
)

// promoted waits until the server is a master, or with want false until it is none.
func promoted(t *testing.T, s *kit.Redis, want bool) {
	t.Helper()
	kit.Eventually(t, func() error {
		if s.IsMaster() != want {
			return errors.New("the servers have not changed their roles")
		}
		return nil
	})
}

// TestFailover stops a master until after its replica was promoted, and then restarts it as a replica.
func TestFailover(t *testing.T) {
	t.Parallel()
	// Slow servers may have changed their roles before the test begins.
	away := func(t *testing.T, x *trouble, master, replica *kit.Redis, gone, back func(*kit.Redis)) {
		t.Helper()
		x.begin = func() {
			if replica.IsMaster() {
				master, replica = replica, master
			}
			gone(master)
		}
		x.replaced = func() { promoted(t, replica, true) }
		x.end = func() {
			back(master)
			promoted(t, master, false)
		}
	}
	sentinel := func(gone, back func(*kit.Redis)) func(*testing.T, *trouble) string {
		return func(t *testing.T, x *trouble) string {
			t.Helper()
			s := kit.StartSentinel(t)
			away(t, x, s.Master, s.Replica, gone, back)
			return s.URL()
		}
	}
	for scenario, start := range map[string]func(*testing.T, *trouble) string{
		sentinelFailover: sentinel((*kit.Redis).Kill, (*kit.Redis).Restart),
		sentinelFrozen:   sentinel((*kit.Redis).Pause, (*kit.Redis).Resume),
		clusterFailover: func(t *testing.T, x *trouble) string {
			t.Helper()
			s := kit.StartClusterWithReplicas(t)
			away(t, x, s.Nodes[0], s.Replicas[0], (*kit.Redis).Kill, (*kit.Redis).Restart)
			return s.URL()
		},
	} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			x := trouble{scenario: scenario, during: scale(30, 100)}
			url := start(t, &x)
			x.play(newFleet(t, 3, config(newUpstream(t, unevenly).URL, url)), url)
		})
	}
}
