package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

const (
	noDeletes = `[{kind: steering, rules: [{id: no-deletes, applies_to: [before_tool_call], when: 'tool.name == "rm"', action: deny,
  guidance: 'Deleting is not allowed.'}]}]`
	noSecrets = `[{kind: working_memory}, {kind: steering, rules: [{id: no-secrets, applies_to: [after_model_call], when: 'response.text.contains("hunter2")',
  action: deny, guidance: 'That is a secret.'}]}]`
	noSwearing = `[{kind: working_memory}, {kind: steering, rules: [{id: polite, applies_to: [after_model_call], when: 'response.text.contains("damn")',
  action: guide, guidance: 'Be polite.'}]}]`
)

// TestDeniedCalls: a denied call never reaches the client, even among other calls. The model gets the reason and continues.
func TestDeniedCalls(t *testing.T) {
	g := startGate(t, noDeletes, scripted.Options{})
	for _, c := range []struct {
		name, script string
		want         []string
		upstream     int
	}{
		{
			"alone", `SAY Cleaning. ;; CALL rm {"path":"/"} ;; SAY I will not then.`,
			[]string{"assistant Cleaning.\n\nI will not then."},
			2,
		},
		{"beside another", `CALL rm {"path":"/"} | ls {"path":"/"} ;; SAY Listed.`, []string{`call ls {"path":"/"}`}, 1},
		{"twice", `CALL rm {"path":"/a"} ;; CALL rm {"path":"/b"} ;; CALL ls {} ;; SAY Listed.`, []string{`call ls {}`}, 3},
	} {
		for _, d := range dialects {
			t.Run(c.name+" "+d.String(), func(t *testing.T) {
				g.up.Reset()
				r := g.say(t, d, c.script, "X-Session-Id: "+t.Name())
				want := c.want
				if d.path == "responses" && c.name == "alone" {
					want = []string{"assistant Cleaning.", "assistant I will not then."}
				}
				if diff := cmp.Diff(want, d.facts(t, r)); diff != "" {
					t.Errorf("the client sees (-want +got):\n%s", diff)
				}
				if _, said, _ := strings.Cut(r.body, `"output":[`); strings.Contains(said, `"rm"`) && !strings.Contains(said, `"tools":[`) {
					t.Errorf("the denied call is in the answer: %s", r.body)
				}
				all := g.up.Requests()
				if len(all) != c.upstream {
					t.Fatalf("upstream was asked %d times, want %d", len(all), c.upstream)
				}
				if c.upstream > 1 && !strings.Contains(string(all[1].Body), "Deleting is not allowed.") {
					t.Errorf("the model is not told why: %s", all[1].Body)
				}
				g.sound(t)
			})
		}
	}
}

// TestDeniedResponses: a denied response is an error that SDKs raise, and no part of it reaches the client.
func TestDeniedResponses(t *testing.T) {
	g := startGate(t, noSecrets, scripted.Options{})
	for name, script := range map[string]string{
		"text":                 "SAY The password is hunter2.",
		"beside a hidden call": `SAY The password is hunter2. ;; CALL working-memory_update {"a":1} ;; SAY Noted.`,
		"beside both calls":    `SAY The password is hunter2. ;; CALL working-memory_update {"a":1} | ls {} ;; SAY Noted.`,
		"behind a hidden call": `CALL working-memory_update {"a":1} ;; SAY The password is hunter2.`,
	} {
		for _, d := range dialects {
			t.Run(name+" "+d.String(), func(t *testing.T) {
				r := g.ask(t, d.path, d.body(t, script), "X-Session-Id: "+t.Name())
				if want := map[bool]int{false: http.StatusForbidden, true: http.StatusOK}[d.stream]; r.status != want {
					t.Errorf("status %d, want %d", r.status, want)
				}
				if !strings.Contains(r.body, "steering_denied") || !strings.Contains(r.body, "That is a secret.") ||
					strings.Contains(r.body, "hunter2") || strings.Contains(r.body, "response.completed") {
					t.Errorf("answer %s", r.body)
				}
				r = g.say(t, d, "SAY Nothing to see.", "X-Session-Id: "+t.Name())
				if want := []string{"assistant Nothing to see."}; !slices.Equal(d.facts(t, r), want) {
					t.Errorf("the session is not usable after a denial: %s", r.body)
				}
			})
		}
	}
	g.sound(t)
}

