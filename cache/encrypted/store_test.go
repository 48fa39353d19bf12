package encrypted_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/encrypted"
	"remora/cache/spool"
	"remora/cache/stores"
	"remora/cache/storetest"
	"remora/secret"
	"remora/test/kit"
)

// key returns a key whose secret is 32 bytes b.
func key(id string, b byte) encrypted.Key {
	return encrypted.Key{ID: id, Secret: secret.String(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)))}
}

// options returns options with the given keys and a fixed key for names.
func options(keys ...encrypted.Key) encrypted.Options {
	return encrypted.Options{Keys: keys, NamesKey: secret.String(hex.EncodeToString(bytes.Repeat([]byte{0xee}, 32)))}
}

func accepting(o encrypted.Options) encrypted.Options {
	o.AcceptPlaintext = true
	return o
}

func sealer(tb testing.TB, o encrypted.Options) *encrypted.Sealer {
	tb.Helper()
	s, err := encrypted.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// clock is a settable clock.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMilli(1e12 + c.offset.Load()) }
func (c *clock) advance(d time.Duration) { c.offset.Add(d.Milliseconds()) }

func open(tb testing.TB, url string, o cache.Options) cache.Store {
	tb.Helper()
	s, err := stores.Open(url, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestSealedStores runs the conformance suite with encrypted stores.
func TestSealedStores(t *testing.T) {
	strict := options(key("k1", 1))
	for _, c := range []struct {
		name string
		url  func(t *testing.T) string
		o    encrypted.Options
	}{
		{"memory", func(*testing.T) string { return "memory:" }, strict},
		{"memory, plaintext accepted", func(*testing.T) string { return "memory:" }, accepting(strict)},
		{"bolt", boltURL, strict},
		{"bolt, plaintext accepted", boltURL, accepting(strict)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var at clock
			storetest.Run(t, storetest.Env{
				Open: func(t *testing.T) cache.Store {
					t.Helper()
					return sealer(t, c.o).Store(open(t, c.url(t), cache.Options{Now: at.now}))
				},
				Advance: at.advance,
			})
		})
	}
}

func TestSealedRedis(t *testing.T) {
	url := kit.StartRedis(t).URL()
	storetest.Run(t, storetest.Env{
		Open: func(t *testing.T) cache.Store {
			t.Helper()
			return sealer(t, options(key("k1", 1))).Store(open(t, url, cache.Options{OpTimeout: time.Minute, DialTimeout: time.Minute}))
		},
		Advance: func(d time.Duration) { <-time.After(d) }, // the server's clock is real
		TTL:     400 * time.Millisecond,
	})
}

func boltURL(t *testing.T) string {
	t.Helper()
	return "bolt:" + filepath.Join(t.TempDir(), "store.db")
}

// canary is part of all stored data, and too long to occur by chance.
const canary = "canary-0123456789"

func TestNothingReadableReachesTheDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     encrypted.Options
		found bool // proves that the search works
	}{
		{"plain", encrypted.Options{}, true},
		{"sealed", options(key("k1", 1)), false},
		{"sealed, plaintext accepted", accepting(options(key("k1", 1))), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := sealer(t, c.o)
			store := s.Store(open(t, "bolt:"+filepath.Join(dir, "store.db"), cache.Options{}))
			defer func() { _ = store.Close() }()
			queue, err := spool.Open(filepath.Join(dir, "spool"), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = queue.Close() }()
			commit(t, store, cache.Batch{
				Group: cache.Group{Owner: "owner " + canary, Name: "group " + canary}, Listed: true, TTL: time.Hour,
				Puts:    []cache.Put{{Name: "name " + canary, Data: []byte("value " + canary)}},
				Deletes: []string{"deleted " + canary},
			})
			if err := s.Queue(queue).Append([]byte("record " + canary)); err != nil {
				t.Fatal(err)
			}
			for _, w := range []string{"value ", "name ", "group ", "owner ", "record "} {
				if got := onDisk(t, dir, w+canary); got != c.found {
					t.Errorf("%q on disk: %v, want %v", w+canary, got, c.found)
				}
			}
			if got := onDisk(t, dir, canary); got != c.found {
				t.Errorf("canary on disk: %v, want %v", got, c.found)
			}
		})
	}
}

