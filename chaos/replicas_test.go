package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"remora/cache/redistest"
	"remora/cmd/proxy/proxytest"
)

// TestTwoProxies lets 64 clients, some of them on one session, talk to two proxies in turns: each request reads the
// client's own writes, and nothing is lost or doubled.
func TestTwoProxies(t *testing.T) {
	t.Parallel()
	const clientCount, turns = 64, 20
	upstream := newUpstream(t)
	redis := redistest.Start(t)
	store := patientStore(redis.URL())
	proxies := []*proxytest.Proxy{
		proxytest.Start(t, t.TempDir(), configWith(upstream.URL, store)),
		proxytest.Start(t, t.TempDir(), configWith(upstream.URL, store)),
	}
	clients := newTalkers(t, clientCount)
	for i, c := range clients {
		if i%4 == 0 {
			// Those who share a session have the same habit: what one that sends only what is new sees before its
			// items is the line that was continued last.
			c.session, c.onlyNew = fmt.Sprintf("shared%d", i%16), i%8 == 0
		}
	}
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for n := range turns {
				if err := c.turn(context.Background(), proxies[(i+n)%2].URL); err != nil {
					t.Errorf("client %d, turn %d: %v", i, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, p := range proxies {
		p.Stop()
	}
	openArchive(t, "", redis.URL()).check(clients)
}

// TestTenantsNeverMeet uses equal and crafted session ids under two keys.
func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	upstream := newUpstream(t)
	for name, url := range map[string]string{"bolt": "bolt:remora.db", "redis": redistest.Start(t).URL()} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, t.TempDir(), configWith(upstream.URL, patientStore(url)))
			http := newHTTPClient(t)
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
					if err := c.turn(context.Background(), p.URL); err != nil && !errors.Is(err, errUnseen) {
						t.Fatalf("session %q of %s: %v", c.session, c.key, err)
					} else if err != nil {
						t.Error(err)
					}
				}
			}
			p.Stop()
			stored := openArchive(t, p.Dir, url)
			stored.check(clients)
			for _, c := range clients {
				if all := stored.session(c.session, c.key).all; len(all) != 2 {
					t.Errorf("session %q of %s holds %q", c.session, c.key, all)
				}
			}
		})
	}
}
