package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"remora/test/scripted"
)

const (
	breakpoint = `,"cache_control":{"type":"ephemeral"}`
	cacheKey   = `"prompt_cache_key":"`
)

// startCaching starts a proxy whose provider has all prompt cache options, with a fallback to one without any.
func startCaching(t *testing.T, layers string) *gate {
	t.Helper()
	return startGateWith(t, setup{layers: layers, providers: `[
  {name: cached, kind: compatible, base_url: '%s', models: [m], prompt_cache_key: true, cache_control: true,
   retry: {attempts: 1, on: [503]}, fallback: [{provider: plain, model: other}]},
  {name: plain, kind: compatible, base_url: '%s', api_key: k2}]`}, scripted.Options{})
}

// talk plays rounds of a client that resends its history, each with two tool calls and the answer, and returns upstream's
// requests.
func (g *gate) talk(t *testing.T, rounds int, answer string) []string {
	t.Helper()
	c := client{
		g: g, d: dialect{path: "chat/completions"}, session: "s", headers: []string{"X-Resource-Id: ada"}, habit: resendsAll,
		history: []json.RawMessage{json.RawMessage(`{"role":"system","content":"Be brief."}`)},
	}
	for range rounds {
		c.run(t, "CALL ls {} ;; CALL ls {} ;; SAY "+answer, aFile)
	}
	var bodies []string
	for _, r := range g.up.Requests() {
		bodies = append(bodies, string(r.Body))
	}
	return bodies
}

// breakpoints are the indices of a body's messages that have one, and the messages without them.
func breakpoints(t *testing.T, body string) (at []int, messages []string) {
	t.Helper()
	var b struct{ Messages []json.RawMessage }
	decode(t, []byte(body), &b)
	for i, m := range b.Messages {
		if n := strings.Count(string(m), breakpoint); n > 0 {
			at = append(at, slices.Repeat([]int{i}, n)...)
		}
		messages = append(messages, strings.ReplaceAll(string(m), breakpoint, ""))
	}
	return at, messages
}

// TestBreakpointsAreFound: every request of an agent's session has a breakpoint at the end of the previous one, with nothing
// new before it, even if layers' blocks change. All have the session's key.
func TestBreakpointsAreFound(t *testing.T) {
	for name, layers := range map[string]string{
		"window":   "",
		"anchored": `[{kind: working_memory, scope: resource}, {kind: observational_memory}]`,
		"live":     `[{kind: working_memory, scope: resource, placement: live}, {kind: observational_memory, placement: live}]`,
	} {
		t.Run(name, func(t *testing.T) {
			g := startCaching(t, layers)
			if name != "window" { // layers add blocks, and the model calls a layer's tool
				g.ask(t, "chat/completions", `{"model":"m","messages":[{"role":"user","content":"CALL working-memory_update {\"city\":\"Lucerne\"} ;; SAY My favourite tea is Oolong."}]}`,
					"X-Session-Id: before", "X-Resource-Id: ada")
				for _, r := range g.up.Requests() {
					if at, _ := breakpoints(t, string(r.Body)); len(at) == 0 {
						t.Errorf("a request of a session has no breakpoint: %s", r.Body)
					}
				}
			}
			g.up.Reset()
			bodies := g.talk(t, 3, "Done.")
			if len(bodies) < 9 {
				t.Fatalf("%d requests", len(bodies))
			}
			keys := make(map[string]bool)
			var written []int
			var before []string
			for i, body := range bodies {
				at, messages := breakpoints(t, body)
				if len(at) == 0 || len(at) > 4 {
					t.Errorf("request %d has breakpoints %v: %s", i, at, body)
				}
				if told := strings.Contains(body, "Lucerne"); told != (name != "window") {
					t.Errorf("layers tell the model something: %v: %s", told, body)
				}
				keys[regexp.MustCompile(cacheKey+`[0-9a-f]{32}"`).FindString(body)] = true
				found := -1
				for _, k := range at {
					if slices.Contains(written, k) && slices.Equal(before[:k+1], messages[:k+1]) {
						found = k
					}
				}
				// Inside of a round all that was sent, and of the round before its user message at least.
				least := len(before) - 1
				if !strings.Contains(messages[len(messages)-1], `"role":"tool"`) {
					least = lastUser(before)
				}
				if found < least {
					t.Errorf("request %d with breakpoints %v finds what was written up to %d, not %d: %s", i, at, found, least, body)
				}
				written, before = at, messages
			}
			if len(keys) != 1 || keys[""] {
				t.Errorf("keys %v", keys)
			}
			g.sound(t)
		})
	}
}

func lastUser(messages []string) int {
	for i, m := range slices.Backward(messages) {
		if strings.Contains(m, `"role":"user"`) && !strings.Contains(m, `"text":"<`) { // not a layer's block
			return i
		}
	}
	return -1
}

// TestFallbackGetsNoCacheHints: cache hints for one provider are not sent to another.
func TestFallbackGetsNoCacheHints(t *testing.T) {
	g := startCaching(t, "")
	const body = `{"model":"m", "messages":[ {"role":"user","content":"hi"} ]}`
	if err := g.up.Inject("status=503", 1); err != nil {
		t.Fatal(err)
	}
	if r := g.ask(t, "chat/completions", body); r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	all := g.up.Requests()
	if len(all) != 2 || !strings.Contains(string(all[0].Body), breakpoint) || !strings.Contains(string(all[0].Body), cacheKey) {
		t.Fatalf("%d requests, the first is %s", len(all), all[0].Body)
	}
	if want := strings.Replace(body, `"m"`, `"other"`, 1); string(all[1].Body) != want {
		t.Errorf("got  %s\nwant %s", all[1].Body, want)
	}
}

// TestResponsesGetNoBreakpoints: Responses requests get the key but no breakpoints, which the dialect does not have.
func TestResponsesGetNoBreakpoints(t *testing.T) {
	g := startCaching(t, "")
	const body = `{"model":"m","input":[{"role":"developer","content":"d"},{"role":"user","content":"hi"}]`
	if r := g.ask(t, "responses", body+"}"); r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	if !regexp.MustCompile(`^` + regexp.QuoteMeta(body) + `,"prompt_cache_key":"[0-9a-f]{32}"}$`).MatchString(g.seen(t)) {
		t.Errorf("upstream sees %s", g.seen(t))
	}
}
