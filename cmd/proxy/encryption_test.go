package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"remora/cmd/proxy/proxytest"
	"remora/providers/scripted"
)

// TestEncryptedStore: with keys in the configuration, nothing readable is on disk, and the transcript command reads it.
func TestEncryptedStore(t *testing.T) {
	t.Parallel()
	up, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	d := &desk{t: t, dir: t.TempDir()}
	const secret, namesKey = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDI="
	d.proxy = proxytest.Start(t, d.dir, fmt.Sprintf(`
providers: [{name: up, kind: compatible, base_url: %q}]
store: {url: "bolt:remora.db", encryption: {keys: [{id: k1, secret: %q}], names_key: %q}}
`, up.URL()+"/v1", secret, namesKey))
	d.config = d.proxy.Config
	d.say("chat/completions", chat("user: SAY The canary sings."), "X-Session-Id: canary-session", "Authorization: Bearer canary-key")
	d.proxy.Stop()
	raw, err := os.ReadFile(filepath.Join(d.dir, "remora.db"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(bytes.ToLower(raw), []byte("canary")) {
		t.Error("the file holds what was said, or the session's name")
	}
	out, _ := d.run(0, "", "--session", "canary-session", "--key", "canary-key", "--text")
	if !strings.Contains(out, "The canary sings.") {
		t.Errorf("the transcript can't be read: %s", out)
	}
	if out, _ := d.run(0, "", "list", "--key", "canary-key"); out != "canary-session\n" {
		t.Errorf("listed %q", out)
	}
}
