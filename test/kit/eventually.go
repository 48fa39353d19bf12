package kit

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// WaitLimit bounds a wait for something that must happen. It is long because tests share few cores, and because Sentinels that
// were paused elect no master for half a minute.
const WaitLimit = 4 * time.Minute

// Eventually calls f until it returns nil. After [WaitLimit] it fails the test with the last error.
func Eventually(tb testing.TB, f func() error) {
	tb.Helper()
	if err := poll(f); err != nil {
		tb.Fatal(err)
	}
}

// fatal is an error that ends a poll.
type fatal struct{ error }

// poll calls f until it returns nil or a fatal error, or WaitLimit is over.
func poll(f func() error) error {
	deadline := time.NewTimer(WaitLimit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		var end fatal
		if err == nil || errors.As(err, &end) {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("not within %s: %w", WaitLimit, err)
		}
	}
}
