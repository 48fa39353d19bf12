package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"remora/providers/scripted"
)

// TestNobodyGetsAroundTheRules: a denied call reaches no client, however it asks: without a session, with memory switched
// off, as a side request, and with a body that only upstream could read.
func TestNobodyGetsAroundTheRules(t *testing.T) {
	g := startGate(t, noDeletes, scripted.Options{})
	const script = `CALL rm {"path":"/"} | ls {"path":"/"} ;; SAY Listed.`
	for name, headers := range map[string][]string{
		"without a session": {"X-Session-Id: null"},
		"memory off":        {"X-Memory: off"},
		"neither":           {"X-Memory: off", "X-Session-Id: null"},
		"a side request":    {`X-Codex-Turn-Metadata: {"request_kind":"compaction"}`},
	} {
		for _, d := range dialects {
			t.Run(name+" "+d.String(), func(t *testing.T) {
				r := g.say(t, d, script, headers...)
				if got, want := d.facts(t, r), []string{`call ls {"path":"/"}`}; !slices.Equal(got, want) {
					t.Errorf("the client sees %q, want %q: %s", got, want, r.body)
				}
				r = g.say(t, d, `SAY Cleaning. ;; CALL rm {"path":"/"} ;; SAY I will not then.`, headers...)
				if got := strings.Join(d.facts(t, r), " "); strings.Contains(got, "call") || !strings.Contains(got, "I will not then.") {
					t.Errorf("the client sees %q", got)
				}
				if name != "a side request" && r.header.Get("X-Turn-Id") != "" {
					t.Errorf("the client is told of a turn: %q", r.header)
				}
			})
		}
	}
	r := g.ask(t, "chat/completions", "not what it says", "X-Session-Id: null", "Content-Encoding: br")
	if r.status != http.StatusBadRequest || !strings.Contains(r.body, "rules of this gateway") {
		t.Errorf("a body that cannot be read: %d %s", r.status, r.body)
	}
	g.sound(t)
	g.proxy.stop()
	if got := g.proxy.transcriptOf(t, "list"); strings.TrimSpace(got) != "s" {
		t.Errorf("stored sessions: %q, want only that of the side requests", got)
	}
}
