package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"remora/cmd/proxy/greeting"
)

// settings are those of every policy. Waits are long, so that a busy machine does not show as memory that was left out.
const settings = `server: {listen: "127.0.0.1:0"}
store:
  url: "memory:"
  commit_wait: 1m
  read_wait: 1m
  spool: {dir: ""}
providers:
  - {name: scripted, kind: compatible, base_url: %q}
log: {level: error}
`

// shutdownGrace bounds how long a proxy that was asked to end may take.
const shutdownGrace = 20 * time.Second

// build makes the proxy of this source tree.
func build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "proxy")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "remora/cmd/proxy").CombinedOutput(); err != nil { //nolint:gosec // fixed words
		return "", fmt.Errorf("build proxy: %w: %s", err, bytes.TrimSpace(out))
	}
	return bin, nil
}

// child is a running proxy.
type child struct {
	cmd   *exec.Cmd
	said  *greeting.Reader
	ended chan struct{} // closed when the process has ended and err is set
	err   error
	url   string // origin
}

// launch starts a proxy under a policy and returns when it listens. stop must be called.
func launch(ctx context.Context, binary, dir, upstream string, p *policy) (*child, error) {
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, append(fmt.Appendf(nil, settings, upstream+"/v1"), p.config...), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	c := &child{cmd: exec.CommandContext(ctx, binary, "--config", file), said: greeting.New(), ended: make(chan struct{})} //nolint:gosec // our own program
	c.cmd.Dir, c.cmd.Stderr, c.cmd.WaitDelay = dir, c.said, shutdownGrace
	for _, v := range os.Environ() { // the caller's own settings are not for this configuration
		if !strings.HasPrefix(v, "REMORA_") {
			c.cmd.Env = append(c.cmd.Env, v)
		}
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	go func() {
		defer close(c.ended)
		c.err = c.cmd.Wait()
	}()
	select {
	case c.url = <-c.said.URL:
		return c, nil
	case <-c.ended:
		return nil, fmt.Errorf("start proxy with policy %s: %w: %s", p.name, c.err, c.said)
	}
}

// stop asks the proxy to end, and wants it to do so in order.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-c.ended
		return fmt.Errorf("stop proxy: %w: %s", err, c.said)
	}
	<-c.ended
	if c.err != nil {
		return fmt.Errorf("stop proxy: %w: %s", c.err, c.said)
	}
	return nil
}