// onDisk looks for text in all files below dir.
func onDisk(t *testing.T, dir, text string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		found = found || bytes.Contains(b, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func commit(t *testing.T, s cache.Store, b cache.Batch) uint64 {
	t.Helper()
	out := s.Commit(t.Context(), []cache.Batch{b})
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	return out[0].Version
}

func put(g cache.Group, name, data string) cache.Batch {
	return cache.Batch{Group: g, Expect: cache.AnyVersion, Puts: []cache.Put{{Name: name, Data: []byte(data)}}}
}

func read(t *testing.T, s cache.Store, g cache.Group, name string) (string, uint64, error) {
	t.Helper()
	got, err := s.Read(t.Context(), []cache.Query{{Group: g, Names: []string{name}}})
	if err != nil {
		return "", 0, err
	}
	return string(got[0].Values[0]), got[0].Version, nil
}

// tap records commits to a store.
type tap struct {
	cache.Store
	last []cache.Batch
}

func (s *tap) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	s.last = batches
	return s.Store.Commit(ctx, batches)
}

// TestMovedAndChangedValues plays an attacker who can write to the store but has no key.
func TestMovedAndChangedValues(t *testing.T) {
	a, b := cache.Group{Owner: "o", Name: "a"}, cache.Group{Owner: "o", Name: "b"}
	other := cache.Group{Owner: "other", Name: "a"}
	below := &tap{Store: open(t, "memory:", cache.Options{})}
	s := sealer(t, options(key("k1", 1))).Store(below)
	// where returns the stored place and data of a value.
	where := func(g cache.Group, name, data string) (cache.Group, cache.Put) {
		commit(t, s, put(g, name, data))
		return below.last[0].Group, below.last[0].Puts[0]
	}
	_, source := where(a, "one", "the secret")
	for _, c := range []struct {
		name  string
		group cache.Group
		value string
		moves bool
	}{
		{"back to where it was", a, "one", true},
		{"to another name", a, "two", false},
		{"to another group", b, "one", false},
		{"to another owner", other, "one", false},
		{"to a group and a name that look alike", cache.Group{Owner: "o", Name: "ao"}, "ne", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			group, at := where(c.group, c.value, "overwritten")
			below.Store.Commit(t.Context(), []cache.Batch{put(group, at.Name, string(source.Data))})
			got, _, err := read(t, s, c.group, c.value)
			if c.moves && (err != nil || got != "the secret") || !c.moves && !errors.Is(err, encrypted.ErrUnreadable) {
				t.Fatalf("read %q, %v", got, err)
			}
		})
	}
	group, at := where(a, "one", "the secret")
	for i := range at.Data {
		for _, data := range [][]byte{flipped(at.Data, i), at.Data[:i]} {
			below.Store.Commit(t.Context(), []cache.Batch{put(group, at.Name, string(data))})
			if got, _, err := read(t, s, a, "one"); !errors.Is(err, encrypted.ErrUnreadable) {
				t.Fatalf("value changed or cut at byte %d is read as %q, %v", i, got, err)
			}
		}
	}
}

func flipped(b []byte, i int) []byte {
	b = slices.Clone(b)
	b[i] ^= 1
	return b
}

