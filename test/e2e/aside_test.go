package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

// TestHiddenCallsKeepTheirPlace: in later views a hidden call follows the model's text before it, whether the client sends its
// history or the proxy adds it.
func TestHiddenCallsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	const (
		script = `SAY Let me see. ;; CALL working-memory_update {"a":1} ;; REASON hm ;; CALL working-memory_update {"b":2} | ls {} | working-memory_update {"c":3}`
		again  = `{"role":"user","content":"SAY Bye."}`
	)
	for _, stream := range []bool{false, true} {
		g := startGate(t, "[{kind: working_memory}]", scripted.Options{})
		d := dialect{"responses", stream}
		r := g.say(t, d, script)
		output := `{"type":"function_call_output","call_id":"` + d.lastCall(t, r) + `","output":"a file"}`
		r = g.ask(t, "responses", `{"model":"m","input":[`+output+`,`+again+`]}`)
		if r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
		var got []string
		for _, f := range sent(t, g.seen(t)) {
			if !strings.HasPrefix(f, "developer ") { // the notes
				got = append(got, unnumbered(f))
			}
		}
		want := []string{
			"user " + script, "assistant Let me see.", "call working-memory_update {\"a\":1}", "result", "reasoning",
			"call working-memory_update {\"b\":2}", "result", "call ls {}", "call working-memory_update {\"c\":3}", "result", "result", "user SAY Bye.",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stream=%v: the model sees (-want +got):\n%s", stream, diff)
		}
		g.sound(t)
	}
}

// unnumbered returns a fact without ids of calls; of a result and of reasoning only the kind.
func unnumbered(fact string) string {
	kind, rest, _ := strings.Cut(fact, " ")
	switch kind {
	case "call":
		_, what, _ := strings.Cut(rest, " ")
		return kind + " " + what
	case "result", "reasoning":
		return kind
	}
	return fact
}
