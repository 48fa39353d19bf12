package scripted_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
)

func chatBody(user, more string) string {
	q, _ := json.Marshal(user)
	return `{"model":"m","messages":[{"role":"user","content":` + string(q) + `}]` + more + `}`
}

func responsesBody(user, more string) string {
	q, _ := json.Marshal(user)
	return `{"model":"m","input":` + string(q) + more + `}`
}

// events splits a stream into its data, and the names of its events.
func events(t *testing.T, stream string) (data, names []string) {
	t.Helper()
	for block := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name := ""
		for line := range strings.SplitSeq(block, "\n") {
			if n, ok := strings.CutPrefix(line, "event: "); ok {
				name = n
			} else if d, ok := strings.CutPrefix(line, "data: "); ok {
				data, names = append(data, d), append(names, name)
			} else if !strings.HasPrefix(line, ": ") {
				t.Fatalf("line %q in a stream", line)
			}
		}
	}
	return data, names
}

type chunk struct {
	Choices []struct {
		Index        int
		FinishReason *string `json:"finish_reason"`
		Delta        struct {
			Role             string
			Content, Refusal string
			ReasoningContent string `json:"reasoning_content"`
			ToolCalls        []struct {
				Index    int
				ID       string
				Function struct{ Name, Arguments string }
				Custom   struct{ Name, Input string }
			} `json:"tool_calls"`
		}
	}
	Usage json.RawMessage
}

// TestChatStreamFoldsToTheWholeAnswer: a stream has the same text, refusal, reasoning and calls as the answer that is not
// streamed.
func TestChatStreamFoldsToTheWholeAnswer(t *testing.T) {
	const script = `REASON think first ;; SAY one two three four five é ;; CALL f {"x":"a long enough argument é"} | raw {"text":"y"} | h`
	tools := `,"tools":[{"type":"custom","custom":{"name":"raw"}}],"n":2`
	fresh := func() *upstream { return start(t, scripted.Options{}) }
	_, whole := fresh().call("POST", chatPath, chatBody(script, tools))
	_, stream := fresh().call("POST", chatPath, chatBody(script, tools+`,"stream":true,"stream_options":{"include_usage":true}`))
	data, _ := events(t, stream)
	if last := data[len(data)-1]; last != "[DONE]" {
		t.Fatalf("last event %s", last)
	}
	texts, calls, finish := map[int]string{}, map[string]string{}, map[int]string{}
	for i, d := range data[:len(data)-1] {
		var c chunk
		if err := json.Unmarshal([]byte(d), &c); err != nil {
			t.Fatal(err)
		}
		if isUsage := i == len(data)-2; isUsage != (len(c.Choices) == 0) || isUsage == (string(c.Usage) == "null") {
			t.Errorf("chunk %d: choices and usage of %s", i, d)
		}
		if !strings.Contains(d, `"obfuscation":"`) {
			t.Errorf("chunk %d has no obfuscation", i)
		}
		for _, ch := range c.Choices {
			texts[ch.Index] += ch.Delta.ReasoningContent + ch.Delta.Content + ch.Delta.Refusal
			for _, tc := range ch.Delta.ToolCalls {
				calls[fmt.Sprint(ch.Index, tc.Index)] += tc.ID + tc.Function.Name + tc.Custom.Name + tc.Function.Arguments + tc.Custom.Input
			}
			if ch.FinishReason != nil {
				finish[ch.Index] += *ch.FinishReason
			}
		}
	}
	for i := range 2 {
		m := []any{"choices", i, "message"}
		get := func(path ...any) string { s, _ := at(t, whole, append(m[:3:3], path...)...).(string); return s }
		if want := get("reasoning_content") + get("content"); texts[i] != want {
			t.Errorf("choice %d: streamed %q, whole %q", i, texts[i], want)
		}
		for j := range 3 {
			tc := func(path ...any) string { return get(append([]any{"tool_calls", j}, path...)...) }
			want := tc("id") + tc("function", "name") + tc("custom", "name") + tc("function", "arguments") + tc("custom", "input")
			if got := calls[fmt.Sprint(i, j)]; got != want {
				t.Errorf("call %d of choice %d: streamed %q, whole %q", j, i, got, want)
			}
		}
		if finish[i] != "tool_calls" {
			t.Errorf("choice %d finishes %q", i, finish[i])
		}
	}
	if texts[0] == texts[1] {
		t.Error("the choices are the same")
	}
}

