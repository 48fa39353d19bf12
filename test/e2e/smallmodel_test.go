package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// smallModel is an upstream whose model has a short context. Its tokens are not those that Remora estimates.
type smallModel struct {
	context int
	refusal string // its words for the numbers of the tokens of a request and of the context; without any it drops the oldest messages

	last string // the messages that the model got

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
	for m.refusal == "" && tokens > m.context && len(req.Messages) > 1 {
		tokens -= 4 + len(req.Messages[0])/3
		req.Messages = req.Messages[1:]
	}
	m.last = fmt.Sprintf("%s", req.Messages)
	if tokens > m.context {
		m.refused++
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, m.refusal, tokens, m.context)
		return
	}
	m.prompts = append(m.prompts, tokens)
	answer := strings.Repeat("Noted: the bicycle of Marieke stands in Rotterdam. ", 5)
	_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":60}}`, answer, tokens)
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

// TestServersThatCut: a server that drops what is longer than its context, as Ollama does, makes its model forget, which the log says.
// With the policy of docs/layers.md Remora cuts earlier, and its layers bring back what is asked for.
func TestServersThatCut(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/layers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## A policy for a small context")
	_, section, _ = strings.Cut(section, "policy: ")
	policy, section, _ := strings.Cut(section, "\n  layers:\n")
	layers, _, _ := strings.Cut(section, "\n```")
	layers = "[" + strings.ReplaceAll(strings.TrimPrefix(layers, "    - "), "\n    - ", ", ") + "]"
	for name, s := range map[string]setup{
		"as shipped":      {},
		"with the policy": {memory: "policy: " + policy, layers: layers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &smallModel{context: 8192}
			up := httptest.NewServer(m)
			t.Cleanup(up.Close)
			s.upstream = up.URL
			g := gateTo(t, s)
			ask := func(question string) {
				r := g.ask(t, "chat/completions", fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, question), "X-Session-Id: s")
				if r.status != http.StatusOK {
					t.Fatalf("status %d: %s", r.status, r.body)
				}
			}
			ask("My dog is called Rex, and the database listens at db-main.internal:5433.")
			for i := range 120 {
				ask(fmt.Sprintf("In week %d I met %s", i, strings.Repeat("Ana, Tom and Oscar at the harbour. ", 10)))
			}
			ask("What is my dog called, and where does the database listen?")

			m.mu.Lock()
			defer m.mu.Unlock()
			knows := strings.Contains(m.last, "Rex") && strings.Contains(m.last, "db-main.internal:5433")
			warned := strings.Contains(g.proxy.Log(), "upstream has counted less than half of the tokens that it was sent")
			largest := slices.Max(m.prompts)
			if cuts := s.layers == ""; knows == cuts || warned != cuts || !cuts && largest > m.context-1024 {
				t.Errorf("the model knows what it is asked: %v, the log warns: %v, the largest prompt has %d tokens", knows, warned, largest)
			}
		})
	}
}
