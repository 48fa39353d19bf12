package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"remora/test/kit"
	"remora/test/scripted"
)

const (
	secretOne = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	secretTwo = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDM="
)

// encryptedConfig returns a configuration with one key, k1; without encryption if secret is empty.
func encryptedConfig(up *scripted.Server, store, secret string) string {
	text := fmt.Sprintf("providers: [{name: up, kind: compatible, base_url: %q}]\nstore:\n  url: %q\n", up.URL()+"/v1", store)
	if secret != "" {
		text += fmt.Sprintf("  encryption: {keys: [{id: k1, secret: %q}], names_key: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDI=}\n", secret)
	}
	return text
}

// configure replaces the configuration of a stopped proxy.
func (d *workspace) configure(config string) {
	d.t.Helper()
	if err := os.WriteFile(d.config, []byte(config), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// TestEncryptedStore: with keys in the configuration, nothing on disk is readable, and the transcript command decrypts it.
func TestEncryptedStore(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(encryptedConfig(up, "bolt:remora.db", secretOne))
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

// TestEncryptionBegins: plaintext of an earlier proxy is not read once keys are configured, which is logged once.
// accept_plaintext reads it.
func TestEncryptionBegins(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	for _, accept := range []bool{false, true} {
		d := &workspace{t: t, dir: t.TempDir()}
		d.start(encryptedConfig(up, "bolt:new.db", secretOne))
		if log := d.proxy.Log(); strings.Contains(log, "encryption begins") {
			t.Errorf("of a new store:\n%s", log)
		}
		d.proxy.Stop()
		d.configure(encryptedConfig(up, "bolt:remora.db", ""))
		d.proxy.Restart()
		d.ask("k", chat("user: SAY One."))
		d.proxy.Stop()
		d.configure(strings.Replace(encryptedConfig(up, "bolt:remora.db", secretOne), "encryption: {", fmt.Sprintf("encryption: {accept_plaintext: %v, ", accept), 1))
		for start := range 2 {
			d.proxy.Restart()
			d.proxy.Stop()
			if got := strings.Contains(d.proxy.Log(), "encryption begins with this start"); got != (start == 0 && !accept) {
				t.Errorf("accept_plaintext %v, start %d: told %v:\n%s", accept, start, got, d.proxy.Log())
			}
		}
	}
}

// TestOtherKeysAreRefused: an encrypted store is not changed by a proxy with another secret for the same key, nor by one without
// encryption, and its own key still works afterwards.
func TestOtherKeysAreRefused(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(encryptedConfig(up, "bolt:remora.db", secretOne))
	if _, h, body := d.ask("k", chat("user: SAY One.")); !strings.HasPrefix(h.Get("X-Memory"), "ok;") {
		t.Fatalf("X-Memory %q: %s", h.Get("X-Memory"), body)
	}
	d.proxy.Stop()
	for _, c := range []struct{ name, secret, want string }{
		{"another secret", secretTwo, `store.encryption.keys: the secret of "k1" is not the one that this store was written with`},
		{"no encryption", "", "store.encryption: this store was written with encryption; configure its keys"},
	} {
		d.configure(encryptedConfig(up, "bolt:remora.db", c.secret))
		cmd := exec.CommandContext(t.Context(), kit.BuildProxy(t), "--config", d.config, "--listen", "127.0.0.1:0")
		cmd.Dir = d.dir
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %s\n%s", c.name, cmd.ProcessState, out)
		}
		if strings.Contains(string(out), "MDEyMz") || strings.Contains(string(out), "listens") {
			t.Errorf("%s: %s", c.name, out)
		}
		d.refuses(c.want, "--session", "s", "--key", "k")
	}
	d.configure(encryptedConfig(up, "bolt:remora.db", secretOne))
	d.proxy.Restart()
	if _, h, body := d.ask("k", chat("user: SAY One.", "assistant: One.", "user: SAY Two.")); !strings.HasPrefix(h.Get("X-Memory"), "ok;") {
		t.Errorf("X-Memory %q: %s", h.Get("X-Memory"), body)
	}
}

// TestOtherKeyOfAnAbsentStore: a store that does not answer at the start, and was written with another key, is not changed when
// it answers. Turns spooled meanwhile are quarantined, and are readable with their key.
func TestOtherKeyOfAnAbsentStore(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	redis := kit.StartRedis(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(encryptedConfig(up, redis.URL(), secretOne))
	state := func(key, want string) {
		t.Helper()
		if _, h, body := d.ask(key, chat("user: SAY Something.")); !strings.HasPrefix(h.Get("X-Memory"), want) {
			t.Errorf("X-Memory %q, want %q: %s\n%s", h.Get("X-Memory"), want, body, d.proxy.Log())
		}
	}
	state("a", "ok;")
	d.proxy.Stop()
	redis.Pause()
	d.configure(encryptedConfig(up, redis.URL(), secretTwo))
	d.proxy.Restart()
	redis.Resume()
	state("b", "degraded")
	d.proxy.Stop()
	if log := d.proxy.Log(); strings.Count(log, `"level":"ERROR"`) != 1 || !strings.Contains(log, "store.encryption.keys: the secret of") {
		t.Errorf("log:\n%s", log)
	}
	d.configure(encryptedConfig(up, redis.URL(), secretOne))
	d.proxy.Restart()
	state("c", "ok;")
	d.proxy.Logged("set aside", 1)
}

// TestSpoolOfAnotherKey: spooled turns that cannot be decrypted do not stop memory, are logged, and are not lost.
func TestSpoolOfAnotherKey(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(encryptedConfig(up, "redis://127.0.0.1:1", secretOne)) // nothing listens there
	if _, h, body := d.ask("canary-key", chat("user: SAY The canary sings.")); !strings.HasPrefix(h.Get("X-Memory"), "degraded") {
		t.Fatalf("X-Memory %q: %s", h.Get("X-Memory"), body)
	}
	d.proxy.Stop()
	d.proxy.Logged(`until the next start","records":1`, 1)
	aside := func() []string {
		files, err := filepath.Glob(filepath.Join(d.dir, "spool", "aside-*", "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	for _, c := range []struct {
		store, secret, cause string // no cause: the record is read
	}{
		{"bolt:two.db", secretTwo, `another secret of the key \"k1\"`},
		{"bolt:plain.db", "", "store.encryption is not configured"},
		{"bolt:one.db", secretOne, ""},
	} {
		d.configure(encryptedConfig(up, c.store, c.secret))
		d.proxy.Restart()
		if _, h, body := d.ask("k", chat("user: SAY Something else.")); !strings.HasPrefix(h.Get("X-Memory"), "ok;") {
			t.Errorf("%s: X-Memory %q: %s", c.store, h.Get("X-Memory"), body)
		}
		d.proxy.Stop()
		log := d.proxy.Log()
		if c.cause == "" {
			if strings.Contains(log, "set aside") || len(aside()) != 0 {
				t.Errorf("%s: set aside: %q\n%s", c.store, aside(), log)
			}
			continue
		}
		if len(aside()) != 1 || !strings.Contains(log, `"level":"ERROR"`) || !strings.Contains(log, filepath.Base(filepath.Dir(aside()[0]))) || !strings.Contains(log, c.cause) || strings.Contains(log, "canary") {
			t.Errorf("%s: set aside: %q\n%s", c.store, aside(), log)
		}
	}
	if out, _ := d.run(0, "", "--session", "s", "--key", "canary-key", "--text"); !strings.Contains(out, "The canary sings.") {
		t.Errorf("the turn is lost: %s", out)
	}
}