func TestRotation(t *testing.T) {
	below := open(t, "memory:", cache.Options{})
	with := func(keys ...encrypted.Key) cache.Store { return sealer(t, options(keys...)).Store(below) }
	g := cache.Group{Owner: "o", Name: "session"}
	first, second := key("2026-01", 1), key("2026-02", 2)
	before := with(first)
	commit(t, before, put(g, "stays", "old"))
	commit(t, before, put(g, "rewritten", "old"))

	both := with(second, first)
	commit(t, both, put(g, "rewritten", "new"))
	for name, want := range map[string]string{"stays": "old", "rewritten": "new"} {
		if got, _, err := read(t, both, g, name); err != nil || got != want {
			t.Errorf("with both keys %s is %q, %v; want %q", name, got, err, want)
		}
	}

	after := with(second)
	if got, _, err := read(t, after, g, "rewritten"); err != nil || got != "new" {
		t.Errorf("what was rewritten needs the old key: %q, %v", got, err)
	}
	for _, c := range []struct {
		name string
		s    cache.Store
		want string
	}{
		{"old key gone", after, `stored value cannot be read: it cannot be decrypted: it was written with the key "2026-01", which is not in store.encryption.keys`},
		{"another secret", with(second, key("2026-01", 9)), `written with another secret of the key "2026-01"`},
	} {
		_, _, err := read(t, c.s, g, "stays")
		if !errors.Is(err, encrypted.ErrUnreadable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestPlaintextBeforeEncryption enables encryption for a store with data.
func TestPlaintextBeforeEncryption(t *testing.T) {
	below := &tap{Store: open(t, "memory:", cache.Options{})}
	old, fresh := cache.Group{Owner: "o", Name: "old"}, cache.Group{Owner: "o", Name: "fresh"}
	before := put(old, "a", canary)
	before.Listed, before.Puts = true, append(before.Puts, cache.Put{Name: "b", Data: []byte("b")})
	commit(t, below, before)

	s := sealer(t, accepting(options(key("k1", 1)))).Store(below)
	got, version, err := read(t, s, old, "a")
	if err != nil || got != canary {
		t.Fatalf("plaintext accepted: %q, %v", got, err)
	}
	stale := put(old, "a", "stale")
	stale.Expect = 0
	if out := s.Commit(t.Context(), []cache.Batch{stale}); !errors.Is(out[0].Err, cache.ErrConflict) {
		t.Fatalf("a group that is there in plaintext was made anew: %+v", out)
	}
	rewrite, create := put(old, "a", canary+"!"), put(fresh, "a", canary)
	rewrite.Expect, create.Expect, create.Listed = version, 0, true
	outcomes := s.Commit(t.Context(), []cache.Batch{rewrite, create})
	for i, o := range outcomes {
		if o.Err != nil || o.Version == 0 || o.Version == version {
			t.Fatalf("batch %d: %+v", i, o)
		}
	}
	var written strings.Builder
	for _, b := range below.last {
		fmt.Fprint(&written, b.Group.Name, "|")
		for _, p := range b.Puts {
			fmt.Fprint(&written, p.Name, "=", string(p.Data), "|")
		}
	}
	if shown := written.String(); strings.Contains(shown, canary) || strings.Contains(shown, "fresh") {
		t.Errorf("written in plaintext: %q", shown)
	}
	both, err := s.Read(t.Context(), []cache.Query{{Group: old, Names: []string{"a", "b"}}, {Group: fresh, Names: []string{"a"}}})
	want := []cache.Result{
		{Version: outcomes[0].Version, Values: [][]byte{[]byte(canary + "!"), []byte("b")}},
		{Version: outcomes[1].Version, Values: [][]byte{[]byte(canary)}},
	}
	if d := cmp.Diff(want, both); err != nil || d != "" {
		t.Fatalf("%v\n%s", err, d)
	}
	for _, limit := range []int{1, 10} {
		var names []string
		for after, more := "", true; more; more = after != "" {
			page, next, err := s.List(t.Context(), "o", after, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("a page of %d has %q: %v", limit, page, err)
			}
			names, after = append(names, page...), next
		}
		if slices.Sort(names); !slices.Equal(names, []string{"fresh", "old"}) {
			t.Fatalf("listed: %q", names)
		}
	}

	refusing := sealer(t, options(key("k1", 1))).Store(below)
	if names, _, err := refusing.List(t.Context(), "o", "", 10); err != nil || !slices.Equal(names, []string{"fresh"}) {
		t.Errorf("listed without plaintext: %q, %v", names, err)
	}
	if got, version, err := read(t, refusing, old, "a"); err != nil || got != "" || version != 0 {
		t.Errorf("a plaintext group is read: %q, %d, %v", got, version, err)
	}
	hidden := below.last[1]
	commit(t, below.Store, put(hidden.Group, hidden.Puts[0].Name, "put there by somebody"))
	if got, _, err := read(t, refusing, fresh, "a"); !errors.Is(err, encrypted.ErrUnreadable) || !strings.Contains(err.Error(), "accept_plaintext") {
		t.Errorf("plaintext among sealed values: %q, %v", got, err)
	}

	if err := s.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if _, version, err := read(t, s, old, "a"); err != nil || version != 0 {
		t.Errorf("still there after delete: version %d, %v", version, err)
	}
}

func TestCheckFindsOtherKeys(t *testing.T) {
	below := open(t, "memory:", cache.Options{})
	k1, k2 := key("k1", 1), key("k2", 2)
	mine := options(k1)
	other := mine
	other.NamesKey = key("", 7).Secret
	for _, c := range []struct {
		name string
		o    encrypted.Options
		want string // "" if the keys match
	}{
		{"no encryption before", encrypted.Options{}, ""},
		{"first", mine, ""},
		{"again", mine, ""},
		{"another secret", options(key("k1", 9)), `store.encryption.keys: the secret of "k1" is not`},
		{"another names_key", other, "store.encryption.names_key: is not"},
		{"no encryption", encrypted.Options{}, "store.encryption: this store was written with encryption; configure its keys"},
		{"a new key that nothing was written with, and only reads", options(k1, key("k2", 8)), ""},
		{"rotated", options(k2, k1), ""},
		{"rotated, another secret of the old key", options(k2, key("k1", 9)), `store.encryption.keys: the secret of "k1" is not`},
		{"old key gone", options(k2), ""},
		{"old key back with another secret", options(key("k1", 9), k2), `store.encryption.keys: the secret of "k1" is not`},
		{"rotated back", options(k1, k2), ""},
	} {
		err := sealer(t, c.o).Guard(below).Check(t.Context())
		if (err != nil) != (c.want != "") || err != nil && (!errors.Is(err, encrypted.ErrMismatch) || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := below.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sealer(t, mine).Guard(below).Check(t.Context()); !errors.Is(err, cache.ErrClosed) || errors.Is(err, encrypted.ErrMismatch) {
		t.Errorf("store that does not answer: %v", err)
	}
}

// TestCheckOfOlderStore: for a store that has recorded only its names_key, the check records the writing key.
func TestCheckOfOlderStore(t *testing.T) {
	below, older := &tap{Store: open(t, "memory:", cache.Options{})}, &tap{Store: open(t, "memory:", cache.Options{})}
	if err := sealer(t, options(key("k1", 1))).Guard(below).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := below.last[0]
	if b.Puts = b.Puts[:1]; b.Puts[0].Name != "names_key" || bytes.Contains(below.last[0].Puts[0].Data, bytes.Repeat([]byte{0xee}, 8)) {
		t.Fatalf("noted first: %q", b.Puts[0].Name)
	}
	commit(t, older.Store, b)
	for _, c := range []struct {
		k    encrypted.Key
		fits bool
	}{{key("k2", 2), true}, {key("k2", 3), false}, {key("k1", 1), true}} {
		if err := sealer(t, options(c.k)).Guard(older).Check(t.Context()); (err == nil) != c.fits {
			t.Errorf("%s: %v", c.k.ID, err)
		}
	}
}

// away is a store that does not answer while it is away.
type away struct {
	cache.Store
	gone bool
}

var errAway = errors.New("away")

func (a *away) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if a.gone {
		return nil, errAway
	}
	return a.Store.Read(ctx, q)
}

// TestBeginIsReportedOnce: exactly one of all replicas reports that encryption begins. A rotated key is not reported.
func TestBeginIsReportedOnce(t *testing.T) {
	below, told := open(t, "memory:", cache.Options{}), 0
	for _, o := range []encrypted.Options{
		options(key("k1", 1)), options(key("k1", 1)), options(key("k2", 2), key("k1", 1)), {},
	} {
		guard := sealer(t, o).Guard(below)
		guard.OnBegin = func(bool) { told++ }
		for range 2 {
			if err := guard.Check(t.Context()); err != nil && !errors.Is(err, encrypted.ErrNoKeys) {
				t.Fatal(err)
			}
		}
		if told != 1 {
			t.Fatalf("told %d times", told)
		}
	}
}

// TestStoreThatIsEmptied: within seconds the keys of a store that was emptied are recorded again, and another process with other keys is
// refused; if that one was faster, this one is.
func TestStoreThatIsEmptied(t *testing.T) {
	for _, faster := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			below := open(t, "memory:", cache.Options{Now: time.Now})
			mine, again := sealer(t, options(key("k1", 1))).Guard(below), 0
			mine.OnBegin = func(a bool) {
				if a {
					again++
				}
			}
			if err := mine.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := below.Delete(t.Context(), cache.Group{Name: "remora-seal"}); err != nil {
				t.Fatal(err)
			}
			other := sealer(t, options(key("k1", 2))).Guard(below)
			if faster {
				if err := other.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(11 * time.Second)
			if err := mine.Check(t.Context()); errors.Is(err, encrypted.ErrMismatch) != faster {
				t.Errorf("the other one faster: %v, 11 s later: %v", faster, err)
			}
			if err := other.Check(t.Context()); errors.Is(err, encrypted.ErrMismatch) == faster {
				t.Errorf("the other one faster: %v, its check: %v", faster, err)
			}
			if (again == 1) == faster {
				t.Errorf("the other one faster: %v, recorded again %d times", faster, again)
			}
		})
	}
}

// TestGuard: the store gets no call before the check of the keys has succeeded.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name string
		o    encrypted.Options
		want error
	}{
		{"the same", options(key("k1", 1)), nil},
		{"another secret", options(key("k1", 2)), encrypted.ErrMismatch},
		{"no encryption", encrypted.Options{}, encrypted.ErrNoKeys},
	} {
		below := &tap{Store: open(t, "memory:", cache.Options{})}
		if err := sealer(t, options(key("k1", 1))).Guard(below).Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		below.last = nil
		net := &away{Store: below, gone: true}
		s := sealer(t, c.o)
		guard, told := s.Guard(net), 0
		guard.OnMismatch = func(error) { told++ }
		store := s.Store(guard)
		g := cache.Group{Owner: "o", Name: "g"}
		all := func() []error {
			_, _, readErr := read(t, store, g, "a")
			_, _, listErr := store.List(t.Context(), "o", "", 10)
			out := store.Commit(t.Context(), []cache.Batch{put(g, "a", "x")})
			return []error{readErr, listErr, out[0].Err, store.Delete(t.Context(), g), store.Ping(t.Context())}
		}
		for i, err := range all() {
			if !errors.Is(err, errAway) {
				t.Errorf("%s: call %d while the store is away: %v", c.name, i, err)
			}
		}
		net.gone = false
		for i, err := range all() {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: call %d: %v, want %v", c.name, i, err, c.want)
			}
		}
		if (below.last == nil) != (c.want != nil) || (told == 1) != (c.want != nil) {
			t.Errorf("%s: told %d times, committed: %v", c.name, told, below.last)
		}
	}
}

