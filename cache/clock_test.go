package cache_test

import (
	"testing"
	"time"

	"remora/cache"
)

// TestClock: what a process takes for the store's clock after some commits of a group.
func TestClock(t *testing.T) {
	t.Parallel()
	type commit struct{ heard, version time.Duration } // by the process's clock, and by the store's
	for name, tt := range map[string]struct {
		commits []commit
		want    time.Duration // at four seconds
	}{
		"none":                               {nil, 4 * time.Second},
		"an hour ahead":                      {[]commit{{1 * time.Second, time.Hour}}, time.Hour + 3*time.Second},
		"an hour behind":                     {[]commit{{1 * time.Second, -time.Hour}}, -time.Hour + 3*time.Second},
		"a slow outcome":                     {[]commit{{1 * time.Second, time.Hour}, {3 * time.Second, time.Hour + time.Second}}, time.Hour + 3*time.Second},
		"a faster outcome":                   {[]commit{{1 * time.Second, time.Hour}, {2 * time.Second, time.Hour + 1500*time.Millisecond}}, time.Hour + 3500*time.Millisecond},
		"the store's clock was set back":     {[]commit{{1 * time.Second, time.Hour}, {3500 * time.Millisecond, time.Hour + time.Microsecond}}, 4 * time.Second},
		"two at once":                        {[]commit{{1 * time.Second, time.Hour}, {1 * time.Second, time.Hour + time.Microsecond}}, time.Hour + 3*time.Second},
		"another server with an older clock": {[]commit{{1 * time.Second, time.Hour}, {2 * time.Second, time.Minute}}, time.Minute + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.UnixMicro(1_700_000_000_000_000)
			var c cache.Clock
			var before uint64
			for _, o := range tt.commits {
				version := uint64(start.Add(o.version).UnixMicro())
				c.Hear(before, version, start.Add(o.heard))
				before = version
			}
			if got := c.At(start.Add(4 * time.Second)).Sub(start); got != tt.want {
				t.Errorf("the clock says %s, want %s", got, tt.want)
			}
		})
	}
}
