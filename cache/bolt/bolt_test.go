package bolt

import (
	"bytes"
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"remora/cache"
	"remora/cache/storetest"
)

func TestKeysAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := cache.Group{Owner: storetest.IDs().Draw(t, "owner a"), Name: storetest.IDs().Draw(t, "name a")}
		b := cache.Group{Owner: storetest.IDs().Draw(t, "owner b"), Name: storetest.IDs().Draw(t, "name b")}
		if a != b && (bytes.HasPrefix(groupPrefix(a), groupPrefix(b)) || bytes.HasPrefix(groupPrefix(b), groupPrefix(a))) {
			t.Fatalf("the prefix of one of %q and %q begins that of the other", a, b)
		}
	})
}

// TestHashedKeyPartIsNoLength: the key of a long part never equals the key of a short one.
func TestHashedKeyPartIsNoLength(t *testing.T) {
	owner, name := strings.Repeat("o", 300), strings.Repeat("n", 222)
	sum := sha256.Sum256([]byte(owner))
	crafted := cache.Group{Owner: string(sum[:]) + "\xde" + name} // 255 bytes
	if bytes.HasPrefix(groupPrefix(crafted), groupPrefix(cache.Group{Owner: owner, Name: name})) {
		t.Error("keys of one group are keys of another")
	}
}

// TestBadCallFailsAlone: a call that bbolt refuses does not fail the others of its batch.
func TestBadCallFailsAlone(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "store.db"), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	call := func(name string, b cache.Batch) *boltCall {
		b.Group = cache.Group{Owner: "o", Name: name}
		return &boltCall{batches: []cache.Batch{b}, outcomes: make([]cache.Outcome, 1)}
	}
	huge := make([]byte, 1<<31) // larger than bbolt's limit; never touched, so it takes no memory
	good, bad, late := call("good", cache.Batch{}), call("bad", cache.Batch{Puts: []cache.Put{{Name: "n", Data: huge}}}), call("late", cache.Batch{})
	s.run(t.Context(), []*boltCall{good, bad, late})
	if good.err != nil || good.outcomes[0].Version == 0 || late.err != nil || late.outcomes[0].Version == 0 || bad.err == nil {
		t.Fatalf("good %+v, bad %+v, late %+v", good, bad.err, late)
	}
	if fault, _ := cache.FaultOf(bad.err); fault != cache.FaultKey {
		t.Errorf("a batch that is refused is a fault of %s", fault)
	}
	got, err := s.Read(t.Context(), []cache.Query{{Group: cache.Group{Owner: "o", Name: "good"}}, {Group: cache.Group{Owner: "o", Name: "bad"}}, {Group: cache.Group{Owner: "o", Name: "late"}}})
	if err != nil || got[0].Version != good.outcomes[0].Version || got[1].Version != 0 || got[2].Version != late.outcomes[0].Version {
		t.Fatalf("read %+v, %v", got, err)
	}
}

// TestBatchesAreCopiedUnlessTheyLast: a caller that returned early may reuse its buffers, so they are copied. Lasting data is
// not: a large body would be in memory twice.
func TestBatchesAreCopiedUnlessTheyLast(t *testing.T) {
	reused, lasting := []byte("reused"), []byte("lasting")
	got := copyBatches([]cache.Batch{{Puts: []cache.Put{{Name: "a", Data: reused}, {Name: "b", Data: lasting, Lasting: true}, {Name: "c", Data: reused}}}})[0].Puts
	reused[0] = 'x'
	if string(got[0].Data) != "reused" || string(got[2].Data) != "reused" {
		t.Errorf("%q and %q, want copies", got[0].Data, got[2].Data)
	}
	if &got[1].Data[0] != &lasting[0] {
		t.Error("what lasts is copied")
	}
}
