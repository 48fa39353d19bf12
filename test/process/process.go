// Package process runs the proxy as a child process, for tests, the demo and the benchmarks. Start at [Start].
package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// Child is a running process. Log, Ended and Signal may be called concurrently with all other methods.
type Child struct {
	cmd   *exec.Cmd
	log   *Log
	ended chan struct{} // closed when the process has ended, after err is set
	err   error
}

// Launch starts a command and records its stderr, and its stdout unless that is set. The end of the command's context kills the
// process; the caller must still call Kill or Stop.
func Launch(cmd *exec.Cmd) (*Child, error) {
	c := &Child{cmd: cmd, log: NewLog(), ended: make(chan struct{})}
	cmd.Stderr = c.log
	if cmd.Stdout == nil {
		cmd.Stdout = c.log
	}
	if err := cmd.Start(); err != nil {
		return c, fmt.Errorf("start %s: %w", c.Name(), err)
	}
	go func() {
		defer close(c.ended)
		c.err = cmd.Wait()
	}()
	return c, nil
}

// Proxy is a running proxy.
type Proxy struct {
	*Child

	// URL is the origin of the proxy, without a path.
	URL string
}

// Start launches a proxy and waits until it listens. If that fails, it returns the proxy with the error, so that the caller can
// read its log.
func Start(cmd *exec.Cmd) (*Proxy, error) {
	c, err := Launch(cmd)
	p := &Proxy{Child: c}
	if err == nil {
		p.URL, err = c.Await()
	}
	return p, err
}

// Await waits until the process, which must log its origin like a proxy, listens, and returns the origin. It returns an error if
// the process ends early, and kills it if it does not listen in time.
func (c *Child) Await() (url string, err error) {
	defer c.killAfter(waitLimit)()
	select {
	case url = <-c.log.Listens():
		return url, nil
	case <-c.ended:
		return "", fmt.Errorf("start %s: %w", c.Name(), c.Explain(c.err))
	}
}

// Name returns the name of the program.
func (c *Child) Name() string { return filepath.Base(c.cmd.Path) }

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Log returns the last 4 MiB of the recorded output.
func (c *Child) Log() string { return c.log.String() }

// Ended is closed when the process has ended.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// ExitCode waits for the end of the process and returns its exit code, -1 if a signal ended it.
func (c *Child) ExitCode() int {
	<-c.ended
	return c.cmd.ProcessState.ExitCode()
}

// Signal sends a signal to the process.
func (c *Child) Signal(sig os.Signal) error { return c.cmd.Process.Signal(sig) }

// Explain adds the last line of a proxy's log to an error.
func (c *Child) Explain(err error) error {
	text := strings.TrimSpace(c.Log())
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if last == "" || listensAt.MatchString(last) {
		return err // only that it has started
	}
	return fmt.Errorf("%w; the proxy said: %s", err, last)
}

// Kill kills the process with SIGKILL, and waits for its end. It does nothing if the process has ended.
func (c *Child) Kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.Name(), err)
	}
	<-c.ended
	return nil
}

// killAfter kills the process after a time, unless stop is called before.
func (c *Child) killAfter(d time.Duration) (stop func() bool) {
	return time.AfterFunc(d, func() { _ = c.cmd.Process.Kill() }).Stop
}

// Stop stops the process with SIGTERM. It returns an error if the process does not exit with 0 in time.
func (c *Child) Stop() error { return c.StopWithin(waitLimit) }

// StopWithin is Stop with a time limit, after which it kills the process.
func (c *Child) StopWithin(d time.Duration) error {
	defer c.killAfter(d)()
	err := c.Signal(syscall.SIGTERM)
	<-c.ended
	if err = cmp.Or(err, c.err); err != nil {
		return fmt.Errorf("stop %s: %w", c.Name(), c.Explain(err))
	}
	return nil
}

// listensAt finds the origin in the line that a proxy logs when it listens, for which log.level must be info.
var listensAt = regexp.MustCompile(`"msg":"started".*?,"url":"(https?://[^/"]+)`)

// maxLog is the size of the part of the log that is kept, in bytes.
const maxLog = 4 << 20

// Log records the output of a process. It is safe for concurrent use.
type Log struct {
	listens chan string // receives the first origin in the log

	mu      sync.Mutex
	found   bool
	scanned int // bytes of text, whole lines without an origin
	text    []byte
}

// NewLog returns an empty log.
func NewLog() *Log { return &Log{listens: make(chan string, 1)} }

// Listens receives the origin of a proxy once, when the log says that it has started.
func (l *Log) Listens() <-chan string { return l.listens }

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	// Only in new lines: most logs are not a proxy's, and never have an origin.
	if end := bytes.LastIndexByte(l.text, '\n') + 1; !l.found && end > l.scanned {
		if at := listensAt.FindSubmatch(l.text[l.scanned:end]); at != nil {
			l.found = true
			l.listens <- string(at[1])
		}
		l.scanned = end
	}
	if over := len(l.text) - maxLog; over > 0 {
		l.text = append(l.text[:0], l.text[over:]...)
		l.scanned = max(0, l.scanned-over)
	}
	return len(p), nil
}

// String returns the log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
