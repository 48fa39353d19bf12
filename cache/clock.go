package cache

import "time"

// Clock is the clock of a store, as the versions of commits tell it to a process: see [Store]. Between commits, and while the store is
// away, it goes on by the process's monotonic clock, so that neither an offset nor a jump of the process's own clock matters.
type Clock struct {
	told  time.Time // what the store's clock said when the last outcome arrived; zero is unknown
	heard time.Time // when that was
}

// slowest is how far a counted version may be behind the store's clock.
const slowest = 2 * time.Second

// Hear takes the outcome of a commit that was sent at one moment of the process's clock and has arrived at another: the group's version,
// and the one before. The store's clock was at the version somewhere in between. What a Clock says changes by no more than that asks
// for: one that agrees with the process's clock stays exact, however long a commit has taken.
func (c *Clock) Hear(before, version uint64, sent, now time.Time) {
	is := c.At(now)
	first := time.UnixMicro(int64(version)) //nolint:gosec // G115: a time
	last := first.Add(now.Sub(sent))
	if version == before+1 { // counted, since the store's clock has not passed the last version
		if is.Sub(first) > slowest {
			c.told = time.Time{} // it was set back, and says nothing until then
		}
		return
	}
	switch {
	case is.Before(first):
		is = first
	case is.After(last):
		is = last
	}
	c.told, c.heard = is, now
}

// At returns what the store's clock says at a moment of the process's clock, which is that moment while it is unknown.
func (c *Clock) At(now time.Time) time.Time {
	if c.told.IsZero() {
		return now
	}
	return c.told.Add(now.Sub(c.heard))
}
