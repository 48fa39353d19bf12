package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
)

// told is the shipped window with layers that add blocks and a tool.
const told = "[{kind: history_window, max_items: 80, evict_batch: 40, in_flight: keep}, {kind: working_memory, scope: resource}, {kind: observational_memory}]"

// plainBody returns a request without client tools.
func plainBody(t *testing.T, d dialect, model, system, text string, extra map[string]any) string {
	t.Helper()
	b := map[string]any{"model": model, "stream": d.stream}
	messages := []any{map[string]any{"role": "user", "content": text}}
	if d.path == "responses" {
		b["input"] = messages
		if system != "" {
			b["instructions"] = system
		}
	} else {
		if system != "" {
			messages = append([]any{map[string]any{"role": "system", "content": system}}, messages...)
		}
		b["messages"] = messages
	}
	maps.Copy(b, extra)
	return string(encode(t, b))
}

// byKind returns the options of an upstream with a kind of server per model: "vllm_qwen" has that template's checks, "openai"
// those of OpenAI.
func byKind() scripted.Options {
	return scripted.Options{KindOf: func(model string) scripted.Kind { return scripted.Kind(strings.TrimSuffix(model, "-b")) }}
}

// strictGate starts a proxy with layers in front of that upstream, configured as for local models.
func strictGate(t *testing.T, kind, messages string) *gate {
	t.Helper()
	return startGateWith(t, setup{layers: told, providers: fmt.Sprintf("[{name: local, kind: %s, base_url: '%%s', messages: %s}]", kind, messages)}, byKind())
}

// TestStrictServers plays a conversation with each kind of server, with layers' blocks and tool in the view. Upstream refuses
// at most the first request, the client never sees that, and from the second request on the proxy uses what it has learnt.
func TestStrictServers(t *testing.T) {
	kinds := map[scripted.Kind]int{ // allowed corrective retries of the first request
		scripted.KindOpenAI: 0, scripted.KindQwen: 1, scripted.KindGemma: 1, scripted.KindMistral: 1,
		scripted.KindReasoner: 1, scripted.KindLlamaCpp: 1, scripted.KindOllama: 1, scripted.KindNoEndpoints: 1,
		scripted.KindGemini: 0, scripted.KindGroq: 0,
	}
	for _, provider := range []string{"compatible", "openai", "openrouter"} {
		g := strictGate(t, provider, "auto")
		for _, d := range dialects {
			for kind, tries := range kinds {
				for _, system := range []string{"", "Be brief."} {
					t.Run(fmt.Sprintf("%s %s %s system=%v", provider, kind, d, system != ""), func(t *testing.T) {
						// Each subtest is another caller, so that the proxy has learnt nothing yet.
						headers := []string{"Authorization: Bearer " + t.Name(), "X-Session-Id: s", "X-Resource-Id: r"}
						seed := g.ask(t, d.path, plainBody(t, d, "openai", "", `CALL working-memory_update {"city":"Lucerne"} ;; SAY Noted.`, nil),
							headers[0], "X-Session-Id: before", headers[2])
						if seed.status != http.StatusOK {
							t.Fatal(seed.body)
						}
						sawBlock := false
						for i := range 4 {
							g.up.Reset()
							r := g.ask(t, d.path, plainBody(t, d, string(kind), system, fmt.Sprintf("SAY Answer %d.", i), nil), headers...)
							if r.status != http.StatusOK || !strings.Contains(r.body, "Answer") {
								t.Fatalf("request %d: %d %s", i, r.status, r.body)
							}
							sent := g.sent()
							if n := len(sent); i > 0 && n != 1 || n > 1+tries {
								t.Errorf("request %d took %d requests upstream, %q: %q", i, n, sent, g.up.Faults())
							}
							if !strings.HasPrefix(r.header.Get("X-Memory"), "ok") {
								t.Errorf("X-Memory: %s", r.header.Get("X-Memory"))
							}
							sawBlock = sawBlock || strings.Contains(g.seen(t), "Lucerne")
						}
						if !sawBlock {
							t.Errorf("the model is told nothing: %s", g.seen(t))
						}
					})
				}
			}
		}
	}
}

// sent returns the requests that upstream got, except those for its list of models, which the proxy makes whenever it likes.
func (g *gate) sent() (lines []string) {
	for _, r := range g.up.Requests() {
		if !strings.HasSuffix(r.Target, "/models") {
			lines = append(lines, r.Method+" "+r.Target)
		}
	}
	return lines
}

