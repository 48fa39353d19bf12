package proxy

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/memory"
	"remora/memory/view"
	"remora/providers"
	"remora/telemetry"
	"remora/wire"
	"remora/wire/dialects"
)

const (
	layerTool  = `{"type":"function","function":{"name":"mem_x"}}`
	layerBlock = `{"role":"system","content":"block"}`
	noRoles    = "System message must be at the beginning."
)

// teller is a memory whose layers recall a block and offer a tool.
type teller struct {
	*steerer
	block, tool bool
}

func (m *teller) begin(ctx context.Context, c memory.Call) (*turn, error) {
	t, err := m.steerer.begin(ctx, c)
	if !m.tool {
		t.Tools = nil
	}
	system := wire.SystemItems(t.View)
	messages := view.Messages{Dialect: c.Request.Dialect, System: t.View[:system], Items: t.View[system:]}
	if m.block {
		block, err := wire.ParseItem(dialects.Chat, []byte(layerBlock))
		if err != nil {
			return nil, err
		}
		messages.Blocks = []view.Block{{Role: block.Role, Texts: []string{block.Text()}}}
		t.reported.Recalled = 1
	}
	t.shaper = shapes{turn: t, sent: func(s view.Shape) view.Sent { return messages.As(s.Form) }}
	return t, err
}

// refuser is an upstream that refuses what a test says, and keeps the bodies that it was sent.
type refuser struct {
	mu     sync.Mutex
	bodies []string
	refuse func(body string) string // the answer; empty takes the request
	now    time.Time
}

func (u *refuser) answer(_ *http.Request, body []byte) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bodies = append(u.bodies, string(body))
	if refusal := u.refuse(string(body)); refusal != "" {
		return refusal
	}
	if strings.Contains(string(body), `"stream":true`) {
		return eventHead + chunk(strings.Join(chatEvents, "")) + chunk(chatDone) + "0\r\n\r\n"
	}
	return sized(chatAnswer)
}

func (u *refuser) clock() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.now
}

func (u *refuser) pass(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now = u.now.Add(d)
}

// sent are the requests since it was asked last.
func (u *refuser) sent() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.bodies
	u.bodies = nil
	return all
}

func refused(status int, text string, headers ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d No\r\nContent-Type: text/plain\r\n%sContent-Length: %d\r\n\r\n%s", status, strings.Join(headers, ""), len(text), text)
}

func (u *refuser) start(t *testing.T, block, tool bool, messages string) *rig {
	t.Helper()
	u.now = time.Now()
	m := &teller{steerer: &steerer{book: newBook(), tools: [][]byte{[]byte(layerTool)}}, block: block, tool: tool}
	m.review = func(wire.Reply) memory.Next { return memory.Next{} }
	return start(t, rigOptions{
		upstream: answering(t, u.answer), memory: m.begin, now: u.clock,
		provider: func(o *providers.Options) { o.Messages = messages },
	})
}

// ask sends a body and returns the answer.
func ask(t *testing.T, r *rig, body string, headers ...string) *http.Response {
	t.Helper()
	return askIn(t, r, "s", body, headers...)
}

