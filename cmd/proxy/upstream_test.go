package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"remora/cmd/proxy/proxytest"
)

// TestUpstream: a stranger with neither key nor network starts `proxy upstream`, and a proxy in front of it remembers.
func TestUpstream(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), proxytest.Build(t), "upstream", "--listen", "127.0.0.1:0")
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
	_, providers, _ := strings.Cut(second, "REMORA_PROVIDERS='")
	providers, _, ok = strings.Cut(providers, "'")
	if !ok || err != nil || !strings.Contains(providers, url) {
		t.Fatalf("%q, %v", second, err)
	}
	// What it says to try next is what README says.
	hint, _ := strings.CutPrefix(strings.ReplaceAll(second, url, upstreamByDefault()+"/v1"), "try: ")
	if !slices.Contains(readmeBlocks(t, "sh"), hint) {
		t.Errorf("README.md does not have %s", hint)
	}
	p := proxytest.Start(t, t.TempDir(), "store: {url: \"memory:\"}\nproviders: "+providers+"\n")
	ask := func(words string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/v1/chat/completions", strings.NewReader(chat("user: "+words)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Session-Id", "first")
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
	if got := ask("My name is Ada."); !strings.Contains(got, "You said: My name is Ada.") {
		t.Errorf("answer %s", got)
	}
	if got := ask("SEE"); !strings.Contains(got, "My name is Ada.") {
		t.Errorf("the model did not see what was said before: %s", got)
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
