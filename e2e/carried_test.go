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

// TestGoesOnFromStitchedResponse: a client that names the response it had, and no history, goes on from an answer that
// upstream gave in two parts, of which it knows the first only by that id.
func TestGoesOnFromStitchedResponse(t *testing.T) {
	t.Parallel()
	up := startUpstream(t, scripted.Options{})
	p := proxytest.Start(t, t.TempDir(), fmt.Sprintf(
		"providers: [{kind: compatible, base_url: %q}]\nmemory: {layers: [{kind: working_memory}]}\n", up.URL()+"/v1"))
	ask := func(body string) (id, text string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/v1/responses", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Session-Id", "s")
		req.Header.Set("Authorization", "Bearer "+credential)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v", resp.StatusCode, b, err)
		}
		var answer struct {
			ID     string
			Output []struct {
				Type    string
				Content []struct{ Text string }
			}
		}
		if err := json.Unmarshal(b, &answer); err != nil {
			t.Fatal(err)
		}
		for _, item := range answer.Output {
			if item.Type != "message" {
				t.Errorf("client got a %s", item.Type)
			}
			for _, c := range item.Content {
				text += c.Text + "|"
			}
		}
		return answer.ID, text
	}
	id, text := ask(`{"model":"m","input":"SAY Let me see. ;; CALL working-memory_update {\"name\":\"Ada\"} ;; SAY Noted."}`)
	if text != "Let me see.|Noted.|" {
		t.Errorf("first answer %q", text)
	}
	_, text = ask(fmt.Sprintf(`{"model":"m","previous_response_id":%q,"input":"SAY Fine."}`, id))
	if text != "Fine.|" {
		t.Errorf("second answer %q", text)
	}
	requests := up.Requests()
	last := string(requests[len(requests)-1].Body)
	for _, want := range []string{"function_call_output", "Noted.", "SAY Fine."} {
		if !strings.Contains(last, want) {
			t.Errorf("upstream was not sent %q: %s", want, last)
		}
	}
	if faults := up.Faults(); len(faults) > 0 {
		t.Errorf("upstream found fault: %v", faults)
	}
}
