package chaos

import (
	"errors"
	"testing"

	"remora/cache/redistest"
	"remora/cmd/proxy/proxytest"
)

const (
	sentinelFailover = "Redis Sentinel: master killed, replica promoted"
	sentinelFrozen   = "Redis Sentinel: master frozen, replica promoted, old master back"
	clusterFailover  = "Redis Cluster: one of three masters killed, replica promoted"
)

// promoted waits until a replica is the master.
func promoted(t *testing.T, s *redistest.Server, want bool) {
	t.Helper()
	eventually(t, func() error {
		if s.IsMaster() != want {
			return errors.New("the servers have not changed their parts")
		}
		return nil
	})
}

// TestFailover takes a master away, until its replica was promoted and longer, and then has it come back as a replica.
func TestFailover(t *testing.T) {
	t.Parallel()
	// Servers that stood still for a while may have changed their parts before the trouble begins.
	parts := func(master, replica *redistest.Server) (*redistest.Server, *redistest.Server) {
		if replica.IsMaster() {
			return replica, master
		}
		return master, replica
	}
	sentinel := func(away, back func(*redistest.Server)) func(*testing.T) (string, func(), func()) {
		return func(t *testing.T) (string, func(), func()) {
			t.Helper()
			s := redistest.Sentinel(t)
			var master, replica *redistest.Server
			return s.URL(), func() { master, replica = parts(s.Master, s.Replica); away(master) }, func() {
				promoted(t, replica, true)
				back(master)
				promoted(t, master, false)
			}
		}
	}
	for _, c := range []struct {
		scenario string
		start    func(*testing.T) (url string, begin, end func())
	}{
		{sentinelFailover, sentinel((*redistest.Server).Kill, (*redistest.Server).Restart)},
		{sentinelFrozen, sentinel((*redistest.Server).Pause, (*redistest.Server).Resume)},
		{clusterFailover, func(t *testing.T) (string, func(), func()) {
			t.Helper()
			s := redistest.ClusterWithReplicas(t)
			var master, replica *redistest.Server
			return s.URL(), func() { master, replica = parts(s.Nodes[0], s.Replicas[0]); master.Kill() }, func() {
				promoted(t, replica, true)
				master.Restart()
				promoted(t, master, false)
			}
		}},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			url, begin, end := c.start(t)
			p := proxytest.Start(t, t.TempDir(), config(newUpstream(t).URL, url))
			trouble{scenario: c.scenario, begin: begin, end: end, during: scale(30, 100)}.play(t, p, url)
		})
	}
}
