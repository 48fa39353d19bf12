package bolt_test

import (
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"remora/cache"
	"remora/cache/bolt"
)

// TestSweeperEmptiesTheFile lets groups expire, some with more values than one transaction of the sweeper removes, and counts the
// keys in the file.
func TestSweeperEmptiesTheFile(t *testing.T) { synctest.Test(t, testSweeper) }

func testSweeper(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := bolt.Open(path, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(b cache.Batch) {
		t.Helper()
		b.Expect, b.Group.Owner = cache.AnyVersion, "o"
		if err := s.Commit(t.Context(), []cache.Batch{b})[0].Err; err != nil {
			t.Fatal(err)
		}
	}

	big := cache.Batch{Group: cache.Group{Name: "big"}, TTL: time.Minute, Listed: true}
	for n := range 5000 {
		big.Puts = append(big.Puts, cache.Put{Name: strconv.Itoa(n), Data: []byte("x")})
	}
	commit(big)
	for n := range 300 {
		x := []cache.Put{{Name: "n", Data: []byte("x")}}
		commit(cache.Batch{Group: cache.Group{Name: strconv.Itoa(n)}, Puts: x, TTL: time.Minute, Listed: true})
	}
	stays := cache.Group{Owner: "o", Name: "stays"}
	commit(cache.Batch{Group: stays, Puts: []cache.Put{{Name: "n", Data: []byte("x")}}, TTL: time.Hour})

	time.Sleep(2*time.Minute + time.Second)
	synctest.Wait()
	if got, err := bolt.CountKeys(s); err != nil || got != 3 { // the remaining group: its value, metadata and expiry
		t.Fatalf("the file has %d keys, %v", got, err)
	}
	got, err := s.Read(t.Context(), []cache.Query{{Group: stays, Names: []string{"n"}}})
	if err != nil || string(got[0].Values[0]) != "x" {
		t.Fatalf("the group that lives on reads %q, %v", got[0].Values, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	}); err != nil {
		t.Fatalf("the file is not sound: %v", err)
	}
}
