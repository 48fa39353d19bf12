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

// TestClusterLosesOneMaster: while one of three masters is down, sessions on the others keep their memory under load, its own
// sessions are served without memory, and the proxy is ready. When it is back, every session has all of its turns.
func TestClusterLosesOneMaster(t *testing.T) {
	t.Parallel()
	const sessions = 24
	up := startUpstream(t)
	c := kit.StartCluster(t, kit.AppendOnly()...)
	operators := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(fmt.Sprintf(`
server: {admin_listen: %q}
store: {url: %q}
providers: [{name: up, kind: compatible, base_url: %q}]
session: {tenancy: single}
memory: {layers: [{kind: history_window, max_items: 80}]}
`, operators, c.URL(), up.URL()+"/v1"))
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
	// round sends a message in all sessions at once, and returns their X-Memory.
	round := func(text string) [sessions]string {
		var all [sessions]string
		var wg sync.WaitGroup
		for n := range sessions {
			wg.Go(func() {
				res, _, err := d.send("chat/completions", chat("user: "+text), "Authorization: Bearer k", fmt.Sprint("X-Session-Id: s", n))
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
	lost := c.Nodes[1].Addr()
	c.Nodes[1].Kill()
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
	res, err := http.Get("http://" + operators + "/readyz") //nolint:noctx // ends with the test
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %s %s", res.Status, body)
	}
	c.Nodes[1].Restart()
	log := d.proxy.Logged("are served again", 1)
	if strings.Contains(log, `"msg":"store failed"`) || !strings.Contains(log, lost) {
		t.Errorf("log:\n%s", log)
	}
	for n := range sessions {
		kit.Eventually(t, func() error {
			list, _ := d.run(0, "", "--text", "--session", fmt.Sprint("s", n))
			for i := range 5 {
				if strings.Count(list, fmt.Sprint("lost", i)) != 2 { // question and answer
					return fmt.Errorf("session %d lacks turns:\n%s", n, list)
				}
			}
			return nil
		})
	}
}
