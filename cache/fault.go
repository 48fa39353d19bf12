package cache

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// Fault is the extent of an error: which other calls would fail now.
type Fault uint8

// The faults of a store. Every error of a [Store] has one, except [ErrConflict] and the error for an unknown page token.
const (
	// FaultNone is the fault of errors that do not come from a store.
	FaultNone Fault = iota
	// FaultStore concerns all groups: the server cannot be reached, the disk is full, the store is closed.
	FaultStore
	// FaultShard concerns the groups of some servers of a cluster. The error names them.
	FaultShard
	// FaultKey concerns only the groups of the call: a value of a foreign type, a batch that the store refuses.
	FaultKey
	// FaultTimeout is a call whose context ended, or that the server did not answer in time. The store may or may not be
	// available. In a cluster the error names the server, if the call had found it.
	FaultTimeout
	// FaultCorrupt is a stored value that cannot be read: see [ErrUnreadable].
	FaultCorrupt
)

// String returns the fault's name, for tests and logs.
func (f Fault) String() string {
	return [...]string{"none", "store", "shard", "key", "timeout", "corrupt"}[f]
}

// Error is an error of a store and its fault.
type Error struct {
	Fault Fault
	// Shards are the servers of a cluster that the error concerns, as named by [Store.Shard].
	Shards []string
	Err    error
}

// Error returns the text of the wrapped error, without the fault.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// FaultOf returns the fault of an error, and the servers of a cluster that it concerns.
func FaultOf(err error) (Fault, []string) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Fault, e.Shards
	}
	if errors.Is(err, ErrUnreadable) {
		return FaultCorrupt, nil
	}
	return FaultNone, nil
}

// IsForeign reports whether an error is of a key under which another program has stored something.
func IsForeign(err error) bool {
	fault, _ := FaultOf(err)
	return fault == FaultKey && !errors.Is(err, ErrDenied) && !errors.Is(err, ErrUnserved)
}

// Faulty adds a fault to err, unless it has one. A timeout is always a FaultTimeout.
func Faulty(f Fault, err error) error { return faulty(f, "", err) }

// OnShard adds to err the fault of the server that was called, unless it has a fault. shard is "" if the store is one server.
func OnShard(shard string, err error) error {
	if shard == "" {
		return faulty(FaultStore, "", err)
	}
	return faulty(FaultShard, shard, err)
}

func faulty(f Fault, shard string, err error) error {
	if known, _ := FaultOf(err); err == nil || known != FaultNone {
		return err
	}
	e := &Error{Fault: f, Err: err}
	if shard != "" {
		e.Shards = []string{shard}
	}
	if IsTimeout(err) {
		e.Fault = FaultTimeout
	}
	return e
}

// IsTimeout reports whether err is that of an ended context or of a timeout.
func IsTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// JoinFaults returns the error of a call to all servers of a cluster from the errors of single servers, nil if there are none.
func JoinFaults(failed map[string]error, servers int) error {
	if len(failed) == 0 {
		return nil
	}
	joined := &Error{Fault: FaultShard, Shards: slices.Sorted(maps.Keys(failed))}
	errs := make([]error, 0, len(failed))
	for _, shard := range joined.Shards {
		errs = append(errs, failed[shard])
	}
	joined.Err = errors.Join(errs...)
	if len(failed) >= servers {
		joined.Fault, joined.Shards = FaultStore, nil
	}
	return joined
}
