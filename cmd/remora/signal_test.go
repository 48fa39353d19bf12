package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"remora/test/kit"
	"remora/test/process"
)

// openStream starts a proxy and requests an answer that stalls after its first events until release is called.
func openStream(t *testing.T) (r *running, body *bufio.Reader, release func()) {
	t.Helper()
	up := startUpstream(t)
	dir := t.TempDir()
	r, url, err := startProxy(dir, []string{"PATH=" + os.Getenv("PATH"), providerAt(up)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	req, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Session-Id", "s")
	req.Header.Set("X-Script", "stall-after=1")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	body = bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Fatalf("first event: %q, %v", line, err)
	}
	return r, body, up.Release
}

// stopping sends a signal and waits until the proxy logs that it stops.
func (r *running) stopping(t *testing.T) {
	t.Helper()
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.says(t, `"msg":"stopping"`)
}

// says waits until the proxy's output contains mark.
func (r *running) says(t *testing.T, mark string) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !strings.Contains(r.Log(), mark); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q in the log:\n%s", mark, r.Log())
		}
	}
}

// TestHangupWhileStarting: SIGHUP does not end a proxy that still waits for its store; it reloads once it serves.
func TestHangupWhileStarting(t *testing.T) {
	t.Parallel()
	reloadWhileStarting(t, "", func(r *running, _ string) error { return r.Signal(syscall.SIGHUP) }, `"msg":"configuration reloaded"`)
}

// TestChangeWhileStarting: a proxy that still waits for its store has read its file; a change of the file is loaded once it serves.
func TestChangeWhileStarting(t *testing.T) {
	t.Parallel()
	change := func(text string) func(*running, string) error {
		return func(_ *running, file string) error { return os.WriteFile(file, []byte(text), 0o600) }
	}
	reloadWhileStarting(t, "log: {level: info}", change("log: {level: warn}"), `"needs_restart":["log.level"]`)
	reloadWhileStarting(t, "log: {level: info}", change(""), "the file is empty now")
}

// reloadWhileStarting starts a proxy with the file, and acts while it waits for its store. The running proxy must log mark.
func reloadWhileStarting(t *testing.T, file string, act func(r *running, file string) error, mark string) {
	t.Helper()
	store, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", kit.FreeAddr(t)) // its own until the end of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := launchProxy(t.TempDir(), []string{"REMORA_STORE_URL=redis://" + store.Addr().String()}, []string{"--config", config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	conn, err := store.Accept() // the proxy now waits for an answer
	if err != nil {
		t.Fatal(err)
	}
	if err := act(r, config); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Close(), store.Close()
	if _, err := r.Await(); err != nil {
		t.Fatal(err)
	}
	r.says(t, mark)
	r.stopping(t)
	if code := r.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func (r *running) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-r.Ended():
		return r.ExitCode()
	case <-time.After(waitLimit):
		t.Fatalf("the proxy does not end:\n%s", r.Log())
		return 0
	}
}

func TestSignalLetsStreamsFinish(t *testing.T) {
	t.Parallel()
	r, body, release := openStream(t)
	r.stopping(t)
	release()
	rest, err := io.ReadAll(body)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the stream ended with %v after %q", err, rest)
	}
	if code := r.wait(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, r.Log())
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	r, body, _ := openStream(t)
	r.stopping(t)
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(t); code != -1 { // -1: ended by the signal itself
		t.Errorf("exit code %d\n%s", code, r.Log())
	}
	if rest, err := io.ReadAll(body); err == nil {
		t.Errorf("the stream has a clean end after %q", rest)
	}
}

// TestClosedStderrDoesNotEndIt: a proxy whose log nobody reads any more, as with 2> >(head), serves on and stops in order.
func TestClosedStderrDoesNotEndIt(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("remora", "--listen", "127.0.0.1:0") // created by testscript.Main
	cmd.Dir, cmd.Env, cmd.Stderr = t.TempDir(), append([]string{"PATH=" + os.Getenv("PATH"), providerAt(up)}, patientStore...), writer
	process.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_ = writer.Close()
	lines := bufio.NewScanner(reader)
	for lines.Scan() && !strings.Contains(lines.Text(), `"msg":"started"`) {
	}
	_ = reader.Close()

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // it logs that it stops
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestBrokenListenerEnds: a proxy that cannot serve prints the reason and exits, and --check reports it.
func TestBrokenListenerEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bad.pem":  "no certificate",
		"tls.yaml": "server: {tls_cert: bad.pem, tls_key: bad.pem}\nstore: {url: \"memory:\"}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"--config", "tls.yaml"}, {"--config", "tls.yaml", "--check"}} {
		_, _, err := startProxy(dir, []string{"PATH=" + os.Getenv("PATH")}, args)
		if text := fmt.Sprint(err); !strings.Contains(text, ": exit status 1") || !strings.Contains(text, "server.tls_cert and server.tls_key: ") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestShutdownDelay: after SIGTERM a proxy reports that it is not ready, and serves for server.shutdown_delay; each answer
// closes its connection.
func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	admin := kit.FreeAddr(t)
	r, url, err := startProxy(t.TempDir(), []string{
		"PATH=" + os.Getenv("PATH"), providerAt(up), "REMORA_SERVER_SHUTDOWN_DELAY=1h", "REMORA_SERVER_ADMIN_LISTEN=" + admin,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	r.stopping(t)
	get := func(url string) *http.Response {
		t.Helper()
		res, err := http.Get(url) //nolint:noctx // ends with the test
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res
	}
	if res := get("http://" + admin + "/readyz"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz says %s", res.Status)
	}
	if res := get(url + "/v1/models"); res.StatusCode != http.StatusOK || !res.Close {
		t.Errorf("a request is answered with %s, close %v", res.Status, res.Close)
	}
	select {
	case <-r.Ended():
		t.Errorf("it ended:\n%s", r.Log())
	default:
	}
}
