// Package storetest is the conformance suite of cache.Store. The tests of every implementation run it.
package storetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"remora/cache"
)

// Env is the environment of the tests of one implementation.
type Env struct {
	// Open returns a store, which may or may not be empty. Every test opens its own, and the suite closes it.
	Open func(t *testing.T) cache.Store
	// Advance advances the store's clock: it sets a fake one, or waits for a real one.
	Advance func(d time.Duration)
	// TTL is short for this store but longer than a few calls. Default 1 minute. If calls take longer, they are repeated with a
	// longer TTL.
	TTL time.Duration
	// Kill returns a new store whose server is unreachable. Nil without a server.
	Kill func(t *testing.T) cache.Store
	// Foreign replaces a group by a value that the store cannot use, as another program may. Nil if no other program can.
	Foreign func(t *testing.T, g cache.Group)
	// Lose returns a new store with several servers, and functions of which lose makes one of them unreachable and returns its
	// name, and restore brings it back as it was. Nil without several servers.
	Lose func(t *testing.T) (s cache.Store, lose func() string, restore func())
}

// Run checks all promises, each in a subtest.
func Run(t *testing.T, e Env) {
	t.Helper()
	e.TTL = cmp.Or(e.TTL, time.Minute)
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
		{"VersionsAreTimes", testVersionsAreTimes},
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
			s := &suite{T: t, env: e, Store: e.Open(t), owner: unique(t), versions: make(map[cache.Group]map[uint64]uint64)}
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
			s, lose, restore := e.Lose(t)
			lostShard(t, s, lose, restore)
		})
	}
}

// suite is one test with its store. The owner of its groups is unique.
type suite struct {
	*testing.T
	cache.Store
	env   Env
	owner string
	// versions are the versions seen of each group, by the number of commits since the group was created.
	versions map[cache.Group]map[uint64]uint64
}

// version returns the version of a group after its first n commits. The first time it records the store's version, which must be
// greater than all before.
func (s *suite) version(g cache.Group, n, have uint64) uint64 {
	s.Helper()
	if n == 0 {
		return 0
	}
	if s.versions[g] == nil {
		s.versions[g] = make(map[uint64]uint64)
	}
	if _, seen := s.versions[g][n]; !seen {
		for m, v := range s.versions[g] {
			if (m < n) != (v < have) || v == have {
				s.Fatalf("commit %d made version %d, commit %d has made %d", n, have, m, v)
			}
		}
		s.versions[g][n] = have
	}
	return s.versions[g][n]
}

// anew records that a group was created again: none of its earlier versions may be used again.
func (s *suite) anew(g cache.Group, have uint64) {
	s.Helper()
	for _, v := range s.versions[g] {
		if have <= v {
			s.Fatalf("a new group is at version %d, which an earlier one of its name had left behind at %d", have, v)
		}
	}
	s.versions[g] = map[uint64]uint64{1: have}
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

// listed is put for a group that is listed from then on.
func listed(g cache.Group, namesAndValues ...string) cache.Batch {
	b := put(g, namesAndValues...)
	b.Listed = true
	return b
}

// callAll makes each call of a store once, and returns the errors by the names of the calls.
func callAll(ctx context.Context, s cache.Store, g cache.Group) map[string]error {
	_, readErr := s.Read(ctx, []cache.Query{{Group: g}})
	_, _, listErr := s.List(ctx, g.Owner, "", 1)
	return map[string]error{
		"read": readErr, "list": listErr, "ping": s.Ping(ctx), "delete": s.Delete(ctx, g),
		"commit": s.Commit(ctx, []cache.Batch{put(g, "a", "secret")})[0].Err,
	}
}

// want fails the test unless the group is at the version after that many commits and has exactly these values. A nil value must
// not exist.
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

// within calls f, which commits to groups with a suffix and a TTL and uses them, until one call finishes before the groups
// expire. It returns the suffix and the TTL of that call. A real server's clock continues while this process is paused.
func (s *suite) within(f func(suffix string, ttl time.Duration)) (string, time.Duration) {
	for ttl := s.env.TTL; ; ttl *= 4 {
		suffix, begun := ttl.String(), time.Now()
		if f(suffix, ttl); time.Since(begun) < ttl {
			return suffix, ttl
		}
	}
}
