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
	"strings"
	"syscall"
	"time"

	"remora/cmd/proxy/greeting"
	"remora/memory"
)

// maxItems and evictBatch are the demo's window: small, so that it fires early.
const (
	maxItems   = 24
	evictBatch = 8
)

const (
	apiKey = "demo-key"
	// keyVariable carries the key to the transcript command.
	keyVariable = "DEMO_KEY"
)

// rule is what the demo's steering layer forbids, in CEL.
var rule = fmt.Sprintf(`tool.name == "order" && tool.arguments.copies > %d`, maxCopies)

// shutdownGrace bounds how long a proxy that was asked to end may take.
const shutdownGrace = time.Minute

// machine runs the proxy in processes of its own, over one configuration and one store.
type machine struct {
	binary string
	config string // path of the configuration
}

// newMachine writes a configuration into dir. The store waits are long: a slow disk would otherwise be answered with
// the spool, which is right, and hard to follow in a demo.
func newMachine(binary, dir, upstream string) (*machine, error) {
	config := fmt.Sprintf(`server:
  listen: 127.0.0.1:0
store:
  url: %q
  commit_wait: 1m
  read_wait: 1m
  spool: {dir: %q}
providers:
  - {name: scripted, kind: compatible, base_url: %q}
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

// command prepares a call of the binary. The caller's own REMORA_ settings are not for this configuration.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.binary, args...) //nolint:gosec // our own executable
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REMORA_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, keyVariable+"="+apiKey)
	cmd.WaitDelay = shutdownGrace
	return cmd
}

// child is one running proxy.
type child struct {
	cmd   *exec.Cmd
	log   *greeting.Reader
	ended chan struct{} // closed when the process has ended and err is set
	err   error
	url   string // origin, without /v1
}

// start starts a proxy and returns when it listens. The end of ctx kills it; kill or stop must be called all the same.
func (m *machine) start(ctx context.Context) (*child, error) {
	c := &child{cmd: m.command(ctx, "--config", m.config), log: greeting.New(), ended: make(chan struct{})}
	c.cmd.Stderr = c.log
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	go func() {
		defer close(c.ended)
		c.err = c.cmd.Wait()
	}()
	select {
	case c.url = <-c.log.URL:
		return c, nil
	case <-c.ended:
		return nil, fmt.Errorf("start proxy: %w", c.explain(c.err))
	}
}

// explain adds to an error what the proxy said last.
func (c *child) explain(err error) error {
	if said := c.log.Last(); said != "" {
		return fmt.Errorf("%w; the proxy said: %s", err, said)
	}
	return err
}

// kill ends the proxy as a power cut would: no signal handler runs. It returns when the process is gone.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill proxy: %w", err)
	}
	<-c.ended
	return nil
}

// stop asks the proxy to end, and wants it to do so in order.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop proxy: %w", c.explain(err))
	}
	<-c.ended
	if c.err != nil {
		return fmt.Errorf("stop proxy: %w", c.explain(c.err))
	}
	return nil
}

// transcript reads a stored session with the binary's own command, as anyone can. The store must not be in use.
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
