package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"remora/test/scripted"
	"remora/test/scripted/script"
)

// fifty is a text of 50 words, and so of at least 50 tokens.
var fifty = strings.TrimSpace(strings.Repeat("tea ", 50))

// apart returns the texts of a body in a layer's tag, and all others.
func apart(t *testing.T, body, tag string) (block, rest string) {
	t.Helper()
	for _, it := range listed(t, []byte(body)) {
		text := strings.Join(facts(t, it), "\n") + "\n"
		if strings.Contains(text, "<"+tag+">") {
			block += text
		} else {
			rest += text
		}
	}
	return block, rest
}

// TestHistoryManagerRemembers: items that drop out of the view are summarised. The summary is in later requests and, if asked
// for, in other sessions of the resource only.
func TestHistoryManagerRemembers(t *testing.T) {
	g := startGate(t, "[{kind: history_manager, strategy: sliding_window_with_summary, enable_long_term_memory: true, "+
		"context_window_tokens: 1000, max_output_tokens: 200}]", scripted.Options{})
	const fact = "My cat is called Whiskers."
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			session, ada := "X-Session-Id: one "+d.String(), "X-Resource-Id: ada "+d.String()
			g.say(t, d, fact, session, ada)
			fell, told := false, false
			for range 12 {
				r := g.say(t, d, "SAY "+fifty, session, ada)
				block, history := apart(t, g.seen(t), "conversation_memory")
				switch {
				case strings.Contains(history, fact):
				case !fell:
					fell = true
				case !strings.Contains(block, fact):
					t.Fatalf("what fell out is not told: %.2000s", g.seen(t))
				default:
					told = true
					if counts := r.header.Get("X-Memory"); strings.Contains(counts, "windowed=0") {
						t.Errorf("what is left out is not counted: %s", counts)
					}
				}
			}
			if !told {
				t.Errorf("nothing fell out of the view: %.500s", g.seen(t))
			}
			for _, c := range []struct {
				name    string
				headers []string
				knows   bool
			}{
				{"same resource", []string{"X-Session-Id: two " + d.String(), ada}, true},
				{"another resource", []string{"X-Session-Id: three " + d.String(), "X-Resource-Id: bob"}, false},
				{"another key", []string{session, ada, "Authorization: Bearer sk-other"}, false},
			} {
				g.say(t, d, "What is my cat called?", c.headers...)
				if strings.Contains(g.seen(t), fact) != c.knows {
					t.Errorf("%s: the model is told: %v, want %v: %s", c.name, !c.knows, c.knows, g.seen(t))
				}
			}
		})
	}
	g.sound(t)
}

// TestSmallViews: with a limit in tokens, the view is within it, valid, and has the newest items with the whole current run. The
// start of the window moves in steps; fifo leaves out one exchange after the other.
func TestSmallViews(t *testing.T) {
	const (
		rounds = 12
		limit  = 500 // of history, in tokens; a round has about 200
	)
	for _, c := range []struct {
		name  string
		s     setup
		moves int // at most
	}{
		{"max_tokens", setup{layers: fmt.Sprintf("[{kind: history_window, max_tokens: %d, in_flight: window}]", limit)}, rounds},
		{"fifo", setup{layers: "[]", memory: fmt.Sprintf("policy: {overflow: fifo, token_budget: %d, response_reserve: 100, min_history_turns: 0}", limit+100)}, 3 * rounds},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := startGateWith(t, c.s, scripted.Options{})
			bodies := g.talk(t, rounds, fifty)
			if len(bodies) != 3*rounds {
				t.Fatalf("%d requests, want %d", len(bodies), 3*rounds)
			}
			var before []string
			moves, most := 0, 0
			for i, body := range bodies {
				var view []string
				words := 0
				for _, it := range listed(t, []byte(body))[1:] { // without the client's system message
					view = append(view, string(it))
					words += len(strings.Fields(strings.Join(facts(t, it), " ")))
				}
				if most = max(most, words); words > limit {
					t.Errorf("view %d has %d words, and so more tokens than %d", i, words, limit)
				}
				if at := lastUser(view); at < 0 || len(view)-1-at != 2*(i%3) {
					t.Errorf("view %d has not all of its round: %.500s", i, body)
				}
				switch cut := cutOf(before, view); {
				case cut < 0:
					t.Errorf("view %d does not go on from the one before: %.500s", i, body)
				case cut > 0:
					moves++
				}
				before = view
			}
			if moves < 3 || moves > c.moves {
				t.Errorf("the cut moved %d times, want 3 to %d", moves, c.moves)
			}
			if most < limit/3 {
				t.Errorf("the largest view has %d words, want more of %d tokens", most, limit)
			}
			g.sound(t)
		})
	}
}

