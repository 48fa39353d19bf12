package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"remora/cmd/proxy/proxytest"
	"remora/providers/scripted"
)

// layered is a proxy with layers in front of a strict upstream.
type layered struct {
	*testing.T
	up  *scripted.Server
	url string
}

func startLayers(t *testing.T, layers string) *layered {
	t.Helper()
	up, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range up.Faults() {
			t.Errorf("upstream refused a request: %v", f)
		}
		if err := up.Close(); err != nil {
			t.Error(err)
		}
	})
	p := proxytest.Start(t, t.TempDir(), fmt.Sprintf(`
providers: [{name: up, kind: compatible, base_url: "%s/v1"}]
store: {url: "bolt:remora.db"}
memory:
  layers: [%s]
`, up.URL(), layers))
	return &layered{t, up, p.URL}
}

// say sends a chat request and returns the answer's text, its calls, and its headers.
func (l *layered) say(session, resource, body string) (string, http.Header) {
	l.Helper()
	req, err := http.NewRequest(http.MethodPost, l.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		l.Fatal(err)
	}
	req.Header.Set("X-Session-Id", session)
	req.Header.Set("X-Resource-Id", resource)
	req.Header.Set("Authorization", "Bearer k")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		l.Fatal(err)
	}
	return string(b), resp.Header
}

func user(text string, more ...string) string {
	b, _ := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]string{"role": "user", "content": text}}, "stream": len(more) > 0})
	return string(b)
}

func TestLayersThroughTheFrontDoor(t *testing.T) {
	l := startLayers(t, "{kind: working_memory, scope: resource}, {kind: observational_memory}")
	for _, body := range []string{
		user(`SAY Let me note that. ;; CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`),
		user(`SAY Let me note that. ;; CALL working-memory_update {"city":"Paris"} ;; SAY Noted.`, "stream"),
	} {
		answer, h := l.say("s1", "ada", body)
		t.Log(answer, h.Get("X-Memory"))
	}
	answer, h := l.say("s2", "ada", user("SEE"))
	t.Log(answer, h.Get("X-Memory"))
	for _, r := range l.up.Requests() {
		t.Logf("%s", r.Body)
	}
}