// TestStrictAgents plays agents that resend their history, with tool loops, texts with calls, and notes of the model, so that
// updates and live blocks are in many places.
func TestStrictAgents(t *testing.T) {
	layers := strings.Replace(told, "{kind: observational_memory}", "{kind: observational_memory, placement: live}, {kind: reminder, reminders: [{text: Be honest., every_user_turns: 1, after_tool_calls: 1}]}", 1)
	g := startGateWith(t, setup{layers: layers, providers: "[{name: local, kind: compatible, base_url: '%s'}]"}, byKind())
	for _, kind := range []scripted.Kind{scripted.KindOpenAI, scripted.KindQwen, scripted.KindGemma, scripted.KindMistral, scripted.KindBedrock} {
		for _, d := range dialects {
			if d.stream {
				continue // items are only read from answers that are not streamed
			}
			t.Run(fmt.Sprintf("%s %s", kind, d), func(t *testing.T) {
				g.up.Reset()
				c := client{
					g: g, d: d, session: "s", headers: []string{"Authorization: Bearer " + t.Name(), "X-Resource-Id: r"}, habit: resendsAll,
					members: map[string]any{"model": kind, "tools": d.tools("rm", "ls")},
				}
				if d.path != "responses" {
					c.history = []json.RawMessage{json.RawMessage(`{"role":"system","content":"Be brief."}`)}
				}
				for turn := range 3 {
					c.run(t, fmt.Sprintf(`SAY Let me see. ;; CALL ls {"n":%[1]d} ;; CALL working-memory_update {"n":%[1]d} ;; CALL ls {} ;; SAY Done, my name is Eve.`, turn), aFile)
				}
				if wasted := len(g.up.Faults()); wasted > 1 {
					t.Errorf("%d requests were refused first: %q", wasted, g.up.Faults())
				}
				if seen := g.seen(t); !strings.Contains(seen, "working_memory") || !strings.Contains(seen, "Be honest.") {
					t.Errorf("layers say nothing: %s", seen)
				}
			})
		}
	}
}

// TestClientIsRepaired: repairs learnt from a refusal also apply to the client's own items. X-Memory counts them, and the
// transcript has the items unchanged.
func TestClientIsRepaired(t *testing.T) {
	for _, provider := range []string{"compatible", "openai"} {
		g := strictGate(t, provider, "auto")
		const body = `{"model":"vllm_gemma","messages":[{"role":"system","content":"one"},{"role":"system","content":"two"},{"role":"user","content":"hi"},{"role":"user","content":"SAY Yes."}]}`
		for i, requests := range []int{2, 1} {
			g.up.Reset()
			r := g.ask(t, "chat/completions", body, fmt.Sprintf("X-Session-Id: s%d", i))
			if r.status != http.StatusOK || len(g.up.Requests()) != requests {
				t.Fatalf("%s: %d %s after %d requests", provider, r.status, r.body, len(g.up.Requests()))
			}
			if memory := r.header.Get("X-Memory"); !strings.Contains(memory, ";repaired=4") {
				t.Errorf("%s: X-Memory: %s", provider, memory)
			}
			if !strings.Contains(g.seen(t), `"content":"one\n\ntwo\n\nhi\n\nSAY Yes."`) {
				t.Errorf("%s: upstream got %s", provider, g.seen(t))
			}
		}
	}
}

// TestOperatorChooses: with a configured form of messages there is no refusal.
func TestOperatorChooses(t *testing.T) {
	for messages, kind := range map[string]scripted.Kind{
		"one_system": scripted.KindQwen, "alternate": scripted.KindMistral, "no_system": scripted.KindGemma, "as_is": scripted.KindOpenAI,
	} {
		g := strictGate(t, "compatible", messages)
		for _, d := range dialects {
			resource := d.String()
			r := g.ask(t, d.path, plainBody(t, d, "openai", "", `CALL working-memory_update {"city":"Lucerne"} ;; SAY Noted.`, nil),
				"X-Session-Id: before "+resource, "X-Resource-Id: "+resource)
			if r.status != http.StatusOK {
				t.Fatal(r.body)
			}
			g.up.Reset()
			r = g.ask(t, d.path, plainBody(t, d, string(kind), "Be brief.", "SAY Yes.", nil), "X-Session-Id: s "+resource, "X-Resource-Id: "+resource)
			if r.status != http.StatusOK || len(g.up.Requests()) != 1 || !strings.Contains(g.seen(t), "Lucerne") {
				t.Errorf("%s, %s: %d %s after %q", messages, d, r.status, r.body, g.up.Faults())
			}
		}
	}
}

// TestToolsBesideJSON: a server that refuses tools with JSON output gets them in all other requests.
func TestToolsBesideJSON(t *testing.T) {
	for _, kind := range []scripted.Kind{scripted.KindGemini, scripted.KindGroq} {
		g := strictGate(t, "compatible", "auto")
		for _, d := range dialects {
			headers := []string{"Authorization: Bearer " + d.String()}
			json := map[string]any{"response_format": map[string]any{"type": "json_object"}}
			if d.path == "responses" {
				json = map[string]any{"text": map[string]any{"format": map[string]any{"type": "json_object"}}}
			}
			for i, requests := range []int{2, 1} {
				g.up.Reset()
				r := g.ask(t, d.path, plainBody(t, d, string(kind), "", "SAY {}", json), headers...)
				if r.status != http.StatusOK || len(g.up.Requests()) != requests {
					t.Errorf("%s %s, request %d: %d %s after %d requests", kind, d, i, r.status, r.body, len(g.up.Requests()))
				}
			}
			g.up.Reset()
			if g.ask(t, d.path, plainBody(t, d, string(kind), "", "SAY Yes.", nil), headers...); !strings.Contains(g.seen(t), "working-memory_update") {
				t.Errorf("%s %s: no tool is offered beside text", kind, d)
			}
		}
	}
}

