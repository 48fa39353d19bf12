package cache

import (
	"context"
	"slices"
	"sync"
)

// batcher lets calls that arrive while others are under way go together: the busier the store, the bigger the
// batches, and a caller who is alone waits for nobody. There is no timer.
//
// A call that finds a free slot runs at once and alone. Otherwise it is queued, and whoever ends a batch starts the
// next one with all that has been queued meanwhile, up to the limits.
type batcher[C any] struct {
	// run executes the calls, leaving their results in them. Its context is that of the caller where there is only
	// one, and has no deadline otherwise: run must end by itself.
	run func(ctx context.Context, calls []C)
	// slots is how many batches may be in flight.
	slots int
	// maxCalls and maxBytes bound a batch; a single call may be bigger.
	maxCalls, maxBytes int
	// inline lets a call that is alone run in its caller's goroutine. Only for a run that keeps to the deadline of its
	// context; a caller whose context may be cancelled without a deadline never runs inline.
	inline bool

	mu    sync.Mutex
	queue []*waiter[C]
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

// do runs call in some batch; size counts against maxBytes. A nil error means that call has run and holds its result.
// Otherwise the context has ended: call may still be running and must not be looked at again.
func (b *batcher[C]) do(ctx context.Context, call C, size int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	if b.busy == b.slots {
		w := b.waiter(call, size)
		b.queue = append(b.queue, w)
		b.mu.Unlock()
		return b.wait(ctx, w)
	}
	b.busy++
	b.work.Add(1)
	b.mu.Unlock()
	if b.inline && endsInTime(ctx) {
		w := b.waiter(call, size)
		w.alone[0] = call
		b.run(ctx, w.alone[:])
		b.release(w)
		if next := b.take(); next != nil {
			go b.drain(next) //nolint:contextcheck // these calls are of other callers
		}
		return nil
	}
	w := b.waiter(call, size)
	w.started = true
	go b.drain([]*waiter[C]{w}) //nolint:contextcheck // it goes on for callers who come later
	return b.wait(ctx, w)
}

// endsInTime tells whether waiting for the deadline of ctx is as good as waiting for its end.
func endsInTime(ctx context.Context) bool {
	_, ok := ctx.Deadline() // first: who waits for the end of a context may make it set a timer
	return ok || ctx.Done() == nil
}

// drain runs batch, then what has been queued meanwhile, and so on until nothing is left.
func (b *batcher[C]) drain(batch []*waiter[C]) {
	calls := make([]C, 0, len(batch))
	for batch != nil {
		calls = calls[:0]
		for _, w := range batch {
			calls = append(calls, w.call)
		}
		b.run(context.Background(), calls)
		for _, w := range batch {
			w.done <- struct{}{}
		}
		clear(calls)
		batch = b.take()
	}
}

// take returns the next batch. Without one it gives the slot back and returns nil.
func (b *batcher[C]) take() []*waiter[C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.busy--
		b.work.Done()
		return nil
	}
	n, size := 0, 0
	for n < len(b.queue) && n < b.maxCalls {
		size += b.queue[n].size
		if n > 0 && size > b.maxBytes {
			break
		}
		b.queue[n].started = true
		n++
	}
	batch := slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	return batch
}

func (b *batcher[C]) wait(ctx context.Context, w *waiter[C]) error {
	select {
	case <-w.done:
	case <-ctx.Done():
		b.forget(w)
		return ctx.Err()
	}
	b.release(w)
	return nil
}

// release keeps a waiter of a call that has run for the next one.
func (b *batcher[C]) release(w *waiter[C]) {
	var none C
	w.call, w.alone[0], w.started = none, none, false
	b.idle.Put(w)
}

// forget takes a call whose caller has left out of the queue. One that has started runs on unobserved: its done has
// room for the one value, and it is never used again.
func (b *batcher[C]) forget(w *waiter[C]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.started {
		return
	}
	if i := slices.Index(b.queue, w); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
}

func (b *batcher[C]) waiter(call C, size int) *waiter[C] {
	w, ok := b.idle.Get().(*waiter[C])
	if !ok {
		w = &waiter[C]{done: make(chan struct{}, 1)}
	}
	w.call, w.size = call, size
	return w
}

// gate lets calls in until it is shut, and lets shut wait for those inside.
type gate struct {
	mu     sync.RWMutex
	closed bool
	inside sync.WaitGroup
}

// enter returns ErrClosed once the gate is shut; otherwise leave must be called.
func (g *gate) enter() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return ErrClosed
	}
	g.inside.Add(1)
	return nil
}

func (g *gate) leave() { g.inside.Done() }

// isShut lets long calls end early.
func (g *gate) isShut() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.closed
}

// shut returns when nobody is inside any more; only the first call returns true.
func (g *gate) shut() bool {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
	return first
}
