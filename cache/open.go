package cache

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrClosed is returned by every call on a store or spool that has been closed.
var ErrClosed = errors.New("store is closed")

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
		"want bolt, memory, redis, rediss, redis+sentinel or redis+cluster")
}
