package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"remora/test/process"
	"remora/test/recall/corpus"
	"remora/test/scripted"
)

// settings are common to all runs. Waits are long, so that a busy machine does not look like missing memory.
const settings = `server: {listen: "127.0.0.1:0"}
store: {url: "bolt:%s", commit_wait: 1m, read_wait: 1m, spool: {dir: ""}}
providers: [{name: scripted, kind: compatible, base_url: %q}]
`

// lab measures one configuration of layers.
type lab struct {
	binary, dir   string
	conversations []*corpus.Conversation
	layers        layers
	progress      io.Writer
}

// measure asks all questions, once for each budget.
func (l *lab) measure(ctx context.Context) (*measurement, error) {
	m := &measurement{layers: l.layers, conversations: l.conversations, byTokens: map[int]*pass{}, byItems: map[int]*pass{}}
	var p *pass
	var err error
	for i, tokens := range tokenSteps {
		if i == 0 || l.layers.variesTokens() {
			if p, err = l.pass(ctx, tokens, anyItems); err != nil {
				return nil, err
			}
		}
		m.byTokens[tokens] = p
	}
	if l.layers.variesItems() {
		for _, items := range itemSteps {
			if m.byItems[items], err = l.pass(ctx, anyTokens, items); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// pass is the recalled text for every question under one configuration.
type pass struct {
	told  [][]string      // by conversation and question: the text of the request without the question
	times []time.Duration // from the question to its answer, which is an error without a body
}

// pass runs with a new store and proxy, so that earlier questions are not recalled.
func (l *lab) pass(ctx context.Context, tokens, items int) (p *pass, err error) {
	_, _ = fmt.Fprintf(l.progress, "%s: at most %d tokens, %d items\n", l.layers.name, tokens, items) // progress only
	dir, err := os.MkdirTemp(l.dir, "pass-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	u := &upstream{}
	if u.server, err = scripted.Start(scripted.Options{Respond: u.respond, KeepRequests: 1}); err != nil { //nolint:contextcheck // ends by Close
		return nil, err
	}
	defer func() { err = errors.Join(err, u.server.Close()) }()
	config := []byte(fmt.Sprintf(settings, filepath.Join(dir, "store.db"), u.server.URL()+"/v1") + l.layers.with(tokens, items))
	if !l.layers.spoken {
		if err := l.importConversations(ctx, dir, config); err != nil {
			return nil, err
		}
	}

	proxy, err := process.Run(ctx, l.binary, dir, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	c := &client{url: proxy.URL, upstream: u, http: &http.Client{Transport: &http.Transport{}}}
	defer c.http.CloseIdleConnections()
	if l.layers.spoken {
		if err := c.speak(ctx, l.conversations); err != nil {
			return nil, proxy.Explain(err)
		}
	}
	if p, err = c.ask(ctx, l.conversations); err != nil {
		return nil, proxy.Explain(err)
	}
	return p, nil
}

// importConversations imports all conversations into the store of a configuration.
func (l *lab) importConversations(ctx context.Context, dir string, config []byte) error {
	configFile, name := filepath.Join(dir, "import.yaml"), filepath.Join(dir, "messages.jsonl")
	if err := os.WriteFile(configFile, config, 0o600); err != nil {
		return err
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	err = errors.Join(writeMessages(out, l.conversations), out.Flush(), file.Close())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, l.binary, "transcript", "--config", configFile, "--import", name)
	cmd.Dir, cmd.Env = dir, process.Environ()
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import conversations: %w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}

// message is a message of Chat Completions.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// messages returns the messages of a session: the first speaker of the conversation is the user, the other the model. Each
// message begins with the speaker's name, as in recorded conversations of several people.
func messages(c *corpus.Conversation, s *corpus.Session) []message {
	all := make([]message, len(s.Turns))
	for i := range s.Turns {
		t := &s.Turns[i]
		all[i] = message{"user", t.Said()}
		if t.Speaker == c.Speakers[1] {
			all[i].Role = "assistant"
		}
	}
	return all
}

// sessionID returns the id of a session for the proxy. The conversation is the resource.
func sessionID(c *corpus.Conversation, name string) string { return c.Name + "/" + name }

// writeMessages writes conversations in the format of `remora transcript --import`. All messages of a session have its date.
func writeMessages(w io.Writer, all []*corpus.Conversation) error {
	enc := json.NewEncoder(w)
	for _, c := range all {
		for i := range c.Sessions {
			s := &c.Sessions[i]
			err := enc.Encode(map[string]string{"session": sessionID(c, s.Name), "resource": c.Name})
			for _, m := range messages(c, s) {
				err = errors.Join(err, enc.Encode(map[string]any{"message": m, "time": s.At}))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
