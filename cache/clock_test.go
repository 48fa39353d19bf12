package cache_test

import (
	"testing"
	"time"

	"remora/cache"
)

// TestClock: what a process takes for the store's clock after some commits of a group.
func TestClock(t *testing.T) {
	t.Parallel()
	type commit struct{ sent, heard, version time.Duration } // by the process's clock, and by the store's
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		commits []commit
		want    time.Duration // at four seconds
	}{
		"none":                               {nil, 4 * time.Second},
		"the same clock, and a slow outcome": {[]commit{{0, 1500 * ms, 100 * ms}, {2000 * ms, 3000 * ms, 2900 * ms}}, 4 * time.Second},
		"an hour ahead":                      {[]commit{{1000 * ms, 1000 * ms, time.Hour}}, time.Hour + 3*time.Second},
		"an hour behind":                     {[]commit{{1000 * ms, 1000 * ms, -time.Hour}}, -time.Hour + 3*time.Second},
		"ahead, a slow outcome first":        {[]commit{{0, 1000 * ms, time.Hour}, {1500 * ms, 1500 * ms, time.Hour + 1300*ms}}, time.Hour + 3800*ms},
		"ahead, a slow outcome later":        {[]commit{{1000 * ms, 1000 * ms, time.Hour}, {2000 * ms, 3000 * ms, time.Hour + 1000*ms}}, time.Hour + 3*time.Second},
		"the store's clock was set back":     {[]commit{{1000 * ms, 1000 * ms, time.Hour}, {3500 * ms, 3500 * ms, time.Hour + time.Microsecond}}, 4 * time.Second},
		"two at once":                        {[]commit{{1000 * ms, 1000 * ms, time.Hour}, {1000 * ms, 1000 * ms, time.Hour + time.Microsecond}}, time.Hour + 3*time.Second},
		"another server with an older clock": {[]commit{{1000 * ms, 1000 * ms, time.Hour}, {2000 * ms, 2000 * ms, time.Minute}}, time.Minute + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.UnixMicro(1_700_000_000_000_000)
			var c cache.Clock
			var before uint64
			for _, o := range tt.commits {
				version := uint64(start.Add(o.version).UnixMicro())
				c.Hear(before, version, start.Add(o.sent), start.Add(o.heard))
				before = version
			}
			if got := c.At(start.Add(4 * time.Second)).Sub(start); got != tt.want {
				t.Errorf("the clock says %s, want %s", got, tt.want)
			}
		})
	}
}