// askIn is ask in another session.
func askIn(t *testing.T, r *rig, session, body string, headers ...string) *http.Response {
	t.Helper()
	c, br := r.dial(t)
	write(c, chatIn(session, body, headers...))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func bodyText(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	plainChat = `{"model":"m","messages":[{"role":"system","content":"x"},{"role":"user","content":"hi"}]}`
	liveChat  = `{"model":"m","stream":true,"messages":[{"role":"system","content":"x"},{"role":"user","content":"hi"}]}`
)

// refuseRoles refuses more than one system message, and any in the words of a server that takes none.
func refuseRoles(status int, text string) func(string) string {
	return func(body string) string {
		if strings.Count(body, `"role":"system"`) > 1 {
			return refused(status, text)
		}
		return ""
	}
}

func refuseTools(status int, text string) func(string) string {
	return func(body string) string {
		if strings.Contains(body, "mem_x") {
			return refused(status, text)
		}
		return ""
	}
}

// TestRefusalTeaches: a refused request is sent once more in another shape, streamed or not; the next one needs no try, and
// after an hour the model is asked again.
func TestRefusalTeaches(t *testing.T) {
	for name, c := range map[string]struct {
		refuse      func(string) string
		block, tool bool
	}{
		"roles, in its words":   {refuseRoles(400, noRoles), true, true},
		"roles, in other words": {refuseRoles(400, "Bad Request"), true, false},
		"roles, 422":            {refuseRoles(422, "?"), true, false},
		"roles, 500":            {refuseRoles(500, "Jinja Exception: "+noRoles), true, true},
		"tools, in its words":   {refuseTools(400, "Function calling is not enabled for models/x"), true, true},
		"tools, in other words": {refuseTools(400, "Bad Request"), false, true},
		"tools, beside a block": {refuseTools(400, "Bad Request"), true, true},
		"tools, nothing said":   {refuseTools(404, ""), true, true},
		"tools, 500":            {refuseTools(500, "tools param requires --jinja flag"), true, true},
		"tools, 501":            {refuseTools(501, "no"), true, true},
		"tools, without a length": {func(body string) string {
			if strings.Contains(body, "mem_x") {
				return "HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("no") + "0\r\n\r\n"
			}
			return ""
		}, false, true},
	} {
		for _, body := range []string{plainChat, liveChat} {
			u := &refuser{refuse: c.refuse}
			r := u.start(t, c.block, c.tool, "")
			for i, want := range []int{2, 1, 1} {
				resp := ask(t, r, body)
				if text := bodyText(t, resp); resp.StatusCode != 200 || !strings.Contains(text, "lo") {
					t.Fatalf("%s, request %d: %d %s", name, i, resp.StatusCode, text)
				}
				if sent := u.sent(); len(sent) != want {
					t.Errorf("%s: request %d took %d requests, want %d: %q", name, i, len(sent), want, sent)
				}
			}
			u.pass(time.Hour)
			if ask(t, r, body); len(u.sent()) != 2 {
				t.Errorf("%s: after an hour nothing was tried", name)
			}
		}
	}
}

// TestNoCorrection: refusals about anything else pass at once, as they came.
func TestNoCorrection(t *testing.T) {
	const text = `{"error":{"message":"system message, tools: no"}}`
	answers := map[string]string{
		"retry-after":    refused(400, text, "Retry-After: 1\r\n"),
		"RETRY-AFTER-MS": refused(400, text, "RETRY-AFTER-MS: 1\r\n"),
		"gzip":           refused(400, text, "Content-Encoding: gzip\r\n"),
		"large":          refused(400, strings.Repeat("tool ", refusalLimit)),
	}
	for _, status := range []int{401, 402, 403, 408, 413, 429, 502, 503, 504, 529} {
		answers[fmt.Sprint(status)] = refused(status, text)
	}
	for name, answer := range answers {
		u := &refuser{refuse: func(string) string { return answer }}
		r := u.start(t, true, true, "")
		resp := ask(t, r, plainChat)
		got := bodyText(t, resp)
		if _, want, _ := strings.Cut(answer, "\r\n\r\n"); got != want {
			t.Errorf("%s: %.200s", name, got)
		}
		if sent := u.sent(); len(sent) != 1 {
			t.Errorf("%s: %d requests", name, len(sent))
		}
	}
	for name, f := range map[string]func(u *refuser) (*rig, string){
		"memory off":             func(u *refuser) (*rig, string) { return u.start(t, true, true, ""), "X-Memory: off\r\n" },
		"nothing was put in":     func(u *refuser) (*rig, string) { return u.start(t, false, false, ""), "" },
		"chosen by the operator": func(u *refuser) (*rig, string) { return u.start(t, true, false, "as_is"), "" },
		"a 500 of no kind":       func(u *refuser) (*rig, string) { return u.start(t, true, true, ""), "" },
	} {
		status := 400
		if strings.HasPrefix(name, "a 500") {
			status = 500
		}
		u := &refuser{refuse: func(string) string { return refused(status, "no") }}
		r, headers := f(u)
		if resp := ask(t, r, plainChat, headers); resp.StatusCode != status || bodyText(t, resp) != "no" || len(u.sent()) != 1 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}

// TestRefusedTwice: when the corrective try is refused too, or fails, the client gets the first refusal byte for byte, and
// nothing is learnt. A client that asks again gets another try.
func TestRefusedTwice(t *testing.T) {
	for name, second := range map[string]string{
		"refused":  refused(400, "another"),
		"limited":  refused(429, "later", "Retry-After: 9\r\n"),
		"broken":   "HTTP/1.1 nonsense\r\n\r\n",
		"the same": refused(400, "first"),
	} {
		n := 0
		u := &refuser{refuse: func(string) string {
			if n++; n%2 == 0 {
				return second
			}
			return refused(400, "first", "X-Odd-Case: 1\r\n")
		}}
		r := u.start(t, true, true, "")
		shapes := make(map[string]bool)
		for i := range 3 {
			for _, body := range []string{plainChat, liveChat} {
				resp := ask(t, r, body)
				if got := bodyText(t, resp); resp.StatusCode != 400 || got != "first" || resp.Header.Get("X-Odd-Case") != "1" || resp.Header.Get("Retry-After") != "" {
					t.Errorf("%s, request %d: %d %s %v", name, i, resp.StatusCode, got, resp.Header)
				}
				if got := resp.Header.Get("X-Memory"); strings.Contains(got, "repaired") {
					t.Errorf("%s: X-Memory: %s", name, got)
				}
				sent := u.sent()
				if len(sent) != 2 || strings.Count(sent[0], `"role":"system"`) != 2 || !strings.Contains(sent[0], "mem_x") {
					t.Errorf("%s, request %d: %q", name, i, sent)
					continue
				}
				shapes[fmt.Sprint(strings.Count(sent[1], `"role":"system"`), strings.Contains(sent[1], "mem_x"))] = true
			}
		}
		if want := map[string]int{"refused": 3, "limited": 1, "broken": 1, "the same": 3}[name]; len(shapes) != want {
			t.Errorf("%s: shapes that were tried: %v, want %d", name, shapes, want)
		}
	}
}

// TestWrongParameterTeachesNothing: a refusal that no other shape avoids, as of a wrong temperature, does not change what is tried
// after a refusal that says what is wrong.
func TestWrongParameterTeachesNothing(t *testing.T) {
	u := &refuser{refuse: func(body string) string {
		switch {
		case strings.Contains(body, `"temperature":3`):
			return refused(400, "temperature must be in [0, 2], got 3.")
		case strings.Count(body, `"role":"system"`) > 1:
			return refused(400, "System message must be at the beginning.")
		}
		return ""
	}}
	r := u.start(t, true, true, "")
	wrong := strings.Replace(plainChat, `"model":"m"`, `"model":"m","temperature":3`, 1)
	for range 3 {
		if resp := ask(t, r, wrong); resp.StatusCode != 400 {
			t.Fatal(resp.Status)
		}
	}
	u.sent()
	resp := ask(t, r, plainChat)
	if sent := u.sent(); resp.StatusCode != 200 || len(sent) != 2 || !strings.Contains(sent[1], "mem_x") {
		t.Errorf("%s after %q, want a second try in other roles, with the tools", resp.Status, sent)
	}
}

// TestFilteredPromptIsSentOnce: a filter that refuses a prompt refuses its content. The client gets the refusal at once, and nothing
// changes for other requests.
func TestFilteredPromptIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify your prompt and retry. To learn more about our content filtering policies please read our documentation: https://go.microsoft.com/fwlink/?linkid=2198766","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`,
		`{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a different prompt: https://platform.openai.com/docs/guides/reasoning#advice-on-prompting","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`,
		`{"error":{"message":"This request was blocked.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`,
		`{"error":{"message":"Your request was rejected as a result of our safety system.","type":"invalid_request_error","param":null,"code":"moderation_blocked"}}`,
		`{"error":{"message":"Content Exists Risk","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`,                                                        // DeepSeek
		`{"error":{"code":"data_inspection_failed","param":null,"message":"<400> InternalError.Algo.DataInspectionFailed: Input data may contain inappropriate content.","type":null}}`, // Qwen
		`{"error":{"message":"The request was rejected because it was considered high risk","type":"content_filter"}}`,                                                                  // Kimi
		`{"error":{"code":"SensitiveContentDetected","message":"The request failed because the input text may contain sensitive information.","param":"","type":"BadRequest"}}`,         // Ark
		`{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`,                                                              // Anthropic
		`[{"error":{"code":400,"message":"The prompt could not be submitted. This prompt contains sensitive words that violate Google's Responsible AI practices.","status":"INVALID_ARGUMENT"}}]`,
		`{"error":{"message":"Violated guardrail policy","type":"None","param":"None","code":"400"}}`, // LiteLLM
		`{"error":{"message":"This function of the system message was flagged as unsafe.","code":"content_policy_violation"}}`,
	} {
		flagged := true
		u := &refuser{refuse: func(string) string {
			if flagged {
				flagged = false // filters vary: it would pass if it were sent again
				return refused(400, text)
			}
			return ""
		}}
		r := u.start(t, true, true, "")
		resp := ask(t, r, plainChat)
		if got := bodyText(t, resp); resp.StatusCode != 400 || got != text || len(u.sent()) != 1 {
			t.Errorf("want one request and its refusal, got %d %s for %s", resp.StatusCode, got, text)
		}
		for _, session := range []string{"s", "another"} {
			_ = bodyText(t, askIn(t, r, session, plainChat))
			if sent := u.sent(); len(sent) != 1 || strings.Count(sent[0], `"role":"system"`) != 2 || !strings.Contains(sent[0], "mem_x") {
				t.Errorf("session %s then sends %q, after %s", session, sent, text)
			}
		}
	}
}

