package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stall is a Run that blocks until it is released, and records the batches.
type stall struct {
	mu      sync.Mutex
	batches [][]int
	release chan struct{}
}

func (s *stall) run(_ context.Context, calls []int) {
	s.mu.Lock()
	s.batches = append(s.batches, append([]int(nil), calls...))
	s.mu.Unlock()
	<-s.release
}

func TestBatcherSendsQueuedCallsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stall{release: make(chan struct{})}
		b := &Batcher[int]{Run: s.run, Slots: 1, MaxCalls: 3, MaxBytes: 100, Inline: true}
		for i, size := range []int{1, 1, 1, 1, 1, 90, 90, 500} {
			go func() {
				if err := b.Do(t.Context(), i, size); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		for range 5 {
			s.release <- struct{}{}
			synctest.Wait()
		}
		b.Wait()
		if got, want := fmt.Sprint(s.batches), "[[0] [1 2 3] [4 5] [6] [7]]"; got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
	})
}

// TestBatcherLetsSmallCallsPass: between two large calls all small ones run, and neither waits for ever.
func TestBatcherLetsSmallCallsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stall{release: make(chan struct{})}
		b := &Batcher[int]{Run: s.run, Slots: 1, MaxCalls: 3, MaxBytes: 100}
		var wg sync.WaitGroup
		for i, size := range []int{500, 500, 1, 500, 1, 500, 1, 1} {
			wg.Go(func() { _ = b.Do(t.Context(), i, size) })
			synctest.Wait()
		}
		close(s.release)
		wg.Wait()
		b.Wait()
		if got, want := fmt.Sprint(s.batches), "[[0] [1] [2 4 6] [3] [7] [5]]"; got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
	})
}

func TestBatcherLetsCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stall{release: make(chan struct{})}
		b := &Batcher[int]{Run: s.run, Slots: 1, MaxCalls: 3, MaxBytes: 100, Inline: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		plain, leave := context.WithCancel(t.Context())
		results := make(chan error, 3)
		go func() { results <- b.Do(plain, 0, 1) }() // in flight
		synctest.Wait()
		go func() { results <- b.Do(ctx, 1, 1) }() // queued
		go func() { results <- b.Do(t.Context(), 2, 1) }()
		synctest.Wait()
		leave()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller in flight got %v", err)
		}
		if err := <-results; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the queued caller got %v", err)
		}
		s.release <- struct{}{}
		s.release <- struct{}{}
		if err := <-results; err != nil {
			t.Errorf("the caller who stayed got %v", err)
		}
		b.Wait()
		if got, want := fmt.Sprint(s.batches), "[[0] [2]]"; got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
	})
}

// TestBatcherSurvivesAPanic: a server that recovers the panic of a request must not lose a slot for each of them.
func TestBatcherSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Batcher[int]{Run: func(_ context.Context, calls []int) {
			if calls[0] == 0 {
				panic("of one request")
			}
		}, Slots: 2, MaxCalls: 10, MaxBytes: 100, Inline: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range b.Slots {
			func() {
				defer func() { _ = recover() }()
				_ = b.Do(ctx, 0, 1)
			}()
		}
		if err := b.Do(ctx, 1, 1); err != nil {
			t.Error(err)
		}
		b.Wait()
	})
}

func TestBatcherFillsItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stall{release: make(chan struct{})}
		b := &Batcher[int]{Run: s.run, Slots: 2, MaxCalls: 10, MaxBytes: 100}
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { _ = b.Do(t.Context(), i, 1) })
			synctest.Wait()
		}
		if got, want := fmt.Sprint(s.batches), "[[0] [1]]"; got != want {
			t.Errorf("in flight %s, want %s", got, want)
		}
		close(s.release)
		wg.Wait()
		b.Wait()
		if got, want := fmt.Sprint(s.batches), "[[0] [1] [2 3 4]]"; got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
	})
}
