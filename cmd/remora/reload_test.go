package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/test/kit"
)

// replace writes or replaces a file in the workspace's folder atomically: a file that is written in parts is read in parts.
func (d *workspace) replace(name, content string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path+".next", []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		d.t.Fatal(err)
	}
}

// TestReload: a changed file changes layers and providers, an invalid or emptied one nothing, and a replaced symbolic link, as in
// Kubernetes, is detected.
func TestReload(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	text := func(layers string) string {
		return fmt.Sprintf("providers: [{name: up, kind: compatible, base_url: %q}]\nmemory: {layers: [%s]}\n", up.URL()+"/v1", layers)
	}
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(text("{kind: static_content, text: First words.}"))
	sent := func() string {
		d.say("chat/completions", chat("user: Hello"), "X-Session-Id: "+t.Name(), "Authorization: Bearer k")
		all := up.Requests()
		return string(all[len(all)-1].Body)
	}
	await := func(mark string) {
		t.Helper()
		d.proxy.Logged(mark, 1)
	}
	if got := sent(); !strings.Contains(got, "First words.") {
		t.Fatalf("before: %s", got)
	}
	d.replace("config.yaml", text("{kind: working_memory, schema: '{'}"))
	await("memory.layers[0].schema")
	d.replace("config.yaml", text("{kind: static_content, txt: Wrong.}"))
	await("memory.layers[0].txt")
	d.replace("config.yaml", "")
	await("config.yaml: the file is empty now")
	if got := sent(); !strings.Contains(got, "First words.") {
		t.Errorf("after a broken file: %s", got)
	}
	d.replace("next.yaml", text("{kind: static_content, text: Second words.}")+"log: {level: debug}\n")
	if err := os.Symlink("next.yaml", filepath.Join(d.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(d.dir, "link"), d.proxy.Config); err != nil {
		t.Fatal(err)
	}
	await(`"level":"WARN","msg":"configuration reloaded","needs_restart":["log.level"]`)
	if got := sent(); !strings.Contains(got, "Second words.") || strings.Contains(got, "First words.") {
		t.Errorf("after the link was swapped: %s", got)
	}
	if err := os.Remove(d.proxy.Config); err != nil {
		t.Fatal(err)
	}
	await("the configuration's file cannot be read")
}

// TestFailedReloadIsTriedAgain: a file may name a secret that appears after it, as Kubernetes updates a ConfigMap and a Secret one
// after the other. Meanwhile the log tells of the problem once, and /readyz all the time.
func TestFailedReloadIsTriedAgain(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	address := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	text := func(key string) string {
		return fmt.Sprintf("server: {admin_listen: %q}\nproviders: [{name: up, kind: compatible, base_url: %q, api_key: %q}]\n", address, up.URL()+"/v1", key)
	}
	d.start(text("first"))
	if got := readyAt(t, address); got != "ok" {
		t.Errorf("/readyz says %q", got)
	}

	const failed = "configuration not reloaded"
	d.replace("config.yaml", text("file:"+filepath.Join(d.dir, "key")))
	d.proxy.Logged(failed, 1)
	time.Sleep(2*pollInterval + pollInterval/2)
	if got := readyAt(t, address); got != staleNote {
		t.Errorf("/readyz says %q", got)
	}
	if n := strings.Count(d.proxy.Log(), failed); n != 1 {
		t.Errorf("the problem is logged %d times", n)
	}

	d.replace("key", "second")
	d.proxy.Logged("configuration reloaded", 1)
	if got := readyAt(t, address); got != "ok" {
		t.Errorf("/readyz says %q", got)
	}
}

// TestUnreadableFileIsNoted: /readyz names a configuration file that is gone or has become a directory, until it can be read again.
// The log names each once.
func TestUnreadableFileIsNoted(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	address := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	text := fmt.Sprintf("server: {admin_listen: %q}\nproviders: [{name: up, kind: compatible, base_url: %q}]\n", address, up.URL()+"/v1")
	d.start(text)
	says := func(want string) {
		t.Helper()
		kit.Eventually(t, func() error {
			if got := readyAt(t, address); got != want {
				return fmt.Errorf("/readyz says %q, want %q", got, want)
			}
			return nil
		})
	}
	const failed = "the configuration's file cannot be read; the configuration stays"
	if err := errors.Join(os.Remove(d.proxy.Config), os.Mkdir(d.proxy.Config, 0o700)); err != nil {
		t.Fatal(err)
	}
	d.proxy.Logged(failed, 1)
	says(staleNote)
	if err := os.Remove(d.proxy.Config); err != nil {
		t.Fatal(err)
	}
	d.replace("config.yaml", text)
	d.proxy.Logged("the configuration's file can be read again", 1)
	says("ok")
	if err := os.Remove(d.proxy.Config); err != nil {
		t.Fatal(err)
	}
	d.proxy.Logged(failed, 2)
	says(staleNote)
	d.replace("config.yaml", text)
	says("ok")
	if log := d.proxy.Log(); strings.Contains(log, "configuration reloaded") || !strings.Contains(log, "is a directory") {
		t.Errorf("the log:\n%s", log)
	}
}

// staleNote is what /readyz answers while the file cannot be loaded.
const staleNote = "ok, but the configuration could not be reloaded, and the old one is in use: see the log"

// readyAt returns what /readyz at an address answers. The test fails unless the process is ready.
func readyAt(t *testing.T, address string) string {
	t.Helper()
	return strings.TrimSpace(pageAt(t, address, "/readyz"))
}

// pageAt returns a page of the address for operators, which must answer 200.
func pageAt(t *testing.T, address, path string) string {
	t.Helper()
	res, err := http.Get("http://" + address + path) //nolint:noctx // ends with the test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s (%v)", path, res.Status, err)
	}
	return string(body)
}