// TestRefusedParameter: what a refusal lays on a parameter that memory does not change, no other shape avoids. Tools and roles beside
// it in its words count, since servers refuse these together.
func TestRefusedParameter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`{"error":{"message":"Unsupported value: 'temperature' does not support 3 with this model.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`: 1,
		`{"error":{"message":"Invalid schema for response_format 'x'.","type":"invalid_request_error","param" : "response_format","code":null}}`:                                       1,
		`{"error":{"message":"Invalid schema for response_format 'x'.","type":"invalid_request_error","param":"text.format.schema","code":"invalid_json_schema"}}`:                     1,
		`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"No.\",\"param\":\"temperature\"}}"}}}`:                                  1, // OpenRouter
		`{"object":"error","message":"[{'type': 'less_than_equal', 'loc': ('body', 'top_p'), 'msg': 'Input should be less than or equal to 1'}]","param":null,"code":400}`:             1, // vLLM
		`{"detail":[{"type":"less_than_equal","loc":["body","temperature"],"msg":"Input should be less than or equal to 1"}]}`:                                                         1, // Mistral

		`{"error":{"message":"No.","param":"messages.[1].role"}}`:                                                                        2,
		`{"error":{"message":"No.","param":"input[1].content"}}`:                                                                         2,
		`{"error":{"message":"No.","param":"tools"}}`:                                                                                    2,
		`{"error":{"message":"No.","param":"tool_choice"}}`:                                                                              2,
		`{"error":{"code":"invalid_prompt","message":"Invalid Responses API request"}}`:                                                  2, // OpenRouter, of items that it does not know
		`{"error":{"message":"No.","param":null}}`:                                                                                       2,
		`{"error":{"message":"No.","param":""}}`:                                                                                         2,
		`{"detail":[{"loc":["body","messages",0,"content"],"msg":"no"},{"loc":["body","prompt"],"msg":"no"}]}`:                           2,
		`{"error":{"message":"json mode cannot be combined with tool/function calling","param":"response_format"}}`:                      2, // Groq
		`{"error":{"message":"System message must be at the beginning.","param":"chat_template_kwargs","code":400}}`:                     2,
		`{"error":{"message":"Hosted tool 'file_search' is not supported with reasoning.effort 'minimal'.","param":"reasoning.effort"}}`: 2,
	} {
		once := true
		u := &refuser{refuse: func(string) string {
			if once {
				once = false
				return refused(400, text)
			}
			return ""
		}}
		r := u.start(t, true, true, "")
		_ = bodyText(t, ask(t, r, plainChat))
		if sent := u.sent(); len(sent) != want {
			t.Errorf("%d requests, want %d: %s", len(sent), want, text)
		}
	}
}

// TestWhoLearns: what helps after a refusal that names its reason is kept for the caller, and else for the session, which may have
// passed by luck.
func TestWhoLearns(t *testing.T) {
	t.Parallel()
	const jinja = `Error rendering prompt with jinja template: "Cannot read properties of undefined". This is usually an issue with the model's prompt template.`
	roles := func(body string) bool { return strings.Count(body, `"role":"system"`) > 1 }
	tools := func(body string) bool { return strings.Contains(body, "mem_x") }
	for name, c := range map[string]struct {
		refuses func(body string) bool
		status  int
		texts   []string // the last one is repeated
		all     bool
	}{
		"roles":                           {roles, 400, []string{noRoles}, true},
		"roles, as a failure":             {roles, 500, []string{"Jinja Exception: " + noRoles}, true},
		"roles, of another word":          {roles, 400, []string{"messages[0].role is wrong"}, true},
		"roles, of a template":            {roles, 400, []string{jinja}, true},
		"roles, of a template, 500":       {roles, 500, []string{"Jinja Exception: no"}, true},
		"roles, no user":                  {roles, 400, []string{"No user query found in messages."}, true},
		"roles, nothing said":             {roles, 400, []string{"Bad Request"}, false},
		"tools":                           {tools, 400, []string{"Function calling is not enabled for models/m"}, true},
		"tools, as a failure":             {tools, 500, []string{"tools param requires --jinja flag"}, true},
		"tools, of a template":            {tools, 400, []string{jinja}, true},
		"tools, nothing said":             {tools, 400, []string{"Bad Request"}, false},
		"roles and tools, both named":     {func(b string) bool { return roles(b) || tools(b) }, 400, []string{noRoles, "no tools"}, true},
		"roles and tools, nothing said":   {func(b string) bool { return roles(b) || tools(b) }, 400, []string{"Bad Request"}, false},
		"a call that the model garbled":   {func(string) bool { return false }, 400, []string{`{"error":{"message":"Failed to call a function. Please adjust your prompt.","code":"tool_use_failed","failed_generation":"<function"}}`}, false},
		"a refusal that passes by itself": {func(string) bool { return false }, 400, []string{"Something about an item is wrong."}, false},
	} {
		n := 0
		u := &refuser{refuse: func(body string) string {
			if n++; c.refuses(body) || n == 1 {
				return refused(c.status, c.texts[min(n, len(c.texts))-1])
			}
			return ""
		}}
		r := u.start(t, true, true, "")
		if resp := ask(t, r, plainChat); resp.StatusCode != 200 {
			t.Errorf("%s: %s %s", name, resp.Status, bodyText(t, resp))
		}
		first := u.sent()
		if _ = bodyText(t, ask(t, r, plainChat)); len(u.sent()) != 1 {
			t.Errorf("%s: the session has not learnt from %q", name, first)
		}
		_ = bodyText(t, askIn(t, r, "another", plainChat))
		sent := u.sent()
		if asIs := strings.Count(sent[0], `"role":"system"`) == 2 && strings.Contains(sent[0], "mem_x"); asIs == c.all {
			t.Errorf("%s: another session sends %q", name, sent)
		}
	}
}

// TestTooManyToolsTeachNothing: other requests have fewer tools of the client's, and layers' tools go with them.
func TestTooManyToolsTeachNothing(t *testing.T) {
	const (
		many = `{"model":"m","tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],"messages":[{"role":"user","content":"hi"}]}`
		few  = `{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"hi"}]}`
	)
	u := &refuser{refuse: func(body string) string {
		if strings.Count(body, `"type":"function"`) > 2 {
			return refused(400, "Invalid 'tools': array too long. Expected an array with maximum length 2, but got an array with length 3 instead.")
		}
		return ""
	}}
	r := u.start(t, false, true, "")
	for i, want := range []struct {
		body     string
		requests int
		tool     bool
	}{{many, 2, false}, {few, 1, true}, {many, 2, false}} {
		resp := ask(t, r, want.body)
		sent := u.sent()
		if resp.StatusCode != 200 || len(sent) != want.requests || strings.Contains(sent[len(sent)-1], "mem_x") != want.tool {
			t.Errorf("request %d: %s after %q", i, resp.Status, sent)
		}
	}
}

// TestTwoReasons: a server that takes neither the roles nor the tools, and names one of them at a time, is found out by one request.
func TestTwoReasons(t *testing.T) {
	u := &refuser{refuse: func(body string) string {
		switch {
		case strings.Contains(body, `"role":"system"`):
			return refused(400, "Developer instruction is not enabled for models/m")
		case strings.Contains(body, "mem_x"):
			return refused(400, "Function calling is not enabled for models/m")
		}
		return ""
	}}
	r := u.start(t, true, true, "")
	for i, want := range []struct{ status, requests int }{{200, 3}, {200, 1}, {200, 1}} {
		resp := ask(t, r, plainChat)
		if sent := u.sent(); resp.StatusCode != want.status || len(sent) != want.requests {
			t.Errorf("request %d: %d after %q", i, resp.StatusCode, sent)
		}
	}
}

