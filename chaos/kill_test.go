package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache/redistest"
	"remora/cmd/proxy/proxytest"
)

const (
	proxyKilledBolt  = "proxy killed (SIGKILL) again and again, bbolt"
	proxyKilledRedis = "proxy killed (SIGKILL) again and again, Redis"
)

// TestKill ends the proxy with SIGKILL at random moments of a running load. After the last restart, every turn whose
// end a client saw is in the transcript, in order, once.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, scenario string
		store          func(t *testing.T) string
	}{
		{"bolt", proxyKilledBolt, func(*testing.T) string { return "bolt:remora.db" }},
		{"redis", proxyKilledRedis, func(t *testing.T) string {
			t.Helper()
			return redistest.Start(t, redistest.AppendOnly()).URL()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := c.store(t)
			// What a store does that is slow for long is tested by the clock, in memory.
			p := proxytest.Start(t, t.TempDir(), configWith(newUpstream(t).URL, patientStore(store)))
			clients := newCrowd(t, 12, to(p))
			var cut atomic.Int64
			clients.excused = func(_ *talker, err error) string {
				// A refusal is an answer, and a process that is gone gives none.
				if _, answered := errors.AsType[*refusal](err); answered {
					return ""
				}
				cut.Add(1)
				return byKill
			}
			random := rand.New(rand.NewPCG(1, 2))
			kills := scale(25, 200)
			for range kills {
				var round sync.WaitGroup
				round.Go(func() { clients.talk(5) })
				time.Sleep(time.Duration(random.IntN(60_000)) * time.Microsecond) // the random moment
				p.Kill()
				p.Restart()
				round.Wait()
			}
			if int(cut.Load()) < kills/2 {
				t.Errorf("only %d calls met one of %d kills: no load", cut.Load(), kills)
			}
			eventually(t, func() error { return spoolEmpty(filepath.Join(p.Dir, "spool")) })
			p.Stop()
			clients.finish(c.scenario, openArchive(t, p.Dir, store))
		})
	}
}

// newTalkers returns clients of every habit, each in a session of its own.
func newTalkers(t *testing.T, n int) []*talker {
	t.Helper()
	http := newHTTPClient(t)
	clients := make([]*talker, n)
	for i := range clients {
		clients[i] = &talker{
			http: http, name: fmt.Sprintf("c%d", i), session: fmt.Sprintf("s%d", i), key: "key",
			onlyNew: i%3 == 0, stream: i%2 == 0,
		}
	}
	return clients
}
