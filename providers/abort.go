package providers

import (
	"context"
	"sync"
	"time"
)

// abortable holds the connection of an exchange, so that another goroutine can end what is done with it at any time. All
// other methods are for the goroutine of the exchange, which may use conn without the lock.
type abortable struct {
	mu      sync.Mutex // guards all below, and the deadlines of conn
	conn    *conn      // nil for none
	cancel  context.CancelFunc
	aborted bool
}

// abort ends the dial, the wait, the write or the read under way, and all that come after it.
func (a *abortable) abort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.aborted = true
	if a.cancel != nil {
		a.cancel()
	}
	if a.conn != nil {
		_ = a.conn.SetDeadline(past())
	}
}

func (a *abortable) isAborted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.aborted
}

// during calls f with a context that abort ends. It reports false where abort came before f or during it; f is not called in
// the first case.
func (a *abortable) during(f func(ctx context.Context)) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.mu.Lock()
	aborted := a.aborted
	a.cancel = cancel
	a.mu.Unlock()
	if !aborted {
		f(ctx)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel = nil
	return !a.aborted
}

// attach takes a connection, and sets the deadline for all that is done with it. It reports false after abort.
func (a *abortable) attach(cn *conn, deadline time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.aborted {
		a.conn = cn
		_ = cn.SetDeadline(deadline) // a dead connection says so again when it is written to
	}
	return !a.aborted
}

// detach gives the connection away, nil for none. After abort its deadline is in the past.
func (a *abortable) detach() (cn *conn, aborted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cn, a.conn = a.conn, nil
	return cn, a.aborted
}

// readBy sets the deadline for reading. It reports false, and changes nothing, after abort or without a connection.
func (a *abortable) readBy(deadline time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.aborted || a.conn == nil {
		return false
	}
	_ = a.conn.SetReadDeadline(deadline)
	return true
}

// writeBy sets the deadline for writing, unless abort has.
func (a *abortable) writeBy(deadline time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.aborted {
		_ = a.conn.SetWriteDeadline(deadline)
	}
}

// reset makes it ready for another use. By then nothing may call abort any more.
func (a *abortable) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.aborted, a.cancel = false, nil
}
