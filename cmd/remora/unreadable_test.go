package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// unreadableUpstream starts an upstream whose answers no layer can read. A background request gets a pending answer.
func unreadableUpstream(t *testing.T, offered *atomic.Bool) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		offered.Store(strings.Contains(string(body), "working-memory_update"))
		for part, answer := range map[string]string{`"background":true`: queued, "And now?": completed} {
			if strings.Contains(string(body), part) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer)
				return
			}
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "hello")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const (
	queued    = `{"id":"resp_1","object":"response","status":"queued","background":true,"output":[]}`
	completed = `{"id":"resp_2","object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Now."}]}]}`
)

// post sends a request of a session and returns the answer.
func (d *workspace) post(path, body string) (status int, answer string) {
	d.t.Helper()
	res, answer, err := d.send(path, body, "X-Session-Id: s")
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, answer
}

// TestUnreadableAnswerIsPaidOnce: with layers that have tools, an unreadable answer is not an error: clients would retry it,
// and pay again.
func TestUnreadableAnswerIsPaidOnce(t *testing.T) {
	t.Parallel()
	var offered atomic.Bool
	up := unreadableUpstream(t, &offered)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor("bolt:remora.db", up) + "memory: {layers: [{kind: working_memory}]}\n")
	if code, got := d.post("chat/completions", chat("user: Hi.")); code != http.StatusOK || got != "hello" || !offered.Load() {
		t.Errorf("%d %q, layers offered tools: %v", code, got, offered.Load())
	}
	d.proxy.Logged("passed on and not kept", 1)
	// Calls of layers' tools in a background answer would stay unanswered.
	if code, got := d.post("responses", `{"model":"m","background":true,"input":"Later."}`); code != http.StatusOK || got != queued || offered.Load() {
		t.Errorf("%d %q, layers offered tools: %v", code, got, offered.Load())
	}
	const resent = `{"model":"m","input":[{"role":"user","content":"Later."},{"role":"assistant","content":"Ready."},{"role":"user","content":"And now?"}]}`
	if code, got := d.post("responses", resent); code != http.StatusOK || got != completed {
		t.Errorf("%d %q", code, got)
	}
	d.proxy.Stop()
	if log := d.proxy.Log(); strings.Count(log, "passed on and not kept") != 1 {
		t.Errorf("log:\n%s", log)
	}
	text, _ := d.run(0, "", "--text", "--session", "s")
	for i, want := range []string{"user       Hi.  [branch]  [incomplete]", "user       Later.  [incomplete]", "assistant  Ready.", "user       And now?", "assistant  Now."} {
		if !strings.Contains(text, fmt.Sprintf("%6d  %s\n", i+1, want)) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	exported, _ := d.run(0, "", "--session", "s")
	for _, want := range []string{`"finish":"queued"`, `Later.`} {
		if !strings.Contains(exported, want) {
			t.Errorf("no %s in %s", want, exported)
		}
	}
	for line := range strings.Lines(exported) {
		if strings.Contains(line, `"finish":"queued"`) && !strings.Contains(line, `"status":"incomplete"`) {
			t.Error(line)
		}
	}
}

// TestUnreadableAnswerIsNotJudged: with a rule for answers, an unreadable answer is refused, and so is a background request.
func TestUnreadableAnswerIsNotJudged(t *testing.T) {
	t.Parallel()
	var offered atomic.Bool
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor("memory:", unreadableUpstream(t, &offered)) + `memory:
  layers:
    - kind: steering
      rules: [{id: no-deletes, applies_to: [before_tool_call], when: 'tool.name == "delete_file"', action: deny}]
`)
	for _, tc := range []struct {
		path, body string
		code       int
		want       []string
	}{
		{"chat/completions", chat("user: Hi."), http.StatusBadGateway, []string{"cannot be read", `"code":"upstream_unreadable"`}},
		{"responses", `{"model":"m","background":true,"input":"Later."}`, http.StatusBadRequest, []string{"leave out background", `"param":"background"`}},
	} {
		code, got := d.post(tc.path, tc.body)
		if code != tc.code {
			t.Errorf("%s: %d %s", tc.path, code, got)
		}
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %s in %s", tc.path, want, got)
			}
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.proxy.URL+"/v1/responses", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusUpgradeRequired || strings.Contains(string(b), "X-Memory") {
		t.Errorf("%d %s %v", res.StatusCode, b, err)
	}
}
