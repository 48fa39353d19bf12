package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"remora/cache"
)

// wantFault fails the test unless err has one of these faults.
func wantFault(t *testing.T, what string, err error, want ...cache.Fault) {
	t.Helper()
	if have, shards := cache.FaultOf(err); !slices.Contains(want, have) {
		t.Errorf("%s: %v is a fault of %s %q, want %s", what, err, have, shards, want)
	}
}

// testForeignValue checks that a value that the store cannot use is a fault of its group only, and that other groups work, even
// in the same call.
func testForeignValue(s *suite) {
	if s.env.Foreign == nil {
		return
	}
	bad, good := s.group("bad"), s.group("good")
	s.env.Foreign(s.T, bad)
	_, err := s.Read(s.Context(), []cache.Query{{Group: bad, Names: []string{"a"}}})
	wantFault(s.T, "read", err, cache.FaultKey)
	_, err = s.Read(s.Context(), []cache.Query{{Group: good}, {Group: bad}})
	wantFault(s.T, "read of two groups", err, cache.FaultKey)
	first := put(bad, "a", "1")
	got := s.Commit(s.Context(), []cache.Batch{first, listed(good, "a", "1")})
	wantFault(s.T, "commit", got[0].Err, cache.FaultKey)
	if got[1].Err != nil {
		s.Errorf("commit of another group: %v", got[1].Err)
	}
	s.want(good, 1, []string{"a"}, []byte("1"))
	if err := s.Ping(s.Context()); err != nil {
		s.Errorf("ping: %v", err)
	}
	if have := s.names(10); !slices.Equal(have, []string{"good"}) {
		s.Errorf("listed: %q", have)
	}
	s.commit(listed(s.group("listed"), "a", "1"))
	s.env.Foreign(s.T, s.group("listed"))
	for range 2 {
		if have := s.names(10); !slices.Equal(have, []string{"good"}) {
			s.Errorf("listed beside a group that was replaced: %q", have)
		}
	}
	if err := s.Delete(s.Context(), bad); err != nil {
		s.Fatalf("delete: %v", err)
	}
	s.commit(first)
	if have := s.read(bad, "a"); string(have.Values[0]) != "1" {
		s.Errorf("after it was deleted, the group has %s", show(have.Values[0]))
	}
}

func deadServer(t *testing.T, s cache.Store) {
	t.Helper()
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g := cache.Group{Owner: "o", Name: "n"}
	wantFault(t, "ping of a dead server", s.Ping(ctx), cache.FaultStore)
	for name, err := range callAll(ctx, s, g) {
		if errors.Is(err, cache.ErrConflict) {
			t.Errorf("%s on a dead server: %v", name, err)
		}
		wantFault(t, name+" on a dead server", err, cache.FaultStore, cache.FaultShard)
	}
	if ctx.Err() != nil {
		t.Error("finding the server dead took a minute")
	}
}

// lostShard checks that an unavailable server of several is a fault of its groups only, as named by Shard. Groups committed
// meanwhile are listed at the latest when the server of the index is back.
func lostShard(t *testing.T, s cache.Store, lose func() string, restore func()) {
	t.Helper()
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const groups = 40
	named := func(i int) cache.Group { return cache.Group{Owner: "o", Name: numbered("n", groups)[i]} }
	for i := range groups {
		if out := s.Commit(ctx, []cache.Batch{put(named(i), "a", "1")})[0]; out.Err != nil {
			t.Fatal(out.Err)
		}
	}

	lost := lose()
	away := 0
	var committed []string // owners of groups that were committed meanwhile
	// Owners differ, so that the lost server holds the index of some groups on other servers.
	for i := range groups {
		g := named(i)
		isAway := s.Shard(g) == lost
		_, readErr := s.Read(ctx, []cache.Query{{Group: g, Names: []string{"a"}}})
		writeErr := s.Commit(ctx, []cache.Batch{put(g, "a", "2")})[0].Err
		elsewhere := listed(cache.Group{Owner: g.Name, Name: "n"}, "a", "1")
		listedErr := s.Commit(ctx, []cache.Batch{elsewhere})[0].Err
		if s.Shard(elsewhere.Group) != lost && listedErr != nil {
			t.Errorf("commit of a group that is there, with an index that may be away: %v", listedErr)
		}
		if listedErr == nil {
			committed = append(committed, elsewhere.Group.Owner)
		}
		if !isAway {
			if readErr != nil || writeErr != nil {
				t.Errorf("group %d on a server that is there: read %v, commit %v", i, readErr, writeErr)
			}
			continue
		}
		away++
		for name, err := range map[string]error{"read": readErr, "commit": writeErr} {
			wantFault(t, name+" on the lost server", err, cache.FaultShard)
			if _, shards := cache.FaultOf(err); !slices.Equal(shards, []string{lost}) {
				t.Errorf("%s on %s says that %q is away", name, lost, shards)
			}
		}
	}
	if away == 0 || away == groups {
		t.Fatalf("%d of %d groups were on the server that is away", away, groups)
	}

	err := s.Ping(ctx)
	wantFault(t, "ping", err, cache.FaultShard)
	if _, shards := cache.FaultOf(err); !slices.Equal(shards, []string{lost}) {
		t.Errorf("ping without %s says that %q is away", lost, shards)
	}

	restore()
	for _, owner := range committed {
		for {
			names, _, err := s.List(ctx, owner, "", 10)
			if err == nil && slices.Equal(names, []string{"n"}) {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("groups of %s with the server back: %q, %v; want n", owner, names, err)
			}
			time.Sleep(50 * time.Millisecond) // a real server and the store's own interval
		}
	}
}
