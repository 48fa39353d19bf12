package retry

import (
	"sync"
	"time"
)

// slots is how many parts the window has; calls leave it one part at a time.
const slots = 10

// circuit counts the calls of one provider, and blocks further ones while too many fail. A nil circuit is always closed.
type circuit struct {
	o      Breaker
	change func(open bool)

	mu     sync.Mutex
	parts  [slots]tally
	newest int64     // number of the newest part since 1970
	until  time.Time // of an open circuit: when the next call may pass; zero while it is closed
}

type tally struct{ calls, failed int }

func newCircuit(o Breaker, change func(open bool)) *circuit {
	if o.Failures <= 0 {
		return nil
	}
	return &circuit{o: o.withDefaults(), change: change}
}

// allow reports whether a call may be made now, and whether it is a probe of an open circuit. A probe need not be reported:
// another one is allowed a cooldown later in any case.
func (c *circuit) allow(now time.Time) (ok, probe bool) {
	if c == nil {
		return true, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.IsZero() {
		return true, false
	}
	if now.Before(c.until) {
		return false, false
	}
	c.until = now.Add(c.o.Cooldown)
	return true, true
}

// wait is how long the circuit stays open, 0 if it is closed.
func (c *circuit) wait(now time.Time) time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.IsZero() {
		return 0
	}
	return max(c.until.Sub(now), 0)
}

// report records the result of a call that allow has allowed; probe is the value that allow returned.
func (c *circuit) report(now time.Time, v verdict, probe bool) {
	if c == nil || v == unknown {
		return
	}
	if changed, open := c.enter(now, v == failed, probe); changed && c.change != nil {
		c.change(open)
	}
}

func (c *circuit) enter(now time.Time, failed, probe bool) (changed, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() {
		// Calls that began before the circuit opened show nothing new.
		switch {
		case !probe:
		case failed:
			c.until = now.Add(c.o.Cooldown)
		default:
			c.until, c.parts = time.Time{}, [slots]tally{}
			return true, false
		}
		return false, true
	}
	p := c.part(now)
	p.calls++
	if !failed {
		return false, false
	}
	p.failed++
	if calls, failures := c.sum(); calls < c.o.MinCalls || float64(failures) < c.o.Failures*float64(calls) {
		return false, false
	}
	c.until = now.Add(c.o.Cooldown)
	return true, true
}

// part returns the newest part, after emptying those that time has passed over. A clock that goes back changes nothing.
func (c *circuit) part(now time.Time) *tally {
	n := now.UnixNano() / max(int64(c.o.Window/slots), 1)
	if n-c.newest >= slots {
		c.parts = [slots]tally{}
		c.newest = n
	}
	for ; c.newest < n; c.newest++ {
		c.parts[(c.newest+1)%slots] = tally{}
	}
	return &c.parts[c.newest%slots]
}

func (c *circuit) sum() (calls, failures int) {
	for _, p := range c.parts {
		calls += p.calls
		failures += p.failed
	}
	return calls, failures
}