// TestFailureIsTriedOnce: after a 500 that speaks of roles or tools each shape is tried once an hour for a model and a shape of
// request, in each session.
func TestFailureIsTriedOnce(t *testing.T) {
	const text = `"model":"m"`
	shapes := map[string]string{
		"plain":     plainChat,
		"json":      strings.Replace(plainChat, text, text+`,"response_format":{"type":"json_object"}`, 1),
		"own tools": strings.Replace(plainChat, text, text+`,"tools":[{"type":"function","function":{"name":"f"}}]`, 1),
		"model":     strings.Replace(plainChat, text, `"model":"other"`, 1),
	}
	u := &refuser{refuse: func(string) string { return refused(500, "tools broke") }}
	r := u.start(t, true, true, "")
	for range 2 {
		for name, body := range shapes {
			for i, want := range []int{2, 2, 2, 1, 1} { // without tools, in other roles, both
				if ask(t, r, body); len(u.sent()) != want {
					t.Errorf("%s, request %d: not %d requests", name, i, want)
				}
			}
		}
		if askIn(t, r, "another", plainChat); len(u.sent()) != 2 {
			t.Error("nothing is tried for another session")
		}
		u.pass(time.Hour)
	}
}

// TestFailuresHaveTheirOwnCorrections: llama.cpp answers all that it refuses with 500. What was tried for one of these faults does not
// keep another from being corrected, nor does a failure that no shape avoids and that passes.
func TestFailuresHaveTheirOwnCorrections(t *testing.T) {
	const roles, tools, parse = "Jinja Exception: Conversation roles must alternate", "tools param requires --jinja flag", "Failed to parse input at pos 12: <tool_call>"
	u := &refuser{}
	broken := false
	u.refuse = func(body string) string {
		switch {
		case broken:
			return refused(500, parse)
		case strings.Contains(body, `"json_object"`) && strings.Contains(body, "mem_x"):
			return refused(500, tools)
		case strings.Count(body, `"role":"system"`) > 1:
			return refused(500, roles)
		}
		return ""
	}
	r := u.start(t, true, true, "")
	json := strings.Replace(plainChat, `"model":"m"`, `"model":"m","response_format":{"type":"json_object"}`, 1)
	for i, step := range []struct {
		broken           bool
		body             string
		status, requests int
	}{
		{true, plainChat, 500, 2}, // a passing failure, whose retry fails, too
		{false, plainChat, 200, 2},
		{false, plainChat, 200, 1},
		{false, json, 200, 2},
		{false, json, 200, 1},
	} {
		broken = step.broken
		resp := ask(t, r, step.body)
		if sent := u.sent(); resp.StatusCode != step.status || len(sent) != step.requests {
			t.Errorf("request %d: %d after %q", i, resp.StatusCode, sent)
		}
	}
}

// TestToolsAreLearntByShape: tools that are refused beside JSON output, or beside the client's own, are offered elsewhere.
func TestToolsAreLearntByShape(t *testing.T) {
	const (
		json = `{"model":"m","response_format":{"type":"json_object"},"messages":[{"role":"user","content":"hi"}]}`
		own  = `{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"hi"}]}`
	)
	for name, c := range map[string]struct{ refused, other string }{"json": {json, plainChat}, "own tools": {own, plainChat}, "plain": {plainChat, own}} {
		u := &refuser{}
		u.refuse = func(body string) string {
			marker := map[string]string{"json": "json_object", "own tools": `"f"`, "plain": `"x"`}[name]
			if strings.Contains(body, "mem_x") && strings.Contains(body, marker) {
				return refused(400, "tools with response_format")
			}
			return ""
		}
		r := u.start(t, false, true, "")
		for i, want := range []int{2, 1} {
			if resp := ask(t, r, c.refused); resp.StatusCode != 200 || len(u.sent()) != want {
				t.Errorf("%s, request %d: %d", name, i, resp.StatusCode)
			}
		}
		if ask(t, r, c.other); !strings.Contains(strings.Join(u.sent(), ""), "mem_x") {
			t.Errorf("%s: others are not offered the tool", name)
		}
		// Another caller learns for itself.
		if ask(t, r, c.refused, "X-Api-Key: other\r\n"); len(u.sent()) != 2 {
			t.Errorf("%s: a caller with another key has not learnt for itself", name)
		}
	}
}

// TestLongRequestTeaches: after a refusal for the length of a request, windows send half of what was refused, or what its figures
// leave, for an hour.
func TestLongRequestTeaches(t *testing.T) {
	const long = `{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}`
	const perMinute = `{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 6000, Requested 9000.","code":"rate_limit_exceeded"}}`
	live := func(events ...string) string { return eventHead + chunk(strings.Join(events, "")) + "0\r\n\r\n" }
	for _, test := range []struct {
		name, answer string
		want         int
		hidden       string // an answer with a layer's call, which comes first
	}{
		{"as a refusal", refused(400, long), 4500, ""},
		{"for more than a minute's tokens", refused(429, perMinute, "Retry-After: 1\r\n"), 4050, ""},
		{"as forbidden", refused(403, long), 4500, ""}, // Together
		{"as an answer", sized(long), 4500, ""},
		{"in a stream", live("data: " + long + "\n\n"), 4500, ""},
		{"behind a hidden call", refused(400, long), 4500, sized(wholeHidden)},
		{"behind a hidden call in a stream", refused(400, long), 4500, streamHidden},
		{"for something else", refused(400, `{"error":{"message":"Invalid value: 'bot'."}}`), 0, ""},
		{"for another reason", refused(403, `{"error":{"message":"Your key may not use tools."}}`), 0, ""},
		{"for too many requests", refused(429, `{"error":{"message":"Rate limit reached on requests per min (RPM)."}}`), 0, ""},
		{"none", live(chatEvents...), 0, ""},
	} {
		u := &refuser{now: time.Now()}
		u.refuse = func(body string) string {
			if test.hidden != "" && !strings.Contains(body, "go on") {
				return test.hidden
			}
			return test.answer
		}
		m, asked := &steerer{book: newBook()}, []int(nil)
		if test.hidden != "" {
			m = goesOn(t)
			m.review = func(wire.Reply) memory.Next { return memory.Next{Hidden: map[string]bool{"h": true}, GoesOn: true} }
		}
		begin := func(ctx context.Context, c memory.Call) (*turn, error) {
			asked = append(asked, c.MaxTokens)
			turn, err := m.begin(ctx, c)
			turn.shaper = shapes{turn, turn.shaper.Sent, 9000}
			return turn, err
		}
		r := start(t, rigOptions{upstream: answering(t, u.answer), memory: begin, now: u.clock})
		for i := range 3 {
			if i == 2 {
				u.pass(time.Hour)
			}
			before := len(asked)
			resp := ask(t, r, plainChat)
			body := bodyText(t, resp)
			asked = asked[:before+1] // the turn begins anew after the refusal
			if test.hidden == streamHidden {
				continue
			}
			if sent := len(u.sent()); !strings.Contains(test.answer, fmt.Sprintf("HTTP/1.1 %d ", resp.StatusCode)) || !strings.Contains(test.answer, body) || sent != 1 && test.hidden == "" {
				t.Errorf("%s: %d %s", test.name, resp.StatusCode, body)
			}
		}
		if wanted := []int{0, test.want, 0}; !slices.Equal(asked, wanted) {
			t.Errorf("%s: windows of %d tokens, want %d", test.name, asked, wanted)
		}
	}
}

