package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
	"remora/test/scripted/script"
)

// step is one request of a history. The client sends only the new items.
type step struct {
	to      string // provider "a" or "b", optionally with a slash and another of its models
	chat    bool
	store   string // raw value of the member, empty for none
	sealed  bool   // asks for encrypted reasoning
	stream  bool
	script  string // X-Script
	kind    string // of the answer, empty for a plain one
	n       int
	extra   string // additional members
	results bool   // sends the results of open calls
	user    string // raw content, empty for text
	broken  bool   // the answer is incomplete
	server  bool   // X-History: server
}

func (s step) String() string {
	name := s.to
	if s.chat {
		name += " chat"
	}
	if s.store != "" {
		name += " store=" + s.store
	}
	if s.sealed {
		name += " sealed"
	}
	if s.stream {
		name += " streamed"
	}
	if s.n > 1 {
		name += " n"
	}
	return strings.TrimSpace(name + " " + s.kind + " " + s.script)
}

// history is the requests of a session.
type history []step

func (h history) String() string {
	names := make([]string, len(h))
	for i, s := range h {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}

// kindsOfAnswers are answers of models by step.kind.
var kindsOfAnswers = map[string]scripted.Answer{
	"plain":       {Text: "It is sunny."},
	"thought":     {Reasoning: "Hm.", Text: "It is sunny."},
	"call":        {Reasoning: "Hm.", Calls: []scripted.Call{{Name: "ls", Arguments: `{"a":1}`}}},
	"calls":       {Reasoning: "Hm.", Text: "I look.", Calls: []scripted.Call{{Name: "ls", Arguments: `{}`}, {Name: "rm", Arguments: `{}`}}},
	"refusal":     {Reasoning: "Hm.", Refusal: "I won't."},
	"incomplete":  {Reasoning: "Hm.", Text: "It is s", Ending: script.Incomplete},
	"failed":      {Reasoning: "Hm.", Text: "It is s", Ending: script.Failed},
	"web":         {Reasoning: "Hm.", Text: "It is sunny.", Hosted: []string{"web_search_call"}},
	"web thought": {Reasoning: "Hm.", Text: "It is sunny.", Hosted: []string{"web_search_call", "web_search_call"}, Thinks: true},
	"file":        {Reasoning: "Hm.", Text: "It is sunny.", Hosted: []string{"file_search_call"}},
	"code":        {Reasoning: "Hm.", Text: "It is sunny.", Hosted: []string{"code_interpreter_call"}},
	"image":       {Reasoning: "Hm.", Text: "It is sunny.", Hosted: []string{"image_generation_call"}},
	"mcp":         {Reasoning: "Hm.", Text: "It is sunny.", Hosted: []string{"mcp_list_tools", "mcp_call"}, Thinks: true},
	"hosted":      {Text: "It is sunny.", Hosted: []string{"web_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools", "mcp_call"}},
	"compaction":  {Text: "It is sunny.", Hosted: []string{"compaction"}},
	"web call":    {Reasoning: "Hm.", Hosted: []string{"web_search_call"}, Thinks: true, Calls: []scripted.Call{{Name: "ls", Arguments: `{}`}}},
	"sound":       {Text: "It is sunny.", Sound: true},
	"signed":      {Reasoning: "Hm.", Text: "It is sunny.", Signed: true},
	"signed call": {Reasoning: "Hm.", Signed: true, Calls: []scripted.Call{{Name: "ls", Arguments: `{}`}}},
}

// answerKind answers with the kind in the last user message, and with text after results.
func answerKind(p scripted.Prompt) (scripted.Answer, bool) {
	_, kind, ok := strings.Cut(p.User, "kind: ")
	a, known := kindsOfAnswers[kind]
	if !ok || !known {
		return scripted.Answer{Reasoning: "Hm.", Text: "You said: " + p.User}, true
	}
	if len(p.Results) > 0 {
		return scripted.Answer{Reasoning: "So.", Text: "That is all."}, true
	}
	return a, true
}

// hasCalls reports whether the client must send results next.
func hasCalls(kind string) bool { return len(kindsOfAnswers[kind].Calls) > 0 }

// followUps returns histories after a first step: on the same provider with and without store, on another model, on the other
// provider and back, and in the other dialect.
func followUps(s step) []history {
	to := func(provider string, chat bool, store string) step {
		return step{to: provider, chat: chat, store: store, sealed: store == "false"}
	}
	return []history{
		{to("a", s.chat, ""), to("a", s.chat, "false")},
		{to("a", s.chat, "false"), to("a", s.chat, "")},
		{to("a/other", s.chat, ""), to("a", s.chat, "")},
		{to("b", s.chat, ""), to("a", s.chat, "")},
		{to("b", s.chat, "false"), to("b", s.chat, ""), to("a", s.chat, "false")},
		{to("a", !s.chat, ""), to("a", s.chat, "")},
		{to("b", !s.chat, ""), to("b", s.chat, ""), to("a", s.chat, "")},
	}
}

// histories returns all histories.
func histories() (all []history) {
	behind := func(first step) {
		for _, next := range followUps(first) {
			h := history{first}
			if hasCalls(first.kind) {
				next[0].results = true
			}
			all = append(all, append(h, next...))
		}
	}
	for _, kind := range []string{
		"plain", "thought", "call", "calls", "refusal", "incomplete", "failed", "web", "web thought", "file", "code", "image", "mcp", "hosted",
		"compaction", "web call",
	} {
		for _, store := range []string{"", "false"} {
			for _, sealed := range []bool{false, true} {
				behind(step{to: "a", kind: kind, store: store, sealed: sealed, stream: len(all)%2 == 0})
			}
		}
	}
	for _, kind := range []string{"thought", "web", "call", "refusal", "incomplete"} { // the default, explicitly
		behind(step{to: "a", kind: kind, store: "true", stream: len(all)%2 == 0})
	}
	for _, kind := range []string{"thought", "web", "call"} { // ended after the reasoning
		for _, store := range []string{"", "false"} {
			first := step{to: "a", kind: kind, store: store, stream: true, script: "cut-after=9", broken: true}
			for _, next := range followUps(first) {
				all = append(all, append(history{first}, next...))
			}
		}
	}
	for _, kind := range []string{"plain", "call", "calls", "refusal", "sound", "signed", "signed call"} {
		behind(step{to: "a", chat: true, kind: kind})
	}
	behind(step{to: "a", chat: true, kind: "thought", n: 2})
	behind(step{to: "a", chat: true, kind: "signed", n: 2})

	for _, item := range []string{
		`[{"type":"input_text","text":"Look."},{"type":"input_file","file_id":"%s"}]`,
		`[{"type":"input_text","text":"Look."},{"type":"input_image","detail":"auto","file_id":"%s"}]`,
	} {
		behind(step{to: "a", kind: "plain", user: item})
	}
	behind(step{to: "a", chat: true, kind: "plain", user: `[{"type":"text","text":"Look."},{"type":"file","file":{"file_id":"%s"}}]`})

	// A client continues from an answer by its id or by references to its items, and then stops doing so.
	for _, store := range []string{"", "false"} {
		for _, kind := range []string{"thought", "web", "call"} {
			all = append(all,
				history{{to: "a", kind: kind}, {to: "a", extra: "previous", results: hasCalls(kind)}, {to: "a", store: store}, {to: "b"}, {to: "a"}},
				history{
					{to: "a", kind: kind},
					{to: "a", extra: "references", results: hasCalls(kind)},
					{to: "a", store: store, server: true},
					{to: "b", server: true},
					{to: "a", server: true},
				},
			)
		}
		all = append(all, history{{to: "a", kind: "thought", extra: "conversation"}, {to: "a", extra: "conversation"}, {to: "a", store: store}, {to: "b"}, {to: "a"}})
	}
	return all
}

// gates are two providers behind one proxy.
type gates struct {
	*gate
	ups map[string]*scripted.Server
}

func startGates(t *testing.T, more string) *gates {
	t.Helper()
	g := &gates{ups: map[string]*scripted.Server{}}
	list := ""
	for _, name := range []string{"a", "b"} {
		g.ups[name] = startUpstream(t, scripted.Options{Organization: name, Respond: answerKind})
		list += fmt.Sprintf("{name: %s, kind: openai, api_key: k, base_url: '%s/v1', models: ['%s', '%s/*']%s}, ", name, g.ups[name].URL(), name, name, more)
		more = ""
	}
	g.gate = gateTo(t, setup{upstream: g.ups["a"].URL(), providers: "[" + strings.TrimSuffix(list, ", ") + "]", layers: "[]"})
	g.up = g.ups["a"]
	return g
}

// telling is one history being played.
type telling struct {
	*gates
	t       *testing.T
	session string
	at      int
	last    given
	conv    string
}

// given holds the parts of an answer that the next request needs.
type given struct {
	step  step
	id    string
	items []json.RawMessage // its output, or its messages
	calls []string          // ids
}

// TestStoredHistoriesAreAccepted plays histories whose requests have only the new items: the proxy adds earlier answers, which
// were made under other conditions. No upstream may refuse a request; it must get back items that it can still use; and no data
// of one provider may reach the other.
func TestStoredHistoriesAreAccepted(t *testing.T) {
	t.Parallel()
	g := startGates(t, "")
	all := histories()
	if len(all) < 150 {
		t.Fatalf("%d histories, want at least 150", len(all))
	}
	t.Logf("%d histories", len(all))
	for i, h := range all {
		t.Run(h.String(), func(t *testing.T) {
			p := &telling{gates: g, t: t, session: fmt.Sprint("h", i)}
			for _, s := range h {
				if p.step(s); t.Failed() {
					return
				}
			}
		})
	}
}

func (p *telling) step(s step) {
	p.t.Helper()
	body, path := p.body(s), "responses"
	if s.chat {
		path = "chat/completions"
	}
	headers := []string{"X-Session-Id: " + p.session}
	if s.script != "" {
		headers = append(headers, "X-Script: "+s.script)
	}
	if s.server {
		headers = append(headers, "X-History: server")
	}
	provider, _, _ := strings.Cut(s.to, "/")
	up := p.ups[provider]
	faults := len(up.Faults())
	r, err := p.read(p.t, path, body, headers...)
	if r.status != http.StatusOK || err != nil && !s.broken {
		p.t.Fatalf("request %d (%s): status %d, %v, %.400s", p.at, s, r.status, err, r.body)
	}
	if now := up.Faults(); len(now) > faults {
		p.t.Fatalf("request %d (%s): refused, and tried again: %q", p.at, s, now[faults:])
	}
	p.t.Logf("upstream was sent %s", last(p.t, up).Body)
	p.check(s, last(p.t, up).Body)
	p.last = p.given(s, r)
	p.at++
}

// body returns the request of a step.
func (p *telling) body(s step) string {
	p.t.Helper()
	text := fmt.Sprintf("question %d of %s", p.at, p.session)
	if s.kind != "" {
		text += ", kind: " + s.kind
	}
	content := encode(p.t, text)
	if s.user != "" {
		content = []byte(fmt.Sprintf(s.user, p.ups["a"].FileID("rules.md")))
		content = bytes.Replace(content, []byte("Look."), []byte(text), 1)
	}
	items := []json.RawMessage{json.RawMessage(`{"role":"user","content":` + string(content) + `}`)}
	if s.results {
		items = nil
		for _, id := range p.last.calls {
			if s.chat {
				items = append(items, json.RawMessage(fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"done"}`, id)))
			} else {
				items = append(items, json.RawMessage(fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":"done"}`, id)))
			}
		}
	}
	b := map[string]any{"model": s.to, "stream": s.stream}
	function := func(name string) any {
		f := map[string]any{"name": name, "parameters": map[string]any{"type": "object"}}
		if s.chat {
			return map[string]any{"type": "function", "function": f}
		}
		f["type"] = "function"
		return f
	}
	b["tools"] = []any{function("ls"), function("rm")}
	if s.store != "" {
		b["store"] = json.RawMessage(s.store)
	}
	if s.sealed && !s.chat {
		b["include"] = []string{"reasoning.encrypted_content"}
	}
	if s.n > 1 {
		b["n"] = s.n
	}
	switch s.extra {
	case "previous":
		b["previous_response_id"] = p.last.id
	case "references":
		var all []json.RawMessage
		for _, it := range p.last.items {
			all = append(all, json.RawMessage(fmt.Sprintf(`{"type":"item_reference","id":%q}`, id(it))))
		}
		items = append(all, items...)
	case "conversation":
		if p.conv == "" {
			r := p.ask(p.t, "conversations", `{}`, "X-Session-Id: "+p.session)
			p.conv = id(json.RawMessage(r.body))
		}
		b["conversation"] = p.conv
	}
	if s.chat {
		b["messages"] = items
	} else {
		b["input"] = items
	}
	return string(encode(p.t, b))
}

