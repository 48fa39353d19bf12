// Package stores opens the store that a URL names. Start at [Open].
package stores

import (
	"errors"
	"slices"
	"strings"

	"remora/cache"
	"remora/cache/bolt"
	"remora/cache/inmemory"
	"remora/cache/redis"
)

// kinds lists the stores with the schemes of their URLs. open gets the scheme and the rest of the URL after the colon;
// it returns the errors of Open.
func kinds() []kind {
	return []kind{
		{[]string{"bolt"}, func(_, path string, o cache.Options) (cache.Store, error) { return open(bolt.Open(path, o)) }},
		{[]string{"memory"}, func(_, _ string, o cache.Options) (cache.Store, error) { return inmemory.New(o), nil }},
		{
			[]string{"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"},
			func(scheme, rest string, o cache.Options) (cache.Store, error) {
				return open(redis.Open(scheme, rest, o))
			},
		},
	}
}

type kind struct {
	schemes []string
	open    func(scheme, rest string, o cache.Options) (cache.Store, error)
}

// open returns a nil store with an error, and not one that holds a nil pointer.
func open[S cache.Store](s S, err error) (cache.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
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
func Open(url string, o cache.Options) (cache.Store, error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok {
		return nil, errors.New("open store: store.url has no scheme: want bolt:PATH, memory: or redis://host")
	}

	for _, k := range kinds() {
		if slices.Contains(k.schemes, scheme) {
			return k.open(scheme, rest, o)
		}
	}

	// Not even the scheme is repeated: in "secret@host:6379" it is the password.
	return nil, errors.New("open store: store.url has an unknown scheme: " +
		"want bolt, memory, redis, redis+sentinel or redis+cluster, or rediss in place of redis for TLS")
}