// TestPipeIsNotReadAgain: a pipe, as of --config <(decrypt config.yaml), has no content after the start, and reading a named one
// would block for ever.
func TestPipeIsNotReadAgain(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	if err := errors.Join(os.Remove(d.config), syscall.Mkfifo(d.config, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(d.proxy.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.proxy.Logged("config.yaml: want a regular file to reload; a pipe can be read only once", 1)
	d.say("chat/completions", chat("user: Hello"))
	d.proxy.Stop()
}

// TestHalfWrittenFile: a file that is still being written is not loaded.
func TestHalfWrittenFile(t *testing.T) {
	t.Parallel()
	l := &live{sources: sources{file: filepath.Join(t.TempDir(), "config.yaml")}}
	for i, look := range []struct {
		content   string
		unchanged bool
	}{{"a", false}, {"a", true}, {"", false}, {"b", false}, {"bc", false}, {"bc", true}} {
		if err := os.WriteFile(l.file, []byte(look.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := l.poll(); got != look.unchanged {
			t.Errorf("look %d, at %q: poll returned %v", i, look.content, got)
		}
	}
}

// TestHangupReloads: SIGHUP reloads the configuration even if its file is unchanged, since secrets in other files may have
// changed. Limits apply from the reload on.
func TestHangupReloads(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.replace("key", "key-one")
	config := fmt.Sprintf("providers: [{name: up, kind: compatible, base_url: %q, api_key: %q}]\n", up.URL()+"/v1", "file:"+filepath.Join(d.dir, "key"))
	d.start(config)
	reload := func(times int) {
		t.Helper()
		if err := syscall.Kill(d.proxy.PID(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		d.proxy.Logged("configuration reloaded", times)
	}
	credential := func() string {
		d.say("chat/completions", chat("user: Hello"), "Authorization: Bearer k")
		all := up.Requests()
		return all[len(all)-1].Header.Get("Authorization")
	}
	if got := credential(); got != "Bearer key-one" {
		t.Fatalf("upstream got %q", got)
	}
	d.replace("key", "key-two")
	reload(1)
	if got := credential(); got != "Bearer key-two" {
		t.Errorf("after SIGHUP upstream got %q", got)
	}
	d.replace("config.yaml", config+"limits: {tenant: {requests_per_minute: 1, burst: 1}}\n")
	reload(2)
	var codes [2]int
	for i := range codes {
		codes[i], _, _ = d.ask("k", chat("user: Hello"))
	}
	if want := [2]int{http.StatusOK, http.StatusTooManyRequests}; codes != want {
		t.Errorf("with a limit of one request: %v", codes)
	}
	if strings.Contains(d.proxy.Log(), "key-") {
		t.Errorf("the log holds a key:\n%s", d.proxy.Log())
	}
}

// TestWindowByShareSurvivesAReload: the first request after a reload is cut like those before it, although the new configuration
// has not read the provider's list of models yet.
func TestWindowByShareSurvivesAReload(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Yes."}}]}`)
		case asked.Add(1) == 1:
			_, _ = io.WriteString(w, `{"data":[{"id":"m","max_model_len":1000}]}`)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(up.Close)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor("memory:", up.URL) + "memory: {layers: [{kind: history_window, max_share: 0.5}]}\n")
	long := chat("user: "+strings.Repeat("word ", 900), "assistant: Yes.", "user: Short?")
	cut := func(session string) error { // a new one has no earlier cut
		res, _, err := d.send("chat/completions", long, "X-Session-Id: "+session)
		if err == nil && strings.Contains(res.Header.Get("X-Memory"), "windowed=0") {
			err = errors.New("the whole history was sent")
		}
		return err
	}
	kit.Eventually(t, func() error { return cut("before") })
	if err := syscall.Kill(d.proxy.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.proxy.Logged("configuration reloaded", 1)
	if err := cut("after"); err != nil {
		t.Errorf("after the reload %v", err)
	}
}

// TestKeysThatNeedARestart: differs returns the full names of changed keys, without those that take effect at once.
func TestKeysThatNeedARestart(t *testing.T) {
	t.Parallel()
	read := func(environ ...string) Config {
		t.Helper()
		c, err := sources{environ: environ}.load()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := read()
	now := read("REMORA_SERVER_LISTEN=:1", "REMORA_SERVER_UPSTREAM_DIAL_TIMEOUT=1m", "REMORA_SESSION_HEADERS=a,b", "REMORA_STORE_URL=memory:",
		"REMORA_STORE_SPOOL_DIR=d", "REMORA_TELEMETRY_METRICS_INTERVAL=2m", "REMORA_MEMORY_ON_STORE_ERROR=closed", "REMORA_MEMORY_POLICY_TOKEN_BUDGET=1000000")
	want := []string{
		"server.listen", "server.upstream.dial_timeout", "session.headers", "store.url", "store.spool.dir", "telemetry.metrics.interval",
		"memory.on_store_error",
	}
	if diff := cmp.Diff(want, old.differs(now)); diff != "" {
		t.Errorf("want- have+:\n%s", diff)
	}
	if diff := cmp.Diff([]string{}, old.differs(read())); diff != "" {
		t.Errorf("nothing has changed:\n%s", diff)
	}
}

// TestReplacedSecretIsRead: a secret in a file of its own is replaced there, as Kubernetes does with a mounted Secret, while the
// configuration stays. One that is gone for a while changes nothing.
func TestReplacedSecretIsRead(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.replace("key", "first\n")
	d.replace("title", "one")
	d.start(fmt.Sprintf("providers: [{name: up, kind: compatible, base_url: %q, api_key: %q, headers: [{name: X-Title, value: %q}]}]\n",
		up.URL()+"/v1", "file:"+filepath.Join(d.dir, "key"), "file:"+filepath.Join(d.dir, "title")))
	sent := func(want string) {
		t.Helper()
		d.say("chat/completions", chat("user: Hello"))
		all := up.Requests()
		h := all[len(all)-1].Header
		if got := h.Get("Authorization") + ", " + h.Get("X-Title"); got != want {
			t.Errorf("upstream gets %q, want %q", got, want)
		}
	}
	sent("Bearer first, one")
	d.replace("key", "second\n")
	d.proxy.Logged("configuration reloaded", 1)
	sent("Bearer second, one")
	d.replace("title", "two")
	d.proxy.Logged("configuration reloaded", 2)
	sent("Bearer second, two")
	if err := os.Remove(filepath.Join(d.dir, "key")); err != nil {
		t.Fatal(err)
	}
	d.proxy.Logged("configuration not reloaded", 1)
	sent("Bearer second, two")
	d.replace("key", "third")
	d.proxy.Logged("configuration reloaded", 3)
	sent("Bearer third, two")
}
