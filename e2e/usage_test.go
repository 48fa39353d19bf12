package e2e

import (
	"strings"
	"testing"

	"remora/providers/scripted"
)

// TestTurnShowsWhatItCost is case 84: each layer's tokens and items, and system, tools, history and total.
func TestTurnShowsWhatItCost(t *testing.T) {
	g := startGate(t, `[{kind: working_memory}, {kind: static_content, text: Be brief.}, {kind: plan_memory}]`, scripted.Options{})
	turns := make(map[string]string)
	for _, d := range dialects {
		session := "X-Session-Id: " + d.String()
		g.say(t, d, `CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`, session)
		turns[d.String()] = g.say(t, d, "SAY Bye.", session).header.Get("X-Turn-Id")
	}
	g.proxy.stop()
	for session, turn := range turns {
		var got struct {
			View struct {
				Tokens struct{ System, Tools, History, Layers, Total int }
			}
			Layers []struct {
				ID            string
				Tokens, Items int
			}
		}
		decode(t, []byte(g.proxy.transcriptOf(t, "--session", session, "--turn", turn, "--record")), &got)
		var names []string
		sum := 0
		for _, l := range got.Layers {
			names = append(names, l.ID)
			if sum += l.Tokens; (l.Tokens > 0) != (l.Items == 1) || (l.Tokens > 0) != (l.ID != "plan") {
				t.Errorf("case 84: %s: layer %+v", session, l)
			}
		}
		if want := "working-memory static-content plan"; strings.Join(names, " ") != want {
			t.Errorf("case 84: %s: layers %q, want %s", session, names, want)
		}
		u := got.View.Tokens
		if u.Layers != sum || u.Tools == 0 || u.History == 0 || u.Total != u.System+u.Tools+u.History+u.Layers {
			t.Errorf("case 84: %s: %+v, layers have %d", session, u, sum)
		}
	}
}
