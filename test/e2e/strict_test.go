package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

// byModel returns the kind of server with the name of a model.
func byModel(model string) scripted.Kind { return scripted.Kind(model) }

// TestReasoningIsResent: thinking models refuse a call without its reasoning in every later request. The proxy resends hidden
// calls with their reasoning.
func TestReasoningIsResent(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: working_memory}]", scripted.Options{KindOf: byModel})
	for _, kind := range []scripted.Kind{scripted.KindKimi, scripted.KindDeepSeek, scripted.KindGemini} {
		for _, c := range clients(g) {
			if c.d.path == "responses" {
				continue // thoughts are separate items there
			}
			c.members = map[string]any{"model": kind}
			t.Run(c.String(), func(t *testing.T) {
				for _, text := range []string{
					`CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`, "SAY Fine.",
					`REASON Both. ;; SAY Let me see. ;; CALL working-memory_update {"a":1} | working-memory_update {"b":2} ;; SAY Again.`, "SAY End.",
				} {
					if r := c.say(t, text); r.status != http.StatusOK || strings.Contains(r.body, "working-memory") {
						t.Errorf("%s: %d %s", text, r.status, r.body)
					}
				}
			})
		}
	}
	g.sound(t)
}

// TestHiddenRoundsAreCorrected: a server answers a call of a layer's tool with thoughts that it does not take back. The client sees
// neither the call nor the refusal.
func TestHiddenRoundsAreCorrected(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: working_memory}]", scripted.Options{KindOf: byModel})
	for _, kind := range []scripted.Kind{scripted.KindGroq, scripted.KindMistralAPI} {
		for _, c := range clients(g) {
			if c.d.path == "responses" {
				continue // thoughts are separate items there
			}
			c.members = map[string]any{"model": kind}
			t.Run(c.String(), func(t *testing.T) {
				before := len(g.up.Faults())
				for _, text := range []string{
					`REASON Hm. ;; CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`, "SAY Fine.",
					`REASON Both. ;; CALL working-memory_update {"a":1} | working-memory_update {"b":2} ;; SAY Again.`, "SAY End.",
				} {
					r := c.say(t, text)
					if r.status != http.StatusOK || strings.Contains(r.body, `"error"`) || strings.Contains(r.body, "working-memory") {
						t.Errorf("%s: %d %s", text, r.status, r.body)
					}
				}
				if refused := g.up.Faults()[before:]; len(refused) != 1 {
					t.Errorf("%d requests were refused: %q", len(refused), refused)
				}
			})
		}
	}
}

// TestModelSwitched: calls of one model are sent to another that refuses them for their ids or for missing reasoning. It refuses
// them at most once, and the client never sees that.
func TestModelSwitched(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: working_memory}]", scripted.Options{KindOf: byModel})
	for _, kind := range []scripted.Kind{
		scripted.KindMistralAPI, scripted.KindKimi, scripted.KindDeepSeek, scripted.KindGemini, scripted.KindAnthropic,
	} {
		for _, c := range clients(g) {
			c.members = map[string]any{"model": kind}
			t.Run(c.String(), func(t *testing.T) {
				for i, s := range []struct {
					model scripted.Kind
					text  string
				}{
					{scripted.KindOpenAI, `CALL working-memory_update {"name":"Ada"} | working-memory_update {"a":1} ;; SAY Noted.`},
					{kind, "SAY Fine."},
					{kind, `CALL working-memory_update {"b":2} ;; SAY Good.`},
					{scripted.KindOpenAI, "SAY Again."},
					{kind, "SAY End."},
				} {
					c.members["model"] = s.model
					before := len(g.up.Faults())
					r := c.say(t, s.text)
					if r.status != http.StatusOK || strings.Contains(r.body, "working-memory") {
						t.Errorf("%s: %d %s", s.text, r.status, r.body)
					}
					if refused := len(g.up.Faults()) - before; refused > 0 && i > 1 {
						t.Errorf("%s: %d more requests were refused: %q", s.text, refused, g.up.Faults()[before:])
					}
				}
			})
		}
	}
}

