package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"remora/cache"
)

// TestWholeFilesAreOpened: no file that the store wrote is taken for a damaged one, whatever was written and deleted.
func TestWholeFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		files++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", files))
		for range rapid.IntRange(1, 4).Draw(t, "starts") {
			s, err := Open(path, cache.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s.db.NoSync = true // what is checked here outlives no power cut
			for range rapid.IntRange(0, 12).Draw(t, "transactions") {
				var batches []cache.Batch
				for range rapid.IntRange(1, 40).Draw(t, "groups") {
					g := cache.Group{Owner: "o", Name: fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "group"))}
					if rapid.IntRange(0, 9).Draw(t, "deletes") == 0 {
						if err := s.Delete(t.Context(), g); err != nil {
							t.Fatal(err)
						}
						continue
					}
					size := rapid.SampledFrom([]int{0, 10, 300, 3000, 30_000}).Draw(t, "size")
					ttl := rapid.SampledFrom([]time.Duration{0, time.Nanosecond, time.Hour}).Draw(t, "lifetime")
					name := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "name"))
					batches = append(batches, cache.Batch{Group: g, Expect: cache.AnyVersion, TTL: ttl, Listed: true, Puts: []cache.Put{{Name: name, Data: make([]byte, size)}}})
				}
				for _, o := range s.Commit(t.Context(), batches) {
					if o.Err != nil {
						t.Fatal(o.Err)
					}
				}
				if _, err := s.sweep(); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestDamageOfOnePage damages one number or key of a file of a branch and its leaves.
func TestDamageOfOnePage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole.db")
	s, err := Open(path, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		puts := []cache.Put{{Name: "n", Data: make([]byte, 100)}}
		s.Commit(t.Context(), []cache.Batch{{Group: cache.Group{Owner: "o", Name: fmt.Sprintf("%03d", i)}, Expect: cache.AnyVersion, Puts: puts}})
	}
	var at uint64 // the root of the values, which is a branch
	if err := s.view(func(tx *bolt.Tx) error {
		at = uint64(tx.Bucket([]byte(valuesBucket)).Root())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	size, order := uint64(os.Getpagesize()), binary.NativeEndian
	for name, damage := range map[string]func(branch, leaf, first, last []byte){
		"nothing":                 nil,
		"the leaf's number":       func(_, leaf, _, _ []byte) { leaf[0]++ },
		"its first key":           func(_, _, first, _ []byte) { first[len(first)-1]-- },
		"its last key":            func(_, _, _, last []byte) { last[len(last)-4] = 'z' },
		"a key of no bytes":       func(_, leaf, _, _ []byte) { order.PutUint32(leaf[pageHeader+8:], 0) },
		"a value beyond the page": func(_, leaf, _, _ []byte) { order.PutUint32(leaf[pageHeader+12:], 1<<20) },
		"a leaf without keys":     func(_, leaf, _, _ []byte) { order.PutUint16(leaf[10:], 0) },
		"more keys than fit":      func(_, leaf, _, _ []byte) { order.PutUint16(leaf[10:], 5000) },
		"a branch below itself":   func(branch, _, _, _ []byte) { order.PutUint64(branch[pageHeader+pageElement+8:], at) },
		"a leaf twice": func(branch, _, _, _ []byte) {
			copy(branch[pageHeader+pageElement+8:], branch[pageHeader+8:pageHeader+16])
		},
		"a page beyond the end":               func(branch, _, _, _ []byte) { order.PutUint64(branch[pageHeader+pageElement+8:], 1<<40) },
		"a page that describes the file":      func(branch, _, _, _ []byte) { order.PutUint64(branch[pageHeader+pageElement+8:], 1) },
		"a kind of page that no tree has":     func(_, leaf, _, _ []byte) { order.PutUint16(leaf[8:], freePage) },
		"more pages than the file has":        func(_, leaf, _, _ []byte) { order.PutUint32(leaf[12:], 1<<30) },
		"a branch without pages below":        func(branch, _, _, _ []byte) { order.PutUint16(branch[10:], 0) },
		"a key of the branch, out of order":   func(branch, _, _, _ []byte) { e, _ := readElement(branch, branchPage, 1); e.key[0] = 0 },
		"a key of the branch, between others": func(branch, _, _, _ []byte) { e, _ := readElement(branch, branchPage, 1); e.key[len(e.key)-1]-- },
	} {
		b := bytes.Clone(whole)
		branch := b[at*size : (at+1)*size]
		second, ok := readElement(branch, branchPage, 1)
		if kind, n := kindAndCount(branch); kind != branchPage || n < 3 || !ok {
			t.Fatal("the values have no branch of three leaves")
		}
		leaf := b[second.child*size : (second.child+1)*size]
		_, n := kindAndCount(leaf)
		first, _ := readElement(leaf, leafPage, 0)
		last, _ := readElement(leaf, leafPage, int(n)-1)
		if damage != nil {
			damage(branch, leaf, first.key, last.key)
		}
		damaged := filepath.Join(dir, "damaged.db")
		if err := os.WriteFile(damaged, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(damaged, cache.Options{})
		if err == nil {
			_ = s.Close()
		}
		if errors.Is(err, ErrDamaged) != (damage != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkOpen opens a file of 64 MiB, of which all pages are checked.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store.db")
	s, err := Open(path, cache.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 64 {
		batches := make([]cache.Batch, 64)
		for j := range batches {
			var puts []cache.Put
			for k := range 10 {
				puts = append(puts, cache.Put{Name: fmt.Sprint(k), Data: make([]byte, 1500)})
			}
			batches[j] = cache.Batch{Group: cache.Group{Owner: "o", Name: fmt.Sprint(i, j)}, Expect: cache.AnyVersion, Puts: puts}
		}
		s.Commit(b.Context(), batches)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Open(path, cache.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
