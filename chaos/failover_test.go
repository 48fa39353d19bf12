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
	sentinel := func(away, back func(*redistest.Server)) func(*testing.T) (string, func(), func()) {
		return func(t *testing.T) (string, func(), func()) {
			t.Helper()
			s := redistest.Sentinel(t)
			return s.URL(), func() { away(s.Master) }, func() {
				promoted(t, s.Replica, true)
				back(s.Master)
				promoted(t, s.Master, false)
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
			return s.URL(), s.Nodes[0].Kill, func() {
				promoted(t, s.Replicas[0], true)
				s.Nodes[0].Restart()
				promoted(t, s.Nodes[0], false)
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
