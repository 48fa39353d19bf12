// Package listener makes a listener that outlives moments in which the system is short of something.
package listener

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
	// acceptEpisode is how long accepting must have gone well before another failure is news.
	acceptEpisode = time.Minute
)

// patientListener waits where the system is short of something that a new connection needs. fasthttp's accept loop
// returns on any error, and with it the process would end because of a moment with too many clients.
type patientListener struct {
	net.Listener
	log *slog.Logger
	now func() time.Time

	failed time.Time // when Accept failed last; only one goroutine accepts
	once   sync.Once
	closed chan struct{}
}

// Patient wraps a listener. A failure to accept is logged once an episode, and then tried again.
func Patient(ln net.Listener, log *slog.Logger, now func() time.Time) net.Listener {
	return &patientListener{Listener: ln, log: log, now: now, closed: make(chan struct{})}
}

// Accept returns the next connection, or an error that will not go away by waiting.
func (l *patientListener) Accept() (net.Conn, error) {
	for pause := minAcceptPause; ; pause = min(2*pause, maxAcceptPause) {
		c, err := l.Listener.Accept()
		if err == nil || !passes(err) {
			return c, err
		}
		now := l.now()
		if l.failed.IsZero() || now.Sub(l.failed) > acceptEpisode {
			l.log.Warn("clients have to wait: a connection can't be accepted", "listen", l.Addr().String(), "error", err.Error())
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
func (l *patientListener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// passes tells errors that concern one connection, or that last until others have been closed.
func passes(err error) bool {
	for _, e := range [...]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, // short of descriptors or memory
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPERM, // the client left, or a firewall refused it
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
