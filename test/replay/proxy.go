package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"remora/test/process"
)

// settings are common to all policies. Waits are long, so that a busy machine does not look like missing memory.
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
	bin := filepath.Join(dir, "remora")
	return bin, process.Build(ctx, bin)
}

// launch starts a proxy under a policy and returns when it listens. Stop must be called.
func launch(ctx context.Context, binary, dir, upstream string, p *policy) (*process.Proxy, error) {
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, append(fmt.Appendf(nil, settings, upstream+"/v1"), p.config...), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	cmd := exec.CommandContext(ctx, binary, "--config", file)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, process.Environ(), shutdownGrace
	c, err := process.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.name, err)
	}
	return c, nil
}
