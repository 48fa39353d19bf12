package cache

import "time"

// Clock is the clock of a store, as the versions of commits tell it to a process: see [Store]. Between commits, and while the store is
// away, it goes on by the process's monotonic clock, so that neither an offset nor a jump of the process's own clock matters.
type Clock struct {
	told  time.Time // by the commit whose outcome arrived soonest; zero is unknown
	heard time.Time // when it had arrived
}

// slowest is the longest time that an outcome may be on its way.
const slowest = 2 * time.Second

// Hear takes the outcome of a commit, which has arrived now: the group's version, and the one before. The outcome that was on its way for
// the shortest time tells best.
func (c *Clock) Hear(before, version uint64, now time.Time) {
	told := time.UnixMicro(int64(version)) //nolint:gosec // G115: a time
	counted := version == before+1
	switch late := c.At(now).Sub(told); {
	case counted && late > slowest: // the store's clock was set back, and says nothing until it has passed this version
		c.told = time.Time{}
	case !counted && (c.told.IsZero() || late < 0 || late > slowest):
		c.told, c.heard = told, now
	}
}

// At returns what the store's clock says at a moment of the process's clock, which is that moment while it is unknown.
func (c *Clock) At(now time.Time) time.Time {
	if c.told.IsZero() {
		return now
	}
	return c.told.Add(now.Sub(c.heard))
}
