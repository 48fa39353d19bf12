package memory

import (
	"context"
	"sync"
	"time"
)

// Forwarded notes that the request was sent upstream. The input is then written on its own if the answer takes longer than
// store.open_delay.
func (t *Turn) Forwarded() {
	if t.unkept {
		return
	}
	t.open.Store(true)
	delay := t.m.o.OpenDelay
	if t.m.processes.hasOthers() && t.entry.OpensAtOnce() {
		delay = 0
	}
	t.opening = time.AfterFunc(delay, func() { t.m.delayedWrites.write(t) }) //nolint:forbidigo // wakes; no clock is read
}

// delayedWrites are the inputs that are being written while their answers are still to come.
type delayedWrites struct {
	work *sync.WaitGroup

	mu      sync.Mutex
	stopped bool // at the end of the process: none begins any more
}

// write begins to write a turn's input. It holds the lock, so that nothing is added to the work once stop has returned and
// Close waits for the rest.
func (o *delayedWrites) write(t *Turn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.stopped && t.open.Load() {
		o.work.Go(t.journal)
	}
}

func (o *delayedWrites) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
}

// journal writes the turn's input, and that its answer is open.
func (t *Turn) journal() {
	ctx, cancel := context.WithTimeout(t.base, t.m.o.CommitWait)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open.Load() {
		return // committed meanwhile
	}
	t.write(ctx, nil)
	t.renewLater()
}

// renewLater keeps a session that expires alive for as long as its answer takes, from when its input was written on. The
// caller holds t.mu.
func (t *Turn) renewLater() {
	if ttl := t.m.o.SessionTTL; ttl > 0 {
		t.renewal = time.AfterFunc(ttl/2, t.renew) //nolint:forbidigo // wakes; no clock is read
	}
}

func (t *Turn) renew() {
	ctx, cancel := context.WithTimeout(t.base, t.m.o.CommitWait)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open.Load() {
		return // committed meanwhile
	}
	defer t.renewLater()
	if t.m.available(t.call.Scope) != nil {
		return
	}
	held, err := t.m.lock(ctx, t.call.Scope)
	if err != nil {
		return // another turn of the session is being written
	}
	defer func() { <-held }()
	if err := t.entry.Renew(ctx); err != nil {
		t.m.failed(err)
	}
}
