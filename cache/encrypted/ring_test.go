package encrypted

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"remora/cache"
)

func testRing(tb testing.TB, ids ...string) *ring {
	tb.Helper()
	keys := make([]rawKey, len(ids))
	for i, id := range ids {
		keys[i] = rawKey{id, bytes.Repeat([]byte(id[:1]), keyBytes)}
	}
	r, err := newRing(keys)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func mustSeal(tb testing.TB, r *ring, plain, place string) []byte {
	tb.Helper()
	b, err := r.seal(nil, []byte(plain), []byte(place))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestDataKeysAreRenewed counts the data keys of one process by their salts.
func TestDataKeysAreRenewed(t *testing.T) {
	r := testRing(t, "a")
	r.limit = 10
	var sealed [][]byte
	salts := map[string]int{}
	for i := range 35 {
		b := mustSeal(t, r, fmt.Sprint(i), "p")
		sealed = append(sealed, b)
		salts[string(b[len(magic)+2:][:saltBytes])]++
	}
	if len(salts) != 4 {
		t.Errorf("35 values with 10 to a key have %d salts, want 4", len(salts))
	}
	for i, b := range sealed {
		if got, err := testRing(t, "b", "a").open(b, []byte("p")); err != nil || string(got) != fmt.Sprint(i) {
			t.Errorf("value %d is %q, %v", i, got, err)
		}
	}
}

// TestOpenedKeysAreBounded reads values of many processes.
func TestOpenedKeysAreBounded(t *testing.T) {
	reader := testRing(t, "a")
	for i := range maxOpened + 50 {
		b := mustSeal(t, testRing(t, "a"), "x", "p")
		if _, err := reader.open(b, []byte("p")); err != nil {
			t.Fatalf("value of process %d: %v", i, err)
		}
	}
	if n := len(reader.opened); n != maxOpened {
		t.Errorf("%d data keys are kept, want %d", n, maxOpened)
	}
}

func TestEqualValuesDiffer(t *testing.T) {
	r := testRing(t, "a")
	if a, b := mustSeal(t, r, "x", "p"), mustSeal(t, r, "x", "p"); bytes.Equal(a, b) {
		t.Error("the same value twice gives the same bytes")
	}
}

// TestNamesRoundTrip: stored names decrypt to the original, are deterministic, and do not collide.
func TestNamesRoundTrip(t *testing.T) {
	n, err := newNames(bytes.Repeat([]byte{1}, keyBytes))
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ owner, name, value string }
	groups, values := map[string]place{}, map[string]place{}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.StringN(0, 3, -1), rapid.String())
		p := place{part.Draw(t, "owner"), part.Draw(t, "name"), part.Draw(t, "value")}
		w := n.scratch()
		defer w.done()
		w.enter(cache.Group{Owner: p.owner, Name: p.name})
		stored, value := w.groupName(p.name), string(w.appendValueName(nil, p.value))
		if len(p.name) > 3 && strings.Contains(stored, p.name) {
			t.Fatalf("name %q can be read", p.name)
		}
		if name, ok := w.readGroupName(p.owner, stored); !ok || name != p.name {
			t.Fatalf("%q came back as %q, %v", p.name, name, ok)
		}
		if _, ok := w.readGroupName(p.owner+"x", stored); ok {
			t.Fatal("a name is good for another owner")
		}
		group := place{p.owner, p.name, ""}
		if was, ok := groups[stored]; ok && was != group {
			t.Fatalf("%q and %q meet", was, group)
		}
		if was, ok := values[value]; ok && was != p {
			t.Fatalf("%q and %q meet", was, p)
		}
		groups[stored], values[value] = group, p
	})
}

// FuzzOpen reads forged values. Only values that the key has sealed can be opened, and an error quotes at most the id of a key.
func FuzzOpen(f *testing.F) {
	r := testRing(f, "a", "b")
	const place = "p"
	good := mustSeal(f, r, "some text", place)
	f.Add(bytes.Clone(good))
	f.Add(mustSeal(f, testRing(f, "b"), "", place))
	f.Add(mustSeal(f, testRing(f, "unknown"), "", place))
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\xff"))
	f.Add([]byte(magic + strings.Repeat("\xff", 400)))
	f.Add([]byte(`{"role":"user"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		same := bytes.Equal(b, good)
		plain, err := r.open(bytes.Clone(b), []byte(place))
		switch {
		case same && (err != nil || string(plain) != "some text"):
			t.Fatalf("opened as %q, %v", plain, err)
		case err != nil && !errors.Is(err, ErrUnreadable):
			t.Fatalf("error of no known kind: %v", err)
		case err != nil && len(err.Error()) > 200:
			t.Fatalf("error is long: %v", err)
		}
	})
}

// FuzzReadGroupName reads forged names from the index.
func FuzzReadGroupName(f *testing.F) {
	n, err := newNames(bytes.Repeat([]byte{1}, keyBytes))
	if err != nil {
		f.Fatal(err)
	}
	w := n.scratch()
	w.enter(cache.Group{Owner: "o", Name: "session"})
	f.Add(w.groupName("session"))
	f.Add("")
	f.Add(strings.Repeat("x", tagBytes))
	f.Fuzz(func(t *testing.T, stored string) {
		w := n.scratch()
		defer w.done()
		name, ok := w.readGroupName("o", stored)
		if !ok {
			return
		}
		w.enter(cache.Group{Owner: "o", Name: name})
		if w.groupName(name) != stored {
			t.Fatalf("%q is not how %q is stored", stored, name)
		}
	})
}
