// Package listener accepts the proxy's connections, below fasthttp: a listener that survives a shortage of file
// descriptors, TLS certificates that can be replaced, a limit on connections, and connections that show how a body
// ended.
package listener

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
	// acceptEpisode is how long there must have been no failure before another one is logged.
	acceptEpisode = time.Minute
)

// retryingListener retries after errors that pass, such as too many open files. fasthttp's accept loop returns on any error,
// and a moment with too many clients would end the process.
type retryingListener struct {
	net.Listener
	log *slog.Logger
	now func() time.Time

	failed time.Time // when Accept failed last; only one goroutine accepts
	once   sync.Once
	closed chan struct{}
}

// Retrying wraps a listener so that errors of Accept that pass are retried. They are logged once an episode.
func Retrying(ln net.Listener, log *slog.Logger, now func() time.Time) net.Listener {
	return &retryingListener{Listener: ln, log: log, now: now, closed: make(chan struct{})}
}

// Accept returns the next connection, or an error that does not pass.
func (l *retryingListener) Accept() (net.Conn, error) {
	for pause := minAcceptPause; ; pause = min(2*pause, maxAcceptPause) {
		c, err := l.Listener.Accept()
		if err == nil || !passes(err) {
			return c, err
		}
		now := l.now()
		if l.failed.IsZero() || now.Sub(l.failed) > acceptEpisode {
			log := l.log
			if errors.Is(err, syscall.EMFILE) {
				log = log.With("hint", "raise the limit on open files (ulimit -n, LimitNOFILE of systemd), or lower server.max_connections below half of it")
			}
			log.Warn("clients have to wait: a connection can't be accepted", "listen", l.Addr().String(), "error", err.Error())
		}
		l.failed = now
		timer := time.NewTimer(pause) //nolint:forbidigo // paces tries, measures nothing
		select {
		case <-timer.C:
		case <-l.closed:
			timer.Stop()
			return nil, net.ErrClosed
		}
	}
}

// Close ends Accept, also while it waits. It may be called again, and does nothing then.
func (l *retryingListener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// passes reports whether an error concerns one connection only, or passes once other connections are closed.
func passes(err error) bool {
	passing := []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, // short of descriptors or memory
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPERM, // the client left, or a firewall refused it
	}
	return slices.ContainsFunc(passing, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
