package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"remora/memory"
	"remora/test/process"
)

// maxItems and evictBatch configure the demo's window: small, so that it leaves items out early.
const (
	maxItems   = 24
	evictBatch = 8
)

const (
	apiKey = "demo-key"
	// keyVariable carries the key to the transcript command.
	keyVariable = "DEMO_KEY"
)

// rule is the condition of the demo's steering layer, in CEL.
var rule = fmt.Sprintf(`tool.name == "order" && tool.arguments.copies > %d`, maxCopies)

// machine runs the proxy and its transcript command as processes, with one configuration and one store.
type machine struct {
	binary, dir string
	config      []byte
}

// newMachine returns a machine with its files in dir. The waits for the store are long: with a slow disk, turns would otherwise go
// to the spool, which is correct but hard to follow in a demo.
func newMachine(binary, dir, upstream string) *machine {
	return &machine{binary, dir, fmt.Appendf(nil, `server:
  listen: 127.0.0.1:0
store:
  url: %q
  commit_wait: 1m
  read_wait: 1m
  spool: {dir: %q}
providers:
  - {name: scripted, kind: compatible, base_url: %q, messages: as_is}
memory:
  layers:
    - {kind: working_memory}
    - {kind: observational_memory}
    - {kind: history_window, max_items: %d, evict_batch: %d, in_flight: window}
    - kind: steering
      rules: [{id: small-orders, applies_to: [before_tool_call], action: deny, when: %q, guidance: %q}]
`, "bolt:"+filepath.Join(dir, "demo.db"), filepath.Join(dir, "spool"), upstream+"/v1", maxItems, evictBatch, rule, refusal)}
}

// start starts a proxy and waits until it listens.
func (m *machine) start(ctx context.Context) (*process.Proxy, error) {
	return process.Run(ctx, m.binary, m.dir, m.config)
}

// transcript reads a stored session with `remora transcript`. The store must not be in use.
func (m *machine) transcript(ctx context.Context, session string) ([]memory.ExportLine, error) {
	file := filepath.Join(m.dir, "config.yaml")
	//nolint:gosec // our own executable
	cmd := exec.CommandContext(ctx, m.binary, "transcript", "--config", file, "--session", session, "--key-env", keyVariable)
	cmd.Env = append(process.Environ(), keyVariable+"="+apiKey)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read transcript: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var lines []memory.ExportLine
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l memory.ExportLine
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return nil, fmt.Errorf("read transcript: %w", err)
		}
		lines = append(lines, l)
	}
}
