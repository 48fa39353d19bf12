// Package storetest is the conformance suite of cache.Store. The tests of every implementation run it.
package storetest

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"remora/cache"
)

// Env is how one implementation is tested.
type Env struct {
	// Open returns a store; every test opens its own, and it may or may not be empty. It is closed by the suite.
	Open func(t *testing.T) cache.Store
	// Advance lets time pass for the store: a fake clock is moved, a real one waited for.
	Advance func(d time.Duration)
	// TTL is one that is short for this store but longer than a few calls take. Default 1 minute. Where the calls took
	// longer for once, they are made again with a longer one.
	TTL time.Duration
	// Kill makes the server of a store unreachable, and is nil where there is no server. It gets a store of its own.
	Kill func(t *testing.T) cache.Store
	// Foreign puts a value where a group would be that the store cannot use, as another program may do. Nil where no other
	// program can.
	Foreign func(t *testing.T, g cache.Group)
	// Lose returns a store of its own with several servers, and what makes one of these unreachable and names it as the
	// store does. Nil where there is one server, or none.
	Lose func(t *testing.T) (s cache.Store, lose func() string)
}

// Run checks all promises, each in a subtest.
func Run(t *testing.T, e Env) {
	t.Helper()
	if e.TTL == 0 {
		e.TTL = time.Minute
	}
	for _, c := range []struct {
		name string
		f    func(*suite)
	}{
		{"ReadYourWrites", testReadYourWrites},
		{"MissingIsNotEmpty", testMissingIsNotEmpty},
		{"ResultsBelongToCaller", testResultsBelongToCaller},
		{"DeletesBeforePuts", testDeletesBeforePuts},
		{"BinarySafe", testBinarySafe},
		{"CraftedGroupsNeverMeet", testCraftedGroupsNeverMeet},
		{"BigCommit", testBigCommit},
		{"Expect", testExpect},
		{"BatchesAreIndependent", testBatchesAreIndependent},
		{"ConflictWritesNothing", testConflictWritesNothing},
		{"Counter", testCounter},
		{"ReadsSeeWholeCommits", testReadsSeeWholeCommits},
		{"DeleteStartsAnew", testDeleteStartsAnew},
		{"Expiry", testExpiry},
		{"ExpiryLifted", testExpiryLifted},
		{"ExpiryOfListed", testExpiryOfListed},
		{"List", testList},
		{"ListUnderWrites", testListUnderWrites},
		{"EndedContext", testEndedContext},
		{"ManyCallers", testManyCallers},
		{"Ping", testPing},
		{"ForeignValue", testForeignValue},
		{"Close", testClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{T: t, env: e, Store: e.Open(t), owner: unique(t), nth: make(map[cache.Group]map[uint64]uint64)}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			c.f(s)
		})
	}
	if e.Kill != nil {
		t.Run("DeadServer", func(t *testing.T) { deadServer(t, e.Kill(t)) })
	}
	if e.Lose != nil {
		t.Run("LostShard", func(t *testing.T) {
			s, lose := e.Lose(t)
			lostShard(t, s, lose)
		})
	}
}

// suite is one test with its store. Its groups belong to an owner that no other test uses.
type suite struct {
	*testing.T
	cache.Store
	env   Env
	owner string
	// nth are the versions of each group that were seen, by how many commits the group has had in its life.
	nth map[cache.Group]map[uint64]uint64
}

// version returns the version of a group after its first n commits. The first time it takes the store's, which must be
// more than all before; later it is the same.
func (s *suite) version(g cache.Group, n, have uint64) uint64 {
	s.Helper()
	if n == 0 {
		return 0
	}
	if s.nth[g] == nil {
		s.nth[g] = make(map[uint64]uint64)
	}
	if _, seen := s.nth[g][n]; !seen {
		for m, v := range s.nth[g] {
			if (m < n) != (v < have) || v == have {
				s.Fatalf("commit %d made version %d, commit %d has made %d", n, have, m, v)
			}
		}
		s.nth[g][n] = have
	}
	return s.nth[g][n]
}

