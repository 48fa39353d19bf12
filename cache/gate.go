package cache

import "sync"

// Gate is for closing a store: no call begins after Shut, which waits for those under way.
type Gate struct {
	mu     sync.RWMutex
	closed bool
	inside sync.WaitGroup
}

// Enter returns ErrClosed once the gate is shut; otherwise Leave must be called.
func (g *Gate) Enter() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return ErrClosed
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
