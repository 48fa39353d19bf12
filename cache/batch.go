package cache

import (
	"context"
	"slices"
	"sync"
)

// Batcher combines concurrent calls: the busier the store, the larger the batches. There is no timer, so a single caller never
// waits.
//
// A call that finds a free slot runs at once and alone. Otherwise it is queued. When a batch ends, the next one takes the queued
// calls that fit into the limits, the oldest first. Between two calls that are larger than a batch, all others go first: a caller with
// a little to write does not wait for several callers with much.
type Batcher[C any] struct {
	// Run executes the calls and stores the results in them. Its context is the caller's for a call that runs inline;
	// otherwise it has no deadline, so Run must end by itself.
	Run func(ctx context.Context, calls []C)
	// Slots is the number of batches that may be in flight.
	Slots int
	// MaxCalls and MaxBytes bound a batch; a single call may be larger.
	MaxCalls, MaxBytes int
	// Inline runs a single call in its caller's goroutine. It requires a Run that honours the deadline of its context. A call
	// whose context can be cancelled but has no deadline never runs inline.
	Inline bool

	mu    sync.Mutex
	queue []*waiter[C]
	large bool // the last batch was a call larger than MaxBytes
	busy  int
	work  sync.WaitGroup
	idle  sync.Pool // of *waiter[C], with an empty done
}

type waiter[C any] struct {
	call    C
	alone   [1]C // the batch of a call that runs in its caller's goroutine
	size    int
	started bool
	done    chan struct{} // receives one value when call has run
}

// Do runs call in a batch; size counts against MaxBytes. If the error is nil, call has run and holds its result. Otherwise the
// context has ended: call may still be running and must not be read again.
func (b *Batcher[C]) Do(ctx context.Context, call C, size int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := b.waiter(call, size)
	b.mu.Lock()
	if b.busy == b.Slots {
		b.queue = append(b.queue, w)
		b.mu.Unlock()
		return b.wait(ctx, w)
	}
	b.busy++
	b.work.Add(1)
	b.mu.Unlock()
	if b.Inline && endsInTime(ctx) {
		b.runInline(ctx, w)
		return nil
	}
	w.started = true
	go b.drain([]*waiter[C]{w}) // it continues with calls of later callers
	return b.wait(ctx, w)
}

// runInline runs a call in its caller's goroutine. The slot passes on even if Run panics, since the caller may recover.
func (b *Batcher[C]) runInline(ctx context.Context, w *waiter[C]) {
	defer func() {
		if next := b.take(); next != nil {
			go b.drain(next) // these calls are of other callers
		}
	}()
	w.alone[0] = w.call
	b.Run(ctx, w.alone[:])
	b.release(w)
}

// endsInTime reports whether ctx has a deadline, which Run honours, or never ends.
func endsInTime(ctx context.Context) bool {
	_, ok := ctx.Deadline() // first: calling Done may start a timer
	return ok || ctx.Done() == nil
}

// drain runs batch, then the calls that were queued meanwhile, until the queue is empty.
func (b *Batcher[C]) drain(batch []*waiter[C]) {
	calls := make([]C, 0, len(batch))
	for batch != nil {
		calls = calls[:0]
		for _, w := range batch {
			calls = append(calls, w.call)
		}
		b.Run(context.Background(), calls)
		for _, w := range batch {
			w.done <- struct{}{}
		}
		clear(calls)
		batch = b.take()
	}
}

// take returns the next batch. If there is none, it frees the slot and returns nil.
func (b *Batcher[C]) take() []*waiter[C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.busy--
		b.work.Done()
		return nil
	}
	isSmall := func(w *waiter[C]) bool { return w.size <= b.MaxBytes }
	smallOnly := b.large && slices.ContainsFunc(b.queue, isSmall)
	var batch []*waiter[C]
	size, left := 0, b.queue[:0]
	for _, w := range b.queue {
		fits := len(batch) == 0 || len(batch) < b.MaxCalls && size+w.size <= b.MaxBytes
		if !fits || smallOnly && !isSmall(w) {
			left = append(left, w)
			continue
		}
		w.started = true
		size += w.size
		batch = append(batch, w)
	}
	clear(b.queue[len(left):])
	b.queue, b.large = left, size > b.MaxBytes
	return batch
}

func (b *Batcher[C]) wait(ctx context.Context, w *waiter[C]) error {
	select {
	case <-w.done:
	case <-ctx.Done():
		b.forget(w)
		return ctx.Err()
	}
	b.release(w)
	return nil
}

// release returns the waiter of a finished call to the pool.
func (b *Batcher[C]) release(w *waiter[C]) {
	var none C
	w.call, w.alone[0], w.started = none, none, false
	b.idle.Put(w)
}

// forget removes a call from the queue after its caller has left. A call that has started continues: its done has room for the
// one value, and the waiter is not reused.
func (b *Batcher[C]) forget(w *waiter[C]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.started {
		return
	}
	if i := slices.Index(b.queue, w); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
}

func (b *Batcher[C]) waiter(call C, size int) *waiter[C] {
	w, ok := b.idle.Get().(*waiter[C])
	if !ok {
		w = &waiter[C]{done: make(chan struct{}, 1)}
	}
	w.call, w.size = call, size
	return w
}

// IsIdle reports whether no call is running or queued.
func (b *Batcher[C]) IsIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy == 0
}

// Wait waits until no call is running or queued.
func (b *Batcher[C]) Wait() { b.work.Wait() }
