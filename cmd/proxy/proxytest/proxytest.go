// Package proxytest runs the real proxy binary for tests of the whole: built once per test process, started on a
// free port, stopped, killed and started again.
package proxytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"remora/freeport"
)

// maxTries is how often a port is looked for: another program may take one before the proxy does.
const maxTries = 5

// startWait is how long a proxy may take to accept connections, and to end.
//
// It is long because tests share few cores, and machines stand still now and then.
const startWait = 2 * time.Minute

var build = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // one build for all tests of a process
	_, here, _, _ := runtime.Caller(0)
	source := filepath.Dir(filepath.Dir(here))
	// One file per source tree: the test processes of several packages share it, and nothing piles up.
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("remora-proxytest-%x", crc32.ChecksumIEEE([]byte(source))))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "proxy")
	built := fmt.Sprintf("%s.%d", bin, os.Getpid())
	// Go links no program again that is there and as it would be. What other test processes built may be just that.
	if last, err := os.ReadFile(bin); err == nil { //nolint:gosec // our own path
		if err := os.WriteFile(built, last, 0o700); err != nil { //nolint:gosec // it is a program
			return "", err
		}
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", built, ".") //nolint:gosec // our own command line
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build proxy: %w\n%s", err, out)
	}
	return bin, os.Rename(built, bin)
})

// Build returns the path of the binary of this source tree.
func Build(tb testing.TB) string {
	tb.Helper()
	bin, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// Proxy is a running proxy process.
type Proxy struct {
	// URL is where it listens, with no path. It stays the same over restarts.
	URL string
	// Dir is its working directory; Config the path of its configuration there.
	Dir, Config string

	tb     testing.TB
	addr   string
	cmd    *exec.Cmd
	stderr *buffer
	done   chan error
}

// Start writes config into dir and starts a proxy there. It is stopped at the end of the test, and must then exit
// with 0 unless it was killed.
func Start(tb testing.TB, dir, config string) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, Dir: dir, Config: filepath.Join(dir, "config.yaml")}
	if err := os.WriteFile(p.Config, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	for try := range maxTries {
		p.addr = FreeAddr(tb)
		p.URL = "http://" + p.addr
		err := p.start()
		if err == nil {
			break
		}
		if try+1 == maxTries || !strings.Contains(p.Log(), "address already in use") {
			tb.Fatalf("%v\n%s", err, p.Log())
		}
	}
	tb.Cleanup(func() {
		if p.cmd != nil {
			p.Stop()
		}
	})
	return p
}

// Restart starts a proxy that was stopped or killed, and waits until it accepts connections.
func (p *Proxy) Restart() {
	p.tb.Helper()
	err := p.start()
	for try := 1; err != nil && try < maxTries && strings.Contains(p.Log(), "address already in use"); try++ {
		time.Sleep(time.Second) //nolint:forbidigo // a connection of another program has the port for a moment
		err = p.start()
	}
	if err != nil {
		p.tb.Fatalf("%v\n%s", err, p.Log())
	}
}

func (p *Proxy) start() error {
	p.stderr = new(buffer)
	p.cmd = exec.Command(Build(p.tb), "--config", p.Config, "--listen", p.addr) //nolint:gosec,noctx // our own binary; ends with the test
	p.cmd.Dir, p.cmd.Stderr = p.Dir, p.stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(p.cmd, p.done)
	// What it says, and not that its port answers: somebody else might have taken that.
	for deadline := time.Now().Add(startWait); !strings.Contains(p.Log(), "remora listens on "); time.Sleep(time.Millisecond) { //nolint:forbidigo // nothing tells when a process is ready
		select {
		case err := <-p.done:
			p.cmd = nil
			return fmt.Errorf("proxy ended: %w", err)
		default:
		}
		if time.Now().After(deadline) { //nolint:forbidigo // see above
			return errors.New("proxy does not listen")
		}
	}
	return nil
}

// Stop asks the process to end and requires that it exits with 0.
func (p *Proxy) Stop() {
	p.tb.Helper()
	if err := p.end(syscall.SIGTERM); err != nil {
		p.tb.Errorf("proxy stopped with %v\n%s", err, p.Log())
	}
}

// Kill ends the process at once, with SIGKILL.
func (p *Proxy) Kill() {
	p.tb.Helper()
	_ = p.end(syscall.SIGKILL) // the signal is the exit status
}

// Log is what the process wrote to stderr. It may be called when the process has ended.
func (p *Proxy) Log() string { return p.stderr.String() }

// Logged waits until the process has written want so many times, and returns all that it wrote: an answer may be here before
// the lines about it.
func (p *Proxy) Logged(want string, times int) string {
	p.tb.Helper()
	const look = 10 * time.Millisecond
	for range startWait / look {
		if log := p.Log(); strings.Count(log, want) >= times {
			return log
		}
		time.Sleep(look) //nolint:forbidigo // of another process nothing else can be awaited
	}
	p.tb.Fatalf("the log does not hold %q %d times:\n%s", want, times, p.Log())
	return ""
}

// PID is the process id of the running proxy.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

func (p *Proxy) end(sig os.Signal) error {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Fatalf("signal proxy: %v", err)
	}
	defer func() { p.cmd = nil }()
	select {
	case err := <-p.done:
		return err
	case <-time.After(startWait): //nolint:forbidigo // a process that does not end has no clock of ours
		_ = p.cmd.Process.Kill()
		return errors.Join(fmt.Errorf("did not end within %s", startWait), <-p.done)
	}
}

// FreeAddr is an address on loopback that nobody listens on: see freeport.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprintf("127.0.0.1:%d", freeport.Find(tb))
}

// buffer is what a process writes, which may be read meanwhile.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the buffer.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all that was written so far.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
