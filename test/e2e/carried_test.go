package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
)

// TestContinuesFromMergedResponse: with previous_response_id and no history, a client continues from an answer merged from two of
// upstream's, of which that id only names the first.
func TestContinuesFromMergedResponse(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: working_memory}]", scripted.Options{})
	ask := func(body string) (id, text string) {
		t.Helper()
		r := g.ask(t, "responses", body)
		if r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
		var answer struct {
			ID     string
			Output []struct {
				Type    string
				Content []struct{ Text string }
			}
		}
		if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
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
	last := g.seen(t)
	for _, want := range []string{"function_call_output", "Noted.", "SAY Fine."} {
		if !strings.Contains(last, want) {
			t.Errorf("upstream was not sent %q: %s", want, last)
		}
	}
	g.sound(t)
}