// TestAllOfAnAnswerIsJudged: a rule about what the model says holds for every choice that the client has asked for, and for
// the transcript of sound.
func TestAllOfAnAnswerIsJudged(t *testing.T) {
	var said string // by upstream
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(said, "data:") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, said) // the test sees what arrives
	}))
	t.Cleanup(up.Close)
	g := gateTo(t, setup{layers: noSecrets, upstream: up.URL})

	choices := func(messages ...string) string {
		for i, m := range messages {
			messages[i] = fmt.Sprintf(`{"index":%d,"message":{"role":"assistant",%s},"finish_reason":"stop"}`, i, m)
		}
		return `{"id":"x","choices":[` + strings.Join(messages, ",") + `]}`
	}
	delta := func(index int, delta string) string {
		return fmt.Sprintf(`{"id":"x","choices":[{"index":%d,"delta":{%s},"finish_reason":"stop"}]}`, index, delta)
	}
	for name, c := range map[string]struct {
		answer string
		passes bool
	}{
		"harmless choices":         {choices(`"content":"one"`, `"content":"two"`), true},
		"the second choice":        {choices(`"content":"one"`, `"content":"hunter2"`), false},
		"the third, streamed":      {events(delta(0, `"content":"one"`), delta(1, `"content":"two"`), delta(2, `"content":"hunter2"`), "[DONE]"), false},
		"harmless, streamed":       {events(delta(0, `"content":"one"`), delta(1, `"content":"two"`), "[DONE]"), true},
		"a transcript of sound":    {choices(`"content":null,"audio":{"id":"a","data":"AA==","transcript":"hunter2"}`), false},
		"the transcript, streamed": {events(delta(0, `"audio":{"id":"a","transcript":"hunter2"}`), "[DONE]"), false},
	} {
		t.Run(name, func(t *testing.T) {
			said = c.answer
			r := g.ask(t, "chat/completions", `{"model":"m","n":3,"messages":[{"role":"user","content":"hello"}]}`, "X-Session-Id: "+name)
			if strings.Contains(r.body, "hunter2") || strings.Contains(r.body, "steering_denied") == c.passes || strings.Contains(r.body, "two") != c.passes {
				t.Errorf("the client gets %d %s", r.status, r.body)
			}
		})
	}
}

// TestGuidedResponses: the model answers again with the guidance; the client only gets the last answer.
func TestGuidedResponses(t *testing.T) {
	for name, rude := range map[string]scripted.Answer{
		"text":          {Reasoning: "I am angry", Text: "Oh damn."},
		"a hidden call": {Reasoning: "I am angry", Text: "Oh damn.", Calls: []scripted.Call{{Name: "working-memory_update", Arguments: `{"mood":1}`}}},
		"both calls": {Text: "Oh damn.", Calls: []scripted.Call{
			{Name: "ls", Arguments: "{}"}, {Name: "working-memory_update", Arguments: `{"mood":1}`},
		}},
	} {
		g := startGate(t, noSwearing, scripted.Options{Respond: func(p scripted.Prompt) (scripted.Answer, bool) {
			if strings.Contains(string(p.Body), "Be polite.") {
				return scripted.Answer{Text: "Good morning."}, true
			}
			return rude, true
		}})
		for _, d := range dialects {
			t.Run(name+" "+d.String(), func(t *testing.T) {
				g.up.Reset()
				r := g.say(t, d, "hello", "X-Session-Id: "+t.Name())
				if got := d.facts(t, r); !slices.Equal(got, []string{"assistant Good morning."}) || strings.Contains(r.body, "damn") {
					t.Errorf("the client sees %q: %.2000s", got, r.body)
				}
				if n := len(g.up.Requests()); n != 2 {
					t.Errorf("upstream was asked %d times, want 2", n)
				}
				g.sound(t)
			})
		}
		g.proxy.Stop()
	}
}

// TestTextIsLiveWhileCallsAreHeld stalls upstream after its text and within calls that wait for their verdict: the client
// already has the text, and no part of the calls.
func TestTextIsLiveWhileCallsAreHeld(t *testing.T) {
	g := startGate(t, noDeletes, scripted.Options{})
	for _, c := range []struct {
		d          dialect
		stall, say int // events: how many upstream sends, and how many of them are before the first call
	}{
		{dialect{"chat/completions", true}, 6, 4},
		{dialect{"responses", true}, 13, 10},
	} {
		t.Run(c.d.String(), func(t *testing.T) {
			g.up.Reset()
			res := post(t, g.http, g.proxy.URL+"/v1/"+c.d.path, c.d.body(t, `SAY a b c d e f g ;; CALL ls {"path":"/long/enough"} | rm {}`),
				http.Header{"X-Script": {fmt.Sprintf("stall-after=%d", c.stall)}, "X-Session-Id": {t.Name()}})
			got := string(readEvents(t, res.Body, c.say))
			stalled(t, g.up, c.stall)
			if !strings.Contains(got, `"g"`) || strings.Contains(got, `call_`) {
				t.Errorf("while the calls are held the client has %s", got)
			}
			letGo(t.Context(), t, g.up)
			rest, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(rest), `enough`) || strings.Contains(string(rest), `"name":"rm","arguments"`) {
				t.Errorf("the rest is %s", rest)
			}
		})
	}
	g.sound(t)
}
