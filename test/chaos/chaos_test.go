// Package chaos breaks things under load and checks that no turn whose end a client saw is lost or doubled.
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

// newUpstream answers with what the model saw: the texts of all messages of the user, so that a client can tell whether its
// own history was put before what it sent. Each answer takes as long as pace says of the text that it answers, in the
// middle of the answer if that is streamed.
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
			if m.Role == "user" && !strings.HasPrefix(m.Content, "<") { // no block of a layer
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

// atOnce is the pace of a model that answers at once.
func atOnce(string) time.Duration { return 0 }

// unevenly is the pace of a model that takes its time for every third answer: longer than store.open_delay.
func unevenly(text string) time.Duration {
	if crc32.ChecksumIEEE([]byte(text))%3 == 0 {
		return 40 * time.Millisecond
	}
	return 0
}

// config is the shipped configuration with a store and an upstream; more are further lines.
func config(upstream, store string, more ...string) string {
	return configWith(upstream, fmt.Sprintf("url: %q, spool: {dir: spool}", store), more...)
}

// configWith is config with all of the section store.
func configWith(upstream, store string, more ...string) string {
	return fmt.Sprintf("store: {%s}\nproviders: [{name: mock, kind: compatible, base_url: %q}]\nlog: {level: warn}\n%s",
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
	messages []message  // its conversation
	said     []string   // user texts of the turns whose end it saw
	calls    []exchange // all that it sent, in order
	tries    int
}

// exchange is one call of a client, for the report of what went wrong.
type exchange struct {
	asked       string
	replica     string
	turn        string // X-Turn-Id
	memory      string // X-Memory
	seen        string // what upstream saw
	begun, took time.Duration
	err         error

	missed  bool // upstream did not see a turn that the client had seen the end of, and the answer does not say degraded
	jumbled bool // upstream saw turns doubled, or not in their order
}

func (e exchange) String() string {
	status, _, _ := strings.Cut(e.memory, ";")
	seen := strings.Fields(e.seen)
	seen = seen[max(0, len(seen)-8):] // the last of them say it
	return fmt.Sprintf("%8.3f s +%4d ms  %s on %s, turn %s, %s, seen %s, error %v",
		e.begun.Seconds(), e.took.Milliseconds(), e.asked, e.replica, e.turn, status, strings.Join(seen, " "), e.err)
}

// degraded reports whether the answer says that memory is out of order.
func (e exchange) degraded() bool { return strings.HasPrefix(e.memory, "degraded") }

// degraded reports whether the last answer said that memory was out of order.
func (c *talker) degraded() bool { return len(c.calls) > 0 && c.calls[len(c.calls)-1].degraded() }

// refusal is an answer that is none.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.body) }

// epoch is the zero of the times in reports.
var epoch = time.Now()

// turn asks once. An error means that the client did not see the end of the answer.
func (c *talker) turn(ctx context.Context) error {
	c.tries++
	ask := message{"user", fmt.Sprintf("%s/%d/%d", c.name, len(c.said), c.tries)}
	if !c.onlyNew && len(c.messages)%2 == 1 {
		ask = c.messages[len(c.messages)-1] // asked before, without seeing an answer
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

// look compares what the model saw with what it should have seen: all turns of this client, each once, in their order. A view
// of which the answer says that memory is out of order may lack turns.
func (c *talker) look(call *exchange) {
	seen, missed, last := strings.Fields(call.seen), false, -1
	for _, text := range c.said {
		at := slices.Index(seen, text)
		switch {
		case at < 0:
			missed = true
			continue
		case at < last, slices.Contains(seen[at+1:], text):
			call.jumbled = true
		}
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

// callLimit is after how long a client gives up: much more than any call takes, as tests share few cores.
const callLimit = 4 * time.Minute
