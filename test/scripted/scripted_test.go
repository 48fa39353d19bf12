package scripted_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"remora/test/kit"
	"remora/test/scripted"
)

func TestMain(m *testing.M) { os.Exit(kit.RunWithoutLeaks(m)) }

// upstream is a running server with a client. Both are closed when the test ends.
type upstream struct {
	*scripted.Server
	t      *testing.T
	client *http.Client
}

func start(t *testing.T, o scripted.Options) *upstream {
	t.Helper()
	s, err := scripted.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &upstream{Server: s, t: t, client: &http.Client{Transport: tr}}
}

// do sends a request; headers are name, value, name, value.
func (u *upstream) do(method, path, body string, headers ...string) (*http.Response, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 2*time.Minute)
	u.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, u.URL()+path, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return u.client.Do(req)
}

// call sends a request, requires an answer, and returns its status and body.
func (u *upstream) call(method, path, body string, headers ...string) (int, string) {
	u.t.Helper()
	resp, err := u.do(method, path, body, headers...)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Fatalf("read body: %v after %q", err, b)
	}
	return resp.StatusCode, string(b)
}

func (u *upstream) await(match func(scripted.Recorded) bool) scripted.Recorded {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 2*time.Minute)
	defer cancel()
	r, err := u.Await(ctx, match)
	if err != nil {
		u.t.Fatalf("await: %v; have %+v", err, u.Requests())
	}
	return r
}

func compact(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		t.Fatalf("compact %q: %v", s, err)
	}
	return b.String()
}

func at(t *testing.T, doc string, path ...any) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		t.Fatalf("parse %q: %v", doc, err)
	}
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				t.Fatalf("no element %d of %v in %s", p, path, doc)
			}
			v = l[p]
		}
	}
	return v
}