// TestLongRequestIsShortened: a request that is longer than the model's context is sent once more with less of the history, if a
// window leaves less. The refused turn is committed as such.
func TestLongRequestIsShortened(t *testing.T) {
	const long = `{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}`
	for _, test := range []struct {
		name     string
		body     string
		windowed bool
		refuse   string // requests that have this
		want     []int  // the statuses of the commits
	}{
		{"whole", plainChat, true, `"x"`, []int{400, 200}},
		{"streamed", liveChat, true, `"x"`, []int{400, 200}},
		{"still too long", plainChat, true, "hi", []int{400, 400}},
		{"without a window", plainChat, false, `"x"`, []int{400, 400}},
	} {
		u := &refuser{now: time.Now()}
		u.refuse = func(body string) string {
			if strings.Contains(body, test.refuse) {
				return refused(400, long)
			}
			return ""
		}
		b, asked := newBook(), []int(nil)
		begin := func(ctx context.Context, c memory.Call) (*turn, error) {
			turn, err := b.begin(ctx, c)
			asked = append(asked, c.MaxTokens)
			tokens := 9000
			if test.windowed && c.MaxTokens > 0 {
				tokens, turn.View = c.MaxTokens, turn.View[1:]
			}
			turn.shaper = shapes{turn, turn.shaper.Sent, tokens}
			return turn, err
		}
		r := start(t, rigOptions{upstream: answering(t, u.answer), memory: begin, now: u.clock})
		resp := ask(t, r, test.body)
		_ = bodyText(t, resp)
		var statuses []int
		for range test.want {
			statuses = append(statuses, await(t, b.answers, "commit").HTTPStatus)
		}
		requests := 1
		if test.windowed {
			requests = 2
		}
		if sent := u.sent(); !slices.Equal(statuses, test.want) || resp.StatusCode != test.want[1] || len(sent) != requests || len(b.answers) > 0 {
			t.Errorf("%s: status %d, commits %d, upstream got %q", test.name, resp.StatusCode, statuses, sent)
		}

		want := 4500 // half of what was refused last
		if test.windowed && resp.StatusCode != http.StatusOK {
			want = 2250
		}
		if _ = bodyText(t, ask(t, r, test.body)); !slices.Equal(asked[:3], []int{0, 4500, want}) {
			t.Errorf("%s: windows of %d tokens, want %d at last", test.name, asked, want)
		}
	}
}

// TestLearntLengthShrinks: while refusals go on, requests get shorter and shorter, down to what a question takes. A request that is
// longer, since what it consists of cannot be left out, does not make others longer.
func TestLearntLengthShrinks(t *testing.T) {
	const long = `{"error":{"code":"context_length_exceeded"}}`
	u := &refuser{now: time.Now()}
	u.refuse = func(string) string { return refused(400, long) }
	b, asked, must := newBook(), []int(nil), 0
	begin := func(ctx context.Context, c memory.Call) (*turn, error) {
		turn, err := b.begin(ctx, c)
		asked = append(asked, c.MaxTokens)
		turn.shaper = shapes{turn, turn.shaper.Sent, max(cmp.Or(c.MaxTokens, 3000), must)} // of as many items
		return turn, err
	}
	r := start(t, rigOptions{upstream: answering(t, u.answer), memory: begin, now: u.clock})
	for _, step := range []struct{ must, requests, learnt int }{
		{0, 2, 750}, {0, 2, 250}, {0, 1, 250}, {0, 1, 250}, {20000, 1, 250}, {0, 1, 250},
	} {
		must = step.must
		_ = bodyText(t, ask(t, r, plainChat))
		sent := len(u.sent())
		must = 0
		u.refuse = func(string) string { return "" }
		_ = bodyText(t, ask(t, r, plainChat))
		u.sent()
		u.refuse = func(string) string { return refused(400, long) }
		if last := asked[len(asked)-1]; sent != step.requests || last != step.learnt {
			t.Errorf("%+v: %d requests, then %d tokens", step, sent, last)
		}
	}
	u.pass(time.Hour)
	u.refuse = func(string) string { return "" }
	_ = bodyText(t, ask(t, r, plainChat))
	if last := asked[len(asked)-1]; last != 0 {
		t.Errorf("after an hour the model gets %d tokens", last)
	}
}

// shortened begins a turn whose view has one item less once a refusal has taught a length.
func (b *book) shortened(ctx context.Context, c memory.Call) (*turn, error) {
	turn, err := b.begin(ctx, c)
	turn.shaper = shapes{turn, turn.shaper.Sent, cmp.Or(c.MaxTokens, 9000)}
	if c.MaxTokens > 0 {
		turn.View = turn.View[1:]
	}
	return turn, err
}