func id(raw json.RawMessage) string {
	var o struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(raw, &o) // ignore other types
	return o.ID
}

// given returns the parts of an answer that the next request needs.
func (p *telling) given(s step, r reply) given {
	a := given{step: s}
	body := []byte(r.body)
	if s.stream {
		for line := range strings.Lines(r.body) {
			data, ok := strings.CutPrefix(line, "data: ")
			var e struct {
				Type     string          `json:"type"`
				Response json.RawMessage `json:"response"`
			}
			if ok && json.Unmarshal([]byte(data), &e) == nil && len(e.Response) > 0 {
				body = e.Response
			}
		}
	}
	var o struct {
		ID      string            `json:"id"`
		Output  []json.RawMessage `json:"output"`
		Choices []struct {
			Message json.RawMessage `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(body, &o); err != nil && !s.broken {
		p.t.Fatalf("read the answer: %v in %.300s", err, body)
	}
	a.id, a.items = o.ID, o.Output
	if len(o.Choices) > 0 {
		a.items = append(a.items, o.Choices[0].Message)
	}
	for _, raw := range a.items {
		var it struct {
			CallID    string `json:"call_id"`
			ToolCalls []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
		}
		_ = json.Unmarshal(raw, &it)
		if it.CallID != "" {
			a.calls = append(a.calls, it.CallID)
		}
		for _, c := range it.ToolCalls {
			a.calls = append(a.calls, c.ID)
		}
	}
	return a
}

// check checks what upstream got of the previous answer.
func (p *telling) check(s step, body []byte) {
	p.t.Helper()
	was := p.last
	if p.at == 0 || was.step.broken || s.extra != "" || was.step.extra == "conversation" {
		return
	}
	same := was.step.to == s.to && was.step.chat == s.chat
	kept := was.step.store != "false" && s.store != "false" && was.step.kind != "failed"
	sound := was.step.kind == "sound" && was.step.to[:1] == s.to[:1] && s.chat
	for _, raw := range was.items {
		whole := raw
		if bytes.Contains(raw, []byte("image_generation_call")) {
			whole = []byte(id(raw)) // some of its members are only for answers
		}
		if same && !s.chat && kept && !bytes.Contains(body, whole) {
			p.t.Errorf("request %d (%s): upstream keeps this item, and was not sent it as it is: %s", p.at, s, raw)
		}
		var it struct {
			EncryptedContent string `json:"encrypted_content"`
		}
		_ = json.Unmarshal(raw, &it)
		if c := it.EncryptedContent; c != "" && same && was.step.kind != "failed" && was.step.kind != "image" && !bytes.Contains(body, []byte(c)) {
			p.t.Errorf("request %d (%s): upstream can read this item, and was not sent it: %s", p.at, s, raw)
		}
		if a, _, _ := strings.Cut(was.step.to, "/"); a == s.to[:1] || was.step.chat {
			continue
		}
		for _, own := range []string{id(raw), it.EncryptedContent} {
			if own != "" && bytes.Contains(body, []byte(own)) {
				p.t.Errorf("request %d (%s): it has %s, which is the other provider's", p.at, s, own)
			}
		}
	}
	for _, call := range was.calls {
		if n := bytes.Count(body, []byte(call)); n != 2 {
			p.t.Errorf("request %d (%s): it has the id of the call %s %d times, want 2", p.at, s, call, n)
		}
	}
	if text := kindsOfAnswers[was.step.kind].Text + kindsOfAnswers[was.step.kind].Refusal; text != "" && !sound && !bytes.Contains(body, encode(p.t, text)) {
		p.t.Errorf("request %d (%s): it lacks the text %q", p.at, s, text)
	}
	if sound && !bytes.Contains(body, []byte("audio_")) {
		p.t.Errorf("request %d (%s): it lacks the sound, which upstream has", p.at, s)
	}
}

// TestFallbackGetsPortableItems: a fallback to another provider gets the stored history in a form that it accepts, and the
// provider that made it gets it unchanged.
func TestFallbackGetsPortableItems(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"thought", "web", "call", "code"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, stream), func(t *testing.T) {
				t.Parallel()
				g := startGates(t, ", retry: {attempts: 1, on: [503]}, fallback: [{provider: b}]")
				p := &telling{gates: g, t: t, session: "s"}
				p.step(step{to: "a", kind: kind, stream: stream})
				first := p.last

				if err := g.ups["a"].Inject("status=503", 1); err != nil {
					t.Fatal(err)
				}
				next := step{to: "a", stream: stream, results: hasCalls(kind)}
				if r := g.ask(t, "responses", p.body(next), "X-Session-Id: s"); r.status != http.StatusOK {
					t.Fatalf("status %d: %s", r.status, r.body)
				}
				if f := g.ups["b"].Faults(); len(f) > 0 {
					t.Errorf("the fallback refused it first: %q", f)
				}
				sent := last(t, g.ups["b"]).Body
				for _, it := range first.items {
					if bytes.Contains(sent, []byte(id(it))) {
						t.Errorf("the fallback was sent %s in %s", id(it), sent)
					}
				}
				if text := kindsOfAnswers[kind].Text; !bytes.Contains(sent, encode(t, text)) && text != "" {
					t.Errorf("the fallback was not sent %q: %s", text, sent)
				}

				p.at, p.last = 2, first
				p.step(step{to: "a", stream: stream})
			})
		}
	}
}

// TestRefusedItemsComeInPortableForm: items stored upstream may be gone, such as after 30 days. A request that refers to them is
// refused once, retried without references, and later requests of the session have none; other sessions keep theirs.
func TestRefusedItemsComeInPortableForm(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"thought", "web", "image", "call"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g := startGates(t, "")
			p := &telling{gates: g, t: t, session: "s"}
			p.step(step{to: "a", kind: kind})
			first := p.last

			g.ups["a"].Reset()
			for n, want := range []int{2, 1} {
				before := len(g.ups["a"].Requests())
				next := step{to: "a", results: n == 0 && hasCalls(kind)}
				if r := g.ask(t, "responses", p.body(next), "X-Session-Id: s"); r.status != http.StatusOK {
					t.Fatalf("status %d: %s", r.status, r.body)
				}
				if sent := g.ups["a"].Requests()[before:]; len(sent) != want {
					t.Errorf("%d requests, want %d", len(sent), want)
				}
				sent := last(t, g.ups["a"]).Body
				for _, it := range first.items {
					if bytes.Contains(sent, []byte(id(it))) {
						t.Errorf("upstream was sent %s in %s", id(it), sent)
					}
				}
				for _, call := range first.calls {
					if bytes.Count(sent, []byte(call)) != 2 {
						t.Errorf("the call %s and its result are not in %s", call, sent)
					}
				}
			}

			other := &telling{gates: g, t: t, session: "other"}
			other.step(step{to: "a", kind: "web"})
			other.step(step{to: "a"})
		})
	}
}

// TestClientResendsWhatIsRefused: a client resends an answer with members that upstream refuses now, since another provider has
// made it, upstream has forgotten it, or the client has lost a part of it. Upstream refuses that once, the client never sees it,
// and neither the text nor the calls are lost.
func TestClientResendsWhatIsRefused(t *testing.T) {
	t.Parallel()
	question, goOn := `{"role":"user","content":"x"}`, `{"role":"user","content":"SAY Yes."}`
	for name, c := range map[string]struct {
		model  string
		forget bool
		items  func(answer []json.RawMessage) []json.RawMessage
	}{
		"another provider":  {model: "b", items: func(answer []json.RawMessage) []json.RawMessage { return answer }},
		"forgotten":         {model: "a", forget: true, items: func(answer []json.RawMessage) []json.RawMessage { return answer }},
		"without a thought": {model: "a", items: func(answer []json.RawMessage) []json.RawMessage { return answer[1:] }},
		"an id of another server": {model: "a", items: func([]json.RawMessage) []json.RawMessage {
			return []json.RawMessage{[]byte(`{"type":"message","role":"assistant","id":"chatcmpl-1","content":[{"type":"output_text","text":"Hm.","annotations":[]}]}`)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGates(t, "")
			first := g.ask(t, "responses", `{"model":"a","input":[{"role":"user","content":"REASON Hm. ;; CALL ls {}"}],"tools":[{"type":"function","name":"ls"}]}`)
			var answer struct{ Output []json.RawMessage }
			decode(t, []byte(first.body), &answer)
			if len(answer.Output) != 2 {
				t.Fatalf("the answer is %s", first.body)
			}
			items := append([]json.RawMessage{[]byte(question)}, c.items(answer.Output)...)
			for _, it := range items {
				var call struct {
					ID string `json:"call_id"`
				}
				if decode(t, it, &call); call.ID != "" {
					items = append(items, encode(t, map[string]any{"type": "function_call_output", "call_id": call.ID, "output": "a file"}))
				}
			}
			if c.forget {
				g.ups["a"].Reset()
			}
			up := g.ups[c.model]
			body := encode(t, map[string]any{"model": c.model, "input": append(items, []byte(goOn)), "tools": []any{map[string]any{"type": "function", "name": "ls"}}})
			for i, want := range []int{2, 1} {
				before := len(up.Requests())
				if r := g.ask(t, "responses", string(body)); r.status != http.StatusOK {
					t.Fatalf("request %d: %d %s", i, r.status, r.body)
				}
				if n := len(up.Requests()) - before; n != want {
					t.Errorf("request %d took %d, want %d: %q", i, n, want, up.Faults())
				}
				sent := string(last(t, up).Body)
				if calls := strings.Count(sent, `"call_id"`); calls != 2 && calls != 0 || calls == 0 && !strings.Contains(sent, "Hm.") {
					t.Errorf("request %d lacks what was said: %s", i, sent)
				}
			}
		})
	}
}
