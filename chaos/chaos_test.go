// Package chaos breaks things under load and checks that no turn whose end a client saw is lost or doubled.
package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// message is a Chat message.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// newUpstream answers with what the model saw: the texts of all messages, so that a client can tell whether its own
// history was put before what it sent.
func newUpstream(t *testing.T) *httptest.Server {
	t.Helper()
	return newPacedUpstream(t, 0)
}

// newPacedUpstream is newUpstream with a pause in the middle of each streamed answer.
func newPacedUpstream(t *testing.T, pause time.Duration) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []message
			Stream   bool
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Messages) == 0 {
			http.Error(w, "bad body", http.StatusBadRequest)
			return
		}
		last := body.Messages[len(body.Messages)-1].Content
		var seen []string
		for _, m := range body.Messages {
			if m.Role == "user" {
				seen = append(seen, m.Content)
			}
		}
		w.Header().Set("X-Seen", strings.Join(seen, " "))
		reply := "re:" + last
		if !body.Stream {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, reply)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i, piece := range []string{reply[:2], reply[2:]} {
			if i > 0 && pause > 0 {
				time.Sleep(pause) // how slow the model is
			}
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", piece)
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	return srv
}

// config is that of a proxy that keeps transcripts and nothing else; more are further lines.
func config(upstream, store string, more ...string) string {
	return configWith(upstream, fmt.Sprintf("url: %q, spool: {dir: spool}", store), more...)
}

// patientStore is the section store of proxies whose store is well, however busy the machine is: a commit that takes long
// is waited for. What is in the spool of one replica is not seen by the others.
func patientStore(url string) string {
	return fmt.Sprintf("url: %q, commit_wait: 1m, read_wait: 1m, spool: {dir: spool}", url)
}

// configWith is config with all of the section store.
func configWith(upstream, store string, more ...string) string {
	return fmt.Sprintf("store: {%s}\nproviders: [{name: mock, kind: compatible, base_url: %q}]\nmemory: {layers: []}\nlog: {level: warn}\n%s",
		store, upstream+"/v1", strings.Join(more, "\n"))
}

// talker is a client with a conversation. It checks what it can see, and remembers every turn whose end it saw.
type talker struct {
	http     *http.Client
	name     string // unique
	session  string
	key      string
	onlyNew  bool // sends only what is new, not its history
	stream   bool
	messages []message // its conversation
	said     []string  // user texts of the turns whose end it saw
	asked    string    // the last of its user texts
	degraded bool      // the last answer said that memory was out of order
	tries    int
}

// refusal is an answer that is none.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.body) }

// errUnseen says that a turn that the client had seen the end of was not in the view of a later one.
var errUnseen = errors.New("own turn not seen")

// turn asks once. An error other than errUnseen means that the client did not see the end of the answer.
func (c *talker) turn(ctx context.Context, base string) error {
	c.tries++
	ask := message{"user", fmt.Sprintf("%s/%d/%d", c.name, len(c.said), c.tries)}
	if !c.onlyNew && len(c.messages)%2 == 1 {
		ask = c.messages[len(c.messages)-1] // asked before, without seeing an answer
		c.messages = c.messages[:len(c.messages)-1]
	}
	c.asked = ask.Content
	sent := append(slices.Clip(c.messages), ask)
	c.messages = sent
	if c.onlyNew {
		sent = sent[len(sent)-1:]
	}
	reply, seen, err := c.post(ctx, base, sent)
	if err != nil {
		if c.onlyNew {
			c.messages = c.messages[:len(c.messages)-1]
		}
		return err
	}
	if c.onlyNew && !c.degraded {
		for _, text := range c.said {
			if strings.Count(" "+seen+" ", " "+text+" ") != 1 {
				return fmt.Errorf("%w: %s in %q", errUnseen, text, seen)
			}
		}
	}
	c.messages = append(c.messages, message{"assistant", reply})
	c.said = append(c.said, ask.Content)
	return nil
}

func (c *talker) post(ctx context.Context, base string, sent []message) (reply, seen string, err error) {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": sent, "stream": c.stream})
	if err != nil {
		return "", "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("X-Session-Id", c.session)
	res, err := c.http.Do(req)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = res.Body.Close() }()
	c.degraded = strings.HasPrefix(res.Header.Get("X-Memory"), "degraded")
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return "", "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", "", &refusal{res.StatusCode, string(answer)}
	}
	if c.stream {
		reply, err = streamed(answer)
		return reply, res.Header.Get("X-Seen"), err
	}
	var whole struct{ Choices []struct{ Message message } }
	if err := json.Unmarshal(answer, &whole); err != nil || len(whole.Choices) != 1 {
		return "", "", fmt.Errorf("answer %q: %w", answer, err)
	}
	return whole.Choices[0].Message.Content, res.Header.Get("X-Seen"), nil
}

func streamed(answer []byte) (text string, err error) {
	if !bytes.HasSuffix(answer, []byte("data: [DONE]\n\n")) {
		return "", io.ErrUnexpectedEOF
	}
	for event := range strings.SplitSeq(string(answer), "\n\n") {
		var chunk struct {
			Choices []struct{ Delta message }
		}
		data := strings.TrimPrefix(event, "data: ")
		if data == "[DONE]" || data == "" {
			continue
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Choices) != 1 {
			return "", fmt.Errorf("event %q: %w", data, err)
		}
		text += chunk.Choices[0].Delta.Content
	}
	return text, nil
}

// callLimit is after how long a client gives up: much more than any call takes, as tests share few cores.
const callLimit = 4 * time.Minute

func newHTTPClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: callLimit}
}
