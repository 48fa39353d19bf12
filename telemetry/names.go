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

// names bounds the number of values of an attribute that come from callers. A look-up takes no lock.
type names struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]string]
}

// bound returns name, or "other" if there is no place for it. Only an admitted name takes a place, so that a caller who makes
// names up can't take the places of others.
func (n *names) bound(name string, admit bool) string {
	if name == "" {
		return "unknown"
	}
	if known := n.known.Load(); known != nil {
		if s, ok := (*known)[name]; ok {
			return s
		}
	}
	if !admit || len(name) > maxName || !utf8.ValidString(name) {
		return other
	}
	return n.add(name)
}

func (n *names) add(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := map[string]string{}
	if known := n.known.Load(); known != nil {
		if s, ok := (*known)[name]; ok {
			return s
		}
		if len(*known) >= maxNames {
			return other
		}
		next = maps.Clone(*known)
	}
	name = strings.Clone(name)
	next[name] = name
	n.known.Store(&next)
	return name
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
