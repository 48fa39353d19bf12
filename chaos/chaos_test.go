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
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"remora/cmd/proxy/proxytest"
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
		for _, piece := range []string{reply[:2], reply[2:]} {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", piece)
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	return srv
}

func config(upstream, store string) string {
	return fmt.Sprintf("store: {url: %q, spool: {dir: spool}}\nproviders: [{name: mock, kind: compatible, base_url: %q}]\nmemory: {layers: []}\nlog: {level: warn}\n",
		store, upstream+"/v1")
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
	tries    int
}

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
	if c.onlyNew {
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
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return "", "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", "", fmt.Errorf("status %d: %s", res.StatusCode, answer)
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

// stored are the user texts of a session: on the line that ends with the head, and on all branches.
type stored struct{ line, all []string }

// transcript reads a session by the command that an operator has.
func transcript(t *testing.T, p *proxytest.Proxy, session, key string) (s stored) {
	t.Helper()
	cmd := exec.Command(proxytest.Build(t), "transcript", "--config", p.Config, "--session", session, "--key", key)
	cmd.Dir = p.Dir
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("transcript of %s: %v", session, err)
	}
	chains := map[string]bool{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var line struct {
			Item *struct {
				Chain  string
				OnHead bool `json:"on_head"`
				JSON   message
			}
		}
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			return s
		} else if err != nil {
			t.Fatal(err)
		}
		if line.Item == nil {
			continue
		}
		if chains[line.Item.Chain] {
			t.Errorf("session %s: item %q is stored twice", session, line.Item.JSON.Content)
		}
		chains[line.Item.Chain] = true
		if line.Item.JSON.Role != "user" {
			continue
		}
		s.all = append(s.all, line.Item.JSON.Content)
		if line.Item.OnHead {
			s.line = append(s.line, line.Item.JSON.Content)
		}
	}
}

// check compares what clients saw with what is stored: every turn once, in the client's order. The turns of a client
// that shares its session with others and resends its own history are a branch; all others are on the head line.
func check(t *testing.T, p *proxytest.Proxy, clients []*talker) {
	t.Helper()
	sharers := map[string]int{}
	read := map[string]stored{}
	for _, c := range clients {
		sharers[c.session+"\x00"+c.key]++
	}
	for _, c := range clients {
		if len(c.said) == 0 {
			continue // it was stopped before its first answer
		}
		id := c.session + "\x00" + c.key
		if _, ok := read[id]; !ok {
			read[id] = transcript(t, p, c.session, c.key)
		}
		texts := read[id].line
		if !c.onlyNew && sharers[id] > 1 {
			texts = read[id].all
		}
		checkOrder(t, c, texts)
	}
}

func checkOrder(t *testing.T, c *talker, texts []string) {
	t.Helper()
	at := make(map[string][]int, len(texts))
	for i, text := range texts {
		at[text] = append(at[text], i)
	}
	last := -1
	for _, text := range c.said {
		found := at[text]
		if len(found) != 1 {
			t.Errorf("client %s, session %q: turn %s is stored %d times", c.name, c.session, text, len(found))
			continue
		}
		if found[0] < last {
			t.Errorf("client %s, session %q: turn %s is out of order", c.name, c.session, text)
		}
		last = found[0]
	}
}

func newHTTPClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}
