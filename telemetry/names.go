package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

const (
	// maxNames is how many values one attribute of metrics may have. Beyond it all are called "other".
	maxNames = 100
	// maxName is the longest such value in bytes.
	maxName = 128
	// maxText is the longest value of a span's attribute in bytes.
	maxText = 512
	other   = "other"
)

// grown is a map that only grows, up to a limit. Looking a key up takes no lock. The zero value with its fields set is empty.
type grown[K comparable, V any] struct {
	limit int
	make  func(K) V // of a key that comes first; what it returns keeps nothing of the caller's
	rest  V         // of all keys beyond the limit

	mu    sync.Mutex
	known atomic.Pointer[map[K]V]
}

func (g *grown[K, V]) find(k K) (v V, ok bool) {
	if known := g.known.Load(); known != nil {
		v, ok = (*known)[k]
	}
	return v, ok
}

// get returns the value of a key. Of a key that is kept, the memory is the map's own.
func (g *grown[K, V]) get(k K) V {
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

// names bounds the number of values of an attribute that come from callers.
type names struct{ grown[string, string] }

func newNames() *names {
	return &names{grown[string, string]{limit: maxNames, make: func(name string) string { return name }, rest: other}}
}

// bound returns name, or "other" if there is no place for it. Only an admitted name takes a place, so that a caller who makes
// names up can't take the places of others.
func (n *names) bound(name string, admit bool) string {
	if name == "" {
		return "unknown"
	}
	if s, ok := n.find(name); ok {
		return s
	}
	if !admit || len(name) > maxName || !utf8.ValidString(name) {
		return other
	}
	return n.get(strings.Clone(name))
}

// clean makes text fit for an attribute of a span: an exporter refuses a whole batch for one byte that is not UTF-8.
func clean[T string | []byte](text T) string {
	cut := len(text) > maxText
	if cut {
		text = text[:maxText]
	}
	s := strings.ToValidUTF8(string(text), "")
	if cut {
		s += "..."
	}
	return s
}