// TestShortenedRequestIsOneTurn: the metrics count the turn of a request that is sent again with less of the history once.
func TestShortenedRequestIsOneTurn(t *testing.T) {
	o := telemetry.Options{ServiceName: "remora", Metrics: telemetry.MetricsOptions{Prometheus: true, Interval: time.Minute}}
	tel, shutdown, err := telemetry.Setup(t.Context(), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	u := &refuser{refuse: func(body string) string {
		if strings.Contains(body, `"x"`) {
			return refused(400, `{"error":{"code":"context_length_exceeded"}}`)
		}
		return ""
	}}
	r := start(t, rigOptions{upstream: answering(t, u.answer), memory: newBook().shortened, tune: func(o *Options) { o.Telemetry = tel }})
	if resp := ask(t, r, plainChat); resp.StatusCode != http.StatusOK || len(u.sent()) != 2 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	r.stop(t)

	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"remora_turns_total{status=\"ok\"} 1\n", "remora_items_windowed_total 2\n"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("want %q, got\n%s", want, w.Body)
		}
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTokensOfRoundsAreCounted: the metrics have the tokens of all rounds of an answer, each as upstream counted it.
func TestTokensOfRoundsAreCounted(t *testing.T) {
	const usage = `,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":0}}`
	o := telemetry.Options{ServiceName: "remora", Metrics: telemetry.MetricsOptions{Prometheus: true, Interval: time.Minute}}
	tel, shutdown, err := telemetry.Setup(t.Context(), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	addr := answering(t, func(_ *http.Request, body []byte) string {
		if strings.Contains(string(body), "go on") {
			return sized(strings.TrimSuffix(chatAnswer, "}") + fmt.Sprintf(usage, 150, 7))
		}
		return sized(strings.TrimSuffix(wholeHidden, "}") + fmt.Sprintf(usage, 100, 20))
	})
	m := goesOn(t)
	r := start(t, rigOptions{upstream: addr, memory: m.begin, tune: func(o *Options) { o.Telemetry = tel }})
	r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n"))
	r.stop(t)

	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for kind, want := range map[string]int{"input": 250, "output": 27} {
		found := false
		for line := range strings.Lines(w.Body.String()) {
			found = found || strings.HasPrefix(line, "gen_ai_client_token_usage_sum{") && strings.Contains(line, fmt.Sprintf("gen_ai_token_type=%q} %d\n", kind, want))
		}
		if !found {
			t.Errorf("not %d tokens of the %s:\n%s", want, kind, w.Body)
		}
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBrokenOffStreamsAreCounted: a stream that its client breaks off is neither an answered request nor a call that went well.
func TestBrokenOffStreamsAreCounted(t *testing.T) {
	o := telemetry.Options{ServiceName: "remora", Metrics: telemetry.MetricsOptions{Prometheus: true, Interval: time.Minute}}
	tel, shutdown, err := telemetry.Setup(t.Context(), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) { // never ends
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		drain(req.Body)
		for _, err = io.WriteString(c, eventHead+chunk(chatEvents[0])); err == nil; {
			_, err = io.WriteString(c, chunk(chatEvents[0]))
		}
	})
	b := newBook()
	r := start(t, rigOptions{upstream: addr, memory: b.begin, tune: func(o *Options) { o.Telemetry = tel }})
	for range 8 {
		c, br := r.dial(t)
		write(c, chatIn("s", chatBody))
		if _, err := br.ReadString('h'); err != nil {
			t.Fatal(err)
		}
		shut(c)
		await(t, b.answers, "commit")
	}
	r.stop(t)

	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{`remora_requests_total{class="client_gone"} 8`, `remora_requests_total{class="2xx"} 0`, `_duration_seconds_count{error_type="cancelled",`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("want %q, got\n%s", want, w.Body)
		}
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLargeRefusalPasses: a refusal that has no length and is larger than one that is read passes as it arrives.
func TestLargeRefusalPasses(t *testing.T) {
	addr, next := speaking(t, "HTTP/1.1 400 No\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
	r := start(t, rigOptions{upstream: addr, memory: newBook().begin})
	c, br := r.dial(t)
	write(c, chatIn("s", chatBody))
	piece := strings.Repeat("tools ", refusalLimit/12)
	for range 3 {
		next <- chunk(piece)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Fatalf("%v %v", resp, err)
	}
	got := make([]byte, 2*len(piece))
	if _, err := io.ReadFull(resp.Body, got); err != nil {
		t.Fatal(err)
	}

	next <- chunk(piece) + "0\r\n\r\n"
	close(next)
	rest, err := io.ReadAll(resp.Body)
	if text := string(got) + string(rest); err != nil || text != strings.Repeat(piece, 4) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// TestLargeRefusalIsWhole: a refusal that is larger than one that is read reaches the client whole, too, if all of it comes at once.
func TestLargeRefusalIsWhole(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("tools ", refusalLimit/6+1)
	for name, framing := range map[string]string{
		"sized":   fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text),
		"chunked": "Transfer-Encoding: chunked\r\n\r\n" + chunk(text) + chunk(""),
	} {
		answer := "HTTP/1.1 400 No\r\nContent-Type: text/plain\r\n" + framing
		r := start(t, rigOptions{upstream: answering(t, func(*http.Request, []byte) string { return answer }), memory: newBook().begin})
		if got := bodyText(t, ask(t, r, plainChat)); got != text {
			t.Errorf("%s: %d bytes of %d", name, len(got), len(text))
		}
	}
}

// TestRefusalsOfLength: servers have words of their own for a request that is longer than their model's context.
func TestRefusalsOfLength(t *testing.T) {
	t.Parallel()
	for text, status := range map[string]int{
		"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.":                             400, // OpenAI
		"Your input exceeds the context window of this model. Please adjust your input and try again.":                                    400,
		"Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 40000.":                       429,
		"prompt is too long: 215573 tokens > 200000 maximum":                                                                              400, // Anthropic
		"input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or `max_tokens` and try again": 400,
		"Input is too long for requested model.":                                                                                          400, // Bedrock
		"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).":                                         400, // Gemini
		"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length":                          400, // Mistral
		"This model's maximum prompt length is 131072 but the request contains 136973 tokens.":                                            400, // xAI
		"Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)":                                            400, // Kimi
		"Prompt exceeds max length": 400, // GLM
		"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]":                                                 400, // Qwen
		"Input length 203743 exceeds the maximum length 202752":                                                                                 400, // Ark
		"prompt token count of 150000 exceeds the limit of 128000":                                                                              400, // Copilot
		"Request body too large for gpt-4o model. Max size: 8000 tokens.":                                                                       413, // GitHub
		"Request too large for model `m` in organization `o` service tier `on_demand` on tokens per minute (TPM): Limit 10000, Requested 15088": 413, // Groq
		"the request exceeds the available context size (4096 tokens), try increasing it":                                                       400, // llama.cpp
		"The decoder prompt (length 21535) is longer than the maximum model length of 16384.":                                                   400, // vLLM
		"Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).":                                                       400, // SGLang
		"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`":      422, // TGI
		"Input validation error: `inputs` must have less than 4095 tokens. Given: 4169":                                                         422,
		"inputs tokens + max_new_tokens must be <= 4096":                                                                                        400, // DeepInfra
		"length of prompt_tokens (5000) must be less than max_seq_len (4096).":                                                                  400, // SiliconFlow
		"Prompt length 5000 is greater than max_seq_len 4096":                                                                                   400, // TabbyAPI
		"Prompt sequence length is greater than 4096, perhaps consider using `truncate_sequence`?":                                              422, // mistral.rs
		"Number of prompt tokens: 5000 exceeds model max length: 4096":                                                                          400, // OpenVINO
		"Input token count + max_tokens parameter must be less than the context length of the model being queried.":                             403, // Together
		"too many tokens: total number of tokens in the prompt cannot exceed 8192 - received 9000.":                                             400, // Cohere
		"too many tokens: size limit exceeded by 904 tokens. Try using shorter or fewer inputs.":                                                400,
		"Prompt tokens too long": 400, // Qianfan
		"Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2100 instead.": 400,
	} {
		if !newRefusal(status, []byte(text)).aboutLength() {
			t.Errorf("%d %q is not about the length", status, text)
		}
	}
	for text, status := range map[string]int{
		"Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 44 instead.":                                             400,
		"max_tokens is too large: 100000. This model supports at most 16384 completion tokens":                                                                                                    400,
		"Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.":                                           429,
		"Too many tokens, please wait before trying again.":                                                                                                                                       429, // Bedrock
		"This request would exceed your organization's rate limit of 40,000 input tokens per minute.":                                                                                             429, // Anthropic
		"too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model":                                                                                       400, // Cohere
		"`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model":                                                  400, // Groq
		`{"detail":[{"type":"less_than_equal","loc":["body","max_tokens"],"msg":"Input should be less than or equal to 4096","input":5000}]}`:                                                     422,
		`{"detail":[{"type":"extra_forbidden","loc":["body","messages",2,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted","input":"The token has more than 9 letters."}]}`: 422, // what was sent is repeated
		`{"error":{"message":"tools: the input of a prompt must not exceed 64 tokens"}}`:                                                                                                          400,
		"request entity too large": 413,
	} {
		if newRefusal(status, []byte(text)).aboutLength() {
			t.Errorf("%d %q is about the length", status, text)
		}
	}
}

// TestFiguresOfRefusals: a refusal that has figures says how much of the request would fit, in tokens as Remora estimates them.
func TestFiguresOfRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text           string
		estimate, want int
	}{
		// The request is counted with 9000 tokens, a quarter of the context is left for the answer, and a tenth is margin.
		{"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", 9000, 5529},
		{"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", 6000, 3686},
		{"This model's maximum context length is 8192 tokens. However, you requested 9024 tokens (8000 in the messages, 1024 in the completion).", 8000, 6451},
		{"This model's maximum context length is 128000 tokens. However, your messages resulted in 140339 tokens (139000 in the messages, 1339 in the functions).", 141000, 108335},
		{"'max_tokens' is too large: 4000. This model's maximum context length is 8192 tokens and your request has 6000 input tokens (4000 > 8192 - 6000).", 6000, 3772},
		{"This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens (39000 of text input, 1000 in the output).", 39200, 28737},
		{"prompt is too long: 215573 tokens > 200000 maximum", 200000, 160156},
		{"input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or `max_tokens` and try again", 199759, 172627},
		{"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", 1000000, 782723},
		{"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", 40000, 22118},
		{"This model's maximum prompt length is 131072 but the request contains 136973 tokens.", 136973, 110592},
		{"Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)", 269030, 228556},
		{"Input length 203743 exceeds the maximum length 202752", 203743, 175104},
		{"prompt token count of 150000 exceeds the limit of 128000", 150000, 107827},
		{"Request too large for model `m` on tokens per minute (TPM): Limit 10000, Requested 15088", 15088, 6750},
		{`{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5012,"n_ctx":4096}}`, 4000, 2206},
		{"The decoder prompt (length 21535) is longer than the maximum model length of 16384.", 21535, 11059},
		{"Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).", 160062, 46503},
		{"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`", 5000, 2764},
		{"However, the model is loaded with context length of only 4096 tokens. Trying to keep the first 5012 tokens", 5012, 2764},
		{"Input validation error: `inputs` must have less than 4095 tokens. Given: 5000", 5000, 2764},
		{"length of prompt_tokens (5000) must be less than max_seq_len (4096).", 5000, 2764},
		{"Prompt length 5000 is greater than max_seq_len 4096", 5000, 2764},
		{"Number of prompt tokens: 5000 exceeds model max length: 4096", 5000, 2764},
		{"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5000 >= n_ctx: 4096).", 5000, 2764},

		{"Your input exceeds the context window of this model. Please adjust your input and try again.", 9000, 0},
		{"Range of input length should be [1, 30720]", 40000, 0},
		{"Request body too large for gpt-4o model. Max size: 8000 tokens.", 10000, 0},
		{"This model's maximum context length is 8192 tokens.", 90000, 0},
		{"Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2100 instead.", 2100, 0},
		{"The request exceeds the available context size (99999999999999999999 tokens): 5000", 5000, 0},
	} {
		if got := newRefusal(400, []byte(test.text)).fitting(test.estimate); got != test.want {
			t.Errorf("%d of %d tokens, want %d: %s", got, test.estimate, test.want, test.text)
		}
	}
}

// TestCutsAreLogged: some servers cut what is longer than their context and do not say so, but they count what is left.
func TestCutsAreLogged(t *testing.T) {
	const said = "upstream has counted less than half of the tokens"
	counts := func(usage string) string { return strings.TrimSuffix(chatAnswer, "}") + `,"usage":` + usage + "}" }
	for _, test := range []struct {
		name, answer string
		want         int // lines in the log, of two requests within an hour and one after it
	}{
		{"cut", sized(counts(`{"prompt_tokens":4000,"completion_tokens":9}`)), 2},
		{"cut, streamed", eventHead + chunk(strings.Join(chatEvents, "")+"data: "+`{"choices":[],"usage":{"prompt_tokens":4000}}`+"\n\n"+chatDone) + "0\r\n\r\n", 2},
		{"whole", sized(counts(`{"prompt_tokens":9500}`)), 0},
		{"in other tokens", sized(counts(`{"prompt_tokens":5000}`)), 0},
		{"without what was cached", sized(counts(`{"prompt_tokens":200,"prompt_tokens_details":{"cached_tokens":9000}}`)), 0},
		{"uncounted", sized(chatAnswer), 0},
		{"refused", refused(400, `{"error":{"message":"no"},"usage":{"prompt_tokens":1}}`), 0},
	} {
		u, b := &refuser{now: time.Now()}, newBook()
		u.refuse = func(string) string { return test.answer }
		r := start(t, rigOptions{upstream: answering(t, u.answer), now: u.clock, memory: func(ctx context.Context, c memory.Call) (*turn, error) {
			turn, err := b.begin(ctx, c)
			turn.shaper = shapes{turn, turn.shaper.Sent, 10000}
			return turn, err
		}})
		for i := range 3 {
			if i == 2 {
				u.pass(time.Hour)
			}
			bodyText(t, ask(t, r, plainChat))
		}
		r.stop(t)
		if got := strings.Count(r.log.String(), said); got != test.want {
			t.Errorf("%s: %d lines, want %d\n%s", test.name, got, test.want, r.log)
		}
	}
}

// TestLessonsAreBounded: callers can name models without end. What other tenants, and the tenant itself, still use stays.
func TestLessonsAreBounded(t *testing.T) {
	t.Parallel()
	var l lessons
	now := time.Now()
	key := func(tenant string, i int) lessonKey {
		k := lessonKey{tenant: tenant}
		binary.BigEndian.PutUint64(k.rest[:], uint64(i))
		return k
	}
	knows := func(k lessonKey, now time.Time) bool { return l.get(k, now).tokens == 1 }
	l.set(key("other", 0), lesson{tokens: 1}, now)
	for i := range 3 * maxLessons {
		l.set(key("many", i), lesson{tokens: 1}, now)
		if !knows(key("many", 0), now) {
			t.Fatalf("a lesson that is in use is lost after %d", i)
		}
	}
	if len(l.table) != maxLessons || !knows(key("many", 3*maxLessons-1), now) {
		t.Errorf("%d lessons", len(l.table))
	}
	if knows(key("many", 1), now) || !knows(key("other", 0), now) {
		t.Error("not the oldest lesson of the tenant with the most is dropped")
	}

	later := now.Add(lessonFor)
	if knows(key("many", 0), later) || knows(key("other", 0), later) {
		t.Error("a lesson is never forgotten")
	}
	if l.none("many") || !l.none("other") || !l.none("new") {
		t.Error("it is not known which tenants have lessons")
	}
	for i := range maxLessons {
		l.set(key(fmt.Sprint(i), i), lesson{tokens: 1}, later)
	}
	if len(l.table) != maxLessons || len(l.tenants) != maxLessons {
		t.Errorf("%d lessons of %d tenants", len(l.table), len(l.tenants))
	}
}

// TestRefusalsOfMedia: servers say in words of their own that they take no pictures, or cannot fetch one.
func TestRefusalsOfMedia(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`Invalid content type. image_url is only supported by certain models.`:                                    true, // OpenAI
		`Error while downloading https://x/a?b=1. Upstream status code: 403.`:                                     true,
		`No endpoints found that support image input`:                                                             true, // OpenRouter
		`image input is not supported - hint: if this is unexpected, you may need to provide the mmproj`:          true, // llama.cpp
		`At most 0 image(s) may be provided in one request.`:                                                      true, // vLLM
		`m is not a multimodal model`:                                                                             true,
		"Failed to deserialize the JSON body into the target type: messages[0]: unknown variant `image_url`":      true, // DeepSeek
		`Cannot fetch content from the provided URL.`:                                                             true, // Gemini
		`Request payload size exceeds the limit: 20971520 bytes.`:                                                 true,
		`messages.0.content.1: Unable to download the file. Please verify the URL and try again.`:                 true, // Anthropic
		`Item 'ig_1' of type 'image_generation_call' was provided without its required 'reasoning' item: 'rs_1'.`: false,
		`messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.`:                 false, //nolint:misspell // as the API spells it
		`Item with id 'rs_1' not found. Items are not persisted when ` + "`store`" + ` is set to false.`:          false,
		`System message must be at the beginning.`:                                                                false,
	} {
		if got := newRefusal(400, []byte(text)).aboutMedia(); got != want {
			t.Errorf("%q is about media: %v, want %v", text, got, want)
		}
	}
}

// TestRefusalsOfRoles: servers have words of their own for the order of roles, and for roles that they do not know.
func TestRefusalsOfRoles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]view.Form{
		`Unexpected role 'user' after role 'tool'`: view.Alternate, // Mistral
		`A conversation must start with a user message. Try again with a conversation that starts with a user message.`:             view.Alternate, // Bedrock
		`Please ensure that function call turn comes immediately after a user turn or after a function response turn.`:              view.Alternate, // Gemini
		`Expected last role User or Tool (or Assistant with prefix True) for serving but got system`:                                view.Joined,    // Mistral
		"Last message must have role `user` or `tool`.":                                                                             view.Joined,    // Perplexity
		`After the (optional) system message(s), user or tool message(s) should alternate with assistant message(s).`:               view.Alternate,
		`messages: first message must use the "user" role`:                                                                          view.Alternate, // Anthropic
		"messages[0].role: unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`":                      view.OneSystem, // DeepSeek
		`Input tag 'developer' found using 'role' does not match any of the expected tags: 'system', 'user', 'assistant', 'tool'`:   view.OneSystem, // Mistral
		`'messages.0' : discriminator property 'role' has invalid value`:                                                            view.OneSystem, // Groq
		`Invalid request: unsupported role ROLE_UNSPECIFIED`:                                                                        view.OneSystem, // Kimi
		`'developer' is not one of ['system', 'assistant', 'user', 'tool', 'function'] - 'messages.0.role'`:                         view.OneSystem, // Qwen
		`Developer instruction is not enabled for models/m`:                                                                         view.NoSystem,  // Gemma at Google
		`Rate limit reached. See https://developers.example.com`:                                                                    view.AsIs,
		`'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning' is unsupported)]`: view.AsIs,
	} {
		if got := newRefusal(400, []byte(text)).form(); got != want {
			t.Errorf("%q wants the form %s, want %s", text, got, want)
		}
	}
}