// TestModelSwitchedInALoop: the result of one model's call is sent to another model. The proxy learns the server's requirements
// from its refusals, which the client does not see.
func TestModelSwitchedInALoop(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 40}]", scripted.Options{KindOf: byModel})
	tools := []any{map[string]any{"type": "function", "function": map[string]any{"name": "ls", "parameters": map[string]any{"type": "object"}}}}
	for _, kind := range []scripted.Kind{
		scripted.KindMistralAPI, scripted.KindMistral, scripted.KindKimi, scripted.KindDeepSeek, scripted.KindGemini, scripted.KindAnthropic,
	} {
		for _, resends := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s resends=%v", kind, resends), func(t *testing.T) {
				for i := range 3 {
					session := "X-Session-Id: " + t.Name() + fmt.Sprint(i)
					ask := func(model scripted.Kind, messages ...any) reply {
						return g.ask(t, "chat/completions", string(encode(t, map[string]any{"model": model, "messages": messages, "tools": tools})), session)
					}
					question := map[string]any{"role": "user", "content": `CALL ls {} ;; SAY Done.`}
					r := ask(scripted.KindOpenAI, question)
					var got struct {
						Choices []struct {
							Message map[string]any `json:"message"`
						} `json:"choices"`
					}
					decode(t, []byte(r.body), &got)
					answer := got.Choices[0].Message
					var calls []struct {
						ID string `json:"id"`
					}
					decode(t, encode(t, answer["tool_calls"]), &calls)
					messages := []any{map[string]any{"role": "tool", "tool_call_id": calls[0].ID, "content": "x"}}
					if resends {
						messages = append([]any{question, answer}, messages...)
					}
					if r := ask(kind, messages...); r.status != http.StatusOK {
						t.Errorf("session %d: %d %s", i, r.status, r.body)
					}
				}
			})
		}
	}
}

// TestAPISwitched: a session with calls in Responses goes on in Chat. What the server refuses in them, such as null beside calls or
// missing reasoning, is made by the conversion, and is corrected like what a client sends.
func TestAPISwitched(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 40}]", scripted.Options{KindOf: byModel})
	for _, kind := range []scripted.Kind{
		scripted.KindMistralAPI, scripted.KindMistral, scripted.KindKimi, scripted.KindDeepSeek, scripted.KindGemini, scripted.KindAnthropic,
	} {
		t.Run(string(kind), func(t *testing.T) {
			ask := func(path string, members map[string]any) reply {
				members["model"] = kind
				return g.ask(t, path, string(encode(t, members)), "X-Session-Id: "+t.Name())
			}
			tool := map[string]any{"name": "ls", "parameters": map[string]any{"type": "object"}}
			offered := maps.Clone(tool)
			offered["type"] = "function"
			r := ask("responses", map[string]any{"tools": []any{offered}, "input": "CALL ls {} ;; SAY Done."})
			var got struct {
				Output []struct {
					CallID string `json:"call_id"`
				} `json:"output"`
			}
			decode(t, []byte(r.body), &got)
			result := map[string]any{"type": "function_call_output", "call_id": got.Output[0].CallID, "output": "x"}
			ask("responses", map[string]any{"tools": []any{offered}, "input": []any{result}})

			for i, refusals := range []int{1, 0} {
				before := len(g.up.Faults())
				r := ask("chat/completions", map[string]any{
					"tools":    []any{map[string]any{"type": "function", "function": tool}},
					"messages": []any{map[string]any{"role": "user", "content": "SAY Yes."}},
				})
				if r.status != http.StatusOK {
					t.Errorf("request %d: %d %s", i, r.status, r.body)
				}
				if n := len(g.up.Faults()) - before; n > refusals {
					t.Errorf("request %d was refused %d times: %q", i, n, g.up.Faults()[before:])
				}
			}
		})
	}
}

