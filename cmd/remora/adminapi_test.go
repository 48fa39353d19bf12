package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"remora/test/kit"
)

// collector stores the data exported to it.
type collector struct {
	mu     sync.Mutex
	sent   bytes.Buffer
	bodies [][]byte
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if z, err := gzip.NewReader(r.Body); err == nil {
			body = z
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b, err := io.ReadAll(body); err == nil {
		c.sent.Write(b)
		c.bodies = append(c.bodies, b)
	}
}

// TestOtherLogs: what libraries would write to standard error by themselves is no part of the log: neither what a collector has
// answered, nor the value of a variable of OpenTelemetry that has a mistake.
func TestOtherLogs(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	conns := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns <- struct{}{}
			_, _ = conn.Read(make([]byte, 1<<20))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\na canary")
		}
	}()
	p := kit.StartProxy(t, t.TempDir(), fmt.Sprintf("store: {url: \"memory:\"}\ntelemetry: {metrics: {endpoint: \"http://%s\", interval: 1s}}\n", ln.Addr()),
		"OTEL_EXPORTER_OTLP_HEADERS=Bearer canary", "OTEL_RESOURCE_ATTRIBUTES=nonsense")
	<-conns
	<-conns // the connection of the first export had ended
	p.Stop()
	for line := range strings.Lines(p.Log()) {
		if !json.Valid([]byte(line)) || strings.Contains(line, "canary") {
			t.Errorf("log: %s", line)
		}
	}
	p.Logged(`"problem":"parse headers"`, 1)
}

// TestOperators: health, metrics and traces of a real request work. They contain neither content nor keys; metrics contain no
// session either.
func TestOperators(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	traces := &collector{}
	sink := httptest.NewServer(traces)
	t.Cleanup(sink.Close)
	address := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	const token = "an-operators-token"
	d.start(fmt.Sprintf(`
server: {admin_listen: %q, admin_token: %s}
providers: [{name: up, kind: compatible, base_url: %q}]
telemetry: {traces: {endpoint: %q}}
memory: {layers: [{kind: working_memory}]}
`, address, token, up.URL()+"/v1", sink.URL))
	get := func(path, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	d.say("chat/completions", chat("user: SAY A canary. ;; CALL working-memory_update {\"bird\":\"canary\"} ;; SAY Noted."),
		"X-Session-Id: canary-session", "Authorization: Bearer canary-key",
		"traceparent: 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(path, ""); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := get("/debug/pprof/profile?seconds=1", "wrong"); code != http.StatusUnauthorized {
		t.Errorf("a profile without the token: %d", code)
	}
	if code, _ := get("/metrics", "wrong"); code != http.StatusUnauthorized {
		t.Errorf("metrics without the token: %d", code)
	}
	code, metrics := get("/metrics", token)
	for _, want := range []string{
		"gen_ai_client_token_usage", "gen_ai_client_operation_duration", "remora_", `layer="working-memory"`, "remora_store",
	} {
		if code != http.StatusOK || !strings.Contains(metrics, want) {
			t.Errorf("metrics, %d, do not hold %q", code, want)
		}
	}
	if strings.Contains(metrics, "canary") {
		t.Error("metrics hold content, a session or a key")
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.proxy.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "GET http://user:canary-key@api.test/v1/models HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 ") {
		t.Errorf("a target in absolute form: %q, %v", answer, err)
	}
	_ = conn.Close()
	d.proxy.Stop() // flushes
	sent := traces.sent.String()
	for _, want := range []string{
		"POST /v1/chat/completions", "recall", "store read", "chat m", "review", "layer working-memory tools", "commit", "store commit", "canary-session",
	} {
		if !strings.Contains(sent, want) {
			t.Errorf("no span holds %q", want)
		}
	}
	if strings.Contains(sent, "canary-key") || strings.Contains(sent, "A canary") || strings.Contains(sent, "bird") {
		t.Error("spans hold content or a key")
	}
	if strings.Contains(d.proxy.Log(), "canary") {
		t.Errorf("the log holds content, a session or a key:\n%s", d.proxy.Log())
	}
	last := up.Requests()[0]
	if got := last.Header.Get("Traceparent"); !strings.HasPrefix(got, "00-0123456789abcdef0123456789abcdef-") || strings.HasSuffix(got, "-0123456789abcdef-01") {
		t.Errorf("upstream got the trace context %q", got)
	}
}
