package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"remora/test/recall/corpus"
	"remora/test/scripted"
)

// upstream answers with the next answer that was set, and records requests.
type upstream struct {
	server *scripted.Server

	mu     sync.Mutex
	answer string
}

func (u *upstream) respond(scripted.Prompt) (scripted.Answer, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return scripted.Answer{Text: u.answer}, true
}

func (u *upstream) nextAnswer(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer = text
}

// client sends the requests of all conversations, one after the other.
type client struct {
	url      string
	upstream *upstream
	http     *http.Client
}

// refused is the status of answers to questions: failed turns are not recalled.
const refused = http.StatusPaymentRequired

// speak plays the conversations through the proxy: each session is one request with all but its last turn, which is the answer.
func (c *client) speak(ctx context.Context, all []*corpus.Conversation) error {
	for _, conv := range all {
		for i := range conv.Sessions {
			s := &conv.Sessions[i]
			said := messages(conv, s)
			last := said[len(said)-1]
			if c.upstream.nextAnswer(last.Content); last.Role == "user" {
				c.upstream.nextAnswer("...")
				said = append(said, last)
			}
			status, err := c.send(ctx, conv, sessionID(conv, s.Name), said[:len(said)-1], "")
			if err != nil || status != http.StatusOK {
				return errors.Join(fmt.Errorf("session %s: status %d", s.Name, status), err)
			}
		}
	}
	return nil
}

// ask asks every question in a new session.
func (c *client) ask(ctx context.Context, all []*corpus.Conversation) (*pass, error) {
	p := &pass{told: make([][]string, len(all))}
	for i, conv := range all {
		for n, q := range conv.Questions {
			began := time.Now()
			status, err := c.send(ctx, conv, fmt.Sprintf("%s/question-%d", conv.Name, n+1), []message{{"user", q.Text}}, fmt.Sprintf("status=%d", refused))
			if err != nil || status != refused {
				return nil, errors.Join(fmt.Errorf("%s, question %d: status %d", conv.Name, n+1, status), err)
			}
			p.times = append(p.times, time.Since(began))
			told, err := c.upstream.told(q.Text)
			if err != nil {
				return nil, fmt.Errorf("%s, question %d: %w", conv.Name, n+1, err)
			}
			p.told[i] = append(p.told[i], told)
		}
	}
	return p, nil
}

func (c *client) send(ctx context.Context, conv *corpus.Conversation, session string, said []message, script string) (status int, err error) {
	body, err := json.Marshal(map[string]any{"model": "gpt-5", "messages": said})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Session-Id", session)
	req.Header.Set("X-Resource-Id", conv.Name)
	if script != "" {
		req.Header.Set("X-Script", script)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if memory := resp.Header.Get("X-Memory"); !strings.HasPrefix(memory, "ok") {
		err = errors.Join(err, fmt.Errorf("X-Memory says %q", memory))
	}
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// told returns the text of the last request without the question.
func (u *upstream) told(question string) (string, error) {
	all := u.server.Requests()
	var body struct {
		Messages []struct{ Content json.RawMessage }
	}
	if len(all) == 0 || json.Unmarshal(all[len(all)-1].Body, &body) != nil || len(body.Messages) == 0 {
		return "", errors.New("upstream got no valid request")
	}
	var texts []string
	for _, m := range body.Messages {
		texts = append(texts, plainText(m.Content))
	}
	text := strings.Join(texts, "\n")
	at := strings.LastIndex(text, question)
	if at < 0 {
		return "", errors.New("the question did not reach upstream")
	}
	return strings.TrimSpace(text[:at] + text[at+len(question):]), nil
}

// plainText returns a text, or the texts of a list of parts.
func plainText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts) // else it has no text
	var all []string
	for _, p := range parts {
		all = append(all, p.Text)
	}
	return strings.Join(all, "\n")
}