// TestHistoryOfAnotherServer: a client resends answers with members that only the server of the first ones knows, and the role
// that only OpenAI has, or leaves them to the proxy. Other servers refuse them once at most, and the client never sees that.
func TestHistoryOfAnotherServer(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 40}]", scripted.Options{KindOf: byModel})
	answer := func(members map[string]any) any {
		maps.Copy(members, map[string]any{"role": "assistant"})
		return members
	}
	user := map[string]any{"role": "user", "content": "hi"}
	called := func(arguments any) []any {
		call := map[string]any{"id": "abcDEF123", "type": "function", "function": map[string]any{"name": "ls", "arguments": arguments}}
		return []any{user, answer(map[string]any{"content": nil, "tool_calls": []any{call}}), map[string]any{"role": "tool", "tool_call_id": "abcDEF123", "content": "a"}}
	}
	for name, c := range map[string]struct {
		history []any
		kinds   []scripted.Kind
	}{
		"developer": {
			[]any{map[string]any{"role": "developer", "content": "Be brief."}, user, answer(map[string]any{"content": "x"})},
			[]scripted.Kind{scripted.KindDeepSeek, scripted.KindMistralAPI, scripted.KindGroq},
		},
		"thoughts": {
			[]any{user, answer(map[string]any{"content": "x", "reasoning_content": "hm"})},
			[]scripted.Kind{scripted.KindMistralAPI, scripted.KindGroq},
		},
		"details": {
			[]any{user, answer(map[string]any{"content": "x", "reasoning_details": []any{map[string]any{"type": "reasoning.text", "text": "hm"}}})},
			[]scripted.Kind{scripted.KindMistralAPI, scripted.KindGroq},
		},
		"nothing": {
			[]any{user, answer(map[string]any{"content": nil}), user, answer(map[string]any{"content": nil, "refusal": "No."})},
			[]scripted.Kind{scripted.KindOpenAI, scripted.KindGemini},
		},
		"refusal":     {[]any{user, answer(map[string]any{"content": nil, "refusal": "No."})}, []scripted.Kind{scripted.KindMistralAPI, scripted.KindGroq}},
		"arguments":   {called(map[string]any{"path": "/tmp"}), []scripted.Kind{scripted.KindOpenAI, scripted.KindGroq}},
		"interrupted": {called("{}"), []scripted.Kind{scripted.KindMistralAPI, scripted.KindGemini, scripted.KindKimi}},
	} {
		for _, kind := range c.kinds {
			t.Run(name+" "+string(kind), func(t *testing.T) {
				// Another caller, so that nothing is learnt yet.
				caller := "Authorization: Bearer " + t.Name()
				for i, refusals := range []int{1, 0} {
					before := len(g.up.Faults())
					body := encode(t, map[string]any{"model": kind, "messages": append(c.history, map[string]any{"role": "user", "content": "SAY Yes."})})
					if r := g.ask(t, "chat/completions", string(body), caller); r.status != http.StatusOK {
						t.Fatalf("request %d: %d %s", i, r.status, r.body)
					}
					if n := len(g.up.Faults()) - before; n > refusals {
						t.Errorf("request %d was refused %d times: %q", i, n, g.up.Faults()[before:])
					}
					if seen := g.seen(t); name == "arguments" && !strings.Contains(seen, `/tmp`) || strings.Contains(string(body), "No.") && !strings.Contains(seen, "No.") {
						t.Errorf("request %d lacks what was said: %s", i, seen)
					}
				}
			})
		}
	}
}

// TestHistoryWithSeveralFaults: a server names one fault at a time, and a request with two of them is tried again twice. Later ones
// have both corrected from the start.
func TestHistoryWithSeveralFaults(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 40}]", scripted.Options{KindOf: byModel})
	const history = `{"role":"developer","content":"Be brief."},{"role":"user","content":"hi"},{"role":"assistant","content":"x","reasoning_content":"hm"},` +
		`{"role":"developer","content":"Be brief."},{"role":"user","content":"SAY Yes."}`
	for _, kind := range []scripted.Kind{scripted.KindMistralAPI, scripted.KindGroq} {
		for i, refusals := range []int{2, 0} {
			before := len(g.up.Faults())
			r := g.ask(t, "chat/completions", fmt.Sprintf(`{"model":%q,"messages":[%s]}`, kind, history), "X-Session-Id: "+string(kind))
			if n := len(g.up.Faults()) - before; r.status != http.StatusOK || n != refusals {
				t.Errorf("%s, request %d: %d after %d refusals: %s", kind, i, r.status, n, r.body)
			}
		}
	}
}

// TestNoCallsWithoutTools: gateways in front of Bedrock and Anthropic refuse calls in a request without tools. If neither layers
// nor the client define tools, hidden calls are left out of the view; otherwise they are in it.
func TestNoCallsWithoutTools(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: working_memory}]", scripted.Options{KindOf: byModel})
	for _, kind := range []scripted.Kind{scripted.KindBedrock, scripted.KindAnthropic, scripted.KindOpenAI} {
		for _, c := range clients(g) {
			t.Run(string(kind)+" "+c.String(), func(t *testing.T) {
				c.members = map[string]any{"model": kind}
				ask := func(text string, calls bool, more map[string]any) {
					t.Helper()
					plain := c.members
					c.members = maps.Clone(plain)
					maps.Copy(c.members, more)
					r := c.say(t, text)
					c.members = plain
					if r.status != http.StatusOK {
						t.Errorf("%s: %d %s", text, r.status, r.body)
					}
					if seen := g.seen(t); strings.Contains(seen, "Working memory updated.") != calls {
						t.Errorf("%s: hidden calls are sent: %v, want %v: %s", text, !calls, calls, seen)
					}
				}
				ask(`CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`, true, nil)
				ask("SAY Fine.", true, nil)
				ask("SAY No tools.", true, map[string]any{"tools": c.d.tools("ls"), "tool_choice": "none"})
				if c.d.path != "responses" {
					ask("SAY Two.", false, map[string]any{"n": 2})
				} else {
					ask("SAY Later.", false, map[string]any{"background": true, "stream": false})
				}
				ask("SAY Again.", true, nil)
				ask(`LOOP 7 working-memory_update {"n":{{i}}} ;; SAY At last.`, false, nil)
			})
		}
	}
	g.sound(t)
}

