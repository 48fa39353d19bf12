package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"remora/memory/layer"
)

// Class is the kind of a hook's error, without any content.
type Class string

// Classes of failure.
const (
	ClassNone      Class = ""
	ClassError     Class = "error"     // the hook said so
	ClassTimeout   Class = "timeout"   // it took too long; a late result is ignored
	ClassCancelled Class = "cancelled" // the request ended first
	ClassPanic     Class = "panic"
	ClassRefused   Class = "refused"     // it returned an invalid result
	ClassBudget    Class = "over_budget" // it recalled more than its budget
	ClassBusy      Class = "busy"        // too many earlier calls of the layer have not returned
)

// Event describes one call of a hook.
type Event struct {
	Layer, Hook string // the hook's name is one of layer.HookInit and so on
	Begun       time.Time
	Duration    time.Duration
	Class       Class
	Reason      string // where it may be logged (layer.Safe)
}

// failure is an error that may be logged.
type failure struct {
	class Class
	cause error // what the hook said; not for logs
}

func (f *failure) Error() string { return string(f.class) }
func (f *failure) Unwrap() error { return f.cause }

func refuse(class Class) error { return &failure{class: class} }

// refused is the failure of a hook that returned an invalid result. The reason is logged.
func refused(format string, a ...any) error {
	return &failure{class: ClassRefused, cause: layer.Safe(fmt.Errorf(format, a...))}
}

func classOf(err error) Class {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.class
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return ClassTimeout // the hook stopped by itself, before its end
	}
	return ClassError
}

type outcome[T any] struct {
	value T
	err   error
	stack []byte // of a panic
}

// call runs a hook with its timeout in a separate goroutine: a hook that ignores its context is abandoned, and its late result
// is dropped. Hooks of inline layers run in the caller's goroutine (see layer.Inline). The error is always a *failure, and has
// been logged, traced and reported.
func call[T any](ctx context.Context, m *runningLayer, hook string, fn func(context.Context) (T, error)) (T, error) {
	begin := m.of.p.o.Now()
	o := outcome[T]{err: refuse(ClassBusy)}
	switch {
	case m.inline:
		o = here(ctx, fn)
	case m.stragglers.Load() < maxStragglers:
		o = apart(ctx, &m.stragglers, m.timeout(hook), fn)
	}
	e := Event{Hook: hook, Begun: begin, Duration: m.of.p.o.Now().Sub(begin)}
	if o.err != nil {
		e.Class, e.Reason = classOf(o.err), layer.SafeText(o.err)
		if _, ok := errors.AsType[*failure](o.err); !ok {
			o.err = &failure{class: e.Class, cause: o.err}
		}
	}
	m.note(ctx, e, o.stack)
	return o.value, o.err
}

// apart runs a hook in a goroutine of its own. stragglers counts the abandoned calls that have not returned.
func apart[T any](ctx context.Context, stragglers *atomic.Int32, limit time.Duration, fn func(context.Context) (T, error)) outcome[T] {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, timeLimit(limit))
		defer cancel()
	}
	done := make(chan outcome[T], 1)
	var ended atomic.Bool // the call has returned or was abandoned, whichever came first
	go func() {
		o := outcome[T]{err: refuse(ClassPanic)} // unless fn returns
		defer func() {
			if recover() != nil {
				o.stack = debug.Stack()
			}
			if ended.Swap(true) {
				stragglers.Add(-1)
			}
			done <- o
		}()
		value, err := fn(ctx)
		o.value, o.err = value, err
	}()
	select {
	case o := <-done:
		return unlessOver(ctx, o)
	case <-ctx.Done():
		if !ended.Swap(true) {
			stragglers.Add(1)
		}
		return outcome[T]{err: over(ctx)}
	}
}

// here runs a hook of an inline layer in this goroutine.
func here[T any](ctx context.Context, fn func(context.Context) (T, error)) (o outcome[T]) {
	if ctx.Err() != nil {
		return outcome[T]{err: over(ctx)}
	}
	o.err = refuse(ClassPanic) // unless fn returns
	defer func() {
		if recover() != nil {
			o.stack = debug.Stack()
		}
	}()
	value, err := fn(ctx)
	return unlessOver(ctx, outcome[T]{value: value, err: err})
}

// unlessOver returns o, unless the hook failed because its context ended.
func unlessOver[T any](ctx context.Context, o outcome[T]) outcome[T] {
	if o.err == nil || ctx.Err() == nil || !errors.Is(o.err, ctx.Err()) {
		return o
	}
	return outcome[T]{err: over(ctx)}
}

// timeLimit is why a hook's context ends at the hook's own limit.
type timeLimit time.Duration

func (l timeLimit) Error() string { return "no result within " + time.Duration(l).String() }

// over returns why the context of a hook has ended.
func over(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return refuse(ClassCancelled)
	}
	if limit, ok := errors.AsType[timeLimit](context.Cause(ctx)); ok {
		return &failure{class: ClassTimeout, cause: layer.Safe(limit)}
	}
	return refuse(ClassTimeout)
}
