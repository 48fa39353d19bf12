package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"remora/memory"
	"remora/wire"
	"remora/wire/dialects"
)

// TestProvidersOwnPathsAreRemembered: they are the endpoints below /v1, and go upstream as the client asked.
func TestProvidersOwnPathsAreRemembered(t *testing.T) {
	for _, c := range []struct {
		target, upstream string
		dialect          wire.Dialect
		model            string // of a body that names none
	}{
		{"/v1/chat/completions", "/v1/chat/completions", dialects.Chat, ""},
		{"/api/v1/responses", "/v1/responses", dialects.Responses, ""},
		{"/chat/completions", "/v1/chat/completions", dialects.Chat, ""},
		{"/responses?x=1", "/v1/responses?x=1", dialects.Responses, ""},
		{"/openai/v1/chat/completions", "/openai/v1/chat/completions", dialects.Chat, ""},
		{"/openai/v1/responses", "/openai/v1/responses", dialects.Responses, ""},
		{"/openai/responses?api-version=2025-04-01-preview", "/openai/responses?api-version=2025-04-01-preview", dialects.Responses, ""},
		{"/v1beta/openai/chat/completions", "/v1beta/openai/chat/completions", dialects.Chat, ""},
		{
			"/openai/deployments/My-Model/chat/completions?api-version=2024-10-21", "/openai/deployments/My-Model/chat/completions?api-version=2024-10-21",
			dialects.Chat, "My-Model",
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, streamed %v", c.target, stream), func(t *testing.T) {
				b := newBook()
				asked := make(chan string, 1)
				r := start(t, rigOptions{memory: b.begin, upstream: answering(t, func(req *http.Request, _ []byte) string {
					asked <- req.RequestURI
					if stream {
						return eventHead + chunk(strings.Join(chatEvents, "")+chatDone) + chunk("")
					}
					return sized(chatAnswer)
				})})
				body := `{"messages":[{"role":"user","content":"hi"}],"input":"hi"}`
				got := r.exchange(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Session-Id: s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", c.target, len(body), body))
				if !strings.Contains(got, "\r\nX-Memory: ok;") {
					t.Error(got)
				}
				if target := await(t, asked, "request"); target != c.upstream {
					t.Errorf("upstream was asked for %s", target)
				}
				call := await(t, b.calls, "turn")
				if call.Request.Dialect != c.dialect || call.Request.Model() != c.model {
					t.Errorf("%v, model %q", call.Request.Dialect, call.Request.Model())
				}
			})
		}
	}
}

// TestProvidersOwnPathsAreJudged: rules judge the answers there, with and without a session.
func TestProvidersOwnPathsAreJudged(t *testing.T) {
	for _, target := range []string{"/chat/completions", "/openai/deployments/m/chat/completions?api-version=1", "/v1beta/openai/chat/completions", "/openai/v1/chat/completions"} {
		for _, session := range []string{"", "X-Session-Id: s\r\n"} {
			t.Run(target+" "+session, func(t *testing.T) {
				layers := &steerer{book: newBook(), steering: &memory.Steering{HoldAll: true}, review: func(wire.Reply) memory.Next {
					return memory.Next{Denied: true, Reason: "no"}
				}}
				r := start(t, rigOptions{memory: layers.begin, upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) })})
				r.guards = func() bool { return true }
				got := r.exchange(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", target, session, len(chatBody), chatBody))
				if !strings.HasPrefix(got, "HTTP/1.1 403 ") {
					t.Error(got)
				}
			})
		}
	}
}

// TestBypassesAreLogged: once a minute for each reason.
func TestBypassesAreLogged(t *testing.T) {
	r := start(t, rigOptions{upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer) })})
	for range 3 {
		r.exchange(t, chatIn("s", "a=b", "Connection: close\r\n"))
	}
	r.exchange(t, strings.Replace(chatIn("s", chatBody, "Connection: close\r\n"), "chat/completions", "embeddings", 1))
	r.stop(t)
	for _, reason := range []string{"the body is not a JSON object", "conversations on this path are not remembered"} {
		if n := strings.Count(r.log.String(), reason); n != 1 {
			t.Errorf("%d log lines say that %s", n, reason)
		}
	}
}
