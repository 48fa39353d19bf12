package memory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestPatience holds a context whose timer is set late to what context.WithTimeout promises.
func TestPatience(t *testing.T) {
	const wait = 250 * time.Millisecond
	for _, waited := range []bool{false, true} {
		begin := func(parent context.Context) *patience {
			p := within(parent, wait)
			if waited {
				_ = p.Done()
			}
			return p
		}
		synctest.Test(t, func(t *testing.T) {
			p := begin(t.Context())
			defer p.end()
			if until, ok := p.Deadline(); !ok || time.Until(until) != wait {
				t.Errorf("waited %v: deadline is in %v, %v", waited, time.Until(until), ok)
			}
			time.Sleep(wait - 1)
			if err := p.Err(); err != nil {
				t.Errorf("waited %v: ended before its time: %v", waited, err)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if err := p.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("waited %v: at its time: %v", waited, err)
			}
			<-p.Done()
		})
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithTimeout(t.Context(), wait/2)
			defer cancel()
			p := begin(parent)
			defer p.end()
			if until, _ := p.Deadline(); time.Until(until) != wait/2 {
				t.Errorf("waited %v: deadline is in %v, not that of the parent", waited, time.Until(until))
			}
			child, stop := context.WithCancel(p)
			defer stop()
			cancel()
			<-child.Done()
			if err := p.Err(); !errors.Is(err, context.Canceled) {
				t.Errorf("waited %v: after its parent's end: %v", waited, err)
			}
		})
	}
	p := within(t.Context(), wait)
	done := p.Done()
	p.end()
	<-done
}
