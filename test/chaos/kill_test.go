package chaos

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"remora/test/kit"
)

const (
	proxyKilledBolt  = "proxy killed (SIGKILL) again and again, bbolt"
	proxyKilledRedis = "proxy killed (SIGKILL) again and again, Redis"
)

// TestKill kills the proxy at random moments under load. After the last restart, every complete turn is in the transcript once,
// in order.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, scenario string
		store          func(t *testing.T) string
	}{
		{"bolt", proxyKilledBolt, func(*testing.T) string { return "bolt:remora.db" }},
		{"redis", proxyKilledRedis, func(t *testing.T) string {
			t.Helper()
			return kit.StartRedis(t, kit.AppendOnly()...).URL()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := c.store(t)
			f := newFleet(t, 1, config(newUpstream(t, unevenly).URL, store))
			clients := newCrowd(f, 12)
			random := rand.New(rand.NewPCG(1, 2))
			kills := scale(25, 200)
			for range kills {
				var round sync.WaitGroup
				round.Go(func() { clients.talk(5) })
				time.Sleep(time.Duration(random.IntN(60_000)) * time.Microsecond)
				f.replicas[0].kill()
				f.replicas[0].Restart()
				round.Wait()
			}
			if cut := clients.killed(); cut < kills/2 {
				t.Errorf("only %d calls met one of %d kills: no load", cut, kills)
			}
			f.drained()
			f.stop()
			clients.finish(c.scenario, openArchive(t, f.replicas[0].Dir, store))
		})
	}
}
