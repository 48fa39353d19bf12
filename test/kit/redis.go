package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"remora/test/process"
)

// answersWithin bounds one command. It is long because tests share few cores.
const answersWithin = 30 * time.Second

// AppendOnly returns arguments that make a server write each command to disk before it answers, so that data survives Restart.
func AppendOnly() []string { return []string{"--appendonly", "yes", "--appendfsync", "always"} }

// Redis is one redis-server process. Its methods fail the test on errors.
type Redis struct {
	tb   testing.TB
	dir  string
	port int
	args []string // of redis-server

	busPort int // of a node of a cluster

	mu    sync.Mutex
	child *process.Child // nil while the server does not run
}

// StartRedis starts a server and waits until it answers. It stores nothing on disk unless more arguments change that.
func StartRedis(tb testing.TB, more ...string) *Redis {
	tb.Helper()
	return start(tb, func(s *Redis) []string { return s.arguments(more...) })
}

// arguments returns the arguments of a server that stores nothing on disk, and more.
func (s *Redis) arguments(more ...string) []string {
	return append([]string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", s.logFile(), "--save", "", "--daemonize", "no",
	}, more...)
}

func (s *Redis) logFile() string { return filepath.Join(s.dir, "log") }

// start starts a server on a free port. args returns its arguments, which contain the port.
func start(tb testing.TB, args func(*Redis) []string) *Redis {
	tb.Helper()
	s := &Redis{tb: tb, dir: tb.TempDir()}
	tb.Cleanup(s.Kill)
	const tries = 5
	var err error
	for range tries {
		// Another process may take the port before the server does.
		s.port = FreePort(tb)
		s.args = args(s)
		if err = s.launch(); err == nil {
			return s
		}
	}
	tb.Fatalf("start redis-server: %v", err)
	return nil
}

// Addr returns host:port.
func (s *Redis) Addr() string { return process.Loopback(s.port) }

// URL returns the value for store.url.
func (s *Redis) URL() string { return "redis://" + s.Addr() }

// Port returns the TCP port.
func (s *Redis) Port() int { return s.port }

// Pause stops the process with SIGSTOP: connections stay open but get no answer.
func (s *Redis) Pause() { s.tb.Helper(); s.signal(syscall.SIGSTOP) }

// Resume undoes Pause.
func (s *Redis) Resume() { s.tb.Helper(); s.signal(syscall.SIGCONT) }

// Kill ends the server with SIGKILL and waits for it. It does nothing if the server has ended.
func (s *Redis) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		_ = s.child.Kill()
		s.child = nil
	}
}

// Restart kills the server if it runs, and starts it again with the same port and directory.
func (s *Redis) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.tb.Fatalf("restart redis-server: %v", err)
	}
}

// Do sends one command over a new connection and returns the reply as a string, "*" for arrays.
func (s *Redis) Do(args ...string) (string, error) {
	client := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: answersWithin, ReadTimeout: answersWithin, WriteTimeout: answersWithin,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()

	words := make([]any, len(args))
	for i, word := range args {
		words[i] = word
	}
	reply, err := client.Do(context.Background(), words...).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", nil
	case err != nil:
		return "", err
	}
	if _, list := reply.([]any); list {
		return "*", nil
	}
	return fmt.Sprint(reply), nil
}

func (s *Redis) signal(sig syscall.Signal) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		s.tb.Fatalf("signal redis-server: it is not running")
	}
	if err := s.child.Signal(sig); err != nil {
		s.tb.Fatalf("signal redis-server: %v", err)
	}
}

// launch starts the process and waits until it answers.
func (s *Redis) launch() error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal("redis-server is missing: apt-get install redis-server")
	}
	cmd := exec.Command(path, s.args...)
	cmd.Dir = s.dir
	process.DieWithParent(cmd)

	child, err := process.Launch(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.child = child
	s.mu.Unlock()

	err = poll(func() error {
		select {
		case <-child.Ended():
			return fatal{errors.New("it ended at once: " + tail(s.logFile()))}
		default:
		}
		_, err := s.Do("PING")
		if redis.HasErrorPrefix(err, "NOAUTH") {
			return nil // it runs and requires a password
		}
		return err
	})
	if err != nil {
		s.Kill()
	}
	return err
}

func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-400):])
}