// cutOf returns the number of oldest items that a view has lost since the previous one, -1 if it does not continue that one.
func cutOf(before, view []string) int {
	for cut := range len(before) + 1 {
		if rest := before[cut:]; len(rest) <= len(view) && slices.Equal(rest, view[:len(rest)]) && (len(rest) > 0 || len(before) == 0) {
			return cut
		}
	}
	return -1
}

// warm answers with the script, and reports that the whole prompt was cached.
func warm(p scripted.Prompt) (scripted.Answer, bool) {
	a := script.Play(p)
	a.Usage = script.Usage{Prompt: len(p.Body), Cached: len(p.Body)}
	return a, true
}

// TestPinnedPrefixStays: blocks before the history keep their bytes while the model changes its memory, updates follow the
// user's message, and each turn can be shown as upstream got it. With prompt_cache off the block before the history changes.
func TestPinnedPrefixStays(t *testing.T) {
	for _, on := range []bool{true, false} {
		g := startGateWith(t, setup{
			layers: "[{kind: working_memory, placement: anchor}]",
			memory: fmt.Sprintf("prompt_cache: {enabled: %v, delta_budget_fraction: 1}", on),
		}, scripted.Options{Respond: warm})
		turns := make(map[string][2]string) // by id: the session, and what upstream got first
		for _, d := range dialects {
			session := d.String()
			g.say(t, d, `CALL working-memory_update {"city":"Oslo"} ;; SAY Noted.`, "X-Session-Id: "+session)
			var first string
			for _, city := range []string{"Bergen", "Rome", "Bern"} {
				for _, text := range []string{`CALL working-memory_update {"city":"` + city + `"} ;; SAY Noted.`, "Where am I?"} {
					n := len(g.up.Requests())
					r := g.say(t, d, text, "X-Session-Id: "+session)
					turns[r.header.Get("X-Turn-Id")] = [2]string{session, string(g.up.Requests()[n].Body)}
				}
				block := string(listed(t, []byte(g.seen(t)))[0])
				first = cmp.Or(first, block)
				if on && (block != first || !strings.Contains(block, "Oslo")) {
					t.Errorf("%s: the block before the history has changed: %s", d, block)
				}
				checkTold(t, g.seen(t), city, on)
			}
		}
		g.sound(t)
		if !on {
			continue // a turn is shown alike
		}
		g.proxy.Stop()
		for id, turn := range turns {
			var want strings.Builder
			for _, it := range listed(t, []byte(turn[1])) {
				want.WriteString(string(it) + "\n")
			}
			if got := g.proxy.transcriptOf(t, "--session", turn[0], "--turn", id); got != want.String() {
				t.Errorf("%s: the turn is not shown as upstream got it:\n%s\nwant:\n%s", turn[0], got, want.String())
			}
		}
	}
}

// checkTold requires that a view contains the city: in an update directly after the user's message, or else before the history.
func checkTold(t *testing.T, view, city string, update bool) {
	t.Helper()
	var items []string
	for _, it := range listed(t, []byte(view)) {
		items = append(items, string(it))
	}
	at := 0
	if update {
		at = lastUser(items) + 1
	}
	if at >= len(items) || !strings.Contains(items[at], city) || strings.Contains(items[at], "<memory_update>") != update {
		t.Errorf("%s is not told at %d: %.2000s", city, at, view)
	}
}
