// Package cache is the durable store that all replicas share.
//
// Values live in groups. A group is the unit of atomicity, of expiry and, on a cluster, of placement: all of its
// values share one slot. Every group has a version that grows with each commit, so that a writer can say "only if
// nothing has changed since I read". No version comes twice for groups of one name, not for one that was deleted or has
// expired in between, nor where a server has lost its last commits: what was read once can be trusted for as long as
// the version stands. The same promises hold for every implementation; storetest checks them.
package cache

import (
	"context"
	"errors"
	"time"
)

// ErrConflict is returned by [Store.Commit] when a group is not at the version that the batch expects.
// Nothing of that batch has been written.
var ErrConflict = errors.New("group changed since it was read")

// ErrUnreadable is returned by [Store.Read] for a value that is there and cannot be read, such as one that was encrypted
// under a key that is not configured. The store itself is well.
var ErrUnreadable = errors.New("stored value cannot be read")

// ErrDenied is part of errors of a server that refuses the account or password of store.url, or what that account does.
var ErrDenied = errors.New("the store refuses its account")

// Group names a set of values that are written together. Owner is the tenant, Name what it is about (a session, a
// resource); both may hold any bytes: the store encodes them so that no two pairs ever meet.
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
}

// AnyVersion in [Batch.Expect] writes whatever the group's version is.
const AnyVersion = ^uint64(0)

// Batch is written atomically within its group.
type Batch struct {
	Group Group
	// Expect is the version that the group must be at: 0 for "does not exist yet", AnyVersion for no condition.
	Expect uint64
	Puts   []Put
	// Deletes are taken away before Puts are written.
	Deletes []string
	// TTL is how long the group lives after this commit; 0 means for ever (and lifts an earlier TTL).
	TTL time.Duration
	// Listed enters the group in its owner's index, so that List finds it.
	Listed bool
}

// Outcome is what became of one batch of a Commit.
type Outcome struct {
	// Version is the group's version after the batch was written.
	Version uint64
	// Err is nil, ErrConflict, or why this batch may not have been written.
	Err error
}

// Store keeps groups of values. All methods may be called at once from any number of goroutines, and honour the
// deadline of their context; a call that ends with it may still be carried out, on copies of its arguments. Seven
// methods, because the contract is the product: each is one round trip.
type Store interface {
	// Read answers all queries in one round trip. It fails as a whole or not at all. The values and the version of
	// one group are of one moment; different groups may be of different moments.
	Read(ctx context.Context, queries []Query) ([]Result, error)
	// Commit writes all batches in one round trip, each atomically on its own. When it returns, what was written is
	// as durable as the store makes it (bbolt: on disk). The slice has one Outcome per batch.
	// A batch whose Outcome.Err is neither nil nor ErrConflict may or may not have been written.
	Commit(ctx context.Context, batches []Batch) []Outcome
	// List pages through the names of an owner's listed groups, in no particular order. An empty after starts, later
	// pages take the next of the one before; an empty next ends. A page may hold fewer names than limit, even none.
	// A limit of 0 means 100; no page is longer than 1000.
	List(ctx context.Context, owner, after string, limit int) (names []string, next string, err error)
	// Delete removes a group with all its values and its entry in the index. A group that does not exist is no error.
	Delete(ctx context.Context, group Group) error
	// Ping tells whether the store can be reached now.
	Ping(ctx context.Context) error
	// Close releases the store. Calls under way end first.
	Close() error
}
