package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"remora/test/scripted"
)

var responseID = regexp.MustCompile(`"id": ?"(resp_[^"]+)"`)

// TestStrictServersContinue: a client of Responses continues with previous_response_id after hidden calls. With each kind of
// server it gets answers, and the items that upstream does not have come before layers' blocks.
func TestStrictServersContinue(t *testing.T) {
	kinds := []scripted.Kind{scripted.KindOpenAI, scripted.KindQwen, scripted.KindGemma, scripted.KindMistral}
	for _, provider := range []string{"compatible", "openai"} {
		g := strictGate(t, provider, "auto")
		for _, kind := range kinds {
			for _, stream := range []bool{false, true} {
				for _, instructions := range []string{"", "Be brief."} {
					t.Run(fmt.Sprintf("%s %s stream=%v instructions=%v", provider, kind, stream, instructions != ""), func(t *testing.T) {
						// Each subtest is another caller, so that the proxy has learnt nothing yet.
						headers := []string{"Authorization: Bearer " + t.Name(), "X-Session-Id: s", "X-Resource-Id: r"}
						d, previous := dialect{path: "responses", stream: stream}, ""
						called, refused, told := false, 0, 0
						for i, text := range []string{
							`CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`, "SEE", `CALL working-memory_update {"name":"Eve"} ;; SAY Noted.`, "SEE", "SEE",
						} {
							extra := map[string]any{}
							if previous != "" {
								extra["previous_response_id"] = previous
							}
							before := len(g.up.Faults())
							r := g.ask(t, d.path, plainBody(t, d, string(kind), instructions, text, extra), headers...)
							if r.status != http.StatusOK {
								t.Fatalf("request %d: %d %s", i, r.status, r.body)
							}
							refused += len(g.up.Faults()) - before
							if got := typesSent(t, g); text == "SEE" && called != strings.HasPrefix(got, "function_call_output "+strings.Repeat("message ", 2)) {
								t.Errorf("request %d, behind a hidden call (%v): upstream was sent %s", i, called, got)
							}
							if seen := g.seen(t); called && (strings.Contains(seen, "Ada") || strings.Contains(seen, "Eve")) {
								told++
							}
							called = strings.HasPrefix(text, "CALL")
							previous = responseID.FindStringSubmatch(r.body)[1]
						}
						if refused > 1 || kind == scripted.KindOpenAI && refused > 0 {
							t.Errorf("%d requests were refused first: %q", refused, g.up.Faults())
						}
						if told != 2 {
							t.Errorf("the model is told of %d of 2 notes", told)
						}
					})
				}
			}
		}
	}
}

// typesSent returns the types of the items in upstream's last request.
func typesSent(t *testing.T, g *gate) string {
	t.Helper()
	var body struct {
		Input []struct{ Type string }
	}
	decode(t, []byte(g.seen(t)), &body)
	types := ""
	for _, it := range body.Input {
		if it.Type == "" {
			it.Type = "message"
		}
		types += it.Type + " "
	}
	return types
}
