package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

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

// shutdownGrace bounds the shutdown of a proxy.
const shutdownGrace = time.Minute

// machine runs the proxy and its transcript command as processes, with one configuration and one store.
type machine struct {
	binary string
	config string // path of the configuration
}

// newMachine writes a configuration into dir. The waits for the store are long: with a slow disk, turns would otherwise go to the
// spool, which is correct but hard to follow in a demo.
func newMachine(binary, dir, upstream string) (*machine, error) {
	config := fmt.Sprintf(`server:
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
log: {level: warn}
`, "bolt:"+filepath.Join(dir, "demo.db"), filepath.Join(dir, "spool"), upstream+"/v1", maxItems, evictBatch, rule, refusal)
	m := &machine{binary: binary, config: filepath.Join(dir, "config.yaml")}
	if err := os.WriteFile(m.config, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return m, nil
}

// command returns a command that runs the binary.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.binary, args...) //nolint:gosec // our own executable
	cmd.Env = append(process.Environ(), keyVariable+"="+apiKey)
	cmd.WaitDelay = shutdownGrace
	return cmd
}

// start starts a proxy and waits until it listens.
func (m *machine) start(ctx context.Context) (*process.Proxy, error) {
	return process.Start(m.command(ctx, "--config", m.config))
}

// transcript reads a stored session with `remora transcript`. The store must not be in use.
func (m *machine) transcript(ctx context.Context, session string) ([]memory.Line, error) {
	cmd := m.command(ctx, "transcript", "--config", m.config, "--session", session, "--key-env", keyVariable)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read transcript: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var lines []memory.Line
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l memory.Line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return nil, fmt.Errorf("read transcript: %w", err)
		}
		lines = append(lines, l)
	}
}
