// Package process runs the proxy as a child process, for tests, the demo and the benchmarks. Start at [Start].
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// waitLimit bounds a proxy's start and its end. It is long because tests share few cores.
const waitLimit = 2 * time.Minute

// Build builds the proxy of this source tree, with additional flags of go build.
func Build(ctx context.Context, path string, flags ...string) error {
	args := append([]string{"build", "-o", path}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "remora/cmd/remora")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build proxy: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Environ returns the environment of this process without the variables that configure a proxy. It also shortens the second
// that a process with the race detector waits before it exits.
func Environ() []string {
	env := []string{"GORACE=atexit_sleep_ms=10"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REMORA_") {
			env = append(env, v)
		}
	}
	return env
}

// Proxy is a running process. Its methods are for one caller at a time, except Log.
type Proxy struct {
	// URL is the origin of the proxy, without a path.
	URL string

	cmd   *exec.Cmd
	log   *log
	ended chan struct{} // closed when the process has ended, after err is set
	err   error
}

// Start starts the command of a proxy and waits until it listens. It sets the command's stderr. The end of the command's
// context kills the process; the caller must still call Kill or Stop. If the process ends early or does not listen in time,
// Start returns it with the error, so that the caller can read its log.
func Start(cmd *exec.Cmd) (*Proxy, error) {
	p := &Proxy{cmd: cmd, log: &log{listens: make(chan string, 1)}, ended: make(chan struct{})}
	cmd.Stderr = p.log
	if err := cmd.Start(); err != nil {
		return p, fmt.Errorf("start proxy: %w", err)
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()

	defer p.killLate()()
	select {
	case p.URL = <-p.log.listens:
		return p, nil
	case <-p.ended:
		return p, fmt.Errorf("start proxy: %w", p.Explain(p.err))
	}
}

// PID returns the process id.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// Log returns the last 4 MiB that the process wrote to stderr. It may be called at any time.
func (p *Proxy) Log() string { return p.log.String() }

// Explain adds the last line of the log to an error.
func (p *Proxy) Explain(err error) error {
	text := strings.TrimSpace(p.Log())
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if last == "" || strings.HasPrefix(last, "try: ") || listensAt.MatchString(last) {
		return err // only the greeting
	}
	return fmt.Errorf("%w; the proxy said: %s", err, last)
}

// Kill kills the process with SIGKILL, and waits for its end.
func (p *Proxy) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill proxy: %w", err)
	}
	<-p.ended
	return nil
}

// killLate kills the process after waitLimit, unless stop is called before.
func (p *Proxy) killLate() (stop func() bool) {
	return time.AfterFunc(waitLimit, func() { _ = p.cmd.Process.Kill() }).Stop
}

// Stop stops the proxy with SIGTERM. It returns an error if it does not exit with 0 in time.
func (p *Proxy) Stop() error {
	defer p.killLate()()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-p.ended
		return fmt.Errorf("stop proxy: %w", p.Explain(err))
	}
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("stop proxy: %w", p.Explain(p.err))
	}
	return nil
}

// listensAt finds the origin in a proxy's greeting.
var listensAt = regexp.MustCompile(`listens on (https?://[^/\s]+)`)

// maxLog is the size of the part of the log that is kept, in bytes.
const maxLog = 4 << 20

// log is a proxy's stderr. It is safe for concurrent use.
type log struct {
	listens chan string // receives the first origin in the log

	mu    sync.Mutex
	found bool
	text  []byte
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if !l.found {
		if at := listensAt.FindSubmatch(l.text); at != nil && bytes.Contains(l.text[bytes.Index(l.text, at[0]):], []byte("\n")) {
			l.found = true
			l.listens <- string(at[1])
		}
	}
	if over := len(l.text) - maxLog; over > 0 {
		l.text = append(l.text[:0], l.text[over:]...)
	}
	return len(p), nil
}

// String returns the log.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
