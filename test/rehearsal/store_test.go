package rehearsal_test

import "testing"

// TestStore: a store is a folder, two lines of the table of stores, and a line of the sample configuration. The table says whether
// replicas share it.
func TestStore(t *testing.T) {
	x := copyTree(t)
	x.add("cache/shelf/shelf.go", `// Package shelf is a store by another name.
package shelf

import (
	"errors"

	"remora/cache"
)

// Open opens the store.
func Open(_, _ string, _ cache.Options) (cache.Store, error) { return nil, errors.New("the shelf is empty") }
`)
	x.edit("cache/stores/stores.go", `"remora/cache/redis"`, "\t\"remora/cache/shelf\"")
	x.edit("cache/stores/stores.go", `[]string{"memory"}`, "\t\t{[]string{\"shelf\"}, shared, shelf.Open},")

	x.edit("config.yaml", "memory:", "  #   shelf:   a store by another name")

	x.run("make", "generate")
	x.run("go", "test", "-trimpath", ".")
	x.add("shelf.yaml", "store: {url: 'shelf:'}\n")
	x.wantFailure("store.url: the shelf is empty", "go", "run", "-trimpath", "./cmd/remora", "--check", "--config", "shelf.yaml")
	x.add("cmd/remora/shelf_test.go", `package main

import "testing"

func TestShelf(t *testing.T) {
	c := Config{Store: storeOptions{URL: "shelf:"}}
	if o := c.memory(nil, &modelSet{}); !o.Shared {
		t.Error("the store counts as private")
	}
}
`)
	x.run("go", "test", "-trimpath", "-run=TestShelf", "./cmd/remora")
	x.wantEdits(2)
}