// TestRefusalsOfItems: servers have words of their own for items and members that another one has made.
func TestRefusalsOfItems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`The encrypted content gAAA...xxxx could not be verified. Reason: Encrypted content could not be decrypted or parsed.`:            true,
		`Invalid 'input[1].id': 'chatcmpl-1'. Expected an ID that begins with 'msg'.`:                                                     true,
		`Invalid 'input[1].id': string too long. Expected a string with maximum length 64, but got a string with length 80 instead.`:      true,
		`Unknown parameter: 'input[1].reasoning_content'.`:                                                                                true,
		`[{"type":"extra_forbidden","loc":["body","messages",1,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted"}]`: true, // Mistral
		`('messages.1' : property 'reasoning_content' is unsupported)`:                                                                    true, // Groq
		`Invalid JSON payload received. Unknown name "reasoning_details" at 'messages[1]': Cannot find field.`:                            true, // Gemini
		`property 'reasoning_content' is unsupported`:                                                                                     true,
		`Audio with id 'audio_1' has expired and is no longer available.`:                                                                 true,
		`Unknown parameter: 'verbosity'.`:                                                                                                 false,
		`System message must be at the beginning.`:                                                                                        false,
		`Invalid 'messages[1].content': string too short.`:                                                                                false,
	} {
		if got := newRefusal(400, []byte(text)).aboutItems(); got != want {
			t.Errorf("%q is about items: %v, want %v", text, got, want)
		}
	}
}

