package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"remora/test/golden"
	"remora/test/process"
)

// TestGolden plays the scenarios of test/golden in this process, for debuggers, coverage and the race detector. test/golden plays
// them with the binary.
func TestGolden(t *testing.T) {
	golden.Run(t, "../../test/golden/testdata", inProcess{}, false)
}

// inProcess is a golden.Launcher.
type inProcess struct{}

func (inProcess) Start(tb testing.TB, dir, config string) (origin string, stop func()) {
	tb.Helper()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	log := process.NewLog()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() {
		cmd := newCommand(console{stdout: log, stderr: log}) //nolint:contextcheck // ExecuteContext gets it
		cmd.SetArgs([]string{"--config", file, "--listen", "127.0.0.1:0"})
		ended <- cmd.ExecuteContext(ctx)
	}()

	select {
	case origin = <-log.Listens():
	case err := <-ended:
		tb.Fatalf("the proxy ended at once: %v\n%s", err, log)
	case <-time.After(waitLimit):
		tb.Fatalf("the proxy does not listen:\n%s", log)
	}
	return origin, func() {
		tb.Helper()
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the proxy stopped with %v\n%s", err, log)
		}
	}
}

func (inProcess) Command(tb testing.TB, _ string, args ...string) (string, error) {
	tb.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newCommand(console{stdout: &stdout, stderr: &stderr})
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(tb.Context()); err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), nil
}
