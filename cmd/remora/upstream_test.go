package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"remora/test/kit"
)

// TestUpstream: without key or network, `remora upstream` serves, and a proxy in front of it remembers.
func TestUpstream(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), kit.BuildProxy(t), "upstream", "--listen", "127.0.0.1:0")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(first), "scripted upstream listens on ")
	if !ok || err != nil {
		t.Fatalf("%q, %v\n%s", first, err, &log)
	}
	second, err := lines.ReadString('\n')
	_, command, ok := strings.Cut(second, "go run ./cmd/remora ")
	if !ok || err != nil || !strings.Contains(command, strings.TrimSuffix(url, "/v1")) {
		t.Fatalf("%q, %v", second, err)
	}
	// The command that it prints works.
	p, at, err := startProxy(t.TempDir(), []string{"PATH=" + os.Getenv("PATH")}, strings.Fields(command))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	ask := func(session, words string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/v1/chat/completions", strings.NewReader(chat("user: "+words)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Session-Id", session)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", words, res.Status, err)
		}
		return string(body)
	}
	for _, c := range []struct{ session, words, want string }{
		{"first", "My name is Ada.", "You said: My name is Ada."},
		{"first", "What is my name?", "Your name is Ada."},
		{"first", "SEE", "user: My name is Ada."},
		{"second", "What is my name?", "I do not know your name."},
	} {
		if got := ask(c.session, c.words); !strings.Contains(got, c.want) {
			t.Errorf("session %s, %s: want %s, have %s", c.session, c.words, c.want, got)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil || log.Len() > 0 {
		t.Errorf("%v\n%s", err, &log)
	}
}