func TestSealedSpool(t *testing.T) {
	dir := t.TempDir()
	queue, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	first, second := key("k1", 1), key("k2", 2)
	if err := queue.Append([]byte("plain")); err != nil {
		t.Fatal(err)
	}
	if err := sealer(t, options(first)).Queue(queue).Append([]byte("sealed")); err != nil {
		t.Fatal(err)
	}
	if err := queue.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		o     encrypted.Options
		want  []string
		aside string // why the others are set aside
	}{
		{"nothing is configured", encrypted.Options{}, []string{"plain"}, "it is encrypted, and store.encryption is not configured"},
		{"an unknown key", options(second), nil, `"k1"`},
		{"another secret", options(key("k1", 9)), nil, `another secret of the key "k1"`},
		{"the key again", options(second, first), []string{"sealed"}, ""},
	} {
		queue, err := spool.Open(dir, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		var got, aside []string
		queue.OnQuarantine = func(a spool.Quarantined) { aside = append(aside, a.Cause.Error()) }
		q := sealer(t, c.o).Queue(queue)
		if err := q.Drain(t.Context(), func(recs [][]byte) (int, error) {
			for _, rec := range recs {
				got = append(got, string(rec))
			}
			return len(recs), nil
		}); err != nil {
			t.Fatal(err)
		}
		if n, _ := q.Len(); n != 0 || !slices.Equal(got, c.want) || len(aside) > 1 || (len(aside) > 0) != (c.aside != "") || !strings.Contains(strings.Join(aside, ""), c.aside) {
			t.Errorf("%s: drained %q, %d are left, set aside: %q", c.name, got, n, aside)
		}
		if err := queue.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if q := sealer(t, options(first)).Queue(nil); q != nil {
		t.Errorf("no spool became one: %v", q)
	}
}

// TestPlaintextInSealedSpool: records from before encryption are read only if plaintext is accepted, otherwise quarantined.
func TestPlaintextInSealedSpool(t *testing.T) {
	for _, accept := range []bool{false, true} {
		o := options(key("k1", 1))
		o.AcceptPlaintext = accept
		inner := &last{rec: []byte("plain")}
		got := ""
		err := sealer(t, o).Queue(inner).Drain(t.Context(), func(recs [][]byte) (int, error) {
			got = string(recs[0])
			return 1, nil
		})
		if accept && (err != nil || got != "plain") || !accept && (!errors.Is(err, cache.ErrUnreadable) || !strings.Contains(err.Error(), "accept_plaintext")) {
			t.Errorf("accepted %v: %q, %v", accept, got, err)
		}
	}
}

// last is a queue of one record.
type last struct{ rec []byte }

func (l *last) Append(rec []byte) error {
	l.rec = rec
	return nil
}

func (l *last) Move(rec []byte) error { return l.Append(rec) }

func (l *last) Drain(_ context.Context, f func([][]byte) (int, error)) error {
	_, err := f([][]byte{l.rec})
	return err
}

func (l *last) Adopt(f func(rec []byte)) (spool.Adopted, error) {
	f(l.rec)
	return spool.Adopted{Records: 1}, nil
}

func (l *last) Len() (records int, bytes int64) { return 1, int64(len(l.rec)) }

func (l *last) Max() int64 { return 0 }
