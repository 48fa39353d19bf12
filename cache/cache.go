// Package cache is the contract of the durable store that all replicas share. Its implementations are in the folders below
// it, and package stores opens one by its URL. Package memory keeps sessions and the states of layers in it, proxy/limit
// shared rates. Despite its name nothing is evicted: values stay until their TTL.
//
// A group of values is the unit of atomicity, of expiry and, on a cluster, of placement: all values of a group share one slot.
// Every group has a version that grows with each commit, so that a writer can say "only if nothing has changed since I read".
// A version never comes again for groups of one name, even if the group was deleted or has expired in between, or a server
// has lost its last commits: while the version is the same, so are the values. Package storetest checks these promises for
// every implementation.
package cache

import (
	"context"
	"errors"
	"time"
)

// ErrClosed is returned by every call on a store or spool that has been closed.
var ErrClosed = errors.New("store is closed")

// ErrConflict is returned by [Store.Commit] when a group is not at the version that the batch expects.
// Nothing of that batch has been written.
var ErrConflict = errors.New("group changed since it was read")

// ErrUnreadable is returned by [Store.Read] for a value that exists and cannot be read, such as one encrypted under a key
// that is not configured. The store itself works.
var ErrUnreadable = errors.New("stored value cannot be read")

// ErrDenied is wrapped by errors of a server that refuses the account of store.url, or a command of that account. Retrying
// does not help.
var ErrDenied = errors.New("the store refuses the account of store.url")

// Group names a set of values that are written together. Owner is the tenant, Name the session or resource. Both may hold any
// bytes: the store encodes them so that no two pairs share a key.
type Group struct {
	Owner, Name string
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
	// Lasting: the memory of Data is never written to again, so a store may keep it instead of a copy.
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
	// TTL is how long the group lives after this commit. 0 means that it does not expire, whatever TTL it had before.
	TTL time.Duration
	// Listed adds the group to its owner's index, so that List finds it.
	Listed bool
}

// Outcome is the result of one batch of a Commit.
type Outcome struct {
	// Version is the group's version after the batch was written.
	Version uint64
	// Err is nil, ErrConflict, or why this batch may not have been written.
	Err error
}

// Store keeps groups of values. It is safe for concurrent use. Methods honour the deadline of their context; a call
// that ends with it may still be executed, on copies of its arguments. Each method except Shard and Close is one round
// trip. Errors are of type [*Error], whose fault names their extent, and wrap [ErrClosed], [ErrDenied], [ErrUnreadable]
// or the context's error if one of these is the cause.
type Store interface {
	// Read answers all queries, or fails as a whole. The values and the version of one group are consistent with each other;
	// different groups may have been read at different moments.
	Read(ctx context.Context, queries []Query) ([]Result, error)
	// Commit writes all batches, each atomically on its own. When it returns, the data is as durable as the store makes it
	// (bbolt: on disk). The slice has one Outcome per batch.
	// A batch whose Outcome.Err is neither nil nor ErrConflict may or may not have been written.
	Commit(ctx context.Context, batches []Batch) []Outcome
	// List pages through the names of an owner's listed groups, in no particular order. after is "" for the first page, and
	// the next of the page before for others; next is "" after the last page. A page may hold fewer names than limit, even
	// none. A limit of 0 means 100; no page is longer than 1000.
	List(ctx context.Context, owner, after string, limit int) (names []string, next string, err error)
	// Delete removes a group with all its values and its entry in the index. A group that does not exist is no error.
	Delete(ctx context.Context, group Group) error
	// Ping returns nil if the store can be reached now. Where some servers of a cluster cannot, its error is a FaultShard
	// that names them.
	Ping(ctx context.Context) error
	// Shard names the server of a cluster that holds a group, as errors do. It is "" if there is one server only, or the
	// servers are not known yet. It does not contact any server, so the answer may be outdated.
	Shard(group Group) string
	// Close releases the store. Calls under way end first.
	Close() error
}

// Options tune a store. The zero value of every field means its default.
type Options struct {
	// DialTimeout bounds connecting to a server, TLS and authentication included. Default 1s.
	DialTimeout time.Duration
	// OpTimeout bounds one round trip to a server, also if the caller's context allows more. Default 2s.
	OpTimeout time.Duration
	// PoolSize is how many connections are kept to each server. Default 8, at least 4.
	PoolSize int
	// SweepInterval is how often the embedded stores look for groups that have expired. Default 1 minute.
	// Only space depends on it: an expired group is never returned.
	SweepInterval time.Duration
	// TLS configures connections to servers that are reached by TLS.
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
	if o.PoolSize <= 0 {
		o.PoolSize = 8
	}
	if o.SweepInterval <= 0 {
		o.SweepInterval = time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default of what callers inject
	}
	return o
}

// AllFailed is the outcome of a Commit that wrote nothing.
func AllFailed(n int, err error) []Outcome {
	out := make([]Outcome, n)
	for i := range out {
		out[i].Err = err
	}
	return out
}
