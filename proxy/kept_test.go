package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"remora/memory"
)

// TestKeptAnswer: only paths that name an answer are looked up, and the id in them may be any.
func TestKeptAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ request, id string }{
		{"GET /v1/responses/resp_1", "resp_1"},
		{"GET /v1/responses/resp_1?stream=true&starting_after=4", "resp_1"},
		{"DELETE /api/v1/responses/resp_1", "resp_1"},
		{"GET http://host/v1/responses/resp_1/input_items?limit=2", "resp_1"},
		{"POST /openai/v1/responses/resp_1/cancel", "resp_1"},
		{"GET /v1/responses/a%2Fb%3D%3D", "a/b=="},
		{"GET /v1/chat/completions/chatcmpl-1", "chatcmpl-1"},
		{"POST /v1/chat/completions/chatcmpl-1", "chatcmpl-1"},
		{"GET /v1/chat/completions/chatcmpl-1/messages", "chatcmpl-1"},

		{"POST /v1/responses", ""},
		{"POST /v1/responses/compact", ""},
		{"POST /v1/responses/input_tokens", ""},
		{"GET /v1/responses/", ""},
		{"GET /v1/responses/..", ""},
		{"GET /v1/responses/%2e%2e", ""},
		{"GET /v1/responses/%zz", ""},
		{"GET /v1/responses/resp_1/other", ""},
		{"DELETE /v1/responses/resp_1/input_items", ""},
		{"PUT /v1/responses/resp_1", ""},
		{"GET /v1/chat/completions", ""},
		{"GET /v1/models/responses/x", ""},
		{"GET /v1/responses/" + strings.Repeat("a", maxAnswerID+1), ""},
		{"GET *", ""},
	} {
		method, target, _ := strings.Cut(tt.request, " ")
		in, ok := keptAnswer([]byte(method), []byte(target))
		if ok != (tt.id != "") || in.id != tt.id {
			t.Errorf("%.80s: %q, %v", tt.request, in.id, ok)
		}
		if ok && (!strings.HasPrefix(target, string(in.before)) || !strings.HasSuffix(target, string(in.after))) {
			t.Errorf("%.80s: %q and %q are around the id", tt.request, in.before, in.after)
		}
	}
}

// TestFollowing: an id leads to the end of its answer while memory knows it, for all that names an answer and nothing else.
// What memory does not know passes as it came, and so does everything while the store does not answer.
func TestFollowing(t *testing.T) {
	t.Parallel()
	down := errors.New("the store is down")
	const answer = `{"object": "response", "id":"last" , "output":[{"id":"last"}]}`
	requests := make(chan string, 1)
	up := answering(t, func(req *http.Request, body []byte) string {
		requests <- req.RequestURI + " " + string(body) + " " + req.Header.Get("Accept-Encoding")
		return sized(answer)
	})
	for _, tt := range []struct {
		name, request, body string
		asked               int
		sent, got           string // where it is found
	}{
		{"the path", "GET /v1/responses/first?include=x", "", 1, "/v1/responses/last?include=x", strings.Replace(answer, `"last"`, `"first"`, 1)},
		{"a stored completion", "DELETE /v1/chat/completions/first", "", 1, "/v1/chat/completions/last", strings.Replace(answer, `"last"`, `"first"`, 1)},
		{
			"a body that is passed through", "POST /v1/responses X-Memory: off", `{"model":"m", "previous_response_id" : "first","input":"x"}`,
			1, `/v1/responses {"model":"m", "previous_response_id" : "last","input":"x"}`, answer,
		},
		{
			"the same, with a session", "POST /v1/responses X-Memory: off\r\nX-Session-Id: s", `{"previous_response_id":"first","input":"x"}`,
			1, `/v1/responses {"previous_response_id":"last","input":"x"}`, answer,
		},
		{
			"below the endpoint", "POST /v1/responses/input_tokens", `{"previous_response_id":"first"}`,
			1, `/v1/responses/input_tokens {"previous_response_id":"last"}`, answer,
		},
		{"no response before it", "POST /v1/responses X-Memory: off", `{"input":"first"}`, 0, `/v1/responses {"input":"first"}`, answer},
		{"another body", "POST /v1/embeddings", `{"previous_response_id":"first"}`, 0, `/v1/embeddings {"previous_response_id":"first"}`, answer},
		{"another path", "GET /v1/models/first", "", 0, "/v1/models/first", answer},
		{"an answer of one part", "GET /v1/responses/other", "", 1, "/v1/responses/other", answer},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, store fails: %v", tt.name, fails), func(t *testing.T) {
				asked := 0
				r := start(t, rigOptions{upstream: up, memory: newBook().begin})
				r.response = func(_ context.Context, _, id string) (memory.Response, error) {
					asked++
					if fails {
						return memory.Response{}, down
					}
					if id != "first" {
						return memory.Response{}, nil
					}
					return memory.Response{Session: "s", Last: "last"}, nil
				}
				line, headers, _ := strings.Cut(tt.request, " X-Memory")
				if headers != "" {
					headers = "X-Memory" + headers + "\r\n"
				}
				in := fmt.Sprintf("%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: gzip\r\n%sContent-Length: %d\r\n\r\n%s", line, headers, len(tt.body), tt.body)

				_, got, _ := strings.Cut(r.exchange(t, in), "\r\n\r\n")
				sent, want, body := await(t, requests, "request"), tt.sent, tt.got
				if fails {
					_, target, _ := strings.Cut(line, " ")
					want, body = target, answer
					if tt.body != "" {
						want += " " + tt.body
					}
				}
				if !strings.HasPrefix(sent, want) || got != body || asked != tt.asked {
					t.Errorf("upstream gets %s, want %s; client gets %s, want %s; memory is asked %d times, want %d", sent, want, got, body, asked, tt.asked)
				}
				if reads := strings.HasSuffix(sent, "identity"); reads != (body != answer) {
					t.Errorf("upstream may answer compressed: %v", !reads)
				}
			})
		}
	}
}