func TestResponsesStreamFoldsToTheWholeAnswer(t *testing.T) {
	const script = `REASON think first ;; SAY one two three four ;; REFUSE not that ;; CALL f {"x":"y z"} | raw {"a":1}`
	tools := `,"tools":[{"type":"custom","name":"raw"}]`
	_, whole := start(t, scripted.Options{}).call("POST", responsesPath, responsesBody(script, tools))
	_, stream := start(t, scripted.Options{}).call("POST", responsesPath, responsesBody(script, tools+`,"stream":true`))
	data, names := events(t, stream)
	deltas := map[string]string{}
	var done []json.RawMessage
	for i, d := range data {
		if at(t, d, "type") != names[i] || at(t, d, "sequence_number") != float64(i) {
			t.Errorf("event %d is %s, data %s", i, names[i], d)
		}
		base, isDelta := strings.CutSuffix(names[i], ".delta")
		if isDelta {
			deltas[base] += at(t, d, "delta").(string)
		}
		switch base = strings.TrimSuffix(names[i], ".done"); base {
		case "response.output_item":
			var e struct{ Item json.RawMessage }
			if err := json.Unmarshal([]byte(d), &e); err != nil {
				t.Fatal(err)
			}
			done = append(done, e.Item)
		case "response.output_text", "response.refusal", "response.reasoning_summary_text",
			"response.function_call_arguments", "response.custom_tool_call_input":
			member := map[string]string{
				"response.refusal": "refusal", "response.function_call_arguments": "arguments",
				"response.custom_tool_call_input": "input",
			}[base]
			if member == "" {
				member = "text"
			}
			if at(t, d, member) != deltas[base] || deltas[base] == "" {
				t.Errorf("%s ends with %v, its deltas are %q", base, at(t, d, member), deltas[base])
			}
		}
	}
	if names[0] != "response.created" || names[1] != "response.in_progress" || names[len(names)-1] != "response.completed" {
		t.Errorf("events: %q", names)
	}
	var last struct{ Response json.RawMessage }
	if err := json.Unmarshal([]byte(data[len(data)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, string(last.Response)); diff != "" {
		t.Errorf("terminal event against whole answer:\n%s", diff)
	}
	var response struct{ Output []json.RawMessage }
	if err := json.Unmarshal([]byte(whole), &response); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(response.Output, done); diff != "" || len(done) != 4 {
		t.Errorf("items done against output:\n%s", diff)
	}
}

func TestFaultAnswers(t *testing.T) {
	u := start(t, scripted.Options{})
	if err := u.Inject("status=500", 1); err != nil {
		t.Fatal(err)
	}
	if status, body := u.call("POST", chatPath, chatBody("x", "")); status != 500 || at(t, body, "error", "type") != "server_error" {
		t.Errorf("injected: %d %s", status, body)
	}
	resp, err := u.do("POST", chatPath, chatBody("x", ""), "X-Script", "status=429;retry-after=2, close")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "2" || !resp.Close {
		t.Errorf("429: %v", resp)
	}
	if status, body := u.call("GET", "/v1/models", "", "X-Script", "html"); status != 502 || !strings.HasPrefix(body, "<html>") {
		t.Errorf("html: %d %s", status, body)
	}
	if status, body := u.call("GET", "/v1/models", "", "X-Script", "statsu=500"); status != 400 || !strings.Contains(body, "statsu") {
		t.Errorf("misspelt: %d %s", status, body)
	}
	if err := u.Inject("cut-after=-1", 1); err == nil {
		t.Error("Inject took an impossible value")
	}
	stream := func(spec string) string {
		_, body := u.call("POST", chatPath, chatBody("SAY a b c d e f g h", `,"stream":true`), "X-Script", spec)
		return body
	}
	if body := stream("no-done"); strings.Contains(body, "[DONE]") || !strings.Contains(body, `"finish_reason":"stop"`) {
		t.Errorf("no-done: %s", body)
	}
	if body := stream("comments"); strings.Count(body, ": OPENROUTER PROCESSING\n\n") != 2 {
		t.Errorf("comments: %s", body)
	}
	if body := stream("error-in-stream"); strings.Count(body, "data: ") != 3 || !strings.Contains(body, `data: {"error":{"message":"The server had`) {
		t.Errorf("error-in-stream: %s", body)
	}
	_, body := u.call("POST", responsesPath, responsesBody("x", `,"stream":true`), "X-Script", "error-in-stream")
	if _, names := events(t, body); names[2] != "error" || len(names) != 3 {
		t.Errorf("error in a stream of responses: %s", body)
	}
	_, body = u.call("POST", chatPath, chatBody("SAY x", ""), "X-Script", "big=3")
	if n := len(at(t, body, "choices", 0, "message", "content").(string)); n != 3*1024+1 {
		t.Errorf("big=3 made %d bytes", n)
	}
	body = stream("big=200, piece=150000")
	if len(body) < 200<<10 || strings.Count(body, "data: ") != 5 {
		t.Errorf("%d events in %d bytes", strings.Count(body, "data: "), len(body))
	}
}

func TestFaultEncodings(t *testing.T) {
	plain := func(body string) (string, error) { return body, nil }
	decode := map[string]func(string) (string, error){
		"chunk=7": plain,
		"length":  plain,
		"gzip": func(body string) (string, error) {
			r, err := gzip.NewReader(strings.NewReader(body))
			if err != nil {
				return "", err
			}
			b, err := io.ReadAll(r)
			return string(b), err
		},
	}
	for spec, f := range decode {
		for _, more := range []string{"", `,"stream":true`} {
			_, want := start(t, scripted.Options{}).call("POST", chatPath, chatBody("SAY a b c d e f", more))
			u := start(t, scripted.Options{})
			for _, combined := range []string{spec, spec + ", chunk=5"} {
				u.Reset()
				resp, err := u.do("POST", chatPath, chatBody("SAY a b c d e f", more), "X-Script", combined)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				got, err := f(string(b))
				if err != nil || got != want {
					t.Errorf("%s, stream %v: %v\n%s\nwant\n%s", combined, more != "", err, got, want)
				}
				if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != spec {
					t.Errorf("%s: Content-Encoding %q", combined, enc)
				}
				if spec == "length" && more == "" && resp.ContentLength != int64(len(want)) {
					t.Errorf("length: Content-Length %d", resp.ContentLength)
				}
			}
		}
	}
}

func TestCutsAreUnclean(t *testing.T) {
	u := start(t, scripted.Options{})
	for _, spec := range []string{"cut-after=2", "cut-after=0", "cut-after=1, length"} {
		for _, more := range []string{"", `,"stream":true`} {
			resp, err := u.do("POST", chatPath, chatBody("SAY a b c d e f", more), "X-Script", spec)
			if err == nil {
				var b []byte
				b, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if strings.Contains(string(b), "[DONE]") {
					t.Errorf("%s: got all of it", spec)
				}
			}
			if err == nil {
				t.Errorf("%s, stream %v: clean end", spec, more != "")
			}
		}
	}
	for _, r := range u.Requests() {
		if u.await(func(now scripted.Recorded) bool { return now.Seq == r.Seq && now.End != scripted.Open }).End != scripted.Broken {
			t.Errorf("request %d ended %v", r.Seq, r.End)
		}
	}
}

func TestClientGoneIsSeen(t *testing.T) {
	u := start(t, scripted.Options{})
	for _, c := range []struct{ spec, more string }{
		{"stall-before", ""}, {"stall-before", `,"stream":true`}, {"stall-after=2", `,"stream":true`}, {"stall-after=1", ""},
	} {
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", u.URL()+chatPath, strings.NewReader(chatBody("SAY a b c d e f "+c.spec, c.more)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Script", c.spec)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if resp, err := u.client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
		mine := func(r scripted.Recorded) bool {
			return bytes.Equal(r.Body, []byte(chatBody("SAY a b c d e f "+c.spec, c.more)))
		}
		want := map[string]int{"stall-after=2": 2, "stall-after=1": 1}[c.spec]
		u.await(func(r scripted.Recorded) bool { return mine(r) && r.End == scripted.Open && r.Events == want })
		leave()
		<-ended
		r := u.await(func(r scripted.Recorded) bool { return mine(r) && r.End != scripted.Open })
		if r.End != scripted.ClientGone || r.Events != want {
			t.Errorf("%+v: ended %v after %d events", c, r.End, r.Events)
		}
	}
}

func TestReleaseEndsAStall(t *testing.T) {
	u := start(t, scripted.Options{})
	for _, spec := range []string{"stall-before", "stall-after=2"} {
		got := make(chan string)
		go func() {
			defer close(got)
			resp, err := u.do("POST", chatPath, chatBody(spec, `,"stream":true`), "X-Script", spec)
			if err != nil {
				got <- err.Error()
				return
			}
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got <- string(b)
		}()
		u.await(func(r scripted.Recorded) bool { return strings.Contains(string(r.Body), spec) })
		u.Release()
		if body := <-got; !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("%s: %s", spec, body)
		}
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	s, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		resp, err := http.Get(s.URL() + "/v1/models")
		_ = resp.Body.Close()
		_ = err
		req, _ := http.NewRequest("GET", s.URL()+"/v1/models", nil)
		req.Header.Set("X-Script", "stall-before")
		resp, err = http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := s.Await(ctx, func(r scripted.Recorded) bool { return r.Seq == 2 }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a stalled request ended well")
	}
	if end := s.Requests()[1].End; end != scripted.ClientGone {
		t.Errorf("ended %v", end)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestRawHeadersAreKept: the head of every request on a connection is recorded byte for byte.
func TestRawHeadersAreKept(t *testing.T) {
	u := start(t, scripted.Options{Echo: true})
	conn, err := net.Dial("tcp", strings.TrimPrefix(u.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for i, more := range []string{"", "x-THREE:  spaced\t\r\n"} {
		head := "POST /v1//odd/../%2e?q=%7E HTTP/1.1\r\nhOST: me\r\nX-b: 2\r\nx-A: 1\r\n" + more + "Content-Length: 3\r\n\r\n"
		if _, err := io.WriteString(conn, head+"abc"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		if at(t, string(b), "path") != "/v1//odd/../%2e?q=%7E" || at(t, string(b), "headers", 1, "name") != "X-b" {
			t.Errorf("echo: %s", b)
		}
		got := u.Requests()[i]
		if string(got.RawHeader) != head || string(got.Body) != "abc" {
			t.Errorf("got %q\nwant %q", got.RawHeader, head)
		}
	}
}

func TestRecordIsBounded(t *testing.T) {
	u := start(t, scripted.Options{KeepRequests: 3})
	for range 10 {
		u.call("GET", "/v1/models", "")
	}
	got := u.Requests()
	if len(got) > 4 || got[len(got)-1].Seq != 10 {
		t.Errorf("%d requests kept, the last is %d", len(got), got[len(got)-1].Seq)
	}
}

func TestOtherEndpoints(t *testing.T) {
	u := start(t, scripted.Options{})
	_, list := u.call("GET", "/api/v1/models", "")
	if at(t, list, "object") != "list" {
		t.Error(list)
	}
	if _, m := u.call("GET", "/v1/models/openai/gpt-5", ""); at(t, m, "id") != "openai/gpt-5" {
		t.Error(m)
	}
	if _, f := u.call("POST", "/v1/files", "data"); at(t, f, "bytes") != float64(4) {
		t.Error(f)
	}
	_, e := u.call("POST", "/v1/embeddings", `{"model":"e","input":["a","b","a"],"dimensions":5}`)
	if a := at(t, e, "data", 0, "embedding").([]any); len(a) != 5 || !cmp.Equal(a, at(t, e, "data", 2, "embedding")) ||
		cmp.Equal(a, at(t, e, "data", 1, "embedding")) {
		t.Error(e)
	}
	_, e = u.call("POST", "/v1/embeddings", `{"model":"e","input":[1,2,3],"dimensions":3,"encoding_format":"base64"}`)
	if s, _ := at(t, e, "data", 0, "embedding").(string); len(s) != 16 || len(at(t, e, "data").([]any)) != 1 {
		t.Error(e)
	}
	for _, input := range []string{`null`, `[]`, `7`} {
		if status, _ := u.call("POST", "/v1/embeddings", `{"model":"e","input":`+input+`}`); status != 400 {
			t.Errorf("input %s: %d", input, status)
		}
	}
}

// TestUnknownPaths: unknown paths are refused as by OpenAI, with the list of endpoints. With Options.Echo they are echoed.
func TestUnknownPaths(t *testing.T) {
	u := start(t, scripted.Options{})
	for _, c := range [][2]string{
		{"POST", "/v1/chat/completion"}, {"GET", "/v1/chat/completions"}, {"POST", "/chat/completions"}, {"GET", "/v1/models/"}, {"PUT", "/"},
	} {
		status, body := u.call(c[0], c[1], "{}")
		message, _ := at(t, body, "error", "message").(string)
		if status != http.StatusNotFound || at(t, body, "error", "type") != "invalid_request_error" || at(t, body, "error", "code") != "unknown_url" ||
			!strings.Contains(message, " "+c[0]+" "+c[1]+". ") || !strings.Contains(message, "POST chat/completions") {
			t.Errorf("%s %s: %d %s", c[0], c[1], status, body)
		}
	}

	u = start(t, scripted.Options{Echo: true})
	if _, echo := u.call("PUT", "/anything?x=1", "<\n>"); at(t, echo, "body") != "<\n>" || at(t, echo, "method") != "PUT" {
		t.Error(echo)
	}
}