// TestRefusalsOfCalls: servers have words of their own for names of tools that a model has made up, and for arguments that are
// no JSON.
func TestRefusalsOfCalls(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]view.Mend{
		`Invalid 'messages[9].tool_calls[0].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.`:        view.ToolNames,
		`Invalid 'messages[2].tool_calls[0].function.name': empty string. Expected a string with minimum length 1, but got an empty string instead.`:              view.ToolNames,
		`Value at 'messages.3.member.content.1.member.toolUse.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+`: view.ToolNames,
		`messages.1.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'`:                                                                 view.ToolNames,
		`The "function.arguments" parameter of the code model must be in JSON format.`:                                                                            view.Arguments,
		`Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error`:                                                               view.Arguments,
		`messages.1.content.0.tool_use.input: Input should be a valid dictionary`:                                                                                 view.Arguments,
		`Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string, but got an object instead.`:                                          view.Arguments,
		`json: cannot unmarshal object into Go struct field .messages.tool_calls.function.arguments of type string`:                                               view.Arguments,
		`('messages.1.tool_calls.0.function.arguments' : value must be a string)`:                                                                                 view.Arguments,
		`messages: text content blocks must be non-empty`:                                                                                                         view.EmptyText,
		`messages.0: user messages must have non-empty content`:                                                                                                   view.EmptyText,
		`The text field in the ContentBlock object at messages.2.content.0 is blank. Add text to the text field, and try again.`:                                  view.EmptyText,
		`Invalid request: the message at position 2 with role 'assistant' must not be empty`:                                                                      view.EmptyText, // Kimi
		`Assistant message must have either content or tool_calls, but not none.`:                                                                                 view.EmptyText, // Mistral
		`Each message must have at least one content element.`:                                                                                                    view.EmptyText, // Grok
		`Unable to submit request because it must have a text parameter. Add a text parameter and try again.`:                                                     view.EmptyText, // Vertex AI
		`messages: text content blocks must contain non-whitespace text`:                                                                                          view.EmptyText,
		`Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.`:                                 view.EmptyCalls | view.EmptyText,
		`[] is too short - 'messages.1.tool_calls'`:                                                                                                               view.EmptyCalls | view.EmptyText,
		`Unknown name "x": Cannot find field.`:                                                                                                                    0,
		`The model m does not exist`:                                                                                                                              0,
	} {
		if got := newRefusal(400, []byte(text)).mend(); got != want {
			t.Errorf("%q asks for %v, want %v", text, got.Names(), want.Names())
		}
	}
}
