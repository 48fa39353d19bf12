package kit

import (
	"errors"
	"testing"
)

func TestRestartKeepsAppendedData(t *testing.T) {
	s := StartRedis(t, AppendOnly()...)
	must(t, s, "SET", "k", "v")
	port := s.Port()
	s.Restart()
	if got, err := s.Do("GET", "k"); err != nil || got != "v" || s.Port() != port {
		t.Fatalf("after a restart: %q, %v on port %d; want v on port %d", got, err, s.Port(), port)
	}
	s.Kill()
	if _, err := s.Do("PING"); err == nil {
		t.Fatal("a killed server answers")
	}
}

func TestPausedServerResumes(t *testing.T) {
	s := StartRedis(t)
	s.Pause()
	s.Resume()
	if got, err := s.Do("PING"); err != nil || got != "PONG" {
		t.Fatalf("after Resume: %q, %v", got, err)
	}
}

func TestClusterServesAllSlots(t *testing.T) {
	c := StartCluster(t)
	hits := 0
	for _, n := range c.Nodes {
		if got, err := n.Do("SET", "k", "v"); err == nil && got == "OK" {
			hits++
		}
	}
	if hits != 1 {
		t.Fatalf("%d of the masters took the key, want 1", hits)
	}
}

func TestSentinelKnowsMaster(t *testing.T) {
	s := StartSentinel(t)
	if got, err := s.Sentinels[0].Do("SENTINEL", "CKQUORUM", "mymaster"); err != nil {
		t.Fatalf("no quorum: %q, %v", got, err)
	}
}

func TestClusterReplicaTakesOver(t *testing.T) {
	c := StartClusterWithReplicas(t)
	c.Nodes[1].Kill()
	Eventually(t, func() error {
		if !c.Replicas[1].IsMaster() {
			return errors.New("the replica is none yet")
		}
		return nil
	})
	c.Nodes[1].Restart()
	Eventually(t, func() error {
		if c.Nodes[1].IsMaster() {
			return errors.New("the old master has not noticed")
		}
		return nil
	})
}
