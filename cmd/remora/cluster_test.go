package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/proxy"
	"remora/test/kit"
)

// TestClusterLosesOneMaster: while one of three masters is down, sessions on the others keep their memory under load, at one replica
// and at three, each turn at another one; its own sessions are served without memory, and the replicas are ready. When it is back,
// every session has all of its turns. The first and the last master have the announcements of the replicas.
func TestClusterLosesOneMaster(t *testing.T) {
	for _, c := range []struct{ replicas, master int }{{1, 1}, {3, 0}, {3, 1}, {3, 2}} {
		t.Run(fmt.Sprintf("replicas=%d/master=%d", c.replicas, c.master), func(t *testing.T) { loseMaster(t, c.replicas, c.master) })
	}
}

func loseMaster(t *testing.T, replicas, master int) {
	t.Helper()
	const sessions = 24
	up := startUpstream(t)
	c := kit.StartCluster(t, kit.AppendOnly()...)
	operators := make([]string, replicas)
	proxies := make([]*workspace, replicas)
	for i := range proxies {
		operators[i] = kit.FreeAddr(t)
		proxies[i] = &workspace{t: t, dir: t.TempDir()}
		proxies[i].start(fmt.Sprintf(`
server: {admin_listen: %q}
store: {url: %q}
providers: [{name: up, kind: compatible, base_url: %q}]
session: {tenancy: single}
memory: {layers: [{kind: history_window, max_items: 80}]}
`, operators[i], c.URL(), up.URL()+"/v1"))
	}
	store, err := stores.Open(c.URL(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Ping(t.Context()); err != nil { // loads the list of servers
		t.Fatal(err)
	}
	shard := func(n int) string {
		return store.Shard(memory.Scope{Tenant: proxy.TenancySingle, Session: fmt.Sprint("s", n)}.Group())
	}
	// round sends a message in all sessions at once, each to the replica after the one before, and returns their X-Memory.
	rounds := 0
	round := func(text string) [sessions]string {
		var all [sessions]string
		rounds++
		var wg sync.WaitGroup
		for n := range sessions {
			wg.Go(func() {
				res, _, err := proxies[(n+rounds)%replicas].send("chat/completions", chat("user: "+text), "Authorization: Bearer k", fmt.Sprint("X-Session-Id: s", n))
				if err != nil || res.StatusCode != http.StatusOK {
					t.Errorf("session %d: %s, %v", n, res.Status, err)
					return
				}
				all[n], _, _ = strings.Cut(res.Header.Get("X-Memory"), ";")
			})
		}
		wg.Wait()
		return all
	}
	for n, status := range round("SAY one") {
		if status != "ok" {
			t.Fatalf("session %d before the loss: %q", n, status)
		}
	}
	lost := c.Nodes[master].Addr()
	c.Nodes[master].Kill()
	away := 0
	for i := range 5 {
		for n, status := range round(fmt.Sprint("SAY lost", i)) {
			want := "ok"
			if shard(n) == lost {
				want = "degraded"
				away++
			}
			if status != want {
				t.Errorf("round %d, session %d: %q, want %q", i, n, status, want)
			}
		}
	}
	if away == 0 || away == 5*sessions {
		t.Fatalf("%d of %d turns were of the lost server", away, 5*sessions)
	}
	for _, addr := range operators {
		res, err := http.Get("http://" + addr + "/readyz") //nolint:noctx // ends with the test
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Errorf("/readyz: %s %s", res.Status, body)
		}
	}
	c.Nodes[master].Restart()
	for _, d := range proxies {
		log := d.proxy.Logged("are served again", 1)
		if strings.Contains(log, `"msg":"store failed"`) || !strings.Contains(log, lost) {
			t.Errorf("log:\n%s", log)
		}
	}
	for n := range sessions {
		kit.Eventually(t, func() error {
			list, _ := proxies[0].run(0, "", "--text", "--session", fmt.Sprint("s", n))
			for i := range 5 {
				if strings.Count(list, fmt.Sprint("lost", i)) != 2 { // question and answer
					return fmt.Errorf("session %d lacks turns:\n%s", n, list)
				}
			}
			return nil
		})
	}
}
