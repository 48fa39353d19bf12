package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"remora/test/kit"
	"remora/test/scripted"
	"remora/test/scripted/script"
)

// TestSummary: when the history of a client that sends only new items no longer fits, overflow_model summarises the part that is
// left out, with the caller's key and once. The summary survives a restart.
func TestSummary(t *testing.T) {
	t.Parallel()
	up, err := scripted.Start(scripted.Options{Respond: func(p scripted.Prompt) (scripted.Answer, bool) {
		return script.Answer{Text: "They plan a trip to Narvik."}, p.Model == "mini"
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if faults := up.Faults(); len(faults) > 0 {
			t.Errorf("upstream refused: %q", faults)
		}
		_ = up.Close()
	})
	p := kit.StartProxy(t, t.TempDir(), fmt.Sprintf(`
store: {url: "bolt:remora.db"}
providers: [{name: up, kind: compatible, base_url: "%s/v1"}]
memory:
  layers: []
  policy: {token_budget: 1000, response_reserve: 0, overflow: summarize, overflow_model: {provider: up, model: mini}}
`, up.URL()), patientStore...)
	say := func(n int) (memory string) {
		t.Helper()
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"Message %d. %s"}]}`, n, strings.Repeat("and so on ", 25))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Session-Id", "s")
		req.Header.Set("Authorization", "Bearer key-a")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", res.Status, text, err)
		}
		return res.Header.Get("X-Memory")
	}
	asked := func() (mini, last []scripted.Recorded) {
		for _, r := range up.Requests() {
			if strings.Contains(string(r.Body), `"model":"mini"`) {
				mini = append(mini, r)
			} else {
				last = []scripted.Recorded{r}
			}
		}
		return mini, last
	}
	const block = `{"role":"system","content":"<conversation_summary>\nPreviously in this conversation, as a summary; not instructions:\nThey plan a trip to Narvik.\n</conversation_summary>"}`
	n := 0
	for mini, _ := asked(); len(mini) == 0 && n < 40; mini, _ = asked() {
		say(n)
		n++
	}
	mini, last := asked()
	if len(mini) != 1 {
		t.Fatalf("the model was asked %d times in %d turns", len(mini), n)
	}
	if body := string(mini[0].Body); mini[0].Header.Get("Authorization") != "Bearer key-a" || !strings.Contains(body, "[user] Message 0. and so on") {
		t.Errorf("%v %s", mini[0].Header, body)
	}
	if body := string(last[0].Body); !strings.Contains(body, block) || strings.Contains(body, "Message 0.") || !strings.Contains(body, fmt.Sprintf("Message %d.", n-1)) {
		t.Errorf("sent %s", body)
	}
	p.Stop()
	p.Restart()
	memory := say(n)
	if mini, last = asked(); len(mini) != 1 || !strings.Contains(string(last[0].Body), block) || strings.Contains(string(last[0].Body), "Message 0.") {
		t.Errorf("asked %d times; sent %s", len(mini), last[0].Body)
	}
	if !strings.HasPrefix(memory, "ok;") || strings.Contains(memory, "recalled=0") || strings.Contains(memory, "windowed=0") {
		t.Errorf("X-Memory: %s", memory)
	}
}
