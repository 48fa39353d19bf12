// Package stores opens a store by its URL. Start at [Open].
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

// kinds returns the stores with their URL schemes. open gets the scheme and the part of the URL after the colon.
func kinds() []kind {
	return []kind{
		{[]string{"bolt"}, inFile, func(_, path string, o cache.Options) (cache.Store, error) { return open(bolt.Open(path, o)) }},
		{[]string{"memory"}, inProcess, func(_, _ string, o cache.Options) (cache.Store, error) { return inmemory.New(o), nil }},
		{
			[]string{"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"},
			shared,
			func(scheme, rest string, o cache.Options) (cache.Store, error) {
				return open(redis.Open(scheme, rest, o))
			},
		},
	}
}

type kind struct {
	schemes []string
	place   place
	open    func(scheme, rest string, o cache.Options) (cache.Store, error)
}

// place is where a store has its data.
type place int

const (
	inProcess place = iota + 1
	inFile          // the URL is SCHEME:PATH; one process has the file open
	shared          // several processes use the store at the same time
)

// find returns the kind with a URL scheme.
func find(scheme string) (k kind, known bool) {
	for _, k := range kinds() {
		if slices.Contains(k.schemes, scheme) {
			return k, true
		}
	}
	return kind{}, false
}

// Shared reports whether several processes may use the store of a URL at the same time.
func Shared(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	k, _ := find(scheme)
	return k.place == shared
}

// InProcess reports whether the store of a URL is in the memory of the process that opens it.
func InProcess(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	k, _ := find(scheme)
	return k.place == inProcess
}

// File returns the path of the store's file in a URL, "" if the URL has none.
func File(url string) string {
	scheme, path, _ := strings.Cut(url, ":")
	if k, _ := find(scheme); k.place != inFile {
		return ""
	}
	return path
}

// open converts the result of an Open. With an error it returns a nil interface, not one that holds a nil pointer.
func open[S cache.Store](s S, err error) (cache.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Open opens a store by its URL:
//
//	bolt:PATH                                            one file, one process (the default of the proxy)
//	memory:                                              lost when the process ends
//	redis://[user:password@]host[:port][/db]             rediss:// for TLS
//	redis+sentinel://[user:password@]h1[:p1],h2/master[/db]
//	redis+cluster://[user:password@]h1[:p1],h2           rediss+... for TLS
//
// The query may contain go-redis options (skip_verify, client_name, ...), and for Sentinel sentinel_username and
// sentinel_password. Open contacts no server: use Ping. Errors name the configuration key store.url and never contain a part of
// url that may hold a password.
func Open(url string, o cache.Options) (cache.Store, error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok {
		return nil, errors.New("open store: store.url has no scheme: want bolt:PATH, memory: or redis://host")
	}

	if k, known := find(scheme); known {
		return k.open(scheme, rest, o)
	}

	// Do not even repeat the scheme: in "secret@host:6379" it is the password.
	return nil, errors.New("open store: store.url has an unknown scheme: " +
		"want bolt, memory, redis, redis+sentinel or redis+cluster, or rediss in place of redis for TLS")
}
