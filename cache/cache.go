// Package cache is the contract of the durable store that all replicas share. Its implementations are in the folders below, and
// package stores opens one by its URL. Package memory stores sessions and the states of layers in it, proxy/limit shared rates.
// Despite its name it evicts nothing: values stay until their TTL.
//
// A group of values is the unit of atomicity, of expiry and, on a cluster, of placement: all values of a group share one slot.
// Every group has a version that grows with each commit, so that a writer can write only if nothing has changed since it read.
// A group name never gets the same version twice, even if the group was deleted or has expired in between, or a server has lost
// its last commits: equal versions mean equal values. A version is at least the time of its commit, in microseconds of the clock that
// all who use the store share: the server's. Package storetest checks these promises for every implementation.
package cache

import (
	"context"
	"errors"
	"strings"
	"time"
)

// ErrClosed is returned by every call on a store or spool that has been closed.
var ErrClosed = errors.New("store is closed")

// ErrConflict is returned by [Store.Commit] when a group is not at the version that the batch expects.
// Nothing of that batch has been written.
var ErrConflict = errors.New("group changed since it was read")

// ErrUnreadable is returned by [Store.Read] for a value that exists but cannot be read, such as one encrypted with a key that is
// not configured. The store itself works.
var ErrUnreadable = errors.New("stored value cannot be read")

// ErrDenied is wrapped by errors of a server that refuses the account of store.url, or a command of that account, or is another
// server than store.url says. Retrying does not help.
var ErrDenied = errors.New("the store refuses store.url")

// ErrUnserved is wrapped by errors of a cluster in which no server serves a key now: its slot is being moved, or belongs to none.
// Retrying helps once that has ended.
var ErrUnserved = errors.New("no server of the cluster serves the key now")

// Group names a set of values that are written together. Owner is the tenant, Name the session or resource. Both may contain any
// bytes: the store encodes them so that no two pairs share a key.
type Group struct {
	Owner, Name string
}

// LowHalf and HighHalf begin the names of owners whose groups and index are in one slot of a cluster each. The two slots are half of
// all slots apart. So what is written for an owner of each half can still be read after one server was lost, unless that one had more
// than half of the slots.
const (
	LowHalf  = "\x01l"
	HighHalf = "\x01h"
)

// HalfOf returns LowHalf or HighHalf for an owner that begins with it, "" for others.
func HalfOf(owner string) string {
	for _, half := range [...]string{LowHalf, HighHalf} {
		if strings.HasPrefix(owner, half) {
			return half
		}
	}
	return ""
}

// Query asks for some values of one group.
type Query struct {
	Group Group
	Names []string
}

// Result answers one Query. Values is as long as the query's Names; a value that does not exist is nil (an empty
// value is non-nil and empty). Version is 0 for a group that does not exist. Values belong to the caller.
type Result struct {
	Version uint64
	Values  [][]byte
}

// Put is one value to write.
type Put struct {
	Name string
	Data []byte
	// Lasting promises that Data is never modified again, so that a store may keep it without a copy.
	Lasting bool
}

// AnyVersion in [Batch.Expect] writes at any version of the group.
const AnyVersion = ^uint64(0)

// Batch is written atomically within its group.
type Batch struct {
	Group Group
	// Expect is the version that the group must be at: 0 for "does not exist yet", AnyVersion for no condition.
	Expect uint64
	Puts   []Put
	// Deletes are removed before Puts are written.
	Deletes []string
	// TTL is the group's lifetime after this commit. 0 means that it does not expire, whatever its TTL was before.
	TTL time.Duration
	// Listed adds the group to its owner's index, so that List finds it.
	Listed bool
}

// Outcome is the result of one batch of a Commit.
type Outcome struct {
	// Version is the group's version after the batch was written.
	Version uint64
	// Err is nil, ErrConflict, or another error, after which the batch may or may not have been written.
	Err error
}

// Store stores groups of values. It is safe for concurrent use. Methods honour the deadline of their context; a call whose
// context ended may still be executed, on copies of its arguments. Each method except Shard and Close is one round trip. Errors
// are of type [*Error], whose fault is their extent, and wrap [ErrClosed], [ErrDenied], [ErrUnserved], [ErrUnreadable] or the context's
// error if one of these is the cause.
type Store interface {
	// Read answers all queries, or fails as a whole. The values and the version of one group are consistent with each other;
	// different groups may have been read at different moments.
	Read(ctx context.Context, queries []Query) ([]Result, error)
	// Commit writes all batches, each of them atomically, and returns one Outcome per batch. When it returns, the data is as
	// durable as the store makes it (bbolt: on disk).
	Commit(ctx context.Context, batches []Batch) []Outcome
	// List pages through the names of an owner's listed groups, in no particular order. after is "" for the first page, and
	// the next of the page before for others; next is "" after the last page. A page may hold fewer names than limit, even
	// none. A limit of 0 means 100; no page is longer than 1000.
	List(ctx context.Context, owner, after string, limit int) (names []string, next string, err error)
	// Delete removes a group with all its values and its entry in the index. A group that does not exist is no error.
	Delete(ctx context.Context, group Group) error
	// Ping returns nil if the store can be reached now. If some servers of a cluster cannot, its error is a FaultShard that
	// names them.
	Ping(ctx context.Context) error
	// Shard returns the server of a cluster that holds a group, as named in errors. It is "" if there is only one server, or the
	// servers are not known yet. It contacts no server, so the answer may be outdated.
	Shard(group Group) string
	// Close waits for running calls and releases the store.
	Close() error
}

// Options configure a store. A zero field means its default.
type Options struct {
	// DialTimeout bounds connecting to a server, TLS and authentication included. Default 1s.
	DialTimeout time.Duration
	// OpTimeout bounds one round trip to a server, even if the caller's context allows more. Default 2s.
	OpTimeout time.Duration
	// TLS configures TLS connections to servers.
	TLS TLS
	// Now is the clock of the embedded stores. Default time.Now. Redis expires groups by its own clock.
	Now func() time.Time
}

// WithDefaults returns the options with every zero field set to its default.
func (o Options) WithDefaults() Options {
	if o.DialTimeout <= 0 {
		o.DialTimeout = time.Second
	}
	if o.OpTimeout <= 0 {
		o.OpTimeout = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default of what callers inject
	}
	return o
}

// AllFailed returns the outcomes of a Commit of n batches that wrote nothing.
func AllFailed(n int, err error) []Outcome {
	out := make([]Outcome, n)
	for i := range out {
		out[i].Err = err
	}
	return out
}
