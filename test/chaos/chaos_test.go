// Package chaos injects failures under load, and checks that no turn that a client received completely is lost or duplicated.
package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
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

// newUpstream starts an upstream that answers with the texts of all user messages in the request, so that a client can check
// which history was sent. pace returns the duration of the answer to a text; a streamed answer pauses in the middle.
func newUpstream(t *testing.T, pace func(text string) time.Duration) *httptest.Server {
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
		var last string
		var seen []string
		for _, m := range body.Messages {
			if m.Role == "user" && !strings.HasPrefix(m.Content, "<") { // not a layer's block
				last, seen = m.Content, append(seen, m.Content)
			}
		}
		w.Header().Set("X-Seen", strings.Join(seen, " "))

		reply := answerTo(last)
		if !body.Stream {
			time.Sleep(pace(last)) // how slow the model is
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, reply)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i, piece := range []string{reply[:2], reply[2:]} {
			if i > 0 {
				time.Sleep(pace(last)) // how slow the model is
			}
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", piece)
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	return srv
}

// answerTo is the model's answer to a text.
func answerTo(text string) string { return "re:" + text }

// atOnce is the pace of a model that answers immediately.
func atOnce(string) time.Duration { return 0 }

// unevenly is the pace of a model with every third answer slower than store.open_delay.
func unevenly(text string) time.Duration {
	if crc32.ChecksumIEEE([]byte(text))%3 == 0 {
		return 40 * time.Millisecond
	}
	return 0
}

// config returns the shipped configuration with a store, an upstream and additional lines.
func config(upstream, store string, more ...string) string {
	return configWith(upstream, fmt.Sprintf("url: %q, spool: {dir: spool}", store), more...)
}

// configWith is config with the whole section store.
func configWith(upstream, store string, more ...string) string {
	return fmt.Sprintf("store: {%s}\nproviders: [{name: mock, kind: compatible, base_url: %q}]\n%s",
		store, upstream+"/v1", strings.Join(more, "\n"))
}

// talker is a client with a conversation. It checks the answers, and records every turn that it received completely.
type talker struct {
	http     *http.Client
	name     string // unique
	session  string
	key      string
	onlyNew  bool // sends only new messages
	stream   bool
	messages []message  // its conversation
	said     []string   // user texts of its complete turns
	calls    []exchange // all of its calls, in order
	tries    int
	settled  bool // its last answer came after all was over, and is not degraded
}

// exchange is one call of a client, for reports of errors.
type exchange struct {
	asked       string
	replica     string
	turn        string // X-Turn-Id
	memory      string // X-Memory
	seen        string // what upstream saw
	begun, took time.Duration
	err         error

	missed  bool // upstream did not get a complete turn, and the answer is not degraded
	twice   bool // upstream got a turn twice
	jumbled bool // upstream got turns in the wrong order
}

func (e exchange) String() string {
	status, _, _ := strings.Cut(e.memory, ";")
	seen := strings.Fields(e.seen)
	seen = seen[max(0, len(seen)-8):] // the last ones are enough
	return fmt.Sprintf("%8.3f s +%4d ms  %s on %s, turn %s, %s, seen %s, error %v",
		e.begun.Seconds(), e.took.Milliseconds(), e.asked, e.replica, e.turn, status, strings.Join(seen, " "), e.err)
}

// degraded reports whether X-Memory of the answer is degraded.
func (e exchange) degraded() bool { return strings.HasPrefix(e.memory, "degraded") }

// degraded reports whether the last answer was degraded.
func (c *talker) degraded() bool { return len(c.calls) > 0 && c.calls[len(c.calls)-1].degraded() }

// refusal is an error answer.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.body) }

// epoch is the origin of the times in reports.
var epoch = time.Now()

// turn sends one message. An error means that the client did not receive a complete answer.
func (c *talker) turn(ctx context.Context) error {
	c.tries++
	ask := message{"user", fmt.Sprintf("%s/%d/%d", c.name, len(c.said), c.tries)}
	if !c.onlyNew && len(c.messages)%2 == 1 {
		ask = c.messages[len(c.messages)-1] // sent before, without a complete answer
		c.messages = c.messages[:len(c.messages)-1]
	}
	sent := append(slices.Clip(c.messages), ask)
	c.messages = sent
	if c.onlyNew {
		sent = sent[len(sent)-1:]
	}

	call := exchange{asked: ask.Content, begun: time.Since(epoch)}
	reply, err := c.post(ctx, sent, &call)
	call.took, call.err = time.Since(epoch)-call.begun, err
	if err == nil {
		c.look(&call)
	}
	c.calls = append(c.calls, call)
	if err != nil {
		if c.onlyNew {
			c.messages = c.messages[:len(c.messages)-1]
		}
		return err
	}
	c.messages = append(c.messages, message{"assistant", reply})
	c.said = append(c.said, ask.Content)
	return nil
}

// look compares the history that the model got with all turns of this client, each once and in order. A degraded view may lack
// turns.
func (c *talker) look(call *exchange) {
	seen, missed, last := strings.Fields(call.seen), false, -1
	for _, text := range c.said {
		at := slices.Index(seen, text)
		if at < 0 {
			missed = true
			continue
		}
		call.twice = call.twice || slices.Contains(seen[at+1:], text)
		call.jumbled = call.jumbled || at < last
		last = at
	}
	call.missed = missed && (!c.onlyNew || !call.degraded())
}

func (c *talker) post(ctx context.Context, sent []message, call *exchange) (reply string, err error) {
	body, err := json.Marshal(map[string]any{"model": "m", "messages": sent, "stream": c.stream})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, anyReplica+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("X-Session-Id", c.session)
	res, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	call.replica, call.turn = res.Header.Get(servedBy), res.Header.Get("X-Turn-Id")
	call.memory, call.seen = res.Header.Get("X-Memory"), res.Header.Get("X-Seen")
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", &refusal{res.StatusCode, string(answer)}
	}
	if c.stream {
		return streamed(answer)
	}
	var whole struct{ Choices []struct{ Message message } }
	if err := json.Unmarshal(answer, &whole); err != nil || len(whole.Choices) != 1 {
		return "", fmt.Errorf("answer %q: %w", answer, err)
	}
	return whole.Choices[0].Message.Content, nil
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

// callLimit is the timeout of a call. It is long because tests share few cores.
const callLimit = 4 * time.Minute
