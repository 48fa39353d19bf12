package chaos

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"remora/test/kit"
)

// TestTwoProxies runs 64 clients, some with a shared session, against two proxies: each request reads the client's own writes,
// and nothing is lost or duplicated.
func TestTwoProxies(t *testing.T) {
	t.Parallel()
	const clientCount, turns = 64, 20
	redis := kit.StartRedis(t)
	f := newFleet(t, 2, config(newUpstream(t, unevenly).URL, redis.URL()))
	clients := newTalkers(f.client(), clientCount)
	for i, c := range clients {
		if i%4 == 0 {
			// Clients with a shared session have the same habit: the history of one that sends only new items is the line
			// continued last.
			c.session, c.onlyNew = fmt.Sprintf("shared%d", i%16), i%8 == 0
		}
	}
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for n := range turns {
				if err := c.turn(context.Background()); err != nil {
					t.Errorf("client %d, turn %d: %v", i, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	f.drained() // if too many turns of a session wait for each other, the last ones go to the spool
	f.stop()
	var alone, sharing []*talker
	for _, c := range clients {
		if strings.HasPrefix(c.session, "shared") {
			sharing = append(sharing, c)
		} else {
			alone = append(alone, c)
		}
	}
	stored := openArchive(t, "", redis.URL())
	w := stored.check(sharing)
	w.judge(t, math.MaxInt) // in a shared session the order of turns is undefined
	w = stored.check(alone)
	for _, c := range alone {
		w.views(c)
	}
	w.judge(t, allowedOf(len(alone)*turns))
}

// TestTenantsNeverMeet uses equal and crafted session ids with two keys.
func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	upstream := newUpstream(t, atOnce)
	for name, url := range map[string]string{"bolt": "bolt:remora.db", "redis": kit.StartRedis(t).URL()} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, config(upstream.URL, url))
			http := f.client()
			ids := []string{
				"s", "s:", ":s", "a:b", "{s}", "{a}:{b}", "}{", "s*", "s?", `s"`, `s\`, "../s", "%00", "%7Bs%7D", "é", "s s",
				strings.Repeat("x", 256), strings.Repeat("x", 257), strings.Repeat("x", 255) + "y",
			}
			var clients []*talker
			for i, id := range ids {
				for _, key := range []string{"one", "two", "one:s", "{one}"} {
					clients = append(clients, &talker{
						http: http, name: fmt.Sprintf("%s-%d", key, i), session: id, key: key, onlyNew: true,
					})
				}
			}
			for range 2 {
				for _, c := range clients {
					if err := c.turn(context.Background()); err != nil {
						t.Fatalf("session %q of %s: %v", c.session, c.key, err)
					}
				}
			}
			f.drained()
			f.stop()
			stored := openArchive(t, f.replicas[0].Dir, url)
			w := stored.check(clients)
			for _, c := range clients {
				w.views(c)
			}
			w.judge(t, 0)
			for _, c := range clients {
				if all := stored.session(c.session, c.key).texts(); len(all) != 2 {
					t.Errorf("session %q of %s holds %q", c.session, c.key, all)
				}
			}
		})
	}
}