// anew begins another life of a group: none of its versions may come back.
func (s *suite) anew(g cache.Group, have uint64) {
	s.Helper()
	for _, v := range s.nth[g] {
		if have <= v {
			s.Fatalf("a new group is at version %d, which an earlier one of its name had left behind at %d", have, v)
		}
	}
	s.nth[g] = map[uint64]uint64{1: have}
}

func unique(t *testing.T) string {
	t.Helper()
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return "owner-" + hex.EncodeToString(b[:])
}

func (s *suite) group(name string) cache.Group { return cache.Group{Owner: s.owner, Name: name} }

// read returns one group, failing the test on an error.
func (s *suite) read(g cache.Group, names ...string) cache.Result {
	s.Helper()
	got, err := s.Read(s.Context(), []cache.Query{{Group: g, Names: names}})
	if err != nil {
		s.Fatalf("read: %v", err)
	}
	if len(got) != 1 || len(got[0].Values) != len(names) {
		s.Fatalf("read of %d names returned %d results, %+v", len(names), len(got), got)
	}
	return got[0]
}

// commit writes one batch that must succeed and returns the version.
func (s *suite) commit(b cache.Batch) uint64 {
	s.Helper()
	got := s.Commit(s.Context(), []cache.Batch{b})
	if len(got) != 1 || got[0].Err != nil {
		s.Fatalf("commit: %+v", got)
	}
	return got[0].Version
}

// put returns a batch of names and values for any version.
func put(g cache.Group, namesAndValues ...string) cache.Batch {
	b := cache.Batch{Group: g, Expect: cache.AnyVersion}
	for i := 0; i < len(namesAndValues); i += 2 {
		b.Puts = append(b.Puts, cache.Put{Name: namesAndValues[i], Data: []byte(namesAndValues[i+1])})
	}
	return b
}

// want fails the test unless the group has had so many commits and has exactly these values, nil for those it does not
// have.
func (s *suite) want(g cache.Group, commits uint64, names []string, values ...[]byte) {
	s.Helper()
	got := s.read(g, names...)
	if want := s.version(g, commits, got.Version); got.Version != want {
		s.Fatalf("group is at version %d after %d commits, want %d", got.Version, commits, want)
	}
	for i, v := range got.Values {
		if !bytes.Equal(v, values[i]) || (v == nil) != (values[i] == nil) {
			s.Fatalf("value %.40q is %s, want %s", names[i], show(v), show(values[i]))
		}
	}
}

func show(v []byte) string {
	if v == nil {
		return "missing"
	}
	return fmt.Sprintf("%.40q (%d bytes)", v, len(v))
}

// names pages through all listed groups of the suite's owner and returns their sorted names.
func (s *suite) names(limit int) []string {
	s.Helper()
	var all []string
	for after := ""; ; {
		got, next, err := s.List(s.Context(), s.owner, after, limit)
		if err != nil {
			s.Fatalf("list: %v", err)
		}
		if len(got) > limit {
			s.Fatalf("a page of %d has %d names", limit, len(got))
		}
		all = append(all, got...)
		if next == "" {
			slices.Sort(all)
			return all
		}
		after = next
	}
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return out
}

// together runs f n times at once and reports all errors.
func (s *suite) together(n int, f func(i int) error) {
	s.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	if s.Failed() {
		s.FailNow()
	}
}

// within calls f, which commits to groups with this suffix and this TTL and goes on using them, until it was done before
// they expired. It returns the suffix and the TTL. A real server's clock goes on while this process stands still.
func (s *suite) within(f func(suffix string, ttl time.Duration)) (string, time.Duration) {
	for ttl := s.env.TTL; ; ttl *= 4 {
		suffix, begun := ttl.String(), time.Now()
		if f(suffix, ttl); time.Since(begun) < ttl {
			return suffix, ttl
		}
	}
}
