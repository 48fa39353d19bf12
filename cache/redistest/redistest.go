// Package redistest starts real redis-server processes for tests: alone, as a cluster, and with Sentinels. Each has
// its own port and its own directory, and is gone when the test ends.
package redistest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"remora/freeport"
)

// Bounds of waits for a server, in all and for one command. They are long because tests share few cores, and machines
// stand still now and then.
const readyWithin, answersWithin = 2 * time.Minute, 30 * time.Second

// Option changes how a server is started.
type Option func(*Server)

// AppendOnly lets the server write each command to disk before it answers, so that Restart finds it again.
func AppendOnly() Option {
	return Args("--appendonly", "yes", "--appendfsync", "always")
}

// Args adds arguments to the command line of redis-server.
func Args(args ...string) Option {
	return func(s *Server) { s.args = append(s.args, args...) }
}

// Server is one redis-server process. Its methods fail the test when they cannot do what they are asked for.
type Server struct {
	tb   testing.TB
	dir  string
	port int
	args []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// Start starts a server that keeps nothing on disk unless opts say so, and waits until it answers.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s := &Server{tb: tb, dir: tb.TempDir()}
	tb.Cleanup(s.Kill)
	const tries = 5
	var err error
	for range tries {
		// Another process may take a port between here and the server's own bind.
		s.port, s.args = freeport.Find(tb), nil
		for _, o := range opts {
			o(s)
		}
		if err = s.launch(); err == nil {
			return s
		}
	}
	tb.Fatalf("start redis-server: %v", err)
	return nil
}

// Addr is host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// URL is what store.url takes.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Port is the TCP port.
func (s *Server) Port() int { return s.port }

// Pause stops the process in its tracks (SIGSTOP): connections stay open and nothing answers.
func (s *Server) Pause() { s.tb.Helper(); s.signal(syscall.SIGSTOP) }

// Resume undoes Pause.
func (s *Server) Resume() { s.tb.Helper(); s.signal(syscall.SIGCONT) }

// Stop ends the server as an operator would (SIGTERM) and waits for it.
func (s *Server) Stop() {
	s.tb.Helper()
	s.signal(syscall.SIGTERM)
	s.wait()
}

// Kill ends the server by SIGKILL and waits for it. It may have ended already.
func (s *Server) Kill() {
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // fails only for a process that has ended
	s.wait()
}

// Restart starts the server again on its port and directory; it is killed first if it runs.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.tb.Fatalf("restart redis-server: %v", err)
	}
}

// Do sends one command over a connection of its own and returns the reply: a string for simple and bulk strings and
// integers, and nothing but "*" for arrays. It knows just enough of the protocol to set servers up.
func (s *Server) Do(args ...string) (string, error) {
	return command(s.Addr(), args...)
}

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.tb.Fatalf("signal redis-server: it is not running")
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal redis-server: %v", err)
	}
}

func (s *Server) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		<-s.done
		s.cmd = nil
	}
}

// launch starts the process and waits until it answers; an error says that it did not.
func (s *Server) launch() error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal("redis-server is missing: apt-get install redis-server")
	}
	logFile := filepath.Join(s.dir, "log")
	args := append([]string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", logFile,
		"--save", "", "--daemonize", "no",
	}, s.args...)
	cmd := exec.Command(path, args...)
	if strings.HasSuffix(s.sentinelFile(), ".conf") {
		cmd = exec.Command(path, s.sentinelFile(), "--sentinel")
	}
	cmd.Dir = s.dir
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended does not matter: tests kill it
		close(done)
	}()
	s.mu.Lock()
	s.cmd, s.done = cmd, done
	s.mu.Unlock()
	err = poll(func() error {
		select {
		case <-done:
			return fatal{errors.New("it ended at once: " + tail(logFile))}
		default:
		}
		reply, err := s.Do("PING")
		if strings.HasPrefix(reply, "-NOAUTH") {
			return nil // it answers, only not to us
		}
		return err
	})
	if err != nil {
		s.Kill()
	}
	return err
}

// sentinelFile is the configuration file that a Sentinel was started with, or empty.
func (s *Server) sentinelFile() string {
	if len(s.args) == 1 {
		return s.args[0]
	}
	return ""
}

// fatal ends a poll.
type fatal struct{ error }

// poll calls f until it returns nil or a fatal error, or time is up.
func poll(f func() error) error {
	deadline := time.NewTimer(readyWithin)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		var end fatal
		if err == nil || errors.As(err, &end) {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("not ready within %s: %w", readyWithin, err)
		}
	}
}

func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-400):])
}

// command sends one command and reads the head of the reply.
func command(addr string, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, answersWithin)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(answersWithin)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	return readReply(conn)
}

func readReply(r io.Reader) (string, error) {
	var line []byte
	for !strings.HasSuffix(string(line), "\r\n") {
		var c [1]byte
		if _, err := io.ReadFull(r, c[:]); err != nil {
			return "", err
		}
		line = append(line, c[0])
	}
	head := string(line[:len(line)-2])
	switch {
	case strings.HasPrefix(head, "-"):
		return head, errors.New(head)
	case strings.HasPrefix(head, "$-1"):
		return "", nil
	case strings.HasPrefix(head, "$"):
		var n int
		if _, err := fmt.Sscanf(head, "$%d", &n); err != nil {
			return "", err
		}
		body := make([]byte, n+2)
		_, err := io.ReadFull(r, body)
		return string(body[:n]), err
	case strings.HasPrefix(head, "*"):
		return "*", nil
	}
	return strings.TrimLeft(head, "+:"), nil
}
