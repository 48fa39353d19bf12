package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"remora/cache"
	"remora/cache/encrypted"
	"remora/cache/spool"
)

type pinged struct {
	cache.Store
	err error
}

func (p pinged) Ping(context.Context) error { return p.err }

type filled struct{ bytes int64 }

func (filled) Append([]byte) error                                      { return nil }
func (filled) Move([]byte) error                                        { return nil }
func (filled) Drain(context.Context, func([][]byte) (int, error)) error { return nil }
func (filled) Adopt(func([]byte)) (spool.Adopted, error)                { return spool.Adopted{}, nil }
func (f filled) Len() (records int, bytes int64)                        { return 1, f.bytes }
func (filled) Max() int64                                               { return 0 }

// TestReady: a process is ready while it can store or spool turns, unless the store has refused its account since the start; with
// memory.on_store_error closed, while the store answers.
func TestReady(t *testing.T) {
	t.Parallel()
	away, denied := errors.New("connection refused"), fmt.Errorf("%w: WRONGPASS", cache.ErrDenied)
	otherKeys := fmt.Errorf("store.encryption: %w", encrypted.ErrMismatch)
	part := &cache.Error{Fault: cache.FaultShard, Shards: []string{"a:1"}, Err: away}
	const most = 1000
	for _, c := range []struct {
		name   string
		store  error
		closed bool
		spool  int64 // its size in bytes, negative for no spool
		want   string
	}{
		{"all is well", nil, false, 0, ""},
		{"closed, all is well", nil, true, most, ""},
		{"turns wait for a store that answers", nil, false, most / 2, ""},
		{"a full store that answers, spool nearly full", nil, false, most - 1, "spool is nearly full"},
		{"one server of a cluster away", part, false, most - 1, ""},
		{"closed, one server of a cluster away", part, true, 0, ""},
		{"spooling", away, false, most / 2, ""},
		{"spool nearly full", away, false, most - 1, "spool is nearly full"},
		{"no spool", away, false, -1, "there is no spool"},
		{"closed", away, true, 0, "memory.on_store_error"},
		{"closed, refused", denied, true, 0, "store.url"},
		{"refused after it was accepted, spooling", denied, false, 0, ""},
		{"other keys after they were right, spooling", otherKeys, false, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &adminAPI{storage: &storage{Store: pinged{err: c.store}}, closed: c.closed, spool: spoolOptions{MaxBytes: most}}
			o.storage.accepted.Store(true)
			if c.spool >= 0 {
				o.storage.queue = filled{c.spool}
			}
			have := ""
			if err := o.ready(); err != nil {
				have = err.Error()
			}
			if (have == "") != (c.want == "") || !strings.Contains(have, c.want) {
				t.Errorf("have %q, want %q", have, c.want)
			}
			if o.storage.accepted.Store(false); errors.Is(c.store, cache.ErrDenied) || errors.Is(c.store, encrypted.ErrMismatch) {
				if err := o.ready(); err == nil {
					t.Error("ready, though the store has refused it since the start")
				}
			}
		})
	}
}