// chatLoop plays a client's tool loop: it resends everything and answers each call with its arguments. It returns the
// last answer.
func chatLoop(t *testing.T, u *upstream, script string, rounds int) string {
	t.Helper()
	q, _ := json.Marshal(script)
	messages := []string{`{"role":"user","content":` + string(q) + `}`}
	var body string
	for range rounds {
		var status int
		status, body = u.call("POST", "/v1/chat/completions", `{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`)
		if status != 200 {
			t.Fatalf("status %d: %s", status, body)
		}
		var answer struct {
			Choices []struct {
				Message      json.RawMessage
				FinishReason string `json:"finish_reason"`
			}
		}
		var m struct {
			ToolCalls []struct {
				ID       string
				Function struct{ Arguments string }
			} `json:"tool_calls"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(answer.Choices[0].Message, &m); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, string(answer.Choices[0].Message))
		if (len(m.ToolCalls) > 0) != (answer.Choices[0].FinishReason == "tool_calls") {
			t.Fatalf("finish_reason %q with %d calls", answer.Choices[0].FinishReason, len(m.ToolCalls))
		}
		if len(m.ToolCalls) == 0 {
			break
		}
		for _, c := range m.ToolCalls {
			out, _ := json.Marshal("result of " + c.Function.Arguments)
			messages = append(messages, `{"role":"tool","tool_call_id":"`+c.ID+`","content":`+string(out)+`}`)
		}
	}
	return body
}

func TestChatToolLoop(t *testing.T) {
	u := start(t, scripted.Options{})
	last := chatLoop(t, u, `SAY hm ;; LOOP 12 read {"page":{{i}}} ;; CALL a {"x":"a|b;;c}"} | b ;; SAY all read`, 100)
	if got := at(t, last, "choices", 0, "message", "content"); got != "all read" {
		t.Errorf("last answer %q", got)
	}
	requests := u.Requests()
	if len(requests) != 14 {
		t.Fatalf("%d requests, want 12 rounds of the loop, one parallel round and the end", len(requests))
	}
	final := string(requests[13].Body)
	for _, want := range []string{`{\"page\":1}`, `{\"page\":12}`, `result of {\"x\":\"a|b;;c}\"}`, `result of {}`} {
		if !strings.Contains(final, want) {
			t.Errorf("history lacks %s", want)
		}
	}
	if f := u.Faults(); len(f) > 0 {
		t.Errorf("faults: %q", f)
	}
}

// TestChatLoopSurvivesCutRounds: the round is read from call ids, so a loop continues without its older rounds.
func TestChatLoopSurvivesCutRounds(t *testing.T) {
	u := start(t, scripted.Options{})
	ask := func(more string) string {
		_, body := u.call("POST", "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"LOOP 5 f {\"i\":{{i}}} ;; SAY end"}`+more+`]}`)
		return body
	}
	body := ask("")
	for i := 2; i <= 3; i++ {
		id := at(t, body, "choices", 0, "message", "tool_calls", 0, "id").(string)
		// Only the newest round is resent.
		history := `,{"role":"assistant","content":null,"tool_calls":[{"id":"` + id +
			`","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"` + id + `","content":"ok"}`
		body = ask(history)
		want := `{"i":` + string(rune('0'+i)) + `}`
		if got := at(t, body, "choices", 0, "message", "tool_calls", 0, "function", "arguments"); got != want {
			t.Fatalf("round %d calls with %v, want %s", i, got, want)
		}
	}
}

func TestResponsesToolLoopByPreviousResponse(t *testing.T) {
	u := start(t, scripted.Options{})
	_, body := u.call("POST", "/v1/responses",
		`{"model":"m","input":"REASON let me see ;; LOOP 3 f {\"i\":{{i}}} ;; SAY done","include":["reasoning.encrypted_content"]}`)
	for i := 1; i <= 3; i++ {
		id, call := at(t, body, "id").(string), at(t, body, "output", 1, "call_id").(string)
		if got, want := at(t, body, "output", 1, "arguments"), `{"i":`+string(rune('0'+i))+`}`; got != want {
			t.Fatalf("round %d: %v, want %s", i, got, want)
		}
		_, body = u.call("POST", "/v1/responses", `{"model":"m","previous_response_id":"`+id+
			`","input":[{"type":"function_call_output","call_id":"`+call+`","output":"ok"}]}`)
	}
	if got := at(t, body, "output", 0, "content", 0, "text"); got != "done" {
		t.Errorf("end of the loop: %s", body)
	}
	if f := u.Faults(); len(f) > 0 {
		t.Errorf("faults: %q", f)
	}
}

// script runs a fixed list of requests and returns every answer with its headers, except for those with times.
func script(t *testing.T, u *upstream) string {
	t.Helper()
	var out strings.Builder
	for _, c := range [][2]string{
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hello"}]}`},
		{"/api/v1/chat/completions", `{"model":"m","stream":true,"n":2,"messages":[{"role":"user","content":"SAY one two three four ;; CALL f {}"}]}`},
		{"/v1/responses", `{"model":"m","stream":true,"input":"REASON r ;; SAY s ;; CALL f {}"}`},
		{"/v1/responses", `{"model":"m","input":"REFUSE no"}`},
		{"/v1/embeddings", `{"model":"e","input":"x"}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"tool","tool_call_id":"x","content":""}]}`},
	} {
		resp, err := u.do("POST", c[0], c[1])
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		resp.Header.Del("Date")
		h, _ := json.Marshal(resp.Header)
		out.WriteString(resp.Status + string(h) + string(b) + "\n")
	}
	return out.String()
}

func TestTwoFreshServersAnswerAlike(t *testing.T) {
	a, b := start(t, scripted.Options{}), start(t, scripted.Options{})
	first := script(t, a)
	if second := script(t, b); first != second {
		t.Errorf("two servers differ:\n%s\n%s", first, second)
	}
	if again := script(t, a); again == first {
		t.Error("a repeated request got the ids of the first")
	}
	a.Reset()
	if reset := script(t, a); reset != first {
		t.Error("after Reset the answers are not those of a fresh server")
	}
	lines := strings.Split(first, "\n")
	if lines[0] == lines[1] {
		t.Error("two equal requests got equal ids")
	}
}

// TestResetForgetsRunningRequests: a client that has read its answer to the end may call Reset before the server has recorded
// that the handler has ended. What it counts afterwards are its own requests only.
func TestResetForgetsRunningRequests(t *testing.T) {
	u := start(t, scripted.Options{})
	resp, err := u.do("POST", chatPath, chatBody("SAY a b", `,"stream":true`), "X-Script", "stall-after=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	u.await(func(r scripted.Recorded) bool { return r.End == scripted.Open && r.Events > 0 })
	u.Reset()
	if got := u.Requests(); len(got) != 0 {
		t.Errorf("after Reset there are %d requests: %+v", len(got), got)
	}
	u.Release()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
}

func TestDefaultAnswerDependsOnTheLastRoundOnly(t *testing.T) {
	u := start(t, scripted.Options{})
	text := func(messages string) string {
		_, body := u.call("POST", "/v1/chat/completions", `{"model":"m","messages":[`+messages+`]}`)
		s, _ := at(t, body, "choices", 0, "message", "content").(string)
		return s
	}
	short := text(`{"role":"user","content":"what is it?"}`)
	long := text(`{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},` +
		`{"role":"user","content":[{"type":"text","text":"what is it?"}]}`)
	if short != "You said: what is it?" || long != short {
		t.Errorf("%q and %q", short, long)
	}
	if got := text(`{"role":"system","content":"be good"},{"role":"user","content":"SEE"}`); got != "system: be good\nuser: SEE" {
		t.Errorf("SEE says %q", got)
	}
	// An agent's additions to the user's text do not hide a script.
	if got := text(`{"role":"user","content":[{"type":"text","text":"SAY hi"},{"type":"text","text":"<reminder>"}]}`); got != "hi" {
		t.Errorf("script beside a reminder: %q", got)
	}
}

func TestRespondOverridesTheScript(t *testing.T) {
	u := start(t, scripted.Options{Respond: func(p scripted.Prompt) (scripted.Answer, bool) {
		return scripted.Answer{Text: p.Model + "/" + p.Path}, p.User == "mine"
	}})
	for user, want := range map[string]string{"mine": "m/chat/completions", "SAY other": "other"} {
		_, body := u.call("POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"`+user+`"}]}`)
		if got := at(t, body, "choices", 0, "message", "content"); got != want {
			t.Errorf("%s: %v, want %s", user, got, want)
		}
	}
}

// TestRespondGivesIDsAndUsage: Respond can set the ids of calls and the usage.
func TestRespondGivesIDsAndUsage(t *testing.T) {
	u := start(t, scripted.Options{Respond: func(scripted.Prompt) (scripted.Answer, bool) {
		return scripted.Answer{
			Calls: []scripted.Call{{Name: "f", Arguments: "{}", ID: "call_recorded"}},
			Usage: scripted.Usage{Prompt: 4000, Cached: 3968},
		}, true
	}})
	_, chat := u.call("POST", "/v1/chat/completions", chatBody("x", ""))
	_, responses := u.call("POST", "/v1/responses", responsesBody("x", ""))
	for _, id := range []any{
		at(t, chat, "choices", 0, "message", "tool_calls", 0, "id"),
		at(t, responses, "output", 0, "call_id"),
	} {
		if id != "call_recorded" {
			t.Errorf("call id %v", id)
		}
	}
	for _, n := range [][2]any{
		{at(t, chat, "usage", "prompt_tokens"), at(t, chat, "usage", "prompt_tokens_details", "cached_tokens")},
		{at(t, responses, "usage", "input_tokens"), at(t, responses, "usage", "input_tokens_details", "cached_tokens")},
	} {
		if n != [2]any{4000.0, 3968.0} {
			t.Errorf("usage %v", n)
		}
	}
}

// TestAnswersFromWhatItWasSent: a question about the user is only answered from the request, in both dialects.
func TestAnswersFromWhatItWasSent(t *testing.T) {
	t.Parallel()
	u := start(t, scripted.Options{})
	const told, asks = `{"role":"user","content":"My name is Ada."}`, `{"role":"user","content":[{"type":"TEXT","text":"What is my name?"}]}`
	const knows, knowsNot = `"Your name is Ada."`, `"I do not know your name."`
	chat := strings.Replace(asks, "TEXT", "text", 1)
	response := strings.Replace(asks, "TEXT", "input_text", 1)
	for _, c := range []struct{ path, body, want string }{
		{chatPath, `"messages":[` + told + `,` + chat + `]`, knows},
		{chatPath, `"messages":[{"role":"system","content":"- user: My name is Ada."},` + chat + `]`, knows},
		{chatPath, `"messages":[` + chat + `]`, knowsNot},
		{responsesPath, `"input":[` + told + `,` + response + `]`, knows},
		{responsesPath, `"instructions":"- user: My name is Ada.","input":"What is my name?"`, knows},
		{responsesPath, `"input":"What is my name?"`, knowsNot},
	} {
		for _, stream := range []string{"false", "true"} {
			// In one piece, so that the text of a stream can be found.
			status, got := u.call(http.MethodPost, c.path, `{"model":"m","stream":`+stream+`,`+c.body+`}`, "X-Script", "piece=100")
			if status != http.StatusOK || !strings.Contains(got, c.want) {
				t.Errorf("%s, stream %s, %s: want %s, have %d %s", c.path, stream, c.body, c.want, status, got)
			}
		}
	}
}
