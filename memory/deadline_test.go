package memory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlineContext holds a context whose timer is set late to what context.WithTimeout promises.
func TestDeadlineContext(t *testing.T) {
	const wait = 250 * time.Millisecond
	for _, waited := range []bool{false, true} {
		begin := func(parent context.Context) *deadlineContext {
			c := withTimeout(parent, wait)
			if waited {
				_ = c.Done()
			}
			return c
		}
		synctest.Test(t, func(t *testing.T) {
			c := begin(t.Context())
			defer c.end()
			if until, ok := c.Deadline(); !ok || time.Until(until) != wait {
				t.Errorf("waited %v: deadline is in %v, %v", waited, time.Until(until), ok)
			}
			time.Sleep(wait - 1)
			if err := c.Err(); err != nil {
				t.Errorf("waited %v: ended before its time: %v", waited, err)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if err := c.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("waited %v: at its time: %v", waited, err)
			}
			<-c.Done()
		})
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithTimeout(t.Context(), wait/2)
			defer cancel()
			c := begin(parent)
			defer c.end()
			if until, _ := c.Deadline(); time.Until(until) != wait/2 {
				t.Errorf("waited %v: deadline is in %v, not that of the parent", waited, time.Until(until))
			}
			child, stop := context.WithCancel(c)
			defer stop()
			cancel()
			<-child.Done()
			if err := c.Err(); !errors.Is(err, context.Canceled) {
				t.Errorf("waited %v: after its parent's end: %v", waited, err)
			}
		})
	}
	c := withTimeout(t.Context(), wait)
	done := c.Done()
	c.end()
	<-done
}