// TestNoCallsOnceLayersAreGone: the same if a layer was removed from the configuration, or if a model does not support tools.
func TestNoCallsOnceLayersAreGone(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			g := startGate(t, "[{kind: working_memory}]", scripted.Options{KindOf: byModel})
			c := &client{g: g, d: d, habit: resendsText, members: map[string]any{"model": scripted.KindBedrock}}
			if r := c.say(t, `CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`); r.status != http.StatusOK {
				t.Fatalf("%d %s", r.status, r.body)
			}

			c.members["model"] = scripted.KindOllama // refuses tools, and gets a retry without them
			if r := c.say(t, "SAY Toolless."); r.status != http.StatusOK || strings.Contains(g.seen(t), "Working memory updated.") {
				t.Errorf("%d %s", r.status, r.body)
			}
			if f := g.up.Faults(); len(f) != 1 {
				t.Errorf("upstream met faulty histories: %q", f)
			}
			if r := c.say(t, "SAY Still."); r.status != http.StatusOK || strings.Contains(g.seen(t), "Working memory updated.") {
				t.Errorf("%d %s", r.status, r.body)
			}

			g.proxy.Stop()
			config, err := os.ReadFile(g.proxy.Config)
			if err != nil {
				t.Fatal(err)
			}
			config = bytes.ReplaceAll(config, []byte("{kind: working_memory}"), nil)
			if err := os.WriteFile(g.proxy.Config, config, 0o600); err != nil {
				t.Fatal(err)
			}
			g.proxy.Restart()
			c.members["model"] = scripted.KindBedrock
			if r := c.say(t, "SAY Gone."); r.status != http.StatusOK || strings.Contains(g.seen(t), "Working memory updated.") {
				t.Errorf("%d %s", r.status, r.body)
			}
			if f := g.up.Faults(); len(f) != 1 {
				t.Errorf("upstream met faulty histories: %q", f)
			}
		})
	}
}

// TestConversationsAreLeftAlone: upstream stores a conversation forever, and users see its items. It contains the messages, and
// nothing of layers, however the session is named.
func TestConversationsAreLeftAlone(t *testing.T) {
	t.Parallel()
	const layers = `[{kind: working_memory}, {kind: static_content, text: BLOCK}, {kind: steering, rules: [{id: no-deletes,
  applies_to: [before_tool_call], when: 'tool.name == "rm"', action: deny, guidance: 'Deleting is not allowed.'}]}]`
	g := startGate(t, layers, scripted.Options{})
	for _, stream := range []bool{false, true} {
		for _, session := range []string{"", fmt.Sprint("named", stream)} { // a session each: a block is told once in it
			t.Run(fmt.Sprintf("stream=%v session=%q", stream, session), func(t *testing.T) {
				var conversation struct{ ID string }
				decode(t, []byte(g.ask(t, "conversations", "{}").body), &conversation)
				ask := func(text string) {
					t.Helper()
					d := dialect{"responses", stream}
					body := strings.Replace(d.body(t, text), "{", fmt.Sprintf(`{"conversation":%q,`, conversation.ID), 1)
					if r := g.ask(t, "responses", body, "X-Session-Id: "+session); r.status != http.StatusOK {
						t.Errorf("%s: %d %s", text, r.status, r.body)
					}
				}
				ask("SAY Hello.")
				ask(`SAY Cleaning. ;; CALL rm {"path":"/"} ;; SAY I will not then.`)
				ask("SAY Bye.")

				var list struct{ Data []json.RawMessage }
				decode(t, []byte(g.get(t, "conversations/"+conversation.ID+"/items?order=asc&limit=100").body), &list)
				var said []string
				for _, it := range list.Data {
					said = append(said, facts(t, it)...)
				}
				call := strings.Fields(said[min(4, len(said)-1)])[1]
				want := []string{
					"user SAY Hello.", "assistant Hello.",
					`user SAY Cleaning. ;; CALL rm {"path":"/"} ;; SAY I will not then.`, "assistant Cleaning.",
					"call " + call + ` rm {"path":"/"}`, "result " + call + " Deleting is not allowed.", "assistant I will not then.",
					"user SAY Bye.", "assistant Bye.",
				}
				if diff := cmp.Diff(want, said); diff != "" {
					t.Errorf("the conversation holds (-want +got):\n%s", diff)
				}
			})
		}
	}
	g.sound(t)
}
