package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
)

func testDeleteStartsAnew(s *suite) {
	g := s.group("g")
	b := listed(g, "a", "1", "b", "1")
	s.version(g, 1, s.commit(b))
	s.version(g, 2, s.commit(b))
	if err := s.Delete(s.Context(), g); err != nil {
		s.Fatal(err)
	}
	s.want(g, 0, []string{"a", "b"}, nil, nil)
	if got := s.names(10); len(got) != 0 {
		s.Fatalf("a deleted group is listed: %q", got)
	}
	if err := s.Delete(s.Context(), g); err != nil {
		s.Fatalf("delete what is not there: %v", err)
	}
	again := put(g, "a", "2")
	again.Expect = 0
	s.anew(g, s.commit(again))
	s.want(g, 1, []string{"a", "b"}, []byte("2"), nil)
	if got := s.names(10); len(got) != 0 {
		s.Fatalf("the new group is listed, though no commit asked for it: %q", got)
	}
}

func testExpiry(s *suite) {
	stays := s.group("stays")
	s.commit(put(stays, "a", "1"))
	var before cache.Result
	suffix, ttl := s.within(func(suffix string, ttl time.Duration) {
		g := s.group("g" + suffix)
		b := put(g, "a", "1", "b", "1")
		b.TTL = ttl
		s.version(g, 1, s.commit(b))
		before = s.read(g, "a")
	})
	g := s.group("g" + suffix)
	if want := s.version(g, 1, before.Version); before.Version != want || string(before.Values[0]) != "1" {
		s.Fatalf("before it expires, the group is at version %d, want %d, and has %s", before.Version, want, show(before.Values[0]))
	}
	s.env.Advance(ttl + 50*time.Millisecond)
	s.want(g, 0, []string{"a"}, nil)
	s.want(stays, 1, []string{"a"}, []byte("1"))
	again := put(g, "b", "2")
	again.Expect = 0
	s.anew(g, s.commit(again))
	s.want(g, 1, []string{"a", "b"}, nil, []byte("2"))
}

func testExpiryLifted(s *suite) {
	suffix, ttl := s.within(func(suffix string, ttl time.Duration) {
		lifted, renewed := s.group("lifted"+suffix), s.group("renewed"+suffix)
		for _, g := range []cache.Group{lifted, renewed} {
			b := put(g, "a", "1")
			b.TTL = ttl
			s.commit(b)
		}
		s.commit(put(lifted, "b", "1"))
		b := put(renewed, "b", "1")
		b.TTL = 1000 * ttl
		s.commit(b)
	})
	s.env.Advance(2 * ttl)
	s.want(s.group("lifted"+suffix), 2, []string{"a", "b"}, []byte("1"), []byte("1"))
	s.want(s.group("renewed"+suffix), 2, []string{"a", "b"}, []byte("1"), []byte("1"))
}

func testExpiryOfListed(s *suite) {
	for i := range 5 {
		b := listed(s.group(fmt.Sprint(i)), "a", "1")
		if i%2 == 0 {
			b.TTL = s.env.TTL
		}
		s.commit(b)
	}
	s.env.Advance(s.env.TTL + 50*time.Millisecond)
	want := []string{"1", "3"}
	for range 2 { // the first run may clean up
		if d := cmp.Diff(want, s.names(1)); d != "" {
			s.Fatalf("listed (-want +got):\n%s", d)
		}
	}
	s.commit(listed(s.group("4"), "a", "1"))
	if d := cmp.Diff([]string{"1", "3", "4"}, s.names(2)); d != "" {
		s.Fatalf("listed after one came back (-want +got):\n%s", d)
	}
}

func testList(s *suite) {
	if got := s.names(10); len(got) != 0 {
		s.Fatalf("an unknown owner has groups: %q", got)
	}
	want := slices.Clone(awkward())
	for i, name := range want {
		s.commit(listed(s.group(name), "a", "1"))
		if i%3 == 0 {
			s.commit(put(s.group(name), "b", "1")) // without Listed, the entry stays
		}
	}
	s.commit(put(s.group("unlisted"), "a", "1"))
	s.commit(listed(cache.Group{Owner: s.owner + "2", Name: "other"}, "a", "1"))
	slices.Sort(want)
	for _, limit := range []int{1, 2, 7, len(want), len(want) + 1, 1000} {
		if d := cmp.Diff(want, s.names(limit)); d != "" {
			s.Fatalf("listed by %d (-want +got):\n%s", limit, d)
		}
	}
	if _, _, err := s.List(s.Context(), s.owner, "no token of ours", 1); err == nil {
		s.Fatal("a page token that was never given out is taken")
	}
}

// testListUnderWrites checks that existing groups are always listed while others are created and deleted.
func testListUnderWrites(s *suite) {
	stay := numbered("stay", 60)
	for _, name := range stay {
		s.commit(listed(s.group(name), "a", "1"))
	}
	var stop atomic.Bool
	s.together(3, func(i int) error {
		if i == 0 {
			defer stop.Store(true)
			for range 5 {
				if err := listsAll(s, stay); err != nil {
					return err
				}
			}
			return nil
		}
		for n := 0; !stop.Load(); n++ {
			b := listed(s.group(fmt.Sprintf("stay%05d-%d", n%60, i)), "a", "1")
			if err := s.Commit(s.Context(), []cache.Batch{b})[0].Err; err != nil {
				return err
			}
			if err := s.Delete(s.Context(), b.Group); err != nil {
				return err
			}
		}
		return nil
	})
}

func listsAll(s *suite, want []string) error {
	seen := map[string]int{}
	for after := ""; ; {
		names, next, err := s.List(s.Context(), s.owner, after, 7)
		if err != nil {
			return err
		}
		for _, name := range names {
			seen[name]++
		}
		if next == "" {
			break
		}
		after = next
	}
	for _, name := range want {
		if seen[name] != 1 {
			return fmt.Errorf("%s was listed %d times", name, seen[name])
		}
	}
	return nil
}

func testEndedContext(s *suite) {
	g := s.group("g")
	s.commit(put(g, "a", "1"))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for name, err := range callAll(ctx, s, g) {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s with an ended context: %v", name, err)
		}
		wantFault(s.T, name+" with an ended context", err, cache.FaultTimeout)
	}
	s.want(g, 1, []string{"a"}, []byte("1"))
}

func testPing(s *suite) {
	if err := s.Ping(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func testClosed(s *suite) {
	g := s.group("g")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			// Calls during Close either succeed or return ErrClosed.
			if err := s.Commit(s.Context(), []cache.Batch{put(g, "a", "1")})[0].Err; err != nil {
				if !errors.Is(err, cache.ErrClosed) {
					s.Errorf("commit while closing: %v", err)
				}
				return
			}
		}
	}()
	for s.read(g).Version == 0 {
	}
	for range 2 {
		if err := s.Close(); err != nil {
			s.Errorf("close: %v", err)
		}
	}
	<-done
	for name, err := range callAll(s.Context(), s, g) {
		if !errors.Is(err, cache.ErrClosed) {
			s.Errorf("%s after close: %v", name, err)
		}
		wantFault(s.T, name+" after close", err, cache.FaultStore)
	}
}
