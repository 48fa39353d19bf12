package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

const (
	// maxNames is the number of values of one metric attribute. All further values become "other".
	maxNames = 100
	// maxName is the length of the longest such value, in bytes.
	maxName = 128
	// maxText is the length of the longest value of a span's attribute, in bytes.
	maxText = 512
	other   = "other"
)

// growingMap is a map that only grows, up to a limit. A lookup takes no lock.
type growingMap[K comparable, V any] struct {
	limit int
	make  func(K) V // returns the value of a new key; it must not retain the key's memory
	rest  V         // the value of all keys beyond the limit

	mu    sync.Mutex
	known atomic.Pointer[map[K]V]
}

func (g *growingMap[K, V]) find(k K) (v V, ok bool) {
	if known := g.known.Load(); known != nil {
		v, ok = (*known)[k]
	}
	return v, ok
}

// get returns the value of a key. It copies a new key.
func (g *growingMap[K, V]) get(k K) V {
	if v, ok := g.find(k); ok {
		return v
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, ok := g.find(k); ok {
		return v
	}
	next := map[K]V{}
	if known := g.known.Load(); known != nil {
		if len(*known) >= g.limit {
			return g.rest
		}
		next = maps.Clone(*known)
	}
	next[k] = g.make(k)
	g.known.Store(&next)
	return next[k]
}

// names bounds the number of different values of an attribute that callers choose.
type names struct{ growingMap[string, string] }

func newNames() *names {
	return &names{growingMap[string, string]{limit: maxNames, make: func(name string) string { return name }, rest: other}}
}

// bound returns name, or "other" if there is no place for it. A new name takes a place only if admit is true, so that callers
// cannot use up the places with invented names. A name with control characters, which could steer the terminal that prints the
// metrics, gets none either.
func (n *names) bound(name string, admit bool) string {
	if name == "" {
		return "unknown"
	}
	if s, ok := n.find(name); ok {
		return s
	}
	if !admit || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return other
	}
	return n.get(strings.Clone(name))
}

// clean returns text as a valid attribute of a span: an exporter rejects a whole batch for one byte that is not UTF-8.
func clean[T string | []byte](text T) string { return shorten(text, maxText) }

// shorten returns text as valid UTF-8, of a longer one the first most bytes and a mark.
func shorten[T string | []byte](text T, most int) string {
	if len(text) <= most {
		return strings.ToValidUTF8(string(text), "")
	}
	return strings.ToValidUTF8(string(text[:most]), "") + "..."
}
