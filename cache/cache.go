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
	"fmt"
	"strings"
	"time"
)

// ErrClosed is returned by every call on a store or spool that has been closed.
var ErrClosed = errors.New("store is closed")

// ErrConflict is returned by [Store.Commit] when a group is not at the version that the batch expects.
// Nothing of that batch has been written.
var ErrConflict = errors.New("group changed since it was read")

// ErrUnreadable is returned by [Store.Read] for a value that is there and cannot be read, such as one that was encrypted
// under a key that is not configured. The store itself is well.
var ErrUnreadable = errors.New("stored value cannot be read")

// ErrDenied is part of errors of a server that refuses the account or password of store.url, or what that account does.
var ErrDenied = errors.New("the store refuses the account of store.url")

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

// Options tune a store. The zero value of every field means its default.
type Options struct {
	// DialTimeout bounds connecting to a server, TLS and authentication included. Default 1s.
	DialTimeout time.Duration
	// OpTimeout bounds one round trip to a server where the caller's context allows more. Default 2s.
	OpTimeout time.Duration
	// PoolSize is how many connections are kept to each server. Default 8, at least 4.
	PoolSize int
	// SweepInterval is how often the embedded stores look for groups that have expired. Default 1 minute.
	// Only space depends on it: an expired group is never returned.
	SweepInterval time.Duration
	// Now is the clock of the embedded stores. Default time.Now. Redis expires groups by its own clock.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.DialTimeout <= 0 {
		o.DialTimeout = time.Second
	}
	if o.OpTimeout <= 0 {
		o.OpTimeout = 2 * time.Second
	}
	if o.PoolSize <= 0 {
		o.PoolSize = 8
	}
	o.PoolSize = max(o.PoolSize, redisInFlight+2)
	if o.SweepInterval <= 0 {
		o.SweepInterval = time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default of what callers inject
	}
	return o
}

// Open opens the store that url names:
//
//	bolt:PATH                                            one file, one process (the default of the proxy)
//	memory:                                              gone with the process
//	redis://[user:password@]host[:port][/db]             rediss:// for TLS
//	redis+sentinel://[user:password@]h1[:p1],h2/master[/db]
//	redis+cluster://[user:password@]h1[:p1],h2           rediss+... for TLS
//
// After a question mark go-redis' own options may follow (skip_verify, client_name, ...), and for Sentinel
// sentinel_username and sentinel_password. No server is contacted before the first call: use Ping. Errors name the
// config key store.url and never repeat any part of url that may hold a password.
func Open(url string, o Options) (Store, error) {
	o = o.withDefaults()
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok {
		return nil, errors.New("open store: store.url has no scheme: want bolt:PATH, memory: or redis://host")
	}
	switch scheme {
	case "bolt":
		if rest == "" {
			return nil, errors.New("open store: store.url names no file: want bolt:PATH")
		}
		return openBolt(rest, o)
	case "memory":
		return newMemory(o), nil
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		s, err := openRedis(scheme, rest, o)
		if err != nil {
			return nil, fmt.Errorf("open store: store.url %s://...: %w", scheme, err)
		}
		return s, nil
	}
	// Not even the scheme is repeated: in "secret@host:6379" it is the password.
	return nil, errors.New("open store: store.url has an unknown scheme: " +
		"want bolt, memory, redis, redis+sentinel or redis+cluster, or rediss in place of redis for TLS")
}
