package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// smallModel is an upstream whose model has a short context. Its tokens are not those that Remora estimates.
type smallModel struct {
	context int
	refusal string // its words for the numbers of the tokens of a request and of the context

	mu      sync.Mutex
	prompts []int // tokens of the requests that were accepted
	refused int
}

func (m *smallModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var req struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	tokens := 0
	for _, message := range req.Messages {
		tokens += 4 + len(message)/3
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if tokens > m.context {
		m.refused++
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, m.refusal, tokens, m.context)
		return
	}
	m.prompts = append(m.prompts, tokens)
	answer := strings.Repeat("Noted: the bicycle of Marieke stands in Rotterdam. ", 5)
	_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, answer)
}

// TestSmallModels: with the shipped configuration, no client sees that a model with a short context refuses its session, and from the
// one refusal on the model gets as much as fits: the window is cut by half, and an answer needs room.
func TestSmallModels(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]string{
		"llama.cpp": `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":%d,"n_ctx":%d}}`,
		"vLLM":      `{"error":{"message":"This model's maximum context length is %[2]d tokens. However, your request has %[1]d input tokens.","type":"BadRequestError","code":400}}`,
	} {
		for _, context := range []int{2048, 4096} {
			for _, resends := range []bool{true, false} {
				t.Run(fmt.Sprint(name, " ", context, " resends ", resends), func(t *testing.T) {
					t.Parallel()
					m := &smallModel{context: context, refusal: refusal}
					up := httptest.NewServer(m)
					t.Cleanup(up.Close)
					g := gateTo(t, setup{upstream: up.URL})
					history := ""
					for i := range 50 {
						question := fmt.Sprintf(`{"role":"user","content":"In week %d I met %s"}`, i, strings.Repeat("Ana, Tom and Oscar at the harbour. ", 10))
						if history += question; !resends {
							history = question
						}
						r := g.ask(t, "chat/completions", `{"model":"m","messages":[`+history+`]}`, "X-Session-Id: s")
						if r.status != http.StatusOK {
							t.Fatalf("request %d: status %d: %s", i, r.status, r.body)
						}
						var answer struct {
							Choices []struct {
								Message json.RawMessage `json:"message"`
							} `json:"choices"`
						}
						if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
							t.Fatal(err)
						}
						history += "," + string(answer.Choices[0].Message) + ","
					}

					m.mu.Lock()
					defer m.mu.Unlock()
					sum, last := 0, m.prompts[len(m.prompts)-20:]
					for _, tokens := range last {
						sum += tokens
					}
					if mean := sum / len(last); mean < context*44/100 || m.refused != 1 {
						t.Errorf("the model gets %d tokens on average, and has refused %d requests", mean, m.refused)
					}
				})
			}
		}
	}
}
