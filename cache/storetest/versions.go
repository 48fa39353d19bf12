package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"remora/cache"
)

func testExpect(s *suite) {
	g := s.group("g")
	try := func(expect uint64, want error) uint64 {
		s.Helper()
		b := put(g, "a", "1")
		b.Expect = expect
		out := s.Commit(s.Context(), []cache.Batch{b})[0]
		if !errors.Is(out.Err, want) {
			s.Fatalf("commit expecting version %d: %v, want %v", expect, out.Err, want)
		}
		return out.Version
	}
	try(1, cache.ErrConflict)
	first := s.version(g, 1, try(0, nil))
	try(0, cache.ErrConflict)
	try(first+1, cache.ErrConflict)
	second := s.version(g, 2, try(first, nil))
	try(first, cache.ErrConflict)
	try(second+1, cache.ErrConflict)
	third := s.version(g, 3, try(cache.AnyVersion, nil))
	s.version(g, 4, try(third, nil))
	try(1<<63+1, cache.ErrConflict)
	s.want(g, 4, []string{"a"}, []byte("1"))
}

func testBatchesAreIndependent(s *suite) {
	a, b, c := s.group("a"), s.group("b"), s.group("c")
	bad := put(b, "x", "1")
	bad.Expect = 7
	got := s.Commit(s.Context(), []cache.Batch{put(a, "x", "1"), bad, put(c, "x", "1"), put(a, "x", "2")})
	if len(got) != 4 || got[0].Err != nil || !errors.Is(got[1].Err, cache.ErrConflict) || got[2].Err != nil || got[3].Err != nil {
		s.Fatalf("outcomes: %+v", got)
	}
	s.version(a, 1, got[0].Version)
	s.version(a, 2, got[3].Version)
	s.want(a, 2, []string{"x"}, []byte("2"))
	s.want(b, 0, []string{"x"}, nil)
	s.want(c, 1, []string{"x"}, []byte("1"))
}

func testVersionsAreTimes(s *suite) {
	before := s.commit(put(s.group("a"), "a", "1"))
	const passed = 50 * time.Millisecond
	s.env.Advance(passed)
	if after := s.commit(put(s.group("b"), "b", "1")); after < before+uint64(passed.Microseconds()) {
		s.Fatalf("a group is at version %d, another one %s later at %d", before, passed, after)
	}
}

func testConflictWritesNothing(s *suite) {
	g := s.group("g")
	s.commit(put(g, "a", "1", "b", "1"))
	b := cache.Batch{
		Group: g, Expect: 5, Deletes: []string{"b"}, TTL: s.env.TTL, Listed: true,
		Puts: []cache.Put{{Name: "a", Data: []byte("2")}, {Name: "c", Data: []byte("2")}},
	}
	if got := s.Commit(s.Context(), []cache.Batch{b}); !errors.Is(got[0].Err, cache.ErrConflict) {
		s.Fatalf("outcome: %+v", got)
	}
	if got := s.names(10); len(got) != 0 {
		s.Fatalf("a conflict entered the index: %q", got)
	}
	s.env.Advance(2 * s.env.TTL)
	s.want(g, 1, []string{"a", "b", "c"}, []byte("1"), []byte("1"), nil)
}

// testCounter increments one number from several writers by compare-and-swap.
func testCounter(s *suite) {
	const writers, each = 16, 15
	g := s.group("g")
	increment := func() error {
		for {
			got, err := s.Read(s.Context(), []cache.Query{{Group: g, Names: []string{"n"}}})
			if err != nil {
				return err
			}
			n := 0
			if v := got[0].Values[0]; v != nil {
				if n, err = strconv.Atoi(string(v)); err != nil {
					return err
				}
			}
			b := put(g, "n", strconv.Itoa(n+1))
			b.Expect = got[0].Version
			if err := s.Commit(s.Context(), []cache.Batch{b})[0].Err; !errors.Is(err, cache.ErrConflict) {
				return err
			}
		}
	}
	s.together(writers, func(int) error {
		for range each {
			if err := increment(); err != nil {
				return err
			}
		}
		return nil
	})
	s.want(g, writers*each, []string{"n"}, []byte(strconv.Itoa(writers*each)))
}

// testReadsSeeWholeCommits writes the same value under two names while readers compare them.
func testReadsSeeWholeCommits(s *suite) {
	const commits = 200
	g := s.group("g")
	var stop atomic.Bool
	s.together(5, func(i int) error {
		if i > 0 {
			return compareValues(s, g, &stop)
		}
		defer stop.Store(true)
		for n := range commits {
			v := fmt.Sprint(n)
			if err := s.Commit(s.Context(), []cache.Batch{put(g, "a", v, "b", v)})[0].Err; err != nil {
				return err
			}
		}
		return nil
	})
}

// compareValues reads until stop, and checks that versions match values and never decrease.
func compareValues(s *suite, g cache.Group, stop *atomic.Bool) error {
	last := cache.Result{Values: [][]byte{nil, nil}}
	for !stop.Load() {
		got, err := s.Read(s.Context(), []cache.Query{{Group: g, Names: []string{"a", "b"}}})
		if err != nil {
			return err
		}
		r := got[0]
		if !bytes.Equal(r.Values[0], r.Values[1]) {
			return fmt.Errorf("read half a commit: %q and %q", r.Values[0], r.Values[1])
		}
		if r.Version < last.Version || (r.Version == last.Version) != bytes.Equal(r.Values[0], last.Values[0]) {
			return fmt.Errorf("version %d with %q after %d with %q", r.Version, r.Values[0], last.Version, last.Values[0])
		}
		last = r
	}
	return nil
}

// testManyCallers uses different groups concurrently: no caller may get another's result.
func testManyCallers(s *suite) {
	s.together(48, func(i int) error {
		g := s.group(fmt.Sprintf("g%d", i%40)) // some share one
		for n := range 25 {
			mine := fmt.Sprintf("%d/%d", i, n)
			if err := s.Commit(s.Context(), []cache.Batch{put(g, mine, mine)})[0].Err; err != nil {
				return err
			}
			got, err := s.Read(s.Context(), []cache.Query{{Group: g, Names: []string{mine}}})
			if err != nil {
				return err
			}
			if v := got[0].Values[0]; string(v) != mine {
				return fmt.Errorf("wrote %q and read %q", mine, v)
			}
		}
		return nil
	})
}
