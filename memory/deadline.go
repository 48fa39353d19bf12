package memory

import (
	"context"
	"sync"
	"time"
)

// deadlineContext is the context of [context.WithTimeout] without its cost where no one waits for its end: the timer is set by
// the first call of Done. Most turns never read the store, and a store in this process only compares the deadline.
type deadlineContext struct {
	context.Context //nolint:containedctx // the parent
	deadline        time.Time

	mu     sync.Mutex
	timed  context.Context //nolint:containedctx // this one with a timer, nil before Done
	cancel context.CancelFunc
}

// withTimeout is [context.WithTimeout]. Call end afterwards.
func withTimeout(parent context.Context, d time.Duration) *deadlineContext {
	until := time.Now().Add(d) //nolint:forbidigo // context.WithTimeout has no other clock either
	if earlier, ok := parent.Deadline(); ok && earlier.Before(until) {
		until = earlier
	}
	return &deadlineContext{Context: parent, deadline: until}
}

// end stops the timer, if it is set.
func (c *deadlineContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// present is the context that answers for this one: the timed one, or before Done the parent.
func (c *deadlineContext) present() (ctx context.Context, timed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		return c.Context, false
	}
	return c.timed, true
}

// Deadline implements [context.Context].
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *deadlineContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline)
	}
	return c.timed.Done()
}

// Err implements [context.Context].
func (c *deadlineContext) Err() error {
	ctx, timed := c.present()
	if err := ctx.Err(); err != nil || timed {
		return err
	}
	if time.Now().Before(c.deadline) { //nolint:forbidigo // as in withTimeout
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements [context.Context]. The timed context answers once there is one: contexts made of this one find it so.
func (c *deadlineContext) Value(key any) any {
	ctx, _ := c.present()
	return ctx.Value(key)
}