// TestShapesLearnAlone: what the proxy has learnt from a server without tools about one shape of request does not prevent
// learning about others, even if the refusal is a 500. From a server that does not say why it refuses, each session learns for itself.
func TestShapesLearnAlone(t *testing.T) {
	jsonOutput := func(d dialect) map[string]any {
		if d.path == "responses" {
			return map[string]any{"text": map[string]any{"format": map[string]any{"type": "json_object"}}}
		}
		return map[string]any{"response_format": map[string]any{"type": "json_object"}}
	}
	for _, kind := range []scripted.Kind{scripted.KindLlamaCpp, scripted.KindOllama, scripted.KindNoEndpoints, scripted.KindTerse} {
		g := strictGate(t, "compatible", "auto")
		learnt := make(map[string]bool) // by shape, whether streamed or not
		for _, d := range dialects {
			for _, json := range []bool{false, true} {
				var extra map[string]any
				if json {
					extra = jsonOutput(d)
				}
				shape := fmt.Sprint(d.path, json)
				for i := range 2 {
					g.up.Reset()
					r := g.ask(t, d.path, plainBody(t, d, string(kind), "", "SAY {}", extra), fmt.Sprintf("X-Session-Id: %s %s %d", d, shape, i))
					want := 2
					if learnt[shape] && kind != scripted.KindTerse {
						want = 1
					}
					if learnt[shape] = true; r.status != http.StatusOK || len(g.up.Requests()) != want {
						t.Errorf("%s %s json=%v, request %d: %d %s after %d requests, want %d", kind, d, json, i, r.status, r.body, len(g.up.Requests()), want)
					}
				}
			}
		}
	}
}

// TestEachFaultIsCorrected: a local model refuses the images, the roles and the hidden calls of sessions that another model has begun,
// with 400 or with 500 for all of them. Each is corrected with the first request that meets it, whatever came before, and again in the
// next session.
func TestEachFaultIsCorrected(t *testing.T) {
	const picture = `[{"type":"text","text":"SAY A bird."},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]`
	faults := map[string][]string{ // what the other model is told first, and whether there is a block before
		"images": {"", picture},
		"roles":  {"CALL working-memory_update {\"city\":\"Lucerne\"} ;; SAY Noted.", "\"SAY Hi.\""},
		"calls":  {"", "\"CALL working-memory_update {\\\"name\\\":\\\"Ada\\\"} ;; SAY Noted.\""},
	}
	for _, kind := range []scripted.Kind{scripted.KindLlamaGemma, scripted.KindStudioGemma} {
		g := strictGate(t, "compatible", "auto")
		for _, order := range []string{"images roles calls", "roles calls images", "calls images roles"} {
			for _, resends := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s resends=%v", kind, order, resends), func(t *testing.T) {
					ask := func(model scripted.Kind, session, resource string, messages ...string) reply {
						body := fmt.Sprintf(`{"model":"%s","messages":[%s]}`, model, strings.Join(messages, ","))
						return g.ask(t, "chat/completions", body, "Authorization: Bearer "+t.Name(), "X-Session-Id: "+session, "X-Resource-Id: "+resource)
					}
					for i := range 2 {
						for fault := range strings.FieldsSeq(order) {
							session, resource := fmt.Sprint(fault, i), fmt.Sprint("of ", fault, i)
							if seed := faults[fault][0]; seed != "" {
								ask(scripted.KindOpenAI, session+" before", resource, fmt.Sprintf(`{"role":"user","content":%q}`, seed))
							}
							history := []string{`{"role":"user","content":` + faults[fault][1] + `}`}
							said := "Noted."
							if r := ask(scripted.KindOpenAI, session, resource, history...); fault == "images" {
								said = "A bird."
							} else if fault == "roles" {
								said = "Hi."
							} else if r.status != http.StatusOK {
								t.Fatal(r.body)
							}
							history = append(history, fmt.Sprintf(`{"role":"assistant","content":%q}`, said))
							for n := range 2 {
								next := fmt.Sprintf(`{"role":"user","content":"SAY Answer %d."}`, n)
								messages := []string{next}
								if resends {
									messages = append(history, next)
								}
								before := len(g.up.Faults())
								r := ask(kind, session, resource, messages...)
								if r.status != http.StatusOK {
									t.Errorf("%s, request %d: %d %s", session, n, r.status, r.body)
								}
								if refused := g.up.Faults()[before:]; len(refused) > 0 && n > 0 {
									t.Errorf("%s, request %d: refused again: %q", session, n, refused)
								}
								history = append(history, next, fmt.Sprintf(`{"role":"assistant","content":"Answer %d."}`, n))
							}
						}
					}
				})
			}
		}
	}
}
