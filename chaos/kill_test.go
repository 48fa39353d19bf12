package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"remora/cache/redistest"
	"remora/cmd/proxy/proxytest"
)

// kills is how often the proxy is killed under load, per store.
const kills = 200

// TestKill ends the proxy with SIGKILL at random moments of a running load. After the last restart, every turn whose
// end a client saw is in the transcript, in order, once.
func TestKill(t *testing.T) {
	stores := map[string]func(t *testing.T) string{
		"bolt": func(*testing.T) string { return "bolt:remora.db" },
		"redis": func(t *testing.T) string {
			t.Helper()
			return redistest.Start(t, redistest.AppendOnly()).URL()
		},
	}
	for name, url := range stores {
		t.Run(name, func(t *testing.T) {
			upstream := newUpstream(t)
			p := proxytest.Start(t, t.TempDir(), config(upstream.URL, url(t)))
			clients := newTalkers(t, 12)
			random := rand.New(rand.NewPCG(1, 2))
			ctx, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			histories := make([][]*talker, len(clients))
			for i, c := range clients {
				wg.Go(func() {
					histories[i] = talkOn(ctx, t, c, p.URL)
				})
			}
			for range kills {
				time.Sleep(time.Duration(random.IntN(60_000)) * time.Microsecond) // the random moment
				p.Kill()
				p.Restart()
			}
			stop()
			wg.Wait()
			p.Stop()
			clients = slices.Concat(histories...)
			turns := 0
			for _, c := range clients {
				turns += len(c.said)
			}
			if turns < kills {
				t.Errorf("only %d turns were answered between %d kills: no load", turns, kills)
			}
			t.Logf("%d kills, %d turns answered", kills, turns)
			check(t, p, clients)
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

// talkOn keeps a client talking and returns the clients that it has been: one whose conversation grew long goes on
// with a new one, so that the load stays one of many small requests.
func talkOn(ctx context.Context, t *testing.T, c *talker, url string) []*talker {
	t.Helper()
	all := []*talker{c}
	for ctx.Err() == nil {
		if err := c.turn(ctx, url); errors.Is(err, errUnseen) {
			t.Error(err)
			return all
		}
		if len(c.messages) >= 100 {
			next := *c
			next.name = fmt.Sprintf("%s.%d", all[0].name, len(all))
			next.session, next.messages, next.said, next.tries = next.name, nil, nil, 0
			c = &next
			all = append(all, c)
		}
	}
	return all
}

// TestRedisAway stops Redis for ten seconds under load: no request fails, and nothing is lost afterwards.
func TestRedisAway(t *testing.T) {
	const away = 10 * time.Second
	upstream := newUpstream(t)
	redis := redistest.Start(t, redistest.AppendOnly())
	p := proxytest.Start(t, t.TempDir(), config(upstream.URL, redis.URL()))
	clients := newTalkers(t, 12)
	for _, c := range clients {
		c.onlyNew = false // one that sends only what is new depends on the store for its history
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := c.turn(context.WithoutCancel(ctx), p.URL); err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				time.Sleep(20 * time.Millisecond) // the pace of the load
			}
		})
	}
	time.Sleep(time.Second)
	redis.Stop()
	time.Sleep(away)
	redis.Restart()
	time.Sleep(2 * time.Second)
	stop()
	wg.Wait()
	// What is still in the spool is handed over by the next process, should this one not have come to it.
	p.Stop()
	p.Restart()
	for _, c := range clients {
		if err := c.turn(context.Background(), p.URL); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	}
	p.Stop()
	check(t, p, clients)
}
