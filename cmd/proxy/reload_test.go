package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"remora/cmd/proxy/proxytest"
	"remora/providers/scripted"
)

// TestReload: a changed file changes layers and providers, a broken one nothing, and a link that is swapped, as
// Kubernetes does, is seen.
func TestReload(t *testing.T) {
	t.Parallel()
	up, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	text := func(layers string) string {
		return fmt.Sprintf("providers: [{name: up, kind: compatible, base_url: %q}]\nmemory: {layers: [%s]}\n", up.URL()+"/v1", layers)
	}
	d := &desk{t: t, dir: t.TempDir()}
	d.proxy = proxytest.Start(t, d.dir, text("{kind: static_content, text: First words.}"))
	sent := func() string {
		d.say("chat/completions", chat("user: Hello"), "X-Session-Id: "+t.Name(), "Authorization: Bearer k")
		all := up.Requests()
		return string(all[len(all)-1].Body)
	}
	await := func(mark string) {
		t.Helper()
		for deadline := time.Now().Add(patience); !strings.Contains(d.proxy.Log(), mark); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("log does not hold %q:\n%s", mark, d.proxy.Log())
			}
		}
	}
	if got := sent(); !strings.Contains(got, "First words.") {
		t.Fatalf("before: %s", got)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config.yaml", text("{kind: working_memory, schema: '{'}"))
	await("memory.layers[0].schema")
	write("config.yaml", text("{kind: static_content, txt: Wrong.}"))
	await("memory.layers[0].txt")
	if got := sent(); !strings.Contains(got, "First words.") {
		t.Errorf("after a broken file: %s", got)
	}
	write("next.yaml", text("{kind: static_content, text: Second words.}")+"log: {level: debug}\n")
	if err := os.Symlink("next.yaml", filepath.Join(d.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(d.dir, "link"), d.proxy.Config); err != nil {
		t.Fatal(err)
	}
	await(`"needs_restart":["log"]`)
	if got := sent(); !strings.Contains(got, "Second words.") || strings.Contains(got, "First words.") {
		t.Errorf("after the link was swapped: %s", got)
	}
}
