package entity

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// names yields the distinctive strings of a text that are listed wherever they stand: without times and measures.
func names(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range distinct(text) {
			if !measure(name) && !yield(name) {
				return
			}
		}
	}
}

func TestNames(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, slices.Collect(names(text))); diff != "" {
			t.Errorf("%q (-want +have):\n%s", text, diff)
		}
	}

	f("Please read the documentation, Hamburg and WARNING are words.")
	f("internal/store/lease.go", "internal/store/lease.go")
	f("Open `./cmd/server`, (pkg/client) and ../docs.", "./cmd/server", "pkg/client", "../docs")
	f("parseHeader HTTPServer McDonald max_items user@example.com", "parseHeader", "HTTPServer", "McDonald", "max_items", "user@example.com")
	f("v1.26.3-rc1 on port 10.0.0.12:8080, order 4711-22, commit e3ad62b", "v1.26.3-rc1", "10.0.0.12:8080", "4711-22", "e3ad62b")
	f("https://example.com/a?b=1", "https://example.com/a")

	// Too short, too long, and nothing but signs.
	f("a.go x/y v1.2 ------ ..:: " + strings.Repeat("a1", maxName))

	// A place in a file is its path.
	f("internal/api.go:120:7: undefined", "internal/api.go")
	f("internal/api.go:12-40", "internal/api.go")
	f("localhost:8080/health", "localhost:8080/health")

	// What ends a sentence or begins an option is not of the name.
	f("See lease.go. Then api_v2: --max-items=40", "lease.go", "api_v2", "max-items")

	// Logs are full of times and sizes.
	f("2026-11-22T10:15:00Z 10:15:00.123 took 12.503s of 1500ms, 12.75MiB")
	f("2026-11-22, 123456, ticket B-471103 and T-100200", "2026-11-22", "123456", "B-471103", "T-100200")

	// Letters of scripts with spaces count; in others a sentence would be one name.
	f("größe_1 ключ_сессии", "größe_1", "ключ_сессии")
	f("予算は2200ユーロです。src/予算.txt")
}

func FuzzNames(f *testing.F) {
	f.Add("internal/api.go:12:3, größe_1 \xff v1.2.3-rc")
	f.Fuzz(func(t *testing.T, text string) {
		for name := range names(text) {
			if run(name) != len(name) || !distinctive(name) || !strings.Contains(text, name) {
				t.Errorf("%q of %q is no name of it", name, text)
			}
		}
	})
}
