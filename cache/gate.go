package cache

import (
	"context"
	"sync"
)

// Gate closes a store: after Shut no call begins, and Shut waits for running ones.
type Gate struct {
	mu     sync.RWMutex
	closed bool
	inside sync.WaitGroup
}

// Begin is Enter for a call with a context. It returns a FaultTimeout if ctx has ended.
func (g *Gate) Begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return Faulty(FaultTimeout, err)
	}
	return g.Enter()
}

// Enter returns a FaultStore that wraps ErrClosed if the gate is shut. Otherwise the caller must call Leave.
func (g *Gate) Enter() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return &Error{Fault: FaultStore, Err: ErrClosed}
	}
	g.inside.Add(1)
	return nil
}

// Leave ends a call that has entered.
func (g *Gate) Leave() { g.inside.Done() }

// IsShut reports whether the gate is shut, so that long calls can end early.
func (g *Gate) IsShut() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.closed
}

// Shut shuts the gate and waits until all calls have left. Only the first Shut returns true.
func (g *Gate) Shut() bool {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
	return first
}
